"""Repeatable noise for experiments, which protects nobody.

A run must be repeatable, so its noise comes from the run's own generator. Anybody who knows the seed
can subtract it. No file that leaves a hospital may have such noise (a contract of import-linter
ensures it); the secret noise is that of `fcforge_consortium.privacy.noise`.
"""

from typing import Literal

import numpy as np

from fcforge_consortium.privacy.noise import discrete_gaussian

Noise = Literal["secret", "seeded"]


def experiment_noise(
    noise: Noise, sigma: int, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw integer noise for an experiment.

    Parameters
    ----------
    noise : {"secret", "seeded"}
        Discrete Gaussian noise of the operating system's bits, or rounded normal numbers of `rng`.
    sigma : int
        Standard deviation.
    size : int
        Number of integers.
    rng : numpy Generator
        Used for seeded noise alone.

    Returns
    -------
    ndarray of shape (size,), int64
    """
    if noise == "secret":
        return discrete_gaussian(sigma, size)
    return np.rint(sigma * rng.standard_normal(size)).astype(np.int64)
