"""What presets of the simulator are, how large its sites, and where its ROIs lie."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import cycle
from typing import NamedTuple

import numpy as np

from fcforge.imaging.atlas import Atlas, aal116
from fcforge.messages import look_up
from fcforge.sites.datasets import MIN_PER_CLASS


@dataclass(frozen=True)
class Recipe:
    """What presets of the simulator differ in; the rest is the same for all (`simulated`).

    Attributes
    ----------
    d_scale : float
        Strength of the disorder; the SD over edges of the class difference is about .02 d_scale.
    rho : float
        Correlation of the disorder's pattern between the population and one site.
    site_block, site_edge : float
        SD of a site's shift per pair of systems and per edge, in Fisher z.
    """

    d_scale: float = 1.2
    rho: float = 0.9
    site_block: float = 0.075
    site_edge: float = 0.008


PRESETS: dict[str, Recipe] = {
    "easy": Recipe(d_scale=1.6),
    "realistic": Recipe(),
    "hard": Recipe(d_scale=1.6, rho=0.4),
    "hard_shift": Recipe(d_scale=1.6, rho=0.4, site_block=0.16, site_edge=0.03),
}


class SiteLayout(NamedTuple):
    """Size of a simulated site: patients, controls, volumes per scan, mean FD of each class."""

    name: str
    patients: int
    controls: int
    volumes: int
    fd_patients: float = 0.08
    fd_controls: float = 0.08


@lru_cache(maxsize=1)
def layouts() -> dict[str, tuple[SiteLayout, ...]]:
    """Sites of each layout: those of the paper's data sets."""
    text = files("fcforge.sites").joinpath("layouts.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: dict[str, tuple[SiteLayout, ...]] = {}
    for line in lines[1:]:
        layout, name, n, m, volumes, *motion = line.split("\t")
        site = SiteLayout(name, int(n), int(m), int(volumes), *map(float, motion))
        found[layout] = (*found.get(layout, ()), site)
    return found


def recipe_of(preset: str, d_scale: float | None, rho: float | None) -> Recipe:
    """Recipe of a preset, with the given numbers in place of its own."""
    recipe = look_up("preset", preset, PRESETS)
    if d_scale is not None:
        recipe = replace(recipe, d_scale=d_scale)
    return recipe if rho is None else replace(recipe, rho=rho)


def places_of(layout: str, n_sites: int | None, scale: float) -> list[SiteLayout]:
    """Sites of a layout, cut or continued to `n_sites`, with `scale` times the subjects."""
    base = look_up("layout", layout, layouts())
    n_sites = len(base) if n_sites is None else n_sites
    extra = [f"Sim-Extra{i + 1:02d}" for i in range(n_sites - len(base))]
    names = [*(place.name for place in base), *extra][:n_sites]
    found = []
    for name, place in zip(names, cycle(base), strict=False):
        n, m = (max(MIN_PER_CLASS, round(size * scale)) for size in place[1:3])
        found.append(place._replace(name=name, patients=n, controls=m))
    return found


def twins(roi_names: Sequence[str]) -> np.ndarray:
    """Index of the same ROI in the other hemisphere (its own on the midline), (R,).

    Sides are told by the last letter of the name, ``_L`` or ``_R``.
    """
    place = {name: i for i, name in enumerate(roi_names)}
    other_side = {"L": "R", "R": "L"}
    found = []
    for name, own in place.items():
        side = name[-1]
        twin = name[:-1] + other_side.get(side, side)
        found.append(place.get(twin, own))
    return np.array(found)


def made_up_atlas(n_rois: int) -> Atlas:
    """Mirror-symmetric ROIs filling a brain-sized ellipsoid, in compact bilateral systems.

    Left ROIs lie on a golden-angle spiral through the left half, right ones mirror them; an odd
    count leaves one on the midline. Systems grow around seeds that are far from each other.
    """
    pairs = n_rois // 2
    left = _half_ellipsoid(pairs)
    xyz = np.zeros((n_rois, 3))
    xyz[0 : 2 * pairs : 2] = left
    xyz[1 : 2 * pairs : 2] = left * [-1, 1, 1]
    folded = np.abs(xyz) * [1, 0, 0] + xyz * [0, 1, 1]  # both sides in one
    n_systems = max(1, min(9, n_rois // 6))
    group = _grow(folded, n_systems)
    both = [f"ROI{i + 1:03d}_{side}" for i in range(pairs) for side in "LR"]
    names = (*both, *[f"ROI{pairs + 1:03d}"] * (n_rois % 2))
    systems = tuple(f"system{g + 1}" for g in group)
    codes = tuple(range(1, n_rois + 1))
    return Atlas(f"MadeUp{n_rois}", names, systems, codes=codes, xyz=xyz)


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
    x = -ring * np.sin(angle)
    y = ring * np.cos(angle)
    unit = np.stack([x, y, height], axis=1)
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
