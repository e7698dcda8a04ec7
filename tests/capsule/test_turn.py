"""A hospital's turn: scans and diagnoses unlike those that came in, and a budget, are refused."""

import re
from dataclasses import replace

import pytest
from capsule_chains import SITES, cohort, first, settings

from fcforge.capsule import LearnOptions, learn
from fcforge.capsule.turn import require_budget
from fcforge.errors import ConfigError, DataError
from fcforge.sites.simulated import simulate


def test_diagnoses_that_are_turned_round_are_refused_unless_accepted(tmp_path):
    """The model that came in knows which people are patients."""
    data = simulate("easy", n_rois=20, n_sites=2, scale=1.0, seed=1)
    one, two = data.site_names
    path = tmp_path / "a.capsule"
    learn(
        None,
        one,
        data,
        path,
        settings=replace(settings("analytic", held_out=0), n_rois=20),
    )
    turned = replace(data, y=1 - data.y)
    with pytest.raises(
        DataError, match=r"the wrong way round \(AUROC 0\..*--accept-labels"
    ):
        learn(path, two, turned, tmp_path / "b.capsule")
    anyway = LearnOptions(accept=["accept_labels"])
    made = learn(path, two, turned, tmp_path / "b.capsule", options=anyway)
    assert made.entries[-1]["flags"] == ["accept_labels"]
    said = []
    made = learn(
        path, two, data, tmp_path / "c.capsule", options=LearnOptions(say=said.append)
    )
    assert made.entries[-1]["flags"] == []
    assert re.search(
        r"came in reaches accuracy 0\.\d+ on the \d+ people to be learned", said[-1]
    )


def test_shuffled_rois_are_noticed_without_their_names(tmp_path):
    path = first(tmp_path, held_out=48)
    order = [3, 8, 0, 5, 9, 2, 7, 1, 6, 4]
    shuffled = replace(cohort(), fc=cohort().fc[:, order][:, :, order])
    with pytest.raises(DataError, match=r"does not resemble.*--accept-scans"):
        learn(path, SITES[1], shuffled, tmp_path / "b.capsule")
    anyway = LearnOptions(accept=["accept_scans"])
    made = learn(path, SITES[1], shuffled, tmp_path / "b.capsule", options=anyway)
    assert made.entries[-1]["flags"] == ["accept_scans"]


def test_a_method_without_a_budget_promises_nothing() -> None:
    with pytest.raises(ConfigError, match="promises nothing"):
        require_budget(settings("majority"), 1.0)
    assert require_budget(settings("majority"), None) == ""
