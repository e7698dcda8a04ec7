"""Columns of the results table: one metric in one continual-learning summary each.

AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

from typing import Literal, NamedTuple

from fcforge.core.target import Kind


class Column(NamedTuple):
    """A number of the results table.

    Attributes
    ----------
    key : str
        Name in table.csv and JSON.
    title : str
        Heading in tables for people.
    metric : str
        A name of `fcforge.evaluation.metrics.METRICS`.
    summary : str
        A name of `fcforge.evaluation.forgetting.SUMMARIES`, or ``fm_split``.
    good : {"high", "low"}
        Whether high or low values are good.
    shown : bool
        Whether the column is in the report's main table; the others are in its folded table.
        CSV and JSON have all columns.
    help : str
        Meaning, shown at the heading.
    """

    key: str
    title: str
    metric: str
    summary: str
    good: Literal["high", "low"]
    shown: bool
    help: str


CLASS_COLUMNS = (
    Column(
        "aaa",
        "AAA",
        "accuracy",
        "aaa",
        "high",
        True,
        "accuracy averaged over all stages",
    ),
    Column(
        "acc",
        "Final ACC",
        "accuracy",
        "acc",
        "high",
        True,
        "mean accuracy after the last site",
    ),
    Column(
        "bacc",
        "bACC",
        "balanced_accuracy",
        "aaa",
        "high",
        True,
        "balanced accuracy, as AAA",
    ),
    Column(
        "auroc",
        "AUROC",
        "auroc",
        "aaa",
        "high",
        True,
        "area under the ROC curve, as AAA",
    ),
    Column(
        "fm",
        "FM",
        "accuracy",
        "fm",
        "low",
        True,
        "forgetting (Chaudhry 2018): best minus final",
    ),
    Column(
        "fm_split",
        "FM unb.",
        "accuracy",
        "fm_split",
        "low",
        False,
        "FM without luck: best stage chosen on half of the subjects, measured on the rest",
    ),
    Column(
        "bacc_fm",
        "bACC FM",
        "balanced_accuracy",
        "fm",
        "low",
        False,
        "balanced accuracy lost",
    ),
    Column("auroc_fm", "AUROC FM", "auroc", "fm", "low", False, "AUROC lost"),
    Column(
        "for_triangular",
        "FOR tri.",
        "accuracy",
        "for_triangular",
        "low",
        True,
        "FM × (T-1)/T",
    ),
    Column(
        "for_literal",
        "FOR",
        "accuracy",
        "for_literal",
        "low",
        True,
        "the paper's forgetting; values from before a site was learned count, too",
    ),
    Column(
        "bwt",
        "BWT",
        "accuracy",
        "bwt",
        "high",
        True,
        "backward transfer: final minus just learned",
    ),
    Column(
        "fwt",
        "FWT",
        "accuracy",
        "fwt",
        "high",
        True,
        "zero-shot gain over the untrained network",
    ),
)
NUMBER_COLUMNS = (
    Column(
        "aaa", "R²", "r2", "aaa", "high", True, "R² at a site, averaged over all stages"
    ),
    Column("acc", "Final R²", "r2", "acc", "high", True, "mean R² after the last site"),
    Column(
        "mae", "MAE", "mae", "aaa", "low", True, "mean absolute error, averaged as R²"
    ),
    Column(
        "spearman",
        "Spearman",
        "spearman",
        "aaa",
        "high",
        True,
        "rank correlation, as R²",
    ),
    Column("fm", "FM", "r2", "fm", "low", True, "R² lost: best minus final"),
    Column("bwt", "BWT", "r2", "bwt", "high", True, "R²: final minus just learned"),
)


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """Return the columns for a kind of target."""
    return NUMBER_COLUMNS if kind == "number" else CLASS_COLUMNS
