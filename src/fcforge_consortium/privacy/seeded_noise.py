"""Noise of experiments, which a seed draws again: it hides nobody.

A run must be repeatable, so its noise comes from the run's own generator. Whoever knows the seed
subtracts it: nothing of this module may touch what leaves a hospital (a contract of import-linter
keeps the exchange away from it). The secret noise is `fcforge_consortium.privacy.noise`.
"""

from typing import Literal

import numpy as np

from fcforge_consortium.privacy.noise import discrete_gaussian

Noise = Literal["secret", "seeded"]


def experiment_noise(
    noise: Noise, sigma: int, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Integers (size,) of standard deviation `sigma`: secret ones, or repeatable ones of `rng`."""
    if noise == "secret":
        return discrete_gaussian(sigma, size)
    return np.rint(sigma * rng.standard_normal(size)).astype(np.int64)
