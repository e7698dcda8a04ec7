r"""What a start is made for, and what sums would then be worth, before anybody gives anything.

**Plan.** The *noise per person* is the standard deviation of all noise in a sum, in units of the
sensitivity, divided by the people in it. It alone decides how many directions are worth speaking
about, so that one table serves sums and local noise, any number of people and any epsilon: ten
times the people at epsilon 1 have less noise than 600 at epsilon 10. The table was chosen on
ABIDE's fourteen smaller sites, by a rule that was committed before the run
(paper/benchmarks/choose_sums.py, paper/results/choose_sums_2.json).

It was chosen at 116 ROIs. With p features the pull is :math:`\sqrt{6786 / p}` times the table's, at
least once and at most three times: on the same sites with 20, 40 and 70 ROIs at random (24, 24 and
12 partitions, seven levels) the mean gain went from .014, .020 and .018 to .014, .028 and .022.

**Worth.** Public sites are dealt at random into public people and hospitals, each cut into learning
and tested people; noise is scaled to the planned number of people. Sums are inner products, their
numbers those of `fcforge.base_model.contributions` (tests hold them together): with :math:`z = B^\top x` and
the Gram matrix of x, coordinates are never formed, and hundreds of settings, budgets and draws of
the noise cost milliseconds each. Noise is drawn once in all p directions and used for every
setting, so that all are compared on the same noise. It is seeded: nothing here leaves a hospital.

**Caution.** The table's settings were chosen where the public head leaves much to learn. Where it
is good already, or has few ROIs, a step of that size is mostly noise: on simulated people of 40
ROIs the public head's .96 fell to .83 at epsilon 1. So the dealings of a start's own public people
may ask for a stronger pull to the public head. Rule: of `PULLS` times the table's pull the one with
the best mean gain is taken if it beats the table's by more than `SURE` standard errors of the
paired difference. Of no, one and two errors, two was taken on ABIDE's fourteen smaller sites (16
partitions, five budgets): the table's pull stayed in 98 of 100 cases and no mean gain fell by more
than .002. One error changed a fifth of all cases and lost up to .003.
"""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import targets, vertices
from fcforge.base_model.contributions import (
    COUNT,
    DOSES,
    RESIDUAL,
    SENSITIVITY,
    UNIT,
    held,
)
from fcforge.base_model.start import (
    MIN_PUBLIC,
    SET,
    Start,
    StartSettings,
    leave_one_out,
    mean_and_scale,
    principal_axes,
)
from fcforge.core.randomness import numpy_rng
from fcforge.core.target import strata
from fcforge_consortium.privacy.noise import DELTA, sigma_for

FEATURES = 6786  # of 116 ROIs, for which was chosen
CHOSEN = {
    0.0: StartSettings(axes=8, gamma=0.35, pull=0.45),
    0.0005: StartSettings(axes=16, gamma=0.35, pull=0.75),
    0.0015: StartSettings(axes=8, gamma=0.35, pull=0.45),
    0.003: StartSettings(axes=16, gamma=0.35, pull=0.45),
    0.005: StartSettings(axes=16, gamma=0.25, pull=0.3),
    0.01: StartSettings(axes=16, gamma=0.1, pull=0.15),
    0.03: StartSettings(axes=8, gamma=0.0, even=0.8, pull=0.05),
}
PUBLIC = 0.5  # of the people are public in a dealing
DEALINGS = 12
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
PULLS = (1.0, 3.0, 10.0, 30.0, 100.0)
SURE = 2.0
PENALTY = StartSettings().penalty
TESTED = 0.3  # of every hospital's people
Rows = tuple[Array, Array, Array]


def noise_per_person(
    people: int, epsilon: float | None, doses: int = DOSES, delta: float = DELTA
) -> float:
    """Of so many people in all; `doses` are the keepers, or the hospitals that add their own.

    Examples
    --------
    >>> round(noise_per_person(600, 1.0), 3), noise_per_person(600, None)
    (0.01, 0.0)
    """
    if epsilon is None:
        return 0.0
    return sigma_for(epsilon, delta) * math.sqrt(doses) / people


def planned_noise(
    people: int, hospitals: int
) -> dict[tuple[float | None, bool], float]:
    """Noise per person by epsilon, and whether two keepers add it or every hospital its own."""
    found = {}
    for keepers in (True, False):
        doses = DOSES if keepers else hospitals
        for epsilon in EPSILONS:
            found[epsilon, keepers] = noise_per_person(people, epsilon, doses)
    return found


def planned_settings(noise: float, n_features: int = FEATURES) -> StartSettings:
    """Settings of a start for this noise per person: those of the nearest level, by its logarithm.

    Examples
    --------
    >>> planned_settings(noise_per_person(600, 1.0)).gamma
    0.1
    """
    levels = [level for level in CHOSEN if level > 0]
    nearest = 0.0
    if noise >= min(levels) / 2:
        nearest = min(levels, key=lambda level: abs(math.log(level / noise)))
    found = CHOSEN[nearest]
    times = min(max(math.sqrt(FEATURES / n_features), 1.0), 3.0)
    return replace(found, pull=round(times * found.pull, 4))


# -- public people and hospitals dealt from one cohort ---------------------------------------------
def deal(site: Array, y: Array, wanted: float, rng: np.random.Generator) -> Rows:
    """Rows of public, learning and tested people.

    Sites at random are public until `wanted` people are; all others are hospitals, each cut 7:3
    within every diagnosis, or fifth of the numbers.
    """
    groups = strata(y)
    names = rng.permutation(np.unique(site))
    sizes = np.array([(site == name).sum() for name in names])
    enough = int(np.searchsorted(np.cumsum(sizes), wanted) + 1)
    count = min(max(1, enough), len(names) - 1)
    public = np.flatnonzero(np.isin(site, names[:count]))
    learn = []
    test = []
    for name in names[count:]:
        for group in np.unique(groups):
            here = np.flatnonzero((site == name) & (groups == group))
            here = rng.permutation(here)
            cut = round(TESTED * len(here))
            test.append(here[:cut])
            learn.append(here[cut:])
    return public, np.concatenate(learn), np.concatenate(test)


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
        directions: int = 128,
    ) -> None:
        public, learn, test = rows
        self.rows = rows
        self.site = site
        self.site_test = site[test]
        self.y_test = y[test]
        columns = 1 if y.dtype.kind == "f" else max(1, int(y.max()))
        self.t = targets(y, columns).reshape(len(y), columns)
        mean, scale = mean_and_scale(features[public])
        self.x = (features - mean) / scale
        self.p = self.x.shape[1]
        self._fit_public(self.x[public], self.t[public], directions)
        self.norms = (self.x**2).sum(1)
        self.noise = rng.standard_normal((columns, self.p, draws))
        self.noise_half = rng.standard_normal((columns, draws))
        self.noise_count = rng.standard_normal(draws)
        self.noise_axes = self.axes.T @ self.noise
        self.noise_test = self.x[test] @ self.noise
        self.gram = self.x[test] @ self.x[learn].T

    def _fit_public(self, own: Array, t: Array, directions: int) -> None:
        """Scores by the public head, what it leaves of the public people, and their axes."""
        coefficient, left_out = leave_one_out(own @ own.T, t, PENALTY * self.p)
        self.public_residual = np.clip(t - left_out, -RESIDUAL, RESIDUAL)
        self.score = self.x @ (own.T @ coefficient) + t.mean(0)
        self.axes, self.variance = principal_axes(own, directions)
        self.z = self.x @ self.axes

    @cached_property
    def pairs(self) -> list[tuple[Array, ...]]:
        """Places of two tested people of one hospital of whom the first shall be higher.

        Of two classes all patients with all controls, of more each class with all others; of a
        number everybody with everybody below.
        """
        y = self.y_test
        classes = range(self.t.shape[1] == 1, self.t.shape[1] + 1)
        higher = [(y == k)[:, None] & (y != k) for k in classes]
        if y.dtype.kind == "f":
            higher = [y[:, None] > y]
        same_site = self.site_test[:, None] == self.site_test
        return [np.nonzero(each & same_site) for each in higher]

    def auroc(self, scores: Array) -> Array:
        """AUROC within hospitals of scores (m, ..., c): share of pairs in the right order.

        The mean over the classes where there are more than two; of a number, the share of pairs
        that are in the order of their numbers.
        """
        ways = vertices(self.t.shape[1] + 1)[-len(self.pairs) :]
        right = []
        for way, (first, second) in zip(ways, self.pairs, strict=True):
            toward = scores @ way
            above = toward[first] - toward[second]
            ties = (above == 0).mean(0)
            right.append((above > 0).mean(0) + 0.5 * ties)
        return np.mean(right, 0)

    def start(self, settings: StartSettings) -> Start:
        """The start of one setting: scales by direction, size and clip; its axes are not used."""
        public, _, _ = self.rows
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
            **{k: getattr(settings, name) for k, name in SET.items()},
        )
        lengths = np.sqrt(self._squares(start.gain, public))
        start = replace(start, size=float(np.median(lengths)))
        norm = self._norm(start, public, self.public_residual)
        return replace(start, clip=float(np.quantile(norm, settings.clip)))

    def factor(self, start: Start, rows: Array) -> Array:
        """Factor (n, c) of each person's u in a sum: clipped residual, clipped norm."""
        left = np.clip(self.t[rows] - self.score[rows], -RESIDUAL, RESIDUAL)
        norm = self._norm(start, rows, left)
        cut = np.minimum(start.clip / np.maximum(norm, 1e-30), 1.0)
        return left * cut[:, None]

    def _norm(self, start: Start, rows: Array, residual: Array) -> Array:
        """Norms (n,) of what people with these residuals contribute."""
        size = np.linalg.norm(residual, axis=1)
        return size * np.sqrt(self._squares(start.gain, rows) + 0.25)

    def _squares(self, gain: Array, rows: Array) -> Array:
        """Squared norms (n,) of coordinates."""
        along = self.z[rows] ** 2
        off = np.maximum(self.norms[rows] - along.sum(1), 0.0)
        return along @ gain[:-1] ** 2 + off * gain[-1] ** 2

    def scores(self, start: Start, noise: float) -> Array:
        """Scores (m, draws, c) of the tested people after the sum over all learning people.

        Parameters
        ----------
        start : Start
        noise : float
            Standard deviation of all noise in the sum, in units of the sensitivity.
        """
        given = self.factor(start, self.rows[1])
        columns = [
            self._column(start, each, noise, k) for k, each in enumerate(given.T)
        ]
        return np.stack(columns, -1)

    def _column(self, start: Start, given: Array, noise: float, column: int) -> Array:
        """Scores (m, draws) of one column, for which each person's u has the factor `given`."""
        _, learn, test = self.rows
        noise_axes = self.noise_axes[column]
        loud = noise * start.clip * SENSITIVITY / UNIT
        counted = loud / start.clip * UNIT / COUNT * self.noise_count
        n = np.maximum(len(learn) + counted, 1.0)
        hold = start.hold * start.share**2
        along = given @ self.z[learn]
        inside = start.gain[:-1, None] * along[:, None] + loud * noise_axes
        second = start.second[:, None]
        live = start.share > 0
        factor = np.zeros((len(hold), len(n)))
        factor[live] = held(n, second[live], hold[live, None], loud**2)
        z = self.z[test]
        found = (z * start.gain[:-1]) @ (factor[:-1] * inside)
        products = self.gram @ given - z @ along
        off = start.gain[-1] * products[:, None]
        off = off + loud * (self.noise_test[column] - z @ noise_axes)
        found = found + start.gain[-1] * factor[-1] * off
        half = 0.5 * given.sum() + loud * self.noise_half[column]
        step = 0.5 * half * held(n, 0.25, start.hold, loud**2)
        return self.score[test, column][:, None] + found + step

    def ridge(self) -> Array:
        """Scores (m, c) of the tested people by ridge on the public and all learning people."""
        public, learn, test = self.rows
        both = np.concatenate([public, learn])
        centre = self.x[both].mean(0)
        rows = self.x[both] - centre
        t = self.t[both]
        coefficient, _ = leave_one_out(rows @ rows.T, t, PENALTY * self.p)
        return (self.x[test] - centre) @ (rows.T @ coefficient) + t.mean(0)


# -- what sums would add ---------------------------------------------------------------------------
class Dealings:
    """What dealings of the public sites into public people and hospitals tell.

    Those that leave too few people are left out; of a single site there are none.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Of the public people, confounds removed.
    y, site : ndarray of shape (n,)
    levels : set of float
        Noise per person.

    Attributes
    ----------
    references : list of (public, pooled)
        AUROC within hospitals of the public head, and what ridge on everybody's data in one place
        adds to it.
    gains : mapping of level to list of ndarray of shape (PULLS,)
        AUROC above the public head, by the pull to it.
    """

    def __init__(
        self, features: Array, y: Array, site: Array, levels: set[float]
    ) -> None:
        self.n_features = features.shape[1]
        self.references: list[tuple[float, float]] = []
        self.gains: dict[float, list[Array]] = {level: [] for level in levels}
        kinds = 2 if y.dtype.kind == "f" else len(np.unique(y))
        for k in range(DEALINGS if len(np.unique(site)) > 1 else 0):
            rng = numpy_rng(k, "worth of sums")
            rows = deal(site, y, PUBLIC * len(y), rng)
            fewest = min(len(rows[0]), len(rows[1]))
            if fewest >= MIN_PUBLIC and all(
                len(np.unique(y[r])) >= kinds for r in rows
            ):
                part = Partition(features, y, site, rows, rng)
                public = float(part.auroc(part.score[rows[2]]))
                pooled = float(part.auroc(part.ridge())) - public
                self.references.append((public, pooled))
                for level, gains in self.gains.items():
                    gains.append(_by_pull(part, level) - public)

    def found(self, level: float) -> tuple[int, float, float]:
        """Which of `PULLS` the rule takes, the mean gain with it and its standard error."""
        if len(self.references) < 2:
            return 0, 0.0, 0.0
        gains = np.array(self.gains[level])
        best = int(gains.mean(0).argmax())
        ahead, error = _mean(gains[:, best] - gains[:, 0])
        pull = best if ahead > SURE * error else 0
        return pull, *_mean(gains[:, pull])

    def settings(self, noise: float) -> StartSettings:
        """The settings of the plan's table, held at the public head as the rule says."""
        usual = planned_settings(noise, self.n_features)
        pull, _, _ = self.found(noise)
        return replace(usual, pull=PULLS[pull] * usual.pull)


def _by_pull(part: Partition, level: float) -> Array:
    """AUROC (PULLS,) at a noise per person."""
    planned = part.start(planned_settings(level, part.p))
    noise = level * len(part.rows[1])
    found = []
    for times in PULLS:
        start = replace(planned, pull=times * planned.pull)
        found.append(part.auroc(part.scores(start, noise)).mean())
    return np.array(found)


def _mean(values: Array) -> tuple[float, float]:
    """Mean of (n,) and its standard error."""
    error = values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(error)
