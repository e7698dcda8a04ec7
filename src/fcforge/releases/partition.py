r"""Public people and hospitals dealt from one cohort, their sums as inner products.

Numbers are those of `fcforge.releases.vector` (tests hold them together): with
:math:`z = B^\top x` and the Gram matrix of x, coordinates are never formed, and hundreds of
settings, budgets and draws of the noise cost milliseconds each. Noise is drawn once in all p
directions and used for every setting, so that all are compared on the same noise. It is seeded:
nothing here leaves a hospital.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from fcforge.releases.features import targets, vertices
from fcforge.releases.start import (
    RESIDUAL,
    SET,
    Array,
    Start,
    StartSettings,
    leave_one_out,
    mean_and_scale,
    principal_axes,
)
from fcforge.releases.vector import COUNT, SENSITIVITY, UNIT, held
from fcforge.types import strata

PENALTY = StartSettings().penalty
TESTED = 0.3  # of every hospital's people
Rows = tuple[Array, Array, Array]


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
        public, _, test = rows
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

    def _fit_public(self, own: Array, t: Array, directions: int) -> None:
        """Scores by the public head, what it leaves of the public people, and their axes."""
        coefficient, left_out = leave_one_out(own @ own.T, t, PENALTY * self.p)
        self.public_residual = np.clip(t - left_out, -RESIDUAL, RESIDUAL)
        self.score = self.x @ (own.T @ coefficient) + t.mean(0)
        self.axes, self.variance = principal_axes(own, directions)
        self.z = self.x @ self.axes

    @cached_property
    def gram(self) -> Array:
        """Inner products (m, n) of the tested with the learning people."""
        _, learn, test = self.rows
        return self.x[test] @ self.x[learn].T

    @cached_property
    def noise_axes(self) -> Array:
        """Noise (c, K, draws) along the axes."""
        return self.axes.T @ self.noise

    @cached_property
    def noise_test(self) -> Array:
        """Inner products (c, m, draws) of the tested people with the noise."""
        return self.x[self.rows[2]] @ self.noise

    @cached_property
    def pairs(self) -> list[tuple[Array, Array]]:
        """Places of two tested people of one hospital of whom the first shall be higher.

        Of two classes all patients with all controls, of more each class with all others; of a
        number everybody with everybody below.
        """
        y = self.y_test
        if y.dtype.kind == "f":
            return [self._of_one_hospital(y[:, None] > y)]
        classes = np.arange(self.t.shape[1] + 1)
        asked = classes[1:] if len(classes) == 2 else classes
        return [self._of_one_hospital((y == k)[:, None] & (y != k)) for k in asked]

    def _of_one_hospital(self, wanted: Array) -> tuple[Array, Array]:
        same_site = self.site_test[:, None] == self.site_test
        first, second = np.nonzero(wanted & same_site)
        return first, second

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
