"""Pages that say why: of scans."""

import stat
from dataclasses import replace

import numpy as np
import pytest

from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import made_up_atlas
from fcforge.estimator import ForgeClassifier
from fcforge.evaluation.explanation import NOBODY
from fcforge.report.explaining import (
    between_networks,
    explanation_page,
    write_explanation,
)

R = 12
NAME = "<b>sub</b>"


@pytest.fixture(scope="module")
def explained():
    cohort = simulate("easy", n_rois=R, n_sites=2, scale=0.3)
    model = ForgeClassifier("ridge").fit(cohort.fc, cohort.y)
    return model.explain(cohort.fc[:2], atlas=made_up_atlas(R))


def test_the_page_of_scans(explained, tmp_path):
    odd = replace(explained, subjects=(NAME, "scan 2"))
    write_explanation(odd, tmp_path / "why", "0123456789abcdef")
    page = (tmp_path / "why" / "index.html").read_text()
    assert NAME not in page  # escaped
    assert page.count("Deletion test: with its 1 strongest edge set") == 2
    assert "Glass brain" in page
    assert "was not measured" in page
    assert "Within and between networks" in page
    for file in (tmp_path / "why").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600  # edges of patients' scans


def test_an_edge_without_a_place_has_no_picture(explained):
    bare = replace(explained, atlas=replace(explained.atlas, xyz=np.empty((0, 3))))
    page = explanation_page(replace(bare, reference=NOBODY), "x")
    assert "what every brain has in common" in page
    assert "Glass brain" not in page


def test_between_networks_by_hand(explained):
    found = between_networks(explained)
    names = list(dict.fromkeys(explained.atlas.systems))
    here = np.array([s == names[0] for s in explained.atlas.systems])
    own = explained.matrix(values=explained.strength)[np.ix_(here, here)]
    n = here.sum()
    assert found[0, 0] == pytest.approx(
        own.sum() / (n * (n - 1)) / explained.strength.mean()
    )
