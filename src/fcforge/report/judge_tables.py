"""The judge's tables, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fcforge.report.table import Cell, Table, interval_cell
from fcforge.studies.judge import paper
from fcforge.studies.judge.panel import Interval, Requirement
from fcforge.text import number

Summary = Mapping[str, Mapping[str, Interval]]

# Groups of metrics; every group is one table with a line per generator.
FIDELITY = {
    "Validity, moments, class effect": {
        "active_units": "active units",
        "psd_share": "PSD share",
        "min_eigenvalue": "min eig.",
        "edge_mean_r": "edge-mean r",
        "variance_ratio": "variance ratio",
        "sd_ratio": "SD ratio",
        "class_difference_r": "class-diff. r",
        "class_difference_norm": "class-diff. norm",
    },
    "Spectrum and topology (distance from held-out subjects; 0 is best)": {
        "spectrum_distance": "spectrum",
        "topology_strength": "strength KS",
        "topology_clustering": "clustering KS",
        "topology_efficiency": "efficiency KS",
        "topology_modularity": "modularity KS",
    },
    "Two-sample tests and coverage (against held-out subjects)": {
        "mmd2": "MMD²",
        "c2st_auc": "C2ST AUC",
        "precision": "precision",
        "recall": "recall",
        "density": "density",
        "coverage": "coverage",
    },
    "Train on synthetic, test on real": {
        "tstr_linear_acc": "TSTR linear",
        "tstr_linear_auc": "its AUC",
        "tstr_gcn_acc": "TSTR GCN",
        "tstr_gcn_auc": "its AUC",
    },
}
WHOLE = ("active_units",)
ACCURACY = ("acc", "pre", "rec", "f1")
TITLES = {
    "linear": "ridge on edges",
    "gae": "GAE",
    "gat": "GAT",
    "gcn": "GCN",
    "sage": "GraphSAGE",
    "graph_transformer": "GraphTransformer",
}


def cell(value: Interval | None, digits: int = 3) -> Cell:
    """A mean above its interval, a dash for nothing."""
    if value is None or value.mean != value.mean:
        return Cell("–")
    return interval_cell(*value, digits=digits)


def fidelity_tables(summary: Summary) -> list[Table]:
    """One table per group of metrics, one line per generator."""
    out = []
    for title, metrics in FIDELITY.items():
        used = [m for m in metrics if any(m in values for values in summary.values())]
        rows = [
            (row, *(cell(values.get(m), 1 if m in WHOLE else 3) for m in used))
            for row, values in summary.items()
        ]
        if used:
            out.append(Table.of(("generator", *(metrics[m] for m in used)), rows, title=title))
    return out


def augmentation_tables(summary: Summary, classifiers: Sequence[str]) -> list[Table]:
    """Per classifier: the paper's five options, then ours, with the paper's numbers."""
    known = {*paper.OPTIONS, *paper.ABLATIONS}
    rows = {**paper.OPTIONS, **{r: r for r in summary if r not in known}}
    return _by_classifier(summary, classifiers, rows)


def ablation_tables(summary: Summary, classifiers: Sequence[str]) -> list[Table]:
    """Per classifier: the paper's ablation of FCM-VAE; none when nothing was ablated."""
    if not any(row in summary for row in list(paper.ABLATIONS)[1:]):
        return []
    return _by_classifier(summary, classifiers, paper.ABLATIONS)


def _by_classifier(
    summary: Summary, classifiers: Sequence[str], rows: Mapping[str, str]
) -> list[Table]:
    heads = ("training set", "ACC", "PRE", "REC", "F1", "paper's ACC / PRE / REC / F1")
    out = []
    for model in classifiers:
        body = []
        for row, title in rows.items():
            values = summary.get(row, {})
            if f"aug_{model}_acc" in values:
                four = (cell(values.get(f"aug_{model}_{m}")) for m in ACCURACY)
                body.append((title, *four, paper.published(model, row)))
        if body:
            out.append(Table.of(heads, body, title=TITLES.get(model, model)))
    return out


def requirements_table(found: Sequence[Requirement]) -> Table:
    """What was asked of the checked generator, and whether it was found."""
    rows = [
        (f.what, number(f.found), f.asked, Cell("yes") if f.ok else Cell("NO", look="bad"))
        for f in found
    ]
    return Table.of(("required", "found", "asked", "met"), rows)
