"""Judged generators: tables by hand, a sound page, pictures that keep every generator in them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from page_parser import EVIL, Page, require_sound

from fcforge.errors import DataError
from fcforge.imaging.atlas import aal116
from fcforge.report import judge
from fcforge.studies.judge.experiment import Judgement
from fcforge.studies.judge.panel import Panel
from fcforge.studies.judge.summary import Collapse, Portrait, write_portraits
from fcforge.types import Component, Estimate

SUMMARY = {
    "real": {"psd_share": Estimate(1, 1, 1), "aug_gcn_acc": Estimate(0.7, 0.65, 0.75)},
    "fcm_vae": {
        "psd_share": Estimate(0.5, 0.4, 0.6),
        "aug_gcn_acc": Estimate(0.6, math.nan, math.nan),
        "active_units": Estimate(8.25, 8, 8.5),
    },
    "mine": {"aug_gcn_acc": Estimate(0.65, 0.6, 0.7)},
}


def portrait(scale: float = 1.0) -> Portrait:
    rng = np.random.default_rng(0)
    fc = np.corrcoef(rng.normal(size=(12, 60)))
    return Portrait(fc, fc, scale * np.linspace(-0.2, 0.6, 66), np.linspace(3, 0.1, 12))


@pytest.fixture
def judgement() -> Judgement:
    return Judgement(
        EVIL,
        Panel({"mine": Component("corr_gauss")}, augment=("gcn",)),
        SUMMARY,
        warnings=[
            Collapse(EVIL, f"{EVIL} COLLAPSED in 1 of 2 trainings: no unit is active.")
        ],
        where="Site NYU, seed 0.",
        portraits={"real": portrait(), EVIL: portrait(-1.0)},
    )


def test_fidelity_tables_show_what_was_measured():
    (table,) = judge.fidelity_tables(SUMMARY)
    assert [c.title for c in table.columns] == [
        "generator",
        "active units",
        "PSD share",
    ]
    lines = table.markdown().splitlines()
    assert lines[-3:] == [
        "| real | – | 1.000 |",
        "| fcm_vae | 8.2 [8.0, 8.5] | 0.500 [0.400, 0.600] |",
        "| mine | – | – |",
    ]


def test_augmentation_stands_beside_the_paper():
    panel = Panel({"mine": Component("corr_gauss")}, augment=("gcn", "gat"))
    groups = dict(judge.groups_of(panel, SUMMARY))
    (table,) = groups["1:1 augmentation"]
    assert table.title == "GCN"
    rows = {row[0].text: [c.line() for c in row[1:]] for row in table.rows}
    assert rows["No augmentation"][0] == "0.700 [0.650, 0.750]"
    assert rows["No augmentation"][-1] == "0.762 / 0.748 / 0.772 / 0.758"
    assert rows["FCM-VAE"][0] == "0.600"
    assert rows["mine"][-1] == "–"
    assert "Ablation of FCM-VAE" not in groups


def test_headline(judgement):
    assert judge.headline(judgement) == "1 of the generators collapsed."
    good = replace(judgement, warnings=[])
    assert judge.headline(good) == "No generator collapsed."


def test_page_and_tables_are_written(judgement, tmp_path):
    text = judge.write_judgement(judgement, tmp_path)
    assert (tmp_path / "tables.md").read_text() == text
    page = require_sound((tmp_path / "judge.html").read_text())
    assert page.row("fcm_vae")[1] == "8.2 [8.0, 8.5]"
    assert "Site NYU, seed 0." in page.text
    assert [t for t, _ in page.tags].count("svg") == 3  # two portraits and the spectra


def test_pictures_keep_a_generator_of_negative_edges():
    real, below = portrait(), portrait()._replace(edge_mean=np.full(66, -0.9))
    found = {"real": real, "low": below}
    assert judge.lowest_edge(found) == pytest.approx(-0.95)
    figure = judge.portrait_figure(below, real, -0.95)
    assert figure.axes[-1].get_ylim() == pytest.approx((-0.95, 1.0))


def test_only_named_rois_are_grouped_by_brain_system():
    """116 ROIs without names may be any atlas: nothing is drawn between them."""
    fc = np.eye(116)
    unnamed = Portrait(fc, fc, np.zeros(6670), np.ones(116))
    named = unnamed._replace(systems=np.array(aal116().systems))
    lines = [len(judge.portrait_figure(p, p).axes[0].lines) for p in (unnamed, named)]
    assert lines == [0, 2 * (len(set(aal116().systems)) - 1)]


def test_spectra_name_every_generator():
    figure = judge.spectra_figure({f"g{k}": portrait() for k in range(12)})
    assert len(figure.axes[0].get_legend().get_texts()) == 12


def test_a_judged_folder_is_a_section(tmp_path):
    with pytest.raises(DataError, match="holds no finished judgement"):
        judge.folder_section(tmp_path)
    record = {
        "site": "NYU",
        "seed": 0,
        "row": "real",
        "diagnostics": {},
        "numbers": {"psd_share": 1.0, "warnings": []},
    }
    (tmp_path / "records.json").write_text(
        json.dumps({"stamp": "", "sites": {"NYU": [record]}})
    )
    write_portraits(tmp_path / "portraits.npz", {"real": portrait()})
    section = judge.folder_section(tmp_path)
    page = Page(str(section.html()))
    assert page.row("real") == ["real", "1.000"]
    assert "judged on NYU" in section.note
    assert section.title == "Generated functional connectivity"


def test_without_portraits_there_is_a_page_all_the_same(judgement):
    from dataclasses import replace

    assert "No pictures were kept." in judge.page_of(replace(judgement, portraits=None))
