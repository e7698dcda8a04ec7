r"""released: synthetic subjects from a public start and one hospital's release.

They are drawn where they are used. Standardised features are as the public people have them,

.. math:: x = \sqrt p\, \Bigl(\sum_k \sqrt{g_k}\, b_k b_k^\top + \sqrt{g_0}\,
          \bigl(I - \sum_k b_k b_k^\top\bigr)\Bigr) \epsilon, \qquad \epsilon \sim N(0, I),

and get a diagnosis :math:`t = \pm1` with :math:`P(t = 1 \mid x) = (1 + s(x)) / 2`, where s is the
head's score. Then :math:`E[t \mid x] = s(x)`: least squares on infinitely many of them gives the
head back (where no score leaves [-1, 1]), so that replay and the closed form agree. Nothing but
the start and the released numbers is used; none has to travel.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fcforge.base_model import contributions as vector
from fcforge.base_model.features import from_log_features, log_features
from fcforge.base_model.start import FLAT, Start
from fcforge.core.errors import ConfigError
from fcforge.core.settings import FRACTION, Checked, above, limits
from fcforge.generators.base import (
    N_CLASSES,
    RNG,
    FCBatch,
    Generator,
    GeneratorState,
    in_shares,
)
from fcforge_consortium.privacy.noise import DELTA, EPSILON
from fcforge_consortium.privacy.seeded_noise import Noise, experiment_noise

CERTAIN = 0.98  # scores are clipped there: every subject can have either diagnosis


@limits(epsilon=above(0), delta=FRACTION)
@dataclass(frozen=True)
class SumNoise(Checked):
    """Noise on the sum of what people contribute (`fcforge.base_model.contributions`).

    Parameters
    ----------
    mechanism : {"gaussian", "none"}
        Noise for (epsilon, delta), or the exact sums.
    epsilon, delta : float
        Budget of every person (add or remove one).
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and gives no guarantee: who knows the seed
        subtracts the noise.
    """

    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: float = EPSILON
    delta: float = DELTA
    noise: Noise = "secret"

    @property
    def limit(self) -> float | None:
        """Epsilon, or None for exact sums."""
        return self.epsilon if self.mechanism == "gaussian" else None

    @property
    def units(self) -> int:
        """Standard deviation of one dose in whole units; 0 for exact sums."""
        return vector.noise_units(self.limit, self.delta)

    def drawn(self, size: int, doses: int, rng: np.random.Generator) -> np.ndarray:
        """So many doses of noise (size,), whole units."""
        found = np.zeros(size, dtype=np.int64)
        for _ in range(doses if self.units else 0):
            found = found + experiment_noise(self.noise, self.units, size, rng)
        return found


def contributed(start: Start, fc: Tensor, y: Tensor) -> np.ndarray:
    """Sum (numbers,) of what a site's people contribute, whole units."""
    features = log_features(fc.cpu().numpy(), start.shrink)
    return vector.contributions(start, features, y.cpu().numpy()).sum(0)


@dataclass(frozen=True)
class Released(SumNoise, Generator):
    """Subjects as the public people have them, with diagnoses as the site's release says.

    The state is the release itself, with noise of its own.

    Parameters
    ----------
    start : Start
        Given by the run or the exchange.
    **settings
        Those of `SumNoise`.
    """

    start: Start | None = field(default=None, repr=False, compare=False)

    name = "released"
    needs_start = True

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """The release of the site; either diagnosis can be drawn from it."""
        start = self.public
        seed = int(torch.randint(2**63 - 1, (), generator=rng))
        own = np.random.default_rng(seed)
        given = contributed(start, batch.fc, batch.y)
        given = given + self.drawn(len(given), 1, own)
        counts = torch.ones(N_CLASSES, dtype=torch.int64)
        return {"release": torch.from_numpy(given), "counts": counts}

    @property
    def public(self) -> Start:
        """The start, or an error where there is none."""
        if self.start is None:
            raise ConfigError(
                "draws from a public start, and the run has none.",
                where=f"generator '{self.name}'",
                do="Add a [start] table that names the public sites.",
            )
        return self.start

    def head(self, state: GeneratorState) -> vector.Head:
        """The head that this one release gives."""
        release = state["release"].cpu().numpy()
        beta = vector.solve(self.public, release, float(self.units**2))
        return vector.head(self.public, beta)

    def diagnoses(self, state: GeneratorState, y: Tensor, n: int) -> Tensor:
        """Labels (n,) in the shares that the release implies; `y` is not looked at."""
        return in_shares(0.5 * (1.0 + self.head(state).bias), n)

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Correlation matrices with the diagnoses y (n,)."""
        x = draw_subjects(self.public, self.head(state), y.cpu().numpy(), rng)
        return torch.from_numpy(to_fc(self.public, x)).to(y.device)


def draw_features(start: Start, n: int, rng: RNG) -> np.ndarray:
    """Standardised features (n, p) as the public people have them."""
    normal = torch.randn(n, start.n_features, generator=rng, dtype=torch.float64)
    return start.scaled(normal.numpy(), np.sqrt(start.n_features * start.variance))


def draw_subjects(
    start: Start, head: vector.Head, y: np.ndarray, rng: RNG
) -> np.ndarray:
    """Standardised features (n, p) of subjects with the diagnoses y (n,).

    Candidates are drawn and given a diagnosis each; those with the diagnoses asked for are taken
    in turn. Either diagnosis has a probability of at least one in a hundred, so it ends.
    """
    found = np.empty((len(y), len(start.mean)))
    for label in (0, 1):
        places = np.flatnonzero(y == label)
        while len(places):
            x = draw_features(start, 2 * len(places) + 8, rng)
            drawn = torch.rand(len(x), generator=rng, dtype=torch.float64).numpy()
            score = np.clip(x @ head.weight + head.bias, -CERTAIN, CERTAIN)
            patient = drawn < 0.5 * (1.0 + score)
            fits = x[patient == bool(label)][: len(places)]
            found[places[: len(fits)]] = fits
            places = places[len(fits) :]
    return found


def to_fc(start: Start, x: np.ndarray) -> np.ndarray:
    """Correlation matrices (n, R, R), float32, of standardised features."""
    scale = np.where(start.scale == FLAT, 0.0, start.scale)
    fc = from_log_features(start.mean + x * scale, start.shrink)
    return fc.astype(np.float32)
