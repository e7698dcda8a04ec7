"""ROIs with coordinates and brain systems: AAL-116 from a table, any other count made up.

``aal116.tsv`` holds the 116 names and codes of AAL in code order (2001..9170), the centroids
in mm, and a `system` of our own: nine groups by lobe and function, for plots and for the
simulator. The groups are a convention of this project, not a published parcellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np


@dataclass(frozen=True)
class Atlas:
    """ROIs of a parcellation.

    Attributes
    ----------
    names, abbreviations : tuple of str
    codes : tuple of int
        The atlas' own numbers (AAL: 2001..9170).
    xyz : ndarray of shape (R, 3)
        Centroids in mm, MNI space.
    systems : tuple of str
        Brain system of every ROI.
    twin : ndarray of shape (R,), int
        Index of the same ROI in the other hemisphere; its own index on the midline.
    """

    names: tuple[str, ...]
    abbreviations: tuple[str, ...]
    codes: tuple[int, ...]
    xyz: np.ndarray
    systems: tuple[str, ...]
    twin: np.ndarray

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return len(self.names)


@lru_cache(maxsize=1)
def aal116() -> Atlas:
    """The AAL atlas with its 116 ROIs, in code order."""
    text = files("fcforge.imaging").joinpath("aal116.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    names = tuple(row[2] for row in rows)
    place = {name: i for i, name in enumerate(names)}
    other = {"L": "R", "R": "L"}
    # Vermis has no sides: a name without _L / _R stays its own twin.
    twin = [
        place.get(f"{name[:-1]}{other.get(name[-1], name[-1])}", i) for name, i in place.items()
    ]
    return Atlas(
        names=names,
        abbreviations=tuple(row[3] for row in rows),
        codes=tuple(int(row[1]) for row in rows),
        xyz=np.array([[float(v) for v in row[4:7]] for row in rows]),
        systems=tuple(row[7] for row in rows),
        twin=np.array(twin),
    )


def made_up_atlas(n_rois: int) -> Atlas:
    """Mirror-symmetric ROIs filling a brain-sized ellipsoid, in compact bilateral systems.

    Left ROIs lie on a golden-angle spiral through the left half, right ones mirror them; an odd
    count leaves one on the midline. Systems grow around seeds that are far from each other.
    """
    pairs = n_rois // 2
    left = _half_ellipsoid(pairs)
    xyz = np.empty((n_rois, 3))
    xyz[0 : 2 * pairs : 2] = left
    xyz[1 : 2 * pairs : 2] = left * [-1, 1, 1]
    xyz[2 * pairs :] = 0.0
    twin = np.arange(n_rois)
    twin[: 2 * pairs] ^= 1
    group = _grow(np.abs(xyz) * [1, 0, 0] + xyz * [0, 1, 1], max(1, min(9, n_rois // 6)))
    names = tuple(
        f"ROI{i // 2 + 1:03d}_{'LR'[i % 2]}" if i < 2 * pairs else f"ROI{pairs + 1:03d}"
        for i in range(n_rois)
    )
    return Atlas(
        names=names,
        abbreviations=names,
        codes=tuple(range(1, n_rois + 1)),
        xyz=xyz,
        systems=tuple(f"system{g + 1}" for g in group),
        twin=twin,
    )


def atlas_of(n_rois: int) -> Atlas:
    """AAL for 116 ROIs, a made-up atlas for any other count."""
    return aal116() if n_rois == 116 else made_up_atlas(n_rois)


def _half_ellipsoid(n: int) -> np.ndarray:
    """`n` points in the left half of an ellipsoid with half axes 65, 85, 60 mm."""
    i = np.arange(n) + 0.5
    height = 1 - 2 * i / max(n, 1)
    angle = (i * np.pi * (3 - np.sqrt(5))) % np.pi  # half a turn: x stays on one side
    radius = (0.3 + 0.7 * ((i * 0.6180339887) % 1)) ** (1 / 3)
    ring = np.sqrt(1 - height**2)
    unit = np.stack([-ring * np.sin(angle), ring * np.cos(angle), height], axis=1)
    return unit * radius[:, None] * [65.0, 85.0, 60.0]


def _grow(points: np.ndarray, n_groups: int) -> np.ndarray:
    """Group of each point: nearest of `n_groups` seeds picked by farthest-point sampling."""
    distance = np.full(len(points), np.inf)
    group = np.zeros(len(points), dtype=int)
    seed = 0
    for g in range(n_groups):
        new = np.linalg.norm(points - points[seed], axis=1)
        group[new < distance] = g
        distance = np.minimum(distance, new)
        seed = int(distance.argmax())
    return group
