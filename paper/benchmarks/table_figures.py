"""Figures of docs/images: what a hospital gets, worth by epsilon, and the paper's two curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from paper_tables import Finished
from sums_tables import PEOPLE, at, attacks

from fcforge.core.result import RunResult
from fcforge.report.run_numbers import curves

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
            mean, low, high = (x[known].round(6) for x in curve)
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
            results = [points[p][summary] for p in line]
            mean, low, high = (
                np.round([getattr(e, k) for e in results], 6)
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


def draw_grid(table: Finished, chosen: tuple[float, ...] = (0.2, 0.35, 0.15)) -> Figure:
    """AAA over the whole grid: one square per weight of the readout, the paper's choice framed."""
    values = {
        tuple(map(float, k.split()[1::2])): round(row.estimates["aaa"].value, 6)
        for k, row in table.rows.items()
        if k in table.groups
    }
    first, second, third = (sorted({p[i] for p in values}) for i in range(3))
    figure = Figure(figsize=(10, 2.4))
    scale = {
        "vmin": min(values.values()),
        "vmax": max(values.values()),
        "cmap": "viridis",
    }
    panels = figure.subplots(1, len(third), sharey=True)
    for axes, c in zip(panels, third, strict=True):
        axes.set_title(f"lambda 3 = {c:g}", fontsize=9)
        axes.set_xlabel("lambda 2", fontsize=8)
        for axis, weights in ((axes.xaxis, second), (axes.yaxis, first)):
            places = np.arange(len(weights)) + 0.5
            axis.set_ticks(places, [f"{w:g}" for w in weights], fontsize=7)
        cells = [[values[a, b, c] for b in second] for a in first]
        # no pixels: zlib is not the same everywhere
        image = axes.pcolormesh(cells, **scale)
        if c == chosen[2]:
            corner = second.index(chosen[1]), first.index(chosen[0])
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, ec="red", lw=2))
    figure.axes[0].set_ylabel("lambda 1", fontsize=8)
    figure.colorbar(image, ax=figure.axes, label="AAA", fraction=0.02)
    return figure


EPSILONS = ("1", "2", "4", "8", "exact")


def _promise(form: str, epsilon: str) -> str:
    """Title of a row of paper/results/sums.csv."""
    return f"{form}, {epsilon if epsilon == 'exact' else f'epsilon {epsilon}'}"


def draw_sums() -> Figure:
    """Draw the gain over the base model by epsilon, for each file and number of public people."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, (file, people) in zip(panels, PEOPLE.items(), strict=True):
        for panel, public in zip(axes, ("100", "200", "400"), strict=True):
            results = at(file, public)
            for form, colour in (("two keepers", "#1b6ca8"), ("local", "#d1751f")):
                rows = [results[_promise(form, epsilon)] for epsilon in EPSILONS]
                gain, ends = _with_ends(rows, "gain")
                style = {"fmt": "o-", "ms": 4, "capsize": 2}
                panel.errorbar(range(5), gain, ends, color=colour, label=form, **style)
            pooled = float(results["pooled ridge"]["gain"])
            panel.axhline(pooled, color="0.3", ls="--", lw=1, label="pooled ridge")
            panel.axhline(0, color="0.6", lw=1)
            panel.set(title=f"{people}, {public} public", xticks=range(5))
            panel.set_xticklabels(EPSILONS)
            panel.spines[["top", "right"]].set_visible(False)
    panels[0, 0].legend(fontsize=8, frameon=False, loc="upper left")
    figure.supxlabel("epsilon of each person (delta 1e-6)")
    figure.supylabel("AUROC within hospitals above the public head")
    return figure


def _with_ends(rows: Sequence[Mapping[str, str]], key: str) -> tuple[Any, Any]:
    """Values of a column, and how far their intervals reach below and above."""
    value, low, high = (
        np.array([float(row[f"{key}{end}"]) for row in rows])
        for end in ("", "_low", "_high")
    )
    return value, [value - low, high - value]


PARTS = {
    "public head": "public people alone",
    "two keepers, epsilon 1": "strong privacy (epsilon 1)",
    "two keepers, epsilon 4": "medium privacy (epsilon 4)",
    "two keepers, epsilon 8": "weak privacy (epsilon 8)",
    "two keepers, exact": "no noise, no promise",
    "each hospital alone": "each hospital for itself",
    "pooled ridge": "all scans in one place",
}
INK = {
    "public people alone": "#a9c1d6",
    "hospitals add": "#1b6ca8",
    "privacy costs": "#eba55f",
    "for comparison": "#cccccc",
}


def draw_worth() -> Figure:
    """Draw a hospital's gain: the base model, the contributions, the cost of privacy."""
    figure = Figure(figsize=(6.6, 5.2), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for panel, (file, people) in zip(panels, PEOPLE.items(), strict=True):
        _bars(panel, file)
        panel.set_title(people, loc="left", fontsize=10.5, fontweight="bold")
    panels[0].text(0.8, -0.9, "attack", ha="right", fontsize=9.5)
    panels[1].set_xlabel("patients and controls told apart (AUROC; 0.5 is guessing)")
    figure.legend(
        handles=[Patch(color=ink, label=name) for name, ink in INK.items()],
        loc="outside upper center",
        ncols=4,
        frameon=False,
        fontsize=9.5,
        columnspacing=1.2,
        handlelength=1,
    )
    return figure


def _bars(panel: Any, file: str) -> None:
    """Bars of one file; the line at a bar's end is the 95 % interval of what is added."""
    results = at(file, "200")
    head = float(results["public head"]["auroc"])
    best = float(results["two keepers, exact"]["auroc"])
    light, add, cost, apart = INK.values()
    for line, title in enumerate(PARTS):
        gain, ends = _with_ends([results[title]], "gain")
        reached = head + gain[0]
        if title in ("each hospital alone", "pooled ridge"):
            panel.barh(line, reached - 0.5, left=0.5, color=apart)
        else:
            panel.barh(line, head - 0.5, left=0.5, color=light)
        if title.startswith("two keepers"):
            panel.barh(line, reached - head, left=head, color=add)
            panel.barh(line, best - reached, left=reached, color=cost)
        if title != "public head":
            panel.errorbar(reached, line, xerr=np.array(ends), color="0.15", lw=1.2)
        panel.text(0.503, line, f"{reached:.3f}", va="center", fontsize=9.5)
        success = attacks(file, "200", title)[0]
        panel.text(0.8, line, success, va="center", ha="right", fontsize=9.5)
    panel.set_yticks(range(len(PARTS)), PARTS.values(), fontsize=9.5)
    panel.invert_yaxis()
    panel.set_xlim(0.5, 0.8)
    panel.spines[["top", "right"]].set_visible(False)


def draw(results: Mapping[str, Finished], folder: Path) -> None:
    """All figures that there are runs for."""
    names = [n for n in ("main_529", "main_mdd", "main_bsnip") if n in results]
    figures = {f"stages_{name}": draw_stages(results[name].groups) for name in names}
    if "lambda_529" in results:
        figures["lambda_529"] = draw_lambda(results["lambda_529"])
    if "lambda_grid_529" in results:
        figures["lambda_grid_529"] = draw_grid(results["lambda_grid_529"])
    save(figures | {"sums": draw_sums(), "worth": draw_worth()}, folder)


def save(figures: Mapping[str, Figure], folder: Path) -> None:
    """Figures as SVG, byte by byte the same when drawn again."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"Date": None, "Creator": None}
    with mpl.rc_context({"svg.hashsalt": "fcforge", "svg.fonttype": "none"}):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.svg", metadata=plain, bbox_inches="tight")
