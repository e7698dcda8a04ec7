"""released: synthetic subjects from a public start and one hospital's release."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fcforge.errors import ConfigError
from fcforge.generators.base import FCBatch, Generator, GeneratorState, in_shares
from fcforge.generators.layers import N_CLASSES, RNG
from fcforge.graphs import log_features
from fcforge.privacy.mechanisms import DELTA, EPSILON, Noise, epsilon_of, secret_rng
from fcforge.releases import vector
from fcforge.releases.start import Start
from fcforge.settings import Fraction, Positive


@dataclass(frozen=True)
class Released(Generator):
    """Subjects as the public people have them, with diagnoses as the site's release says.

    The state is the release itself: q + 2 numbers. See `fcforge.releases.vector`.

    Parameters
    ----------
    mechanism : {"gaussian", "none"}
        Noise for (epsilon, delta), or the exact sums.
    epsilon, delta : float
        Budget of every person (add or remove one).
    noise : {"secret", "seeded"}
        "seeded" makes experiments repeatable and gives no guarantee.
    start : Start
        Given by the run or the capsule.
    """

    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: Positive = EPSILON
    delta: Fraction = DELTA
    noise: Noise = "secret"
    start: Start | None = field(default=None, repr=False, compare=False)

    name = "released"
    needs_start = True

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """The release of the site; either diagnosis can be drawn from it."""
        start = self.public
        epsilon = epsilon_of(self.mechanism, self.epsilon)
        features = log_features(batch.fc.double().cpu(), float(start.shrink))
        rng = secret_rng(self.noise, rng)
        given = vector.release_vector(
            start, features, batch.y.cpu(), epsilon, self.delta, rng
        )
        return {"release": given, "counts": torch.ones(N_CLASSES, dtype=torch.int64)}

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
        epsilon = epsilon_of(self.mechanism, self.epsilon)
        variance = vector.noise_sd(self.public, epsilon, self.delta) ** 2
        beta = vector.solve(self.public, state["release"].cpu(), variance, 1)
        return vector.head(self.public, beta)

    def diagnoses(self, state: GeneratorState, y: Tensor, n: int) -> Tensor:
        """Labels (n,) in the shares that the release implies; `y` is not looked at."""
        return in_shares(0.5 * (1.0 + float(self.head(state).bias)), n)

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Correlation matrices with the diagnoses y (n,)."""
        x = vector.draw_subjects(self.public, self.head(state), y, rng)
        return vector.to_fc(self.public, x).to(y.device)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """People in the release, as released."""
        clip = float(self.public.clip)
        return {"people": float(state["release"][-1]) / (vector.COUNT * clip)}
