"""The paper's two curve figures from our runs: over the stages, and over the loss weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from paper_tables import Finished

from fcforge.report.contents import curves
from fcforge.types import RunResult

SHOWN = {
    "Base": "#444444",
    "ER": "#4477aa",
    "DER++": "#66ccee",
    "PDGNN": "#228833",
    "Cumulative": "#bbbbbb",
    "FORGE (FCM-VAE)": "#ee6677",
    "FORGE (Gaussian)": "#aa3377",
}
BANDS = ("Base", "FORGE (FCM-VAE)")
LAMBDAS = ("replay labels", "logits", "readout")
SUMMARIES = (("aaa", "#ee6677", "AAA"), ("for_literal", "#4477aa", "FOR literal"))


def _axes(figure: Any, place: tuple[int, int, int], title: str, below: str) -> Any:
    axes = figure.add_subplot(*place)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(below, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="#eeeeee")
    return axes


def draw_stages(groups: Mapping[str, list[RunResult]], draws: int = 200) -> Figure:
    """Accuracy on the sites so far and forgetting, learner by learner, bands over subjects."""
    figure = Figure(figsize=(9, 3.4))
    titles = ("accuracy on the sites so far", "forgetting")
    both = [
        _axes(figure, (1, 2, k + 1), title, "sites learned")
        for k, title in enumerate(titles)
    ]
    for name, colour in ((n, c) for n, c in SHOWN.items() if n in groups):
        for axes, curve in zip(both, curves(groups[name], draws), strict=True):
            known = np.isfinite(curve.mean)
            stage = np.arange(1, len(known) + 1)
            mean, low, high = (x[known] for x in curve)
            axes.plot(stage[known], mean, "o-", color=colour, ms=3, label=name)
            if name in BANDS:
                axes.fill_between(
                    stage[known], low, high, color=colour, alpha=0.12, lw=0
                )
            axes.set_xticks(stage)
    both[1].legend(
        fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    return figure


def draw_lambda(table: Finished, centre: Sequence[float] = (0.2, 0.35, 0.15)) -> Figure:
    """AAA and FOR against each weight, the other two at the paper's choice."""
    points = {
        tuple(map(float, k.split()[1::2])): table.rows[k].estimates
        for k in table.groups
    }
    figure = Figure(figsize=(9, 2.9))
    for i, name in enumerate(LAMBDAS):
        line = sorted(
            p for p in points if all(p[j] == centre[j] for j in range(3) if j != i)
        )
        axes = _axes(figure, (1, 3, i + 1), f"weight of {name}", f"lambda {i + 1}")
        for summary, colour, label in SUMMARIES:
            found = [points[p][summary] for p in line]
            mean, low, high = (
                np.array([getattr(e, k) for e in found])
                for k in ("value", "low", "high")
            )
            style = {
                "fmt": "o-",
                "color": colour,
                "ms": 4,
                "capsize": 2,
                "label": label,
            }
            axes.errorbar(
                [p[i] for p in line], mean, [mean - low, high - mean], **style
            )
        axes.set_ylim(-0.05, 0.8)
    figure.axes[0].legend(fontsize=8, frameon=False, loc="center left")
    return figure


def draw(found: Mapping[str, Finished], folder: Path) -> None:
    """Both figures, where there are runs for them."""
    names = [n for n in ("main_529", "main_mdd", "main_bsnip") if n in found]
    figures = {f"stages_{name}": draw_stages(found[name].groups) for name in names}
    if "lambda_529" in found:
        figures["lambda_529"] = draw_lambda(found["lambda_529"])
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"Date": None, "Creator": None}
    with mpl.rc_context({"svg.hashsalt": "fcforge", "svg.fonttype": "none"}):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.svg", metadata=plain, bbox_inches="tight")
