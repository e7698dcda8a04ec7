"""ROIs for the simulator: AAL's 116, any other count made up; and which of them are mirrored."""

from collections.abc import Sequence

import numpy as np

from fcforge.imaging.atlas import Atlas, aal116


def twins(roi_names: Sequence[str]) -> np.ndarray:
    """Index of the same ROI in the other hemisphere (its own on the midline), (R,).

    Sides are told by the last letter of the name, ``_L`` or ``_R``.
    """
    place = {name: i for i, name in enumerate(roi_names)}
    other = {"L": "R", "R": "L"}
    return np.array([place.get(n[:-1] + other.get(n[-1], n[-1]), i) for n, i in place.items()])


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
    group = _grow(np.abs(xyz) * [1, 0, 0] + xyz * [0, 1, 1], max(1, min(9, n_rois // 6)))
    names = tuple(
        f"ROI{i // 2 + 1:03d}_{'LR'[i % 2]}" if i < 2 * pairs else f"ROI{pairs + 1:03d}"
        for i in range(n_rois)
    )
    systems = tuple(f"system{g + 1}" for g in group)
    return Atlas(f"MadeUp{n_rois}", names, systems, codes=tuple(range(1, n_rois + 1)), xyz=xyz)


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
