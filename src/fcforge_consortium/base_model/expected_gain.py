r"""Expected gain of contributions, estimated on the public subjects before any hospital joins.

The gain is the AUROC of the model with contributions minus that of the base model alone, compared
within each hospital.

**Partitions.** A partition plays a consortium: some public sites, drawn at random, stand for the public
subjects, and the others for hospitals. The subjects of each hospital are split into learning and test
subjects. Noise is scaled to the planned number of subjects. The result is that of
`fcforge_consortium.base_model.vectors` (a test compares them), but contributions are never formed as
vectors: with the coordinates :math:`z = B^\top x` along the axes B and the Gram matrix of x, scores after
the sum follow from inner products, so that hundreds of settings, budgets and draws of the noise cost
milliseconds each. Noise is drawn once in all p directions and used for every setting, so that all are
compared on the same noise. It is seeded: none of these numbers leaves a hospital.

Letters: n subjects, p features, K axes, c columns of the target, m test subjects. "Rows" are indices of
subjects in the arrays that hold all of them.

**Caution.** The table of `fcforge_consortium.base_model.planning` was chosen where the base model
leaves much to learn. If the base model is accurate already, or has few ROIs, a step of that size is
mostly noise: on simulated subjects of 40 ROIs the base model's AUROC of .96 fell to .83 at epsilon
1. Partitions of the public subjects may therefore choose a stronger *pull*, which is the strength of the
prior that holds the model at the base model. Rule: of `PULLS` times the table's pull, the one with the
best mean gain is taken if it beats the table's pull by more than `SURE` standard errors of the paired
difference. Zero, one and two standard errors were compared on ABIDE's fourteen smaller sites (16
partitions, five budgets). With two, the table's pull stayed in 98 of 100 cases and no mean gain fell by
more than .002. With one, a fifth of all cases changed and lost up to .003.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import targets, vertices
from fcforge.base_model.model import (
    MIN_PUBLIC,
    PENALTY,
    BaseModel,
    leave_one_out,
    mean_and_scale,
)
from fcforge.core.randomness import numpy_rng
from fcforge.core.target import strata
from fcforge_consortium.base_model.planning import planned_settings
from fcforge_consortium.base_model.space import (
    FIELD_SETTINGS,
    RESIDUAL,
    UNIT,
    ContributionSpace,
    SpaceSettings,
    principal_axes,
)
from fcforge_consortium.base_model.vectors import COUNT, SENSITIVITY, step_factor

PUBLIC = 0.5  # share of the subjects that are public in a partition
PARTITIONS = 12
PULLS = (1.0, 3.0, 10.0, 30.0, 100.0)  # multiples of the planned pull that are tried
SURE = 2.0  # standard errors by which another pull must beat the planned one
TESTED = 0.3  # share of each hospital's subjects that are tested
Rows = tuple[Array, Array, Array]  # rows of public, learning and test subjects


def random_partition(
    site: Array, y: Array, wanted: float, rng: np.random.Generator
) -> Rows:
    """Divide public sites at random into public subjects and hospitals.

    Random sites are public until they have `wanted` subjects; all others are hospitals. Each hospital
    is split 7:3 into learning and test subjects, within every diagnosis or every fifth of a number.

    Parameters
    ----------
    site, y : ndarray of shape (n,)
        Site and target of each subject.
    wanted : float
        Number of public subjects to reach.
    rng : numpy Generator

    Returns
    -------
    public, learn, test : ndarray of int
        Rows of the subjects.
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
    """A consortium played on public subjects, which scores any settings and noise quickly.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Features of all subjects, confounds removed.
    y, site : ndarray of shape (n,)
        Their targets and sites.
    rows : tuple of ndarray
        Public, learning and test rows (`random_partition`).
    rng : numpy Generator
        Generator of the noise.
    draws : int
        Draws of the noise.
    directions : int
        Number of axes.
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

    def _fit_public(self, x: Array, t: Array, directions: int) -> None:
        """Fit the base model and the axes to the public subjects, and set what follows from them.

        ``score`` (n, c) are the scores of all subjects by the base model, ``public_residual`` (., c) its
        leave-one-out residuals, ``z`` (n, K) the coordinates of all subjects along the axes.

        Parameters
        ----------
        x : ndarray of shape (n, p)
            Standardised features of the public subjects.
        t : ndarray of shape (n, c)
            Their targets.
        directions : int
            Number of axes.
        """
        coefficient, left_out = leave_one_out(x @ x.T, t, PENALTY * self.p)
        self.public_residual = np.clip(t - left_out, -RESIDUAL, RESIDUAL)
        self.score = self.x @ (x.T @ coefficient) + t.mean(0)
        self.axes, self.variance = principal_axes(x, directions)
        self.z = self.x @ self.axes

    @cached_property
    def pairs(self) -> list[tuple[Array, ...]]:
        """Return pairs of test subjects of one hospital, of which the first should score higher.

        For two classes: each patient with each control. For more classes: each class with all
        others. For a number: each subject with each one of a lower number.

        Returns
        -------
        list of (first, second)
            Places of test subjects; one item for two classes or a number, one for each class otherwise.
        """
        y = self.y_test
        n_classes = self.t.shape[1] + 1
        if y.dtype.kind == "f":
            higher = [y[:, None] > y]
        else:  # of two classes patients (1) are enough: controls would give the same pairs, turned
            classes = [1] if n_classes == 2 else range(n_classes)
            higher = [(y == k)[:, None] & (y != k) for k in classes]
        same_site = self.site_test[:, None] == self.site_test
        return [np.nonzero(each & same_site) for each in higher]

    def auroc(self, scores: Array) -> Array:
        """Return the AUROC within hospitals.

        It is the share of pairs in the right order, averaged over the classes if there are more
        than two. For a number it is the share of pairs in the order of their numbers.

        Parameters
        ----------
        scores : ndarray of shape (m, ..., c)
            Scores of the test subjects.

        Returns
        -------
        ndarray of shape (...)
        """
        # one direction per class; for two classes or a number only the last one, toward 1, has pairs
        directions = vertices(self.t.shape[1] + 1)[-len(self.pairs) :]
        shares = []
        for direction, (first, second) in zip(directions, self.pairs, strict=True):
            toward = scores @ direction  # how far the scores point to the class
            difference = toward[first] - toward[second]
            ties = (difference == 0).mean(0)
            shares.append((difference > 0).mean(0) + 0.5 * ties)
        return np.mean(shares, 0)

    def space(self, settings: SpaceSettings) -> ContributionSpace:
        """Return the space of contributions with these settings: scales, size and clip.

        Its base model is empty: features are standardised already, and the scores of the base model are
        in ``score``.
        """
        public, _, _ = self.rows
        zeros = np.zeros(self.p)
        base = BaseModel(zeros, np.ones(self.p), zeros, bias=0.0, temperature=1.0)
        space = ContributionSpace(
            base,
            self.axes,
            self.variance,
            size=1.0,
            clip=1.0,
            **{k: getattr(settings, name) for k, name in FIELD_SETTINGS.items()},
        )
        lengths = np.sqrt(self._squares(space.gain, public))
        space = replace(space, size=float(np.median(lengths)))
        norm = self._norm(space, public, self.public_residual)
        return replace(space, clip=float(np.quantile(norm, settings.clip)))

    def factor(self, space: ContributionSpace, rows: Array) -> Array:
        """Return the factors by which the coordinates u of some subjects enter a sum.

        A factor is the residual of the base model, scaled down where the subject's vector would be
        longer than the clip.

        Parameters
        ----------
        space : ContributionSpace
        rows : ndarray of int, shape (n,)
            The subjects.

        Returns
        -------
        ndarray of shape (n, c)
        """
        residual = np.clip(self.t[rows] - self.score[rows], -RESIDUAL, RESIDUAL)
        norm = self._norm(space, rows, residual)
        scale = np.minimum(space.clip / np.maximum(norm, 1e-30), 1.0)
        return residual * scale[:, None]

    def _norm(self, space: ContributionSpace, rows: Array, residual: Array) -> Array:
        """Return the norms (n,) of the vectors of subjects with residuals (n, c), before clipping."""
        size = np.linalg.norm(residual, axis=1)
        return size * np.sqrt(self._squares(space.gain, rows) + 0.25)

    def _squares(self, gain: Array, rows: Array) -> Array:
        """Return the squared norms (n,) of subjects' coordinates, scaled by `gain` (K + 1,)."""
        along_axes = self.z[rows] ** 2
        beside_axes = np.maximum(self.norms[rows] - along_axes.sum(1), 0.0)
        return along_axes @ gain[:-1] ** 2 + beside_axes * gain[-1] ** 2

    def scores(self, space: ContributionSpace, noise: float) -> Array:
        """Return the scores of the test subjects after the noisy sum over all learning subjects.

        Parameters
        ----------
        space : ContributionSpace
        noise : float
            Standard deviation of all noise in the sum, in units of the sensitivity.

        Returns
        -------
        ndarray of shape (m, draws, c)
        """
        _, learn, _ = self.rows
        factors = self.factor(space, learn)
        columns = [
            self._column(space, column_factors, noise, k)
            for k, column_factors in enumerate(factors.T)
        ]
        return np.stack(columns, -1)

    def _column(
        self, space: ContributionSpace, factors: Array, noise: float, column: int
    ) -> Array:
        """Return the scores of the test subjects by one column of the target.

        It is `vectors.solve` and `vectors.stepped_model` without their vectors.

        Parameters
        ----------
        space : ContributionSpace
        factors : ndarray of shape (n,)
            Factor of each learning subject's u in the sum.
        noise : float
            As in `scores`.
        column : int

        Returns
        -------
        ndarray of shape (m, draws)
        """
        _, learn, test = self.rows
        noise_axes = self.noise_axes[column]
        sigma = noise * space.clip * SENSITIVITY / UNIT  # as a real value, not in units
        # the noisy number of subjects; the noise of the count in subjects
        count_noise = sigma / space.clip * UNIT / COUNT * self.noise_count
        n = np.maximum(len(learn) + count_noise, 1.0)
        hold = space.hold * space.share**2  # lambda gamma_k^2
        sum_axes = factors @ self.z[learn]
        noisy_axes = space.gain[:-1, None] * sum_axes[:, None] + sigma * noise_axes
        second = space.second[:, None]
        used = space.share > 0  # all, unless contributions cover the first q axes alone
        rate = np.zeros((len(hold), len(n)))  # step per unit of the sum, by direction
        rate[used] = step_factor(n, second[used], hold[used, None], sigma**2)
        z = self.z[test]
        step = (z * space.gain[:-1]) @ (rate[:-1] * noisy_axes)
        # products of test subjects and the sum, in the directions beside the axes
        products = self.gram @ factors - z @ sum_axes
        beside_axes = space.gain[-1] * products[:, None]
        beside_axes = beside_axes + sigma * (self.noise_test[column] - z @ noise_axes)
        step = step + space.gain[-1] * rate[-1] * beside_axes
        constant_sum = 0.5 * factors.sum() + sigma * self.noise_half[column]
        intercept = 0.5 * constant_sum * step_factor(n, 0.25, space.hold, sigma**2)
        return self.score[test, column][:, None] + step + intercept

    def ridge(self) -> Array:
        """Return the scores (m, c) of pooled ridge on all public and learning subjects."""
        public, learn, test = self.rows
        both = np.concatenate([public, learn])
        centre = self.x[both].mean(0)
        rows = self.x[both] - centre
        t = self.t[both]
        coefficient, _ = leave_one_out(rows @ rows.T, t, PENALTY * self.p)
        return (self.x[test] - centre) @ (rows.T @ coefficient) + t.mean(0)


class ExpectedGains:
    """Gains of contributions over random partitions of the public sites.

    Partitions with too few subjects are left out. Public subjects of a single site have no partition.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Features of the public subjects, confounds removed.
    y, site : ndarray of shape (n,)
        Their targets and sites.
    levels : set of float
        Noise per subject (`planning`), for each of which gains are computed.

    Attributes
    ----------
    references : list of (public, pooled)
        For each partition the AUROC of the base model alone, and the gain of ridge on pooled data.
    gains : dict of float to list of ndarray
        For each level and partition the gain by each of `PULLS`.
    """

    def __init__(
        self, features: Array, y: Array, site: Array, levels: set[float]
    ) -> None:
        self.n_features = features.shape[1]
        self.references: list[tuple[float, float]] = []
        self.gains: dict[float, list[Array]] = {level: [] for level in levels}
        kinds = 2 if y.dtype.kind == "f" else len(np.unique(y))
        n_partitions = PARTITIONS if len(np.unique(site)) > 1 else 0
        for k in range(n_partitions):
            # the words are part of the seed: keep them
            rng = numpy_rng(k, "worth of sums")
            rows = random_partition(site, y, PUBLIC * len(y), rng)
            public_rows, learn_rows, test_rows = rows
            fewest = min(len(public_rows), len(learn_rows))
            # each of the three needs all classes, or two different numbers
            if fewest >= MIN_PUBLIC and all(
                len(np.unique(y[r])) >= kinds for r in rows
            ):
                part = Partition(features, y, site, rows, rng)
                public = float(part.auroc(part.score[test_rows]))
                pooled = float(part.auroc(part.ridge())) - public
                self.references.append((public, pooled))
                for level, gains in self.gains.items():
                    gains.append(_by_pull(part, level) - public)

    def best_pull(self, level: float) -> tuple[int, float, float]:
        """Return the index in `PULLS` that the rule of the module takes, its mean gain and standard error.

        Parameters
        ----------
        level : float
            Noise per subject.
        """
        if len(self.references) < 2:
            return 0, 0.0, 0.0
        gains = np.array(self.gains[level])
        best = int(gains.mean(0).argmax())
        ahead, error = _mean(gains[:, best] - gains[:, 0])
        pull = best if ahead > SURE * error else 0
        return pull, *_mean(gains[:, pull])

    def settings(self, noise: float) -> SpaceSettings:
        """Return the planned settings for a noise per subject, with the pull that the rule takes."""
        planned = planned_settings(noise, self.n_features)
        pull, _, _ = self.best_pull(noise)
        return replace(planned, pull=PULLS[pull] * planned.pull)


def _by_pull(part: Partition, level: float) -> Array:
    """Return the AUROC of a partition for each of `PULLS`, averaged over draws of the noise.

    Parameters
    ----------
    part : Partition
    level : float
        Noise per subject.
    """
    planned = part.space(planned_settings(level, part.p))
    noise = level * len(part.rows[1])
    values = []
    for times in PULLS:
        space = replace(planned, pull=times * planned.pull)
        values.append(part.auroc(part.scores(space, noise)).mean())
    return np.array(values)


def _mean(values: Array) -> tuple[float, float]:
    """Return the mean of some values and its standard error."""
    error = values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(error)
