"""Requests: bounds and choices hold in Python as on the command line; what is recorded."""

from dataclasses import fields
from pathlib import Path

import pytest

from fcforge.core.errors import ConfigError
from fcforge.imaging.layouts import LAYOUTS, Source
from fcforge.imaging.options import FCRequest, PreprocessRequest

A = Path("in"), Path("out")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"max_empty": 1.5}, "max_empty = 1.5 is out of bounds"),
        ({"drop": -1}, "drop = -1 is too small"),
        ({"min_dof": 0}, "min_dof = 0 is too small"),
        ({"level": "goup"}, "level = 'goup' is unknown"),
        ({"layout": "fmriperp"}, "Did you mean 'fmriprep'"),
    ],
)
def test_values_out_of_bounds(change, match):
    with pytest.raises(ConfigError, match=match):
        FCRequest(*A, **change)


def test_choices_are_those_of_the_code():
    from typing import get_args, get_type_hints

    assert set(get_args(get_type_hints(FCRequest)["layout"])) == {"auto", *LAYOUTS}


def test_every_option_has_a_help_text():
    for request in (FCRequest, PreprocessRequest):
        for one in fields(request):
            assert one.metadata["help"].endswith("."), one.name


def test_denoising_is_not_said_of_series_made_elsewhere():
    series = [Source(Path("1.1D"), "series", "cpac", {"sub": "1"})]
    one = FCRequest(*A, denoise="scrubbing")
    assert set(one.settings_of(series)) == {
        "drop",
        "max_empty",
        "min_dof",
        "columns",
        "variable",
    }


def test_which_files_are_wanted():
    named = {"sub": "1", "ses": "pre", "task": "rest"}
    source = Source(Path("sub-1_run-1_bold.nii"), "scan", "x", named)
    assert FCRequest(*A).takes(source)
    assert FCRequest(*A, session="ses-pre", task="rest", select="run-1").takes(source)
    assert FCRequest(*A, session="all").takes(source)
    for other in ({"session": "post"}, {"task": "nback"}, {"select": "run-2"}):
        assert not FCRequest(*A, **other).takes(source)
