"""Quality pages of `fc` and `preprocess`, from hand-made results."""

import base64
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from page_parser import EVIL, require_sound

from fcforge.imaging.atlas import aal116
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.imaging.group_quality import (
    COLUMNS,
    GroupQuality,
    Matrices,
    qc_fc,
    quality_table,
)
from fcforge.imaging.quality import RunQuality
from fcforge.report import quality

METHODS = f"FC was made by fcforge 1 (Power {EVIL} 2012)."


def run(
    fd: bool = True, coverage: np.ndarray | None = None, name: str = "bold.nii.gz"
) -> Run:
    rng = np.random.default_rng(0)
    moved = np.abs(rng.normal(0.2, 0.05, 40)) if fd else None
    source = SimpleNamespace(path=Path("/data") / name, kind="scan")
    done = {
        "denoise": "simple",
        "kept": ["motion", "wm_csf"],
        "HighPassHz": None,
        "Detrend": True,
    }
    series = rng.normal(size=(40, 116))
    warnings = (f"too short {EVIL}",)
    carpet = rng.normal(size=(50, 40))
    quality = RunQuality()
    if coverage is not None:
        before = rng.normal(size=(40, 116))
        quality = RunQuality(
            (EVIL,) * 50,
            ("visual",) * 30 + (f"net {EVIL}",) * 20,
            rng.random((12, 14, 12)),
            np.diag([14.0, 14, 14, 1]) + np.outer([-80, -110, -70, 0], [0, 0, 0, 1]),
            np.full(116, 55.0),
            np.r_[np.nan, rng.random(39)],
            before,
            {"Global signal": rng.normal(size=40), "CSF": rng.normal(size=40)},
            np.arange(1, 40),
        )
    return Run(source, series, 2.0, coverage, moved, carpet, done, warnings, quality)


def subject(*runs: Run, before: bool = False) -> SubjectFC:
    odd = (f"1 ROI without signal {EVIL}",)
    settings = {"atlas": {"name": EVIL}, "band": (None, 0.1)}
    fc_before = np.eye(116) if before else None
    return SubjectFC("01", runs, np.eye(116), (3,), settings, odd, fc_before)


def test_subject_page_shows_everything():
    coverage = np.ones(116)
    coverage[[2, 5]] = (0.31, 0.79)
    found = subject(run(coverage=coverage), before=True)
    html = quality.subject_page(found, aal116())
    page = require_sound(html, ("group.html",))
    for text in (
        "Mean scan",
        "Signal over time",
        "Coverage of each ROI",
        "below 50 %: 1 ROI",
        "75 to 90 %: 1 ROI",
        "Power spectrum",
        "Before denoising",
        "After denoising",
        "1 ROI without signal",
        "Scrubbing removed" if len(found.runs[0].series) < 40 else "Power",
    ):
        assert text in page.text, text
    assert "cannot be shown" not in page.text
    assert page.row("kept") == ["kept", "motion, wm_csf"]
    assert page.row("HighPassHz") == ["HighPassHz", "not set"]
    assert page.row("band") == ["band", "not set, 0.1"]
    assert page.row("Detrend") == ["Detrend", "yes"]
    assert page.row("atlas.name") == ["atlas.name", EVIL]
    assert "None" not in page.text
    assert "tSNR 55" in html
    # carpet and lines, spectrum, two matrices; three views of the brain
    assert html.count("<svg") == 4 + 3


def test_values_of_a_matrix_are_those_of_fc():
    fc = np.eye(116)
    fc[0, 1] = fc[1, 0] = -0.37
    found = subject(run())._replace(fc=fc)
    page = require_sound(quality.subject_page(found, aal116()), ("group.html",))
    cells = [
        json.loads(tag["data-cells"]) for tag in page.of("div") if "data-cells" in tag
    ]
    matrix = next(c for c in cells if len(c["rows"]) == 116 == c["n"])
    numbers = np.frombuffer(base64.b64decode(matrix["values"]), "<i2")
    values = numbers.reshape(116, 116) * matrix["unit"]
    first, second = (matrix["rows"].index(name) for name in aal116().roi_names[:2])
    assert values[first, second] == pytest.approx(-0.37, abs=1e-4)
    assert matrix["columns"][second].startswith(aal116().roi_names[1])


def test_several_runs_have_a_picture_each():
    found = subject(run(name="run-1.nii.gz"), run(fd=False, name="run-2.nii.gz"))
    page = require_sound(quality.subject_page(found, aal116()), ("group.html",))
    assert "run-1.nii.gz" in page.text
    assert page.text.count("FD, mm") == 2  # of the head and of one run
    assert page.text.count("motion cannot be shown") == 1
    assert "Run 2: power spectrum" in page.text
    assert "overage of each ROI" not in page.text


def test_ready_made_series_say_what_is_missing():
    found = subject(run(fd=False))
    found.runs[0].source.kind = "series"
    page = require_sound(quality.subject_page(found, aal116()), ("group.html",))
    assert page.text.count(quality.NO_SCAN) == 1
    assert page.text.count("cannot be shown") == 2  # scan, motion
    assert "unknown" in page.text
    assert "None" not in page.text
    assert "No table of confounds" not in page.text


def test_a_matrix_of_another_tool_has_no_series():
    bare = run(fd=False)._replace(
        series=np.empty((0, 116)), carpet=np.empty((116, 0)), matrix=np.eye(116)
    )
    page = require_sound(quality.subject_page(subject(bare), aal116()), ("group.html",))
    assert quality.MATRIX_ONLY in page.text
    assert "Power spectrum" not in page.text
    assert "Volumes unknown" in page.text.replace("Volumesunknown", "Volumes unknown")


def test_a_motion_table_of_another_length_is_not_aligned():
    odd = run()._replace(fd=np.full(43, 0.1))
    page = require_sound(quality.subject_page(subject(odd), aal116()), ("group.html",))
    assert "The motion table has 43 volumes and the series 40" in page.text


@pytest.fixture
def rows() -> pd.DataFrame:
    found = [
        {
            "participant_id": f"sub-{k:02d}",
            "site": "NYU" if k % 2 else "UM",
            "diagnosis": k % 2,
            "mean_fd": "n/a" if k == 3 else f"{0.1 + 0.01 * k:.2f}",
            "n_volumes": 180,
            "tr": 2 if k < 6 else 3,
            "file": "sub.tsv",
        }
        for k in range(10)
    ]
    return pd.DataFrame(found).astype(str)


def test_group_page_lists_subjects_and_failures(rows):
    html = quality.group_page(rows, [("sub-99", f"no scan {EVIL}")], METHODS)
    page = require_sound(html, tuple(f"{who}.html" for who in rows["participant_id"]))
    assert "10 of 11 subjects have FC" in page.text
    assert "sub-99: no scan" in page.text
    assert page.row("sub-03")[3] == "n/a"
    assert "sub.tsv" not in page.text
    assert {"href": "sub-03.html"} in page.of("a")
    assert "FC was made by fcforge 1 (Power" in page.text


def measured(rows: pd.DataFrame, n: int, constant: bool = False) -> GroupQuality:
    """Quality of n subjects at two sites, one without signal in two ROIs."""
    rng = np.random.default_rng(0)
    measures = {}
    for k, who in enumerate(rows["participant_id"]):
        values = dict.fromkeys(COLUMNS) | {"n_empty_rois": 2 * (k == 1)}
        values |= {"mean_fd": 0.2 if constant else 0.1 + 0.01 * k, "tsnr": 50.0 + k}
        measures[who] = values
    table = quality_table(rows, measures)
    edges = rng.normal(scale=0.2, size=(len(rows), 2, 6670))
    stored = [Matrices(np.tanh(a), np.tanh(b)) for a, b in edges]
    return GroupQuality(
        table, qc_fc(table, stored[:n] + [None] * (len(rows) - n), aal116())
    )


@pytest.fixture
def many(rows) -> pd.DataFrame:
    more = pd.concat([rows, rows, rows], ignore_index=True)
    more["participant_id"] = [f"sub-{k:02d}" for k in range(len(more))]
    return more


def test_group_page_shows_distributions_flags_and_qc_fc(many):
    html = quality.group_page(many, [], METHODS, measured(many, 30))
    page = require_sound(html, tuple(f"{who}.html" for who in many["participant_id"]))
    dots = [a for a in page.of("a") if a.get("data-tip", "").startswith("sub-03: ")]
    assert [dot["href"] for dot in dots] == ["sub-03.html"] * 2  # FD and tSNR
    flagged = [a for a in page.of("a") if "flagged" in a.get("class", "")]
    assert {a["href"] for a in flagged} == {"sub-01.html"}
    assert "2 ROIs without signal" in page.text
    assert "not shown: DVARS, mean FC, coverage and degrees of freedom" in page.text
    assert "30 subjects with known motion within sites" in page.text
    assert page.row("after denoising")[1].startswith("0.1")
    assert page.row("by chance")[2] == "5.0 %"
    assert "Download CSV" in page.text
    assert html.count("<svg") == 2


@pytest.mark.parametrize(
    ("n", "constant", "text"),
    [(4, False, "there are 4"), (30, True, "same framewise displacement")],
)
def test_qc_fc_that_cannot_be_computed_shows_no_picture(many, n, constant, text):
    html = quality.group_page(many, [], METHODS, measured(many, n, constant))
    page = require_sound(html, tuple(f"{who}.html" for who in many["participant_id"]))
    assert "QC-FC cannot be computed" in page.text
    assert text in page.text
    assert "median |r|" not in page.text
    assert "<svg" not in html


def test_bins_of_distance_without_edges_are_said_and_not_drawn(many):
    """Two edges have known correlations: a histogram, but no curve against the distance."""
    table, known = measured(many, 30)
    html = quality.group_page(many, [], METHODS, GroupQuality(table, known))
    assert "Against the distance between the ROIs" in html
    r = np.where(np.arange(6670) < 2, known.after.r, np.nan)
    few = known._replace(after=known.after._replace(r=r), before=None)
    html = quality.group_page(many, [], METHODS, GroupQuality(table, few))
    assert "no 10 mm of distance have 10 edges" in html
    assert "Against the distance" not in html
    assert html.count("<svg") == 1


def test_a_share_has_no_axis_beyond_one(many):
    table, known = measured(many, 30)
    group = GroupQuality(table.assign(coverage=1.0), known)
    html = quality.group_page(many, [], METHODS, group)
    assert "<span>0.98</span><span>1.00</span>" in html
    assert "<span>1.02" not in html


def test_hostile_sites_and_ids_are_text(many):
    many["site"] = [f"{EVIL}{k % 2}" for k in range(len(many))]
    many["note"] = f"=cmd {EVIL}"
    html = quality.group_page(many, [], METHODS, measured(many, 30))
    require_sound(html, tuple(f"{who}.html" for who in many["participant_id"]))
    link = re.search(r'base64,([^"]+)">Download', html)
    saved = base64.b64decode(link[1]).decode()
    assert "'=cmd" in saved  # no formula for a spreadsheet


def test_a_group_of_nobody():
    page = require_sound(
        quality.group_page(pd.DataFrame(), [("sub-1", "broken")], METHODS)
    )
    assert "0 of 1 subjects have FC" in page.text


def test_preprocess_page():
    rng = np.random.default_rng(0)
    ask = (rng.random(30), rng.random((12, 14, 12)), np.diag([8, 8, 8, 1]))
    done = {"slice timing": "done"}
    page = require_sound(quality.preprocess_page("sub-01_run-2", *ask, done))
    assert page.row("slice timing") == ["slice timing", "done"]
    assert "sub-01_run-2" in page.text
    assert len([t for t, _ in page.tags if t == "svg"]) == 1
    assert "data:image/png" in page.of("img")[0]["src"]


def test_measures_stand_before_the_columns_of_a_phenotype_table(rows):
    many = rows.assign(medication="a long note", age="12").rename(
        columns={"diagnosis": "dx_group"}
    )
    html = quality.group_page(many, [], METHODS)
    head = re.findall(r'<th scope="col"[^>]*>(?:<[^>]+>)*([^<]+)', html)
    subjects = head[head.index("Subject") :]
    order = ["Subject", "site", "dx_group", "Framewise displacement, mm", "Volumes"]
    assert subjects[:5] == order
    assert subjects.index("medication") > subjects.index("TR, s")
