"""What a run's raw scores are worth: per-cell metrics, continual-learning summaries, references.

Pure numpy functions of `fcforge.types.RunResult`.
"""

from fcforge.metrics.cells import METRICS, cell_values, metric_named
from fcforge.metrics.continual import (
    SUMMARIES,
    Runs,
    aaa,
    accuracy_curve,
    finite,
    fm,
    forgetting_curve,
    score_matrix,
    summary,
)

__all__ = [
    "METRICS",
    "SUMMARIES",
    "Runs",
    "aaa",
    "accuracy_curve",
    "cell_values",
    "finite",
    "fm",
    "forgetting_curve",
    "metric_named",
    "score_matrix",
    "summary",
]
