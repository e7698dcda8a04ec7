"""Scans that look like one person: two ids with nearly the same FC, within or across data sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fcforge.sites.cohort import upper_from_fc

ALIKE = 0.9  # edge correlation; two people are below it, two halves of one scan often above


class Twins(NamedTuple):
    """Two scans that look like one person: their ids and edge correlation."""

    first: str
    second: str
    correlation: float


def _unit_edges(fc: np.ndarray) -> np.ndarray:
    """Edges (n, E) with mean zero and norm one, float32; a constant scan becomes zero."""
    x = upper_from_fc(fc).astype(np.float32)
    x -= x.mean(1, keepdims=True)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def twins_within(fc: np.ndarray, ids: np.ndarray, limit: float = ALIKE) -> list[Twins]:
    """Pairs of scans of one data set that look like one person, in the order of the rows."""
    x = _unit_edges(fc)
    r = np.triu(x @ x.T, 1)
    return [Twins(str(ids[i]), str(ids[j]), float(r[i, j])) for i, j in np.argwhere(r > limit)]


def twins_across(
    fc: np.ndarray, ids: np.ndarray, other: np.ndarray, other_ids: np.ndarray, limit: float = ALIKE
) -> list[Twins]:
    """Pairs of one scan of each of two data sets that look like one person or share an id."""
    r = _unit_edges(fc) @ _unit_edges(other).T
    same = np.asarray(ids)[:, None] == np.asarray(other_ids)[None, :]
    found = np.argwhere((r > limit) | same)
    return [Twins(str(ids[i]), str(other_ids[j]), float(r[i, j])) for i, j in found]
