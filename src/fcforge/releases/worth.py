r"""What would sums be worth? Told from the public people alone, before anybody gives anything.

Public sites are dealt at random into public people and hospitals, each cut into learning and tested
people; noise is scaled to the planned number of people. Numbers are those of
`fcforge.releases.vector` (tests hold them together), in terms of inner products between people:
with :math:`z = B^\top x` and the Gram matrix of x, coordinates are never formed, and hundreds of
settings, budgets and draws of the noise cost milliseconds each. Noise is drawn once in all p
directions and used for every setting, so that all are compared on the same noise. It is seeded:
nothing here leaves a hospital.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fcforge.privacy.accounting import DELTA, ceiling_of
from fcforge.randomness import numpy_rng
from fcforge.releases.plan import noise_per_person, planned_settings
from fcforge.releases.start import (
    FLAT,
    MIN_PUBLIC,
    RESIDUAL,
    Array,
    Start,
    StartSettings,
    leave_one_out,
    principal_axes,
)
from fcforge.releases.vector import COUNT, DOSES, SENSITIVITY, UNIT

TESTED = 0.3  # of every hospital's people
PUBLIC = 0.5  # of the people are public in a dealing
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
Rows = tuple[Array, Array, Array]


class Worth(NamedTuple):
    """What one way of giving would add.

    Attributes
    ----------
    epsilon : float or None
        Of every person; None: exact sums.
    keepers : bool
        Noise once by two keepers, or by every hospital itself.
    gain, error : float
        AUROC within hospitals above the public head, and its standard error over dealings.
    ceiling : float
        Largest AUC of any attack on one person.
    """

    epsilon: float | None
    keepers: bool
    gain: float
    error: float
    ceiling: float


class WorthTable(NamedTuple):
    """What is expected of a consortium.

    Attributes
    ----------
    public : float
        AUROC within hospitals of the public head.
    pooled : float
        What ridge on everybody's data in one place adds to it.
    learned : float
        Mean number of people that were learned from here; the plan's people decide the noise.
    rows : tuple of Worth
    """

    public: float
    pooled: float
    learned: float
    rows: tuple[Worth, ...]


def worth(
    features: Array,
    y: Array,
    site: Array,
    people: int,
    hospitals: int,
    epsilons: Sequence[float | None] = EPSILONS,
    delta: float = DELTA,
    dealings: int = 12,
) -> WorthTable:
    """What sums of a planned consortium would add to the public head.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Of the public people, confounds removed.
    y, site : ndarray of shape (n,)
        At least two sites.
    people, hospitals : int
        Planned in all.
    epsilons : sequence of float or None
    delta : float
    dealings : int
        How often public sites are dealt into public people and hospitals.
    """
    plans = [(e, keepers) for keepers in (True, False) for e in epsilons]
    levels = []
    for epsilon, keepers in plans:
        doses = DOSES if keepers else hospitals
        levels.append(noise_per_person(people, epsilon, doses, delta))
    gains = []
    base = []
    for k in range(dealings):
        rng = numpy_rng(k, "worth of sums")
        rows = deal(site, y, PUBLIC * len(y), rng)
        if min(len(rows[0]), len(rows[1])) >= MIN_PUBLIC and _both(y, rows):
            part = Partition(features, y, site, rows, rng)
            public, pooled, own = _gained(part, levels)
            base.append([public, pooled, len(rows[1])])
            gains.append(own)
    if len(gains) < 2:
        return WorthTable(0.5, 0.0, 0.0, ())
    found = np.array(gains)
    error = found.std(0, ddof=1) / len(found) ** 0.5
    told = [
        Worth(*plan, float(gain), float(spread), ceiling_of(plan[0], delta))
        for plan, gain, spread in zip(plans, found.mean(0), error, strict=True)
    ]
    public, pooled, learned = np.mean(base, axis=0).tolist()
    return WorthTable(public, pooled, learned, tuple(told))


def _gained(
    part: Partition, levels: Sequence[float]
) -> tuple[float, float, list[float]]:
    """AUROC of the public head, and what pooled ridge and each noise per person add to it."""
    _, learn, test = part.rows
    public = float(part.auroc(part.score[test]))
    pooled = float(part.auroc(part.ridge())) - public
    gains = []
    for level in levels:
        where = part.place(planned_settings(level))
        scores = part.scores(where, level * len(learn))
        gains.append(float(part.auroc(scores).mean()) - public)
    return public, pooled, gains


def deal(site: Array, y: Array, wanted: float, rng: np.random.Generator) -> Rows:
    """Rows of public, learning and tested people.

    Sites at random are public until `wanted` people are; all others are hospitals, each cut 7:3
    within both diagnoses.
    """
    names = rng.permutation(np.unique(site))
    sizes = np.array([(site == name).sum() for name in names])
    count = max(1, int(np.searchsorted(np.cumsum(sizes), wanted) + 1))
    count = min(count, len(names) - 1)
    public = np.flatnonzero(np.isin(site, names[:count]))
    learn = []
    test = []
    for name in names[count:]:
        for label in (0, 1):
            here = rng.permutation(np.flatnonzero((site == name) & (y == label)))
            cut = round(TESTED * len(here))
            test.append(here[:cut])
            learn.append(here[cut:])
    return public, np.concatenate(learn), np.concatenate(test)


@dataclass(frozen=True)
class Coordinates:
    """People in one setting's coordinates: scales by direction and what each contributes.

    Attributes
    ----------
    start : Start
        Scales, size and clip; its axes are not used.
    learn : ndarray of shape (n,)
        Factor of each learning person's u in the sum: clipped residual, clipped norm.
    test : ndarray of shape (m,)
        The same of the tested people, for attacks.
    """

    start: Start
    learn: Array
    test: Array


def _both(y: Array, rows: Rows) -> bool:
    """Whether both diagnoses are among all three groups."""
    return (
        all(0 < y[part].mean() < 1 for part in rows if len(part)) and len(rows[2]) > 1
    )


class Partition:
    """Public people, learning and tested people of hospitals, as inner products.

    Parameters
    ----------
    features : ndarray of shape (n, p)
    y, site : ndarray of shape (n,)
    rows : tuple of ndarray
        Public, learning and tested rows (`deal`).
    rng : numpy Generator
        Of the noise.
    draws : int
    penalty : float
        Ridge penalty of the public head per feature.
    directions : int
        Axes that are told apart.
    """

    def __init__(
        self,
        features: Array,
        y: Array,
        site: Array,
        rows: Rows,
        rng: np.random.Generator,
        draws: int = 4,
        penalty: float = 1.0,
        directions: int = 128,
    ) -> None:
        public, learn, test = rows
        spread = features[public].std(0)
        scale = np.where(spread > 1e-9, spread, FLAT)
        x = (features - features[public].mean(0)) / scale
        self.p = x.shape[1]
        self.penalty = penalty
        self.rows = rows
        self.t = 2.0 * y - 1.0
        self.y_test = y[test]
        self.site = site
        self.site_test = site[test]
        self.hospitals = len(np.unique(site[learn]))
        own = x[public]
        gram = own @ own.T
        coefficient, left_out = leave_one_out(gram, self.t[public], penalty * self.p)
        weight = own.T @ coefficient
        self.public_residual = self.t[public] - left_out
        self.score = x @ weight + self.t[public].mean()
        self.axes, self.variance = principal_axes(own, directions)
        self.x = x
        self.z = x @ self.axes
        self.norms = (x**2).sum(1)
        people = np.concatenate([learn, test])
        self.gram = x[people] @ x[learn].T  # (n + m, n)
        self.noise = rng.standard_normal((self.p, draws))
        self.noise_axes = self.axes.T @ self.noise
        self.noise_test = x[test] @ self.noise
        self.noise_half = rng.standard_normal(draws)
        self.noise_count = rng.standard_normal(draws)

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """Places of all patients and controls of one hospital among the tested, pair by pair."""
        found = []
        for name in np.unique(self.site_test):
            here = self.site_test == name
            ill = np.flatnonzero(here & (self.y_test == 1))
            well = np.flatnonzero(here & (self.y_test == 0))
            found.append(np.stack(np.meshgrid(ill, well), -1).reshape(-1, 2))
        both = np.concatenate(found)
        return both[:, 0], both[:, 1]

    def auroc(self, scores: Array) -> Array:
        """AUROC within hospitals of scores (m, ...): share of pairs in the right order."""
        ill, well = self.pairs
        above = scores[ill] - scores[well]
        return (above > 0).mean(0) + 0.5 * (above == 0).mean(0)

    def place(self, settings: StartSettings) -> Coordinates:
        """All people in the coordinates of one setting."""
        public, learn, test = self.rows
        start = Start(
            mean=np.zeros(self.p),
            scale=np.ones(self.p),
            weight=np.zeros(self.p),
            bias=0.0,
            axes=self.axes,
            variance=self.variance,
            size=1.0,
            clip=1.0,
            temperature=1.0,
            full=float(settings.axes),
            gamma=settings.gamma,
            even=settings.even,
            shrink=settings.shrink,
            pull=settings.pull,
        )
        squares = self._squares(start.gain, public)
        size = float(np.quantile(np.sqrt(squares), 0.5))
        residual = np.clip(self.public_residual, -RESIDUAL, RESIDUAL)
        moved = np.abs(residual) * np.sqrt(squares / size**2 + 0.25)
        clip = float(np.quantile(moved, settings.clip))
        start = replace(start, size=size, clip=clip)
        factors = []
        for rows in (learn, test):
            left = np.clip(self.t[rows] - self.score[rows], -RESIDUAL, RESIDUAL)
            norm = np.abs(left) * np.sqrt(self._squares(start.gain, rows) + 0.25)
            factors.append(left * np.minimum(clip / np.maximum(norm, 1e-30), 1.0))
        return Coordinates(start, *factors)

    def _squares(self, gain: Array, rows: Array) -> Array:
        """Squared norms (n,) of coordinates."""
        along = self.z[rows] ** 2
        off = np.maximum(self.norms[rows] - along.sum(1), 0.0)
        return along @ gain[:-1] ** 2 + off * gain[-1] ** 2

    def scores(self, where: Coordinates, noise: float) -> Array:
        """Scores (m, draws) of the tested people after the sum over all learning people.

        Parameters
        ----------
        where : Coordinates
        noise : float
            Standard deviation of all noise in the sum, in units of the sensitivity.
        """
        start = where.start
        _, learn, test = self.rows
        loud = noise * start.clip * SENSITIVITY / UNIT
        counted = loud / start.clip * UNIT / COUNT * self.noise_count
        n = np.maximum(len(learn) + counted, 1.0)
        hold = start.hold * start.share**2
        along = where.learn @ self.z[learn]
        inside = start.gain[:-1, None] * along[:, None] + loud * self.noise_axes
        second = start.second[:, None]
        live = start.share > 0
        factor = np.zeros((len(hold), len(n)))
        factor[live] = _held(n, second[live], hold[live, None], loud**2)
        z = self.z[test]
        found = (z * start.gain[:-1]) @ (factor[:-1] * inside)
        products = self.gram[len(learn) :] @ where.learn - z @ along
        off = start.gain[-1] * products[:, None]
        off = off + loud * (self.noise_test - z @ self.noise_axes)
        found = found + start.gain[-1] * factor[-1] * off
        half = 0.5 * where.learn.sum() + loud * self.noise_half
        step = 0.5 * half * _held(n, 0.25, start.hold, loud**2)
        return self.score[test][:, None] + found + step

    def ridge(self) -> Array:
        """Scores (m,) of the tested people by ridge on the public and all learning people."""
        public, learn, test = self.rows
        both = np.concatenate([public, learn])
        x = self.x[both]
        centre = x.mean(0)
        gram = (x - centre) @ (x - centre).T
        target = self.t[both] - self.t[both].mean()
        eye = np.eye(len(both))
        coefficient = np.linalg.solve(gram + self.penalty * self.p * eye, target)
        weight = (x - centre).T @ coefficient
        return (self.x[test] - centre) @ weight + self.t[both].mean()


def _held(
    n: Array, second: Array | float, hold: Array | float, variance: float
) -> Array:
    return 1.0 / (n * second + hold + hold * variance / (n * second))
