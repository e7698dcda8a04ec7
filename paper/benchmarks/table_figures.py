"""Figures of docs/images: expected gain by epsilon, and synthetic FC beside real FC."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from sums_tables import PEOPLE, at, attacks

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
            for form, colour in (("two aggregators", "#1b6ca8"), ("local", "#d1751f")):
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
    figure.supylabel("AUROC within hospitals above the base model alone")
    return figure


def _with_ends(rows: Sequence[Mapping[str, str]], key: str) -> tuple[Any, Any]:
    """Values of a column, and how far their intervals reach below and above."""
    value, low, high = (
        np.array([float(row[f"{key}{end}"]) for row in rows])
        for end in ("", "_low", "_high")
    )
    return value, [value - low, high - value]


PARTS = {
    "base model alone": "public people alone",
    "two aggregators, epsilon 1": "strong privacy (epsilon 1)",
    "two aggregators, epsilon 4": "medium privacy (epsilon 4)",
    "two aggregators, epsilon 8": "weak privacy (epsilon 8)",
    "two aggregators, exact": "no noise, no promise",
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
    head = float(results["base model alone"]["auroc"])
    best = float(results["two aggregators, exact"]["auroc"])
    light, add, cost, apart = INK.values()
    for line, title in enumerate(PARTS):
        gain, ends = _with_ends([results[title]], "gain")
        reached = head + gain[0]
        if title in ("each hospital alone", "pooled ridge"):
            panel.barh(line, reached - 0.5, left=0.5, color=apart)
        else:
            panel.barh(line, head - 0.5, left=0.5, color=light)
        if title.startswith("two aggregators"):
            panel.barh(line, reached - head, left=head, color=add)
            panel.barh(line, best - reached, left=reached, color=cost)
        if title != "base model alone":
            panel.errorbar(reached, line, xerr=np.array(ends), color="0.15", lw=1.2)
        panel.text(0.503, line, f"{reached:.3f}", va="center", fontsize=9.5)
        success = attacks(file, "200", title)[0]
        panel.text(0.8, line, success, va="center", ha="right", fontsize=9.5)
    panel.set_yticks(range(len(PARTS)), PARTS.values(), fontsize=9.5)
    panel.invert_yaxis()
    panel.set_xlim(0.5, 0.8)
    panel.spines[["top", "right"]].set_visible(False)


def draw_fc(rows: Sequence[str], control: np.ndarray, patient: np.ndarray) -> Figure:
    """Draw a control (top) and a patient (bottom) of every row: typical ones, or the mean of real ones.

    Parameters
    ----------
    rows : sequence of str
        Titles of the m columns.
    control, patient : ndarray of shape (m, R, R)
    """
    figure = Figure(figsize=(1.35 * len(rows), 3.0), layout="constrained")
    panels = figure.subplots(2, len(rows))
    for k, title in enumerate(rows):
        panels[0, k].set_title(title, fontsize=7)
        for panel, fc in zip(panels[:, k], (control[k], patient[k]), strict=True):
            image = panel.imshow(fc, vmin=-1, vmax=1, cmap="RdBu_r")
            panel.set(xticks=[], yticks=[])
    for panel, name in zip(panels[:, 0], ("control", "patient"), strict=True):
        panel.set_ylabel(name, fontsize=8)
    bar = figure.colorbar(image, ax=panels, fraction=0.02)
    bar.ax.tick_params(labelsize=7)
    return figure


def draw(results: Path, folder: Path) -> None:
    """Draw every figure whose numbers are in the folder of results."""
    save({"sums": draw_sums(), "worth": draw_worth()}, folder)
    for path in sorted(results.glob("*_portraits.npz")):
        with np.load(path, allow_pickle=False) as found:
            fc = [found[name].astype(float) for name in ("control", "patient")]
            figure = draw_fc(found["rows"].tolist(), *fc)
        name = path.stem.removesuffix("_portraits")
        figure.savefig(
            folder / f"synthetic_fc_{name}.png", dpi=130, metadata={"Software": None}
        )


def save(figures: Mapping[str, Figure], folder: Path) -> None:
    """Figures as SVG, byte by byte the same when drawn again."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"Date": None, "Creator": None}
    with mpl.rc_context({"svg.hashsalt": "fcforge", "svg.fonttype": "none"}):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.svg", metadata=plain, bbox_inches="tight")
