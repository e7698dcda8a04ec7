"""A scan of a capsule's bytes finds no training subject, for every method that keeps none."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from capsule_chains import N_ROIS, SITES, cohort, quick
from safetensors.torch import load

from fcforge.capsule import LearnOptions, learn, open_capsule, settings_for
from fcforge.capsule import container as box
from fcforge.methods import METHODS
from fcforge.sites import split_site
from fcforge.types import Component, LearnerSpec, Training

N_EDGES = N_ROIS * (N_ROIS - 1) // 2


def training_subjects(n_sites: int) -> np.ndarray:
    """FC (n, R, R) of all that the capsule's network was trained on."""
    sites = [split_site(cohort(), name, 0) for name in SITES[:n_sites]]
    return np.concatenate([s.learning(with_val=True).fc.numpy() for s in sites])


def exact_hits(data: bytes, fc: np.ndarray, run: int = 6) -> int:
    """How many subjects have `run` neighbouring numbers of their FC or Fisher z in the bytes."""
    rows, cols = np.triu_indices(N_ROIS, 1)
    found = 0
    for matrix in fc.astype(np.float64):
        upper = matrix[rows, cols]
        with np.errstate(divide="ignore"):
            forms = [upper, matrix.ravel(), matrix[cols, rows], np.arctanh(upper)]
        forms.append(matrix[np.tril_indices(N_ROIS, -1)])
        needles = {
            form.astype(kind)[start : start + run].tobytes()
            for form in forms
            for kind in ("<f2", "<f4", "<f8", ">f4", ">f8")
            for start in (2, 20, 36)
        }
        found += any(needle in data for needle in needles)
    return found


def windows(array: torch.Tensor) -> np.ndarray:
    """Every run of N_EDGES numbers along the last dimension, and upper triangles of squares."""
    x = array.double().numpy()
    made = [np.zeros((0, N_EDGES))]
    if x.ndim and x.shape[-1] >= N_EDGES:
        cut = np.lib.stride_tricks.sliding_window_view(x, N_EDGES, axis=-1)
        made.append(cut.reshape(-1, N_EDGES))
    if x.ndim >= 2 and x.shape[-2:] == (N_ROIS, N_ROIS):
        rows, cols = np.triu_indices(N_ROIS, 1)
        made.append(x[..., rows, cols].reshape(-1, N_EDGES))
    return np.concatenate(made)


def centred(rows: np.ndarray) -> np.ndarray:
    away = rows - rows.mean(1, keepdims=True)
    return away / np.linalg.norm(away, axis=1, keepdims=True)


def closest(parts: dict[str, bytes], fc: np.ndarray) -> float:
    """Largest correlation of any array's row with any subject's edges (or their Fisher z)."""
    rows, cols = np.triu_indices(N_ROIS, 1)
    upper = fc[:, rows, cols].astype(np.float64)
    subjects = np.concatenate([upper, np.arctanh(upper.clip(-0.9999, 0.9999))])
    best = 0.0
    for name in (box.LANE, box.REMEMBERED, box.HELD_OUT):
        for array in load(parts[name]).values():
            rowset = (
                windows(array) if array.is_floating_point() else np.zeros((0, N_EDGES))
            )
            rowset = rowset[rowset.std(1) > 1e-12]
            if len(rowset):
                best = max(
                    best, float(np.abs(centred(rowset) @ centred(subjects).T).max())
                )
    return best


def hardest(method: str) -> LearnerSpec:
    """On the linear model where it works: its readout is the edges themselves."""
    spec = quick(method)
    linear = not METHODS[method].models and spec.model.name != "linear"
    return replace(spec, model=Component("linear")) if linear else spec


KEEP_NONE = [
    name
    for name, cls in METHODS.items()
    if cls.keeps != "real subjects" and cls.depends_on != "all" and not cls.needs_start
]


@pytest.mark.parametrize("method", KEEP_NONE)
def test_no_training_subject_is_inside(method, tmp_path) -> None:
    settings = settings_for(
        hardest(method), N_ROIS, training=Training(epochs=2), held_out=12
    )
    first, out = tmp_path / "a.capsule", tmp_path / "b.capsule"
    learn(None, SITES[0], cohort(), first, settings=settings)
    learn(first, SITES[1], cohort(), out)
    fc = training_subjects(2)
    data, parts = out.read_bytes(), box.read_parts(out, box.CHAIN)
    assert exact_hits(data, fc) == 0
    assert closest(parts, fc) < 0.999
    assert not bool(open_capsule(out).remembered.real.any())


def test_the_scan_finds_subjects_that_are_there(tmp_path) -> None:
    """Without this the test above would prove nothing."""
    settings = settings_for(
        hardest("cumulative"), N_ROIS, training=Training(epochs=1), held_out=12
    )
    out = tmp_path / "a.capsule"
    learn(
        None,
        SITES[0],
        cohort(),
        out,
        settings=settings,
        options=LearnOptions(allow_real_subjects=True),
    )
    fc = training_subjects(1)
    parts = box.read_parts(out, box.CHAIN)
    assert exact_hits(out.read_bytes(), fc) == len(fc)
    assert closest(parts, fc) > 0.999999
    hidden = {
        "upper": torch.from_numpy(fc[:1, :, :].astype(np.float16)),
        "y": torch.zeros(1),
    }
    from safetensors.torch import save

    rounded = save(hidden)
    assert exact_hits(rounded, fc) == 1
    noisy = fc[:1] + 0.002 * np.random.default_rng(0).standard_normal(fc[:1].shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = save({"upper": torch.from_numpy(noisy)})
    assert exact_hits(near, fc) == 0
    assert (
        closest({**parts, box.REMEMBERED: near, box.HELD_OUT: near, box.LANE: near}, fc)
        > 0.999
    )
