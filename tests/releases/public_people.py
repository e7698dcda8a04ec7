"""Made-up public people: features, diagnoses, sites."""

import numpy as np


def people(n=60, p=45, seed=0, sites=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.normal(size=(n, p)) @ np.diag(np.linspace(2, 0.3, p))
    x[:, 0] += y * 1.5
    return x, y, [f"S{i % sites}" for i in range(n)]
