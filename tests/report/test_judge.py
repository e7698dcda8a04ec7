"""Judged generators: tables by hand, a sound page, pictures that keep every generator in them."""

import json

import numpy as np
import pytest
from page_parser import EVIL, require_sound
from report_world import portraits

from fcforge.evaluation.generator_quality.summary import Judgement, write_portraits
from fcforge.imaging.atlas import aal116
from fcforge.report import judge


def record(row, seed=0, warnings=(), diagnostics=None, **numbers):
    return {
        "row": row,
        "seed": seed,
        "diagnostics": diagnostics or {},
        "numbers": {**numbers, "warnings": list(warnings)},
    }


@pytest.fixture
def judgement() -> Judgement:
    """Five seeds of the real row, two of a VAE, one of ours."""
    records = [record("real", s, psd_share=1.0, aug_gcn_acc=0.7) for s in range(5)]
    for seed, units in enumerate((8, 8.5)):
        shown = {"active_units": units}
        said = record("fcm_vae", seed, (), shown, psd_share=0.5, aug_gcn_acc=0.6)
        records.append(said)
    records.append(record(EVIL, 0, ["no unit is active"], aug_gcn_acc=0.65))
    return Judgement(EVIL, records, portraits(("real", EVIL)))


def lines(table) -> dict[str, list[str]]:
    return {row[0].text: [cell.line() for cell in row[1:]] for row in table.rows}


def test_tables_show_what_was_measured(judgement):
    fidelity, augmented = judge.tables_of(judgement)
    heads = [c.title for c in fidelity.columns]
    assert heads == ["generator", "active units", "PSD share"]
    assert lines(fidelity) == {
        "real": ["–", "1.000"],
        "fcm_vae": ["8.250", "0.500"],
        EVIL: ["–", "–"],
    }
    assert augmented.title == "1:1 augmentation, gcn"


def test_augmentation_stands_beside_the_paper(judgement):
    rows = lines(judge.tables_of(judgement)[1])
    assert rows["real"][0] == "0.700"
    assert rows["real"][-1] == "0.762 / 0.748 / 0.772 / 0.758"
    assert rows["fcm_vae"][-1] == "0.783 / 0.776 / 0.775 / 0.771"
    assert rows[EVIL][-1] == "–"


def test_page_and_tables_are_written(judgement, tmp_path):
    kept = {"title": EVIL, "sites": {"NYU": judgement.records}}
    (tmp_path / "records.json").write_text(json.dumps(kept))
    write_portraits(tmp_path, judgement.portraits)
    text = judge.write_judgement(tmp_path)
    assert (tmp_path / "tables.md").read_text() == text
    assert f"**{EVIL} COLLAPSED in 1 of 1 trainings" in text
    page = require_sound((tmp_path / "judge.html").read_text())
    assert page.row("fcm_vae")[1] == "8.250"
    assert "Site NYU, seed 0." in page.text
    assert "COLLAPSED in 1 of 1 trainings (site, seed): no unit" in page.text
    assert [t for t, _ in page.tags].count("svg") == 3  # two portraits and the spectra


def test_pictures_keep_a_generator_of_negative_edges():
    found = portraits()
    found.edge_mean[1] = -0.9
    figure = judge.portrait_figure(found, 1, -0.95)
    assert figure.axes[-1].get_ylim() == pytest.approx((-0.95, 1.0))


def test_only_named_rois_are_grouped_by_brain_system():
    """116 ROIs without names may be any atlas: nothing is drawn between them."""
    unnamed = portraits(n_rois=116)
    named = unnamed._replace(systems=np.array(aal116().systems))
    drawn = [judge.portrait_figure(p, 0).axes[0].lines for p in (unnamed, named)]
    assert [len(found) for found in drawn] == [0, 2 * (len(set(aal116().systems)) - 1)]


def test_spectra_name_every_generator():
    found = portraits([f"g{k}" for k in range(12)])
    figure = judge.spectra_figure(found)
    legend = judge.spectra_legend(found)
    assert legend.count("<li>") == 12
    assert legend.count("(dashed)") == 12 - len(judge.SPECTRA_INKS)
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 13  # and the line at zero
