"""How good one model is on one group of people: every metric with its bootstrap interval."""

from collections.abc import Sequence

import numpy as np

from fcforge.metrics import cell_values
from fcforge.privacy.measures import Measured
from fcforge.stats.bootstrap import interval, subject_weights

MEASURES = ("accuracy", "balanced_accuracy", "auroc", "brier", "ece")


def measure(
    p: np.ndarray, y: np.ndarray, ids: Sequence[str], site: str = ""
) -> dict[str, Measured]:
    """Metrics of P(patient) `p` (n,) against diagnoses `y` (n,).

    Intervals resample people within each class, as everywhere (`subject_weights`); they are NaN
    where a metric needs both classes and there is one.
    """
    weights = subject_weights(site, ids, y)
    found = {}
    for name in MEASURES:
        value = cell_values(p[None], y, name)[0]
        draws = cell_values(p[None], y, name, weights)[0].astype(float)
        low, high = interval(value, draws) if np.isfinite(value) else (np.nan, np.nan)
        found[name] = Measured(float(value), float(low), float(high))
    return found
