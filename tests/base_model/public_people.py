"""Made-up public people: features, diagnoses or numbers, sites."""

import numpy as np


def people(n=60, p=45, seed=0, sites=3, classes=2):
    """Two diagnoses or more; of 0 classes a number between -1 and 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % (classes or 2)
    x = rng.normal(size=(n, p)) @ np.diag(np.linspace(2, 0.3, p))
    x[:, 0] += (y == 1) * 1.5
    x[:, 2] += (y == 2) * 1.5
    if not classes:
        y = np.clip(0.4 * x[:, 0] - 0.3 + 0.1 * rng.normal(size=n), -1, 1)
    return x, y, [f"S{i % sites}" for i in range(n)]
