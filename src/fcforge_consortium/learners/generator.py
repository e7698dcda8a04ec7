r"""Generator ``contributed``: synthetic subjects from public subjects and one contribution.

Letters as in `fcforge_consortium.base_model.space`: x, the p standardised features of a scan; axes
:math:`b_k` of the public subjects with variances :math:`g_k`.

Standardised features are drawn with the second moments of the public subjects,

.. math:: x = \sqrt p\, \Bigl(\sum_k \sqrt{g_k}\, b_k b_k^\top + \sqrt{g_0}\,
          \bigl(I - \sum_k b_k b_k^\top\bigr)\Bigr) \epsilon, \qquad \epsilon \sim N(0, I),

and get a diagnosis :math:`t = \pm1` with :math:`P(t = 1 \mid x) = (1 + s(x)) / 2`, where s is the
score of the model. Then :math:`E[t \mid x] = s(x)`: least squares on infinitely many of them gives
the model back (as long as no score leaves [-1, 1]), so that replay and the closed form agree. Only
the base model and the contribution are used, so no synthetic subject has to travel.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fcforge.base_model.features import from_log_features, log_features
from fcforge.base_model.model import FLAT, BaseModel
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.errors import ConfigError
from fcforge.core.settings import FRACTION, Checked, above, limits
from fcforge.generators.base import N_CLASSES, RNG, FCBatch, Generator, in_shares
from fcforge_consortium.base_model.space import ContributionSpace, SpaceSettings
from fcforge_consortium.base_model.vectors import (
    LinearModel,
    contribution_rows,
    noise_units,
    solve,
    stepped_model,
)
from fcforge_consortium.learners.public_space import space_of
from fcforge_consortium.privacy.noise import DELTA, EPSILON
from fcforge_consortium.privacy.seeded_noise import Noise, experiment_noise

CERTAIN = 0.98  # clips scores, so that every subject can have either diagnosis


@limits(epsilon=above(0), delta=FRACTION)
@dataclass(frozen=True)
class SumNoise(Checked):
    """Noise on a sum of contributions (`fcforge_consortium.base_model.vectors`).

    Parameters
    ----------
    mechanism : {"gaussian", "none"}
        Noise for (epsilon, delta), or exact sums.
    epsilon, delta : float
        Budget of each subject (add or remove one).
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and protects nobody: anybody who knows the seed can
        subtract the noise.
    """

    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: float = EPSILON
    delta: float = DELTA
    noise: Noise = "secret"

    @property
    def limit(self) -> float | None:
        """Return epsilon, or None for exact sums."""
        return self.epsilon if self.mechanism == "gaussian" else None

    @property
    def units(self) -> int:
        """Return the standard deviation of one dose of noise in whole units; 0 for exact sums."""
        return noise_units(self.limit, self.delta)

    def drawn(self, size: int, doses: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the sum of several doses of noise, in whole units.

        A dose is the full noise for the budget, as one aggregator or one hospital adds it.

        Parameters
        ----------
        size : int
            Length of a contribution.
        doses : int
        rng : numpy Generator
            Used for seeded noise alone.
        """
        total = np.zeros(size, dtype=np.int64)
        for _ in range(doses if self.units else 0):
            total = total + experiment_noise(self.noise, self.units, size, rng)
        return total


def exact_contribution(space: ContributionSpace, fc: Tensor, y: Tensor) -> np.ndarray:
    """Return the contribution of a site's subjects without noise: m numbers in whole units.

    Parameters
    ----------
    space : ContributionSpace
    fc : Tensor of shape (n, R, R)
    y : Tensor of shape (n,)
        Diagnoses.
    """
    features = log_features(fc.cpu().numpy(), space.base.shrink)
    return contribution_rows(space, features, y.cpu().numpy()).sum(0)


class ContributedState(NamedTuple):
    """State of the generator: the site's noisy contribution (m,), in whole units."""

    contribution: Tensor


@dataclass(frozen=True)
class Contributed(SumNoise, Generator):
    """Synthetic subjects with public second moments and diagnoses by the site's contribution.

    The state is the contribution itself, with noise of its own.

    Parameters
    ----------
    public : PublicSubjects
        Public subjects of the run.
    **settings
        Those of `SumNoise`.
    """

    public: PublicSubjects | None = field(default=None, repr=False, compare=False)

    name = "contributed"
    former_name = "released"
    state_type = ContributedState
    needs_public = True
    defaults_version = SpaceSettings.defaults_version  # its space relies on them

    def check_site(self, batch: FCBatch) -> Tensor:
        """Check a site, and return one subject per class (2,), however many the site has.

        Either diagnosis can be drawn from any contribution, while a class without subjects could not be.
        """
        super().check_site(batch)
        return torch.ones(N_CLASSES, dtype=torch.int64)

    def learn(self, batch: FCBatch, rng: RNG) -> ContributedState:
        """Return the contribution of the site."""
        seed = int(torch.randint(2**63 - 1, (), generator=rng))
        noise_rng = np.random.default_rng(seed)
        numbers = exact_contribution(self.space, batch.fc, batch.y)
        numbers = numbers + self.drawn(len(numbers), 1, noise_rng)
        return ContributedState(torch.from_numpy(numbers))

    @property
    def space(self) -> ContributionSpace:
        """Return the space of contributions; raise `ConfigError` if there are no public subjects."""
        if self.public is None:
            raise ConfigError(
                "needs public subjects, and the run has none.",
                where=f"generator '{self.name}'",
                do="Add a [base_model] table that names the public sites.",
            )
        return space_of(self.public)

    def linear_model(self, model: ContributedState) -> LinearModel:
        """Return the linear model that this one contribution gives."""
        numbers = model.contribution.cpu().numpy()
        beta = solve(self.space, numbers, float(self.units**2))
        return stepped_model(self.space, beta)

    def diagnoses(self, model: ContributedState, y: Tensor, n: int) -> Tensor:
        """Return n labels in the shares that the contribution implies; `y` is not used."""
        return in_shares(0.5 * (1.0 + self.linear_model(model).bias), n)

    def draw(self, model: ContributedState, y: Tensor, rng: RNG) -> Tensor:
        """Draw correlation matrices with the diagnoses y (n,)."""
        linear = self.linear_model(model)
        x = draw_subjects(self.space, linear, y.cpu().numpy(), rng)
        return torch.from_numpy(to_fc(self.space.base, x)).to(y.device)


def draw_features(space: ContributionSpace, n: int, rng: RNG) -> np.ndarray:
    """Draw standardised features (n, p) with the second moments of the public subjects."""
    normal = torch.randn(n, space.n_features, generator=rng, dtype=torch.float64)
    return space.scaled(normal.numpy(), np.sqrt(space.n_features * space.variance))


def draw_subjects(
    space: ContributionSpace, model: LinearModel, y: np.ndarray, rng: RNG
) -> np.ndarray:
    """Draw standardised features (n, p) of subjects with given diagnoses.

    Scans are drawn first and a diagnosis for each; those with a wanted diagnosis are kept. Either
    diagnosis has a probability of at least one in a hundred, so the loop ends.

    Parameters
    ----------
    space : ContributionSpace
    model : LinearModel
        Its score decides the probability of a diagnosis.
    y : ndarray of shape (n,)
        Wanted diagnoses, 0 or 1.
    rng : torch.Generator
    """
    subjects = np.empty((len(y), space.n_features))
    for label in (0, 1):
        places = np.flatnonzero(y == label)
        while len(places):
            # about half of them have the wanted diagnosis
            x = draw_features(space, 2 * len(places) + 8, rng)
            drawn = torch.rand(len(x), generator=rng, dtype=torch.float64).numpy()
            score = np.clip(x @ model.weight + model.bias, -CERTAIN, CERTAIN)
            patient = drawn < 0.5 * (1.0 + score)
            suitable = x[patient == bool(label)][: len(places)]
            subjects[places[: len(suitable)]] = suitable
            places = places[len(suitable) :]
    return subjects


def to_fc(base: BaseModel, x: np.ndarray) -> np.ndarray:
    """Return correlation matrices (n, R, R), float32, of standardised features x (n, p)."""
    scale = np.where(base.scale == FLAT, 0.0, base.scale)
    fc = from_log_features(base.mean + x * scale, base.shrink)
    return fc.astype(np.float32)
