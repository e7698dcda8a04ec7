"""A scan of a chain's bytes finds no training subject, for every method that keeps none."""

from dataclasses import replace

import numpy as np
import pytest
from small_chains import N_ROIS, SITES, cohort, joined, quick

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.target import Target
from fcforge.data.edges import upper_from_fc
from fcforge.data.splits import split_site
from fcforge.methods import METHODS
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.chains.settings import settings_for
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.exchange import Exchange, packed

N_EDGES = N_ROIS * (N_ROIS - 1) // 2


def training_subjects(n_sites: int) -> np.ndarray:
    """FC (n, R, R) of all that the chain's network was trained on."""
    sites = [split_site(cohort(), name, 0) for name in SITES[:n_sites]]
    return np.concatenate([s.learning(with_val=True).fc.numpy() for s in sites])


def exact_hits(data: bytes, fc: np.ndarray, run: int = 6) -> int:
    """Return how many subjects have `run` neighbouring numbers of FC or Fisher z in the bytes."""
    rows, columns = np.triu_indices(N_ROIS, 1)
    found = 0
    for matrix in fc.astype(np.float64):
        upper = matrix[rows, columns]
        with np.errstate(divide="ignore"):
            forms = [upper, matrix.ravel(), matrix[columns, rows], np.arctanh(upper)]
        forms.append(matrix[np.tril_indices(N_ROIS, -1)])
        needles = {
            form.astype(kind)[start : start + run].tobytes()
            for form in forms
            for kind in ("<f2", "<f4", "<f8", ">f4", ">f8")
            for start in (2, 20, 36)
        }
        found += any(needle in data for needle in needles)
    return found


def windows(x: np.ndarray) -> np.ndarray:
    """Every run of N_EDGES numbers along the last dimension, and upper triangles of squares."""
    made = [np.zeros((0, N_EDGES))]
    if x.ndim and x.shape[-1] >= N_EDGES:
        cut = np.lib.stride_tricks.sliding_window_view(x, N_EDGES, axis=-1)
        made.append(cut.reshape(-1, N_EDGES))
    if x.ndim >= 2 and x.shape[-2:] == (N_ROIS, N_ROIS):
        made.append(upper_from_fc(x.reshape(-1, N_ROIS, N_ROIS)))
    rows = np.concatenate(made).astype(np.float64)
    return rows[rows.std(1) > 1e-12]


def centred(rows: np.ndarray) -> np.ndarray:
    away = rows - rows.mean(1, keepdims=True)
    return away / np.linalg.norm(away, axis=1, keepdims=True)


def closest(arrays: dict[str, np.ndarray], fc: np.ndarray) -> float:
    """Largest correlation of any array's row with any subject's edges (or their Fisher z)."""
    upper = upper_from_fc(fc).astype(np.float64)
    subjects = np.concatenate([upper, np.arctanh(upper.clip(-0.9999, 0.9999))])
    best = 0.0
    for array in arrays.values():
        rows = windows(array) if array.dtype.kind == "f" else windows(np.zeros(0))
        if len(rows):
            near = np.abs(centred(rows) @ centred(subjects).T)
            best = max(best, float(near.max()))
    return best


def arrays_of(exchange: Exchange) -> dict[str, np.ndarray]:
    return exchange.arrays(exchange.model.steps[-1])


def hardest(method: str) -> LearnerSpec:
    """On the linear model where it works: its readout is the edges themselves."""
    spec = quick(method)
    return spec if METHODS[method].models else replace(spec, model=Component("linear"))


def learned(method: str, n_sites: int) -> Exchange:
    settings = settings_for(
        hardest(method), N_ROIS, training=Training(epochs=2), held_out=12
    )
    exchange = empty_chain(settings, Target(classes=("TC", "ASD")), SITES[0])
    for site in SITES[:n_sites]:
        exchange, _ = joined(exchange, site)
    return exchange


KEEP_NONE = [
    name
    for name, method in METHODS.items()
    if method.keeps != "real subjects"
    and method.depends_on != "all"
    and not method.needs_public
]


@pytest.mark.parametrize("method", KEEP_NONE)
def test_no_training_subject_is_inside(method):
    exchange = learned(method, 2)
    fc = training_subjects(2)
    assert exact_hits(packed(exchange, "x"), fc) == 0
    assert closest(arrays_of(exchange), fc) < 0.999


def test_the_scan_finds_subjects_that_are_there():
    """Without this the test above would prove nothing."""
    exchange = learned("cumulative", 1)
    fc = training_subjects(1)
    assert exact_hits(packed(exchange, "x"), fc) == len(fc)
    assert closest(arrays_of(exchange), fc) > 0.999999
    rounded = save_arrays({"upper": fc[:1].astype(np.float16)})
    assert exact_hits(rounded, fc) == 1
    noisy = fc[:1] + 0.002 * np.random.default_rng(0).standard_normal(fc[:1].shape)
    assert exact_hits(save_arrays({"upper": noisy}), fc) == 0
    assert closest({"upper": noisy}, fc) > 0.999
