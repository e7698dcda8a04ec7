"""Quality pages of `fc` and `preprocess`, from hand-made results."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from page_parser import EVIL, require_sound

from fcforge.imaging.atlas import aal116
from fcforge.imaging.extract import Run, SubjectFC
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
    return Run(
        source, series, 2.0, coverage, moved, rng.normal(size=(50, 40)), done, warnings
    )


def subject(*runs: Run) -> SubjectFC:
    odd = (f"1 ROI without signal {EVIL}",)
    return SubjectFC("01", runs, np.eye(116), (3,), {"atlas": {"name": EVIL}}, odd)


def test_subject_page_shows_everything():
    coverage = np.ones(116)
    coverage[[2, 5]] = (0.31, 0.79)
    html = quality.subject_page(subject(run(coverage=coverage)), aal116())
    page = require_sound(html, ("group.html",))
    assert "coverage of each ROI" in page.text
    assert "1 ROI without signal" in page.text
    assert page.row("kept") == ["kept", "motion, wm_csf"]
    assert page.row("HighPassHz") == ["HighPassHz", "not set"]
    assert page.row("Detrend") == ["Detrend", "yes"]
    assert page.row("atlas.name") == ["atlas.name", EVIL]
    assert "40" in page.text
    assert html.count("<svg") == 4


def test_several_runs_have_a_picture_each():
    found = subject(run(name="run-1.nii.gz"), run(fd=False, name="run-2.nii.gz"))
    page = require_sound(quality.subject_page(found, aal116()), ("group.html",))
    assert "run-1.nii.gz" in page.text
    assert (
        page.text.count("displacement, mm") == 1
    )  # no empty panel where motion is unknown
    assert "coverage of each ROI" not in page.text


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
    assert len([t for t, _ in page.tags if t == "svg"]) == 2
