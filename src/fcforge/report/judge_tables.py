"""The judge's tables, with the paper's numbers beside ours; as Markdown here, as HTML in `page`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fcforge.studies.judge import paper
from fcforge.studies.judge.panel import Interval, Requirement

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


@dataclass(frozen=True)
class Table:
    """Title, column names and text cells; the first column names the line."""

    title: str
    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As a Markdown table."""
        lines = [self.header, ("---",) * len(self.header), *self.body]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Interval | None, digits: int = 3) -> str:
    """``0.612 [0.590, 0.634]``, a dash for nothing."""
    if value is None or not math.isfinite(value.mean):
        return "–"
    text = f"{value.mean:.{digits}f}"
    if math.isfinite(value.low) and value.high - value.low >= 10.0**-digits:
        text += f" [{value.low:.{digits}f}, {value.high:.{digits}f}]"
    return text


def fidelity_tables(summary: Summary) -> list[Table]:
    """One table per group of metrics, one line per generator."""
    out = []
    for title, metrics in FIDELITY.items():
        used = [m for m in metrics if any(m in values for values in summary.values())]
        body = tuple(
            (row, *(cell(values.get(m), 1 if m in WHOLE else 3) for m in used))
            for row, values in summary.items()
        )
        if used:
            out.append(Table(title, ("generator", *(metrics[m] for m in used)), body))
    return out


def augmentation_tables(summary: Summary, classifiers: Sequence[str]) -> list[Table]:
    """Per classifier: the paper's five options, then ours, with the paper's numbers."""
    rows = {**paper.OPTIONS, **{r: r for r in summary if r not in _known_rows()}}
    return _by_classifier(summary, classifiers, rows)


def ablation_tables(summary: Summary, classifiers: Sequence[str]) -> list[Table]:
    """Per classifier: the paper's ablation of FCM-VAE; none when nothing was ablated."""
    if not any(row in summary for row in list(paper.ABLATIONS)[1:]):
        return []
    return _by_classifier(summary, classifiers, paper.ABLATIONS)


def _known_rows() -> set[str]:
    return {*paper.OPTIONS, *paper.ABLATIONS}


def _by_classifier(
    summary: Summary, classifiers: Sequence[str], rows: Mapping[str, str]
) -> list[Table]:
    header = ("training set", "ACC", "PRE", "REC", "F1", "paper's ACC / PRE / REC / F1")
    out = []
    for model in classifiers:
        body = []
        for row, title in rows.items():
            values = summary.get(row, {})
            if f"aug_{model}_acc" in values:
                four = (cell(values.get(f"aug_{model}_{m}")) for m in ACCURACY)
                body.append((title, *four, paper.published(model, row)))
        if body:
            out.append(Table(TITLES.get(model, model), header, tuple(body)))
    return out


def findings_table(findings: Sequence[Requirement]) -> Table:
    """What was asked of the checked generator, and whether it was found."""
    body = tuple((f.what, f"{f.found:.3f}", f.asked, "yes" if f.ok else "**NO**") for f in findings)
    return Table("Requirements", ("required", "found", "asked", "met"), body)
