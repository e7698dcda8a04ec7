"""The paper's two curve figures from our runs: over the stages, and over the loss weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from paper_tables import Finished

mpl.use("svg")
from matplotlib.figure import Figure

from fcforge.report.contents import curves
from fcforge.types import RunResult

Runs = list[RunResult]
SHOWN = ("Base", "ER", "DER++", "PDGNN", "Cumulative", "FORGE (FCM-VAE)", "FORGE (Gaussian)")
COLOURS = ("#444444", "#4477aa", "#66ccee", "#228833", "#bbbbbb", "#ee6677", "#aa3377")
LAMBDAS = ("replay labels", "logits", "readout")


def _save(figure: Any, path: Path) -> None:
    with mpl.rc_context({"svg.hashsalt": "fcforge", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def _axes(figure: Any, place: tuple[int, int, int], title: str, below: str) -> Any:
    axes = figure.add_subplot(*place)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(below, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="#eeeeee")
    return axes


def draw_stages(groups: Mapping[str, Runs], path: Path, draws: int = 200) -> None:
    """Accuracy on the sites so far and forgetting, learner by learner, bands over subjects."""
    figure = Figure(figsize=(9, 3.4))
    left = _axes(figure, (1, 2, 1), "accuracy on the sites so far", "sites learned")
    right = _axes(figure, (1, 2, 2), "forgetting", "sites learned")
    for name, colour in zip(SHOWN, COLOURS, strict=True):
        if name not in groups:
            continue
        for axes, curve in zip((left, right), curves(groups[name], draws), strict=True):
            stage = np.arange(1, len(curve.mean) + 1)
            known = np.isfinite(curve.mean)
            axes.plot(stage[known], curve.mean[known], "o-", color=colour, ms=3, label=name)
            if name in ("Base", "FORGE (FCM-VAE)"):
                low, high = curve.low[known], curve.high[known]
                axes.fill_between(stage[known], low, high, color=colour, alpha=0.12, lw=0)
            axes.set_xticks(stage)
    right.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def draw_lambda(table: Finished, path: Path, centre: Sequence[float] = (0.2, 0.35, 0.15)) -> None:
    """AAA and FOR against each weight, the other two at the paper's choice."""
    points = {tuple(map(float, k.split()[1::2])): table.rows[k].estimates for k in table.groups}
    figure = Figure(figsize=(9, 2.9))
    for i, name in enumerate(LAMBDAS):
        rest = [j for j in range(3) if j != i]
        line = sorted(p for p in points if all(p[j] == centre[j] for j in rest))
        axes = _axes(figure, (1, 3, i + 1), f"weight of {name}", f"lambda {i + 1}")
        for summary, colour, label in (
            ("aaa", "#ee6677", "AAA"),
            ("for_literal", "#4477aa", "FOR literal"),
        ):
            found = [points[p][summary] for p in line]
            mean = np.array([e.mean for e in found])
            spread = np.abs(np.array([[e.low for e in found], [e.high for e in found]]) - mean)
            x = [p[i] for p in line]
            axes.errorbar(x, mean, spread, fmt="o-", color=colour, ms=4, capsize=2, label=label)
        axes.set_ylim(-0.05, 0.8)
    figure.axes[0].legend(fontsize=8, frameon=False, loc="center left")
    _save(figure, path)


def draw(found: Mapping[str, Finished], folder: Path) -> None:
    """Both figures, where there are runs for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main_529", "main_mdd", "main_bsnip"):
        if name in found:
            draw_stages(found[name].groups, folder / f"stages_{name}.svg")
    if "lambda_529" in found:
        draw_lambda(found["lambda_529"], folder / "lambda_529.svg")
