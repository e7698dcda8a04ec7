"""`fcforge list`: everything a config can name, and nothing it cannot."""

import pytest

from fcforge.cli.experiments import KINDS, catalogue
from fcforge.errors import ConfigError
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.sites import DATASETS


@pytest.mark.parametrize(
    ("kind", "registry"), [("datasets", DATASETS), ("generators", GENERATORS), ("methods", METHODS)]
)
def test_every_name_is_listed(kind, registry):
    assert [row["name"] for row in catalogue(kind)] == list(registry)


def test_networks_of_one_method_are_left_out():
    names = [row["name"] for row in catalogue("models")]
    assert "tem" not in names
    assert set(MODELS) - set(names) == {"tem"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_says_what_it_is_in_one_line(kind):
    for row in catalogue(kind):
        assert 10 < len(row["about"]) < 160, row
        assert "\n" not in row["about"]


def test_methods_say_what_they_keep():
    rows = {row["name"]: row["about"] for row in catalogue("methods")}
    assert rows["er"].endswith("(keeps real subjects)")
    assert rows["finetune"].endswith("(keeps nothing)")


def test_an_unknown_kind():
    with pytest.raises(ConfigError, match=r"unknown kind 'method'\. Did you mean 'methods'"):
        catalogue("method")
