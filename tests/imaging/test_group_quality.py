"""The quality table, flags and QC-FC, by hand and on made-up groups."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from fcforge.imaging.atlas import names_only
from fcforge.imaging.group_quality import COLUMNS, Matrices, qc_fc, quality_table

R = 8
E = R * (R - 1) // 2
ATLAS = replace(
    names_only("Mine", tuple(f"R{k}" for k in range(R))),
    xyz=np.random.default_rng(1).normal(scale=40, size=(R, 3)),
)


def table(fd: np.ndarray, sites: list[str] | None = None, **more) -> pd.DataFrame:
    ids = [f"sub-{k:02d}" for k in range(len(fd))]
    people = pd.DataFrame({"participant_id": ids})
    if sites:
        people["site"] = sites
    plain = dict.fromkeys(COLUMNS, 1.0) | {"high_fd_share": 0.0, "n_empty_rois": 0}
    rows = {}
    for k, who in enumerate(ids):
        rows[who] = {**plain, "mean_fd": fd[k]}
        rows[who] |= {name: values[k] for name, values in more.items()}
    return quality_table(people, rows)


def group(n: int, link: float, seed: int = 0) -> tuple[np.ndarray, list[Matrices]]:
    rng = np.random.default_rng(seed)
    fd = rng.uniform(0.05, 0.5, n)
    shift = link * (fd - fd.mean())[:, None] / fd.std()
    before = np.tanh(rng.normal(scale=0.2, size=(n, E)) + 0.2 * shift)
    after = np.tanh(rng.normal(scale=0.2, size=(n, E)))
    return fd, [Matrices(a, b) for a, b in zip(after, before, strict=True)]


def test_qc_fc_by_hand():
    fd, stored = group(30, 1.0)
    found = qc_fc(table(fd), stored, ATLAS)
    assert found.problem == ""
    assert (found.n_subjects, found.n_sites) == (30, 1)
    edge = np.arctanh([m.before[5] for m in stored])
    assert found.before.r[5] == pytest.approx(pearsonr(edge, fd)[0], abs=1e-12)
    assert found.before.median > 0.5 > 2 * found.after.median
    assert found.before.share_significant > 0.9 > found.after.share_significant
    assert len(found.distance) == E
    # by chance half of the correlations are larger: draw many
    rng = np.random.default_rng(0)
    draws = [abs(pearsonr(*rng.normal(size=(2, 30)))[0]) for _ in range(4000)]
    assert found.expected_median == pytest.approx(np.median(draws), rel=0.1)


def test_a_difference_between_sites_is_no_link_with_motion():
    fd, stored = group(40, 0.0)
    sites = ["A"] * 20 + ["B"] * 20
    fd[20:] += 1.0
    stored[20:] = [Matrices(m.fc + 0.3, m.before + 0.3) for m in stored[20:]]
    assert qc_fc(table(fd), stored, ATLAS).after.median > 0.5
    found = qc_fc(table(fd, sites), stored, ATLAS)
    assert found.n_sites == 2
    assert found.after.median < 0.2


@pytest.mark.parametrize(
    ("fd", "sites", "text"),
    [
        (np.full(30, 0.2), None, "same framewise displacement"),
        (np.array([0.1, 0.2, 0.3]), None, "at least 10 subjects.*there are 3"),
        (np.full(30, np.nan), None, "no subject has a known framewise"),
        (
            np.linspace(0.1, 0.5, 30),
            [f"S{k}" for k in range(30)],
            "at sites with at least two of them.*there are 0",
        ),
        (
            np.linspace(0.1, 0.5, 12),
            [f"S{k // 2}" for k in range(12)],
            "8 degrees of freedom; there are 12, and 5",
        ),
        (
            np.repeat([0.1, 0.4], 15),
            ["A"] * 15 + ["B"] * 15,
            "same framewise displacement",
        ),
    ],
)
def test_what_cannot_be_computed_is_said(fd, sites, text):
    stored = group(len(fd), 0.0)[1]
    found = qc_fc(table(fd, sites), stored, ATLAS)
    assert found.after is None
    assert found.before is None
    assert re.search(text, found.problem), found.problem


def test_edges_that_a_subject_lacks_are_left_out():
    fd, stored = group(20, 1.0)
    gone = stored[3].fc.copy()
    gone[:4] = np.nan
    stored[3] = stored[3]._replace(fc=gone)
    found = qc_fc(table(fd), stored, ATLAS)
    assert np.isnan(found.after.r[:4]).all()
    assert np.isfinite(found.after.r[4:]).all()


def test_subjects_without_stored_fc_or_motion_do_not_count():
    fd, stored = group(20, 1.0)
    fd[0] = np.nan
    found = qc_fc(table(fd), [*stored[:-1], None], ATLAS)
    assert found.n_subjects == 18


def test_without_denoising_there_is_no_before():
    fd, stored = group(20, 0.0)
    bare = [Matrices(m.fc, np.zeros(0)) for m in stored]
    found = qc_fc(table(fd), bare, replace(ATLAS, xyz=np.empty((0, 3))))
    assert found.before is None
    assert np.isnan(found.after.with_distance)


def test_flags_name_their_reasons():
    fd = np.full(10, 0.2) + 0.001 * np.arange(10)
    fd[0] = 0.7
    tsnr = np.linspace(50, 55, 10)
    tsnr[1] = 5
    empty = np.zeros(10)
    empty[2] = 2
    found = table(fd, tsnr=tsnr, n_empty_rois=empty)["flags"].tolist()
    assert "mean FD above 0.5 mm" in found[0]
    assert "Framewise displacement unusually high for the group" in found[0]
    assert found[1] == "tSNR unusually low for the group"
    assert found[2] == "2 ROIs without signal"
    assert set(found[3:]) == {""}


def test_small_sites_are_compared_with_nobody():
    tsnr = np.array([50.0, 51, 52, 5])
    assert set(table(np.full(4, 0.2), tsnr=tsnr)["flags"]) == {""}


def test_unknown_values_are_nan_and_flag_nothing():
    people = pd.DataFrame({"participant_id": ["sub-1"]})
    found = quality_table(people, {"sub-1": {"mean_fd": None}})
    assert np.isnan(found.loc[0, "mean_fd"])
    assert found.loc[0, "flags"] == ""
    assert len(quality_table(pd.DataFrame(), {})) == 0
