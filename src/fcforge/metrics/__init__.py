"""What a run's raw scores are worth: per-cell metrics, continual-learning summaries, references.

Pure numpy functions of `fcforge.types.RunResult`.
"""

from fcforge.metrics.cells import METRICS, cell_values, metric_named
from fcforge.metrics.continual import (
    SUMMARIES,
    aaa,
    acc,
    accuracy_curve,
    bwt,
    fm,
    fm_split,
    for_literal,
    for_triangular,
    forgetting_curve,
    fwt,
    intransigence,
    summaries_of,
)
from fcforge.metrics.runs import (
    Runs,
    constant_predictor,
    finite,
    majority_result,
    score_matrix,
    score_matrix_with_initial,
    summary,
)

__all__ = [
    "METRICS", "SUMMARIES", "Runs", "aaa", "acc", "accuracy_curve", "bwt", "cell_values",
    "constant_predictor", "finite", "fm", "fm_split", "for_literal", "for_triangular",
    "forgetting_curve", "fwt", "intransigence", "majority_result", "metric_named", "score_matrix",
    "score_matrix_with_initial", "summaries_of", "summary",
]  # fmt: skip
