"""Pages that say why: of scans."""

import stat
from dataclasses import replace

import numpy as np
import pytest
from page_parser import EVIL, require_sound

from fcforge.core.formatting import number
from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import made_up_atlas
from fcforge.estimator import ForgeClassifier
from fcforge.evaluation.explanation import NOBODY
from fcforge.imaging.atlas import aal116
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
    assert page.count('aria-label="Glass brain') == 2
    assert page.count('aria-label="Chord plot') == 2
    assert page.count("<details") == 2  # the tables of each scan are folded
    assert "was not measured" in page
    assert "Within and between networks" in page
    for file in (tmp_path / "why").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600  # edges of patients' scans


def test_an_edge_without_a_place_has_no_picture(explained):
    bare = replace(explained, atlas=replace(explained.atlas, xyz=np.empty((0, 3))))
    page = explanation_page(replace(bare, reference=NOBODY), "x")
    assert "what every brain has in common" in page
    assert "Glass brain" not in page
    assert "Chord plot" in page


def test_pictures_and_table_show_the_strongest_edges(explained):
    page = require_sound(explanation_page(explained, "x"))
    names = explained.atlas.roi_names
    first, second = np.triu_indices(R, 1)
    place = int(np.argmax(np.abs(explained.contribution[0])))
    value = explained.contribution[0][place]
    pair = f"{names[first[place]]} \N{EN DASH} {names[second[place]]}"
    text = f"{pair}: {number(value, 3, sign=True)} adds to the log odds"
    tips = [path.get("data-tip") for path in page.of("path")]
    assert tips.count(text) == 4  # three views and the chords
    ends = {p["data-ends"] for p in page.of("path") if p.get("data-tip") == text}
    assert ends == {f"{first[place]} {second[place]}"}
    fc = number(float(explained.fc[0][place]), 2, sign=True)
    assert page.row(pair)[1] == fc


def test_ten_scans_of_many_rois_are_below_a_megabyte():
    cohort = simulate("easy", n_rois=116, n_sites=2, scale=0.3)
    model = ForgeClassifier("ridge").fit(cohort.fc, cohort.y)
    found = model.explain(cohort.fc[:12], atlas=aal116())
    page = explanation_page(found, "x")
    assert page.count('aria-label="Chord plot') == 10
    assert len(page.encode()) < 1_000_000
    assert "2 further scans in edges.csv" in page


def test_names_of_rois_are_escaped(explained):
    names = (EVIL, *explained.atlas.roi_names[1:])
    odd = replace(explained, atlas=replace(explained.atlas, roi_names=names))
    require_sound(explanation_page(odd, "x"))


def test_between_networks_by_hand(explained):
    found = between_networks(explained)
    names = list(dict.fromkeys(explained.atlas.systems))
    here = np.array([s == names[0] for s in explained.atlas.systems])
    own = explained.matrix(values=explained.strength)[np.ix_(here, here)]
    n = here.sum()
    assert found[0, 0] == pytest.approx(
        own.sum() / (n * (n - 1)) / explained.strength.mean()
    )
