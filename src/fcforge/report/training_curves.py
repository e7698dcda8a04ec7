"""Curves of a run's log: losses of every learner and the quotas of its past sites by epoch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import counted, number
from fcforge.core.training_log import ACCURACY, LOSS, REPLAY, Entry
from fcforge.experiments.collect import stored_plan
from fcforge.experiments.logs import ALL_SITES, LoggedSite, logged_sites
from fcforge.experiments.store import Store
from fcforge.report import figures
from fcforge.report.html import picture

TOTAL = f"{LOSS}/total"
QUOTA = f"{REPLAY}/quota"
ORDINALS = ("first", "second", "third")


@dataclass
class Logged:
    """Logged numbers of one learner, collected over its runs.

    Attributes
    ----------
    epochs : int
        Epochs per site.
    stages : int
        Sites of the longest order.
    runs : set
        (order, seed) of the runs that have a log.
    values : mapping of curve to mapping of epoch to list of float
        Epochs count on from site to site. Curves are the terms of the loss, the training accuracy
        and the quotas by the place of the past site in the order.
    """

    epochs: int = 1
    stages: int = 1
    runs: set[tuple[tuple[str, ...], int]] = field(default_factory=set)
    values: dict[tuple[str, int], dict[int, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add(self, one: LoggedSite, entries: Sequence[Entry]) -> None:
        """Add the log of one run at one site."""
        self.epochs = max(self.epochs, one.spec.training.epochs)
        self.stages = max(self.stages, 1 if one.site == ALL_SITES else one.position + 1)
        self.runs.add((one.spec.order, one.spec.seed))
        for name, past_site, epoch, value in entries:
            kept = name.startswith(f"{LOSS}/") or name in (ACCURACY, QUOTA)
            if kept and np.isfinite(value):
                place = one.spec.order.index(past_site) + 1 if past_site else 0
                x = one.position * one.spec.training.epochs + epoch
                self.values[name, place][x].append(value)

    def curve(self, name: str, place: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of a curve and its mean over runs."""
        points = sorted(self.values[name, place].items())
        x = np.array([epoch for epoch, _ in points])
        return x, np.array([np.mean(values) for _, values in points])

    def terms(self) -> list[str]:
        """Return the terms of the loss, the total first if it is not the only term."""
        names = [name for name, _ in self.values if name.startswith(f"{LOSS}/")]
        first = [name for name in names if name == TOTAL]
        rest = [name for name in names if name != TOTAL]
        return rest if len(rest) == 1 else first + rest

    def places(self) -> list[int]:
        """Return the places of past sites that have a quota."""
        return sorted(place for name, place in self.values if name == QUOTA)


def read_logged(store: Store) -> dict[str, Logged]:
    """Return the logged numbers of every learner that has some, by title."""
    _, plan, _ = stored_plan(store)
    whole, _ = store.complete(plan.nodes, checksums=False)
    entries: dict[str, list[Entry] | None] = {}
    found: dict[str, Logged] = defaultdict(Logged)
    for one in logged_sites(plan):
        if one.key not in whole:
            continue
        if one.key not in entries:
            entries[one.key] = one.entries(store)
        if own := entries[one.key]:
            found[one.spec.learner.title].add(one, own)
    return dict(found)


# -- for the page ----------------------------------------------------------------------------------
def curves_of_training(logged: Mapping[str, Logged]) -> dict[str, Any]:
    """Return figures, legends and notes of the logged numbers, for the template."""
    logged = {title: one for title, one in logged.items() if one.terms()}
    every = [term for one in logged.values() for term in one.terms()]
    terms = sorted(dict.fromkeys(every), key=lambda term: term != TOTAL)
    colours = {
        term: figures.SERIES[k % len(figures.SERIES)]
        for k, term in enumerate(t for t in terms if t != TOTAL)
    }
    colours[TOTAL] = figures.INK
    places = sorted({p for one in logged.values() for p in one.places()})
    return {
        "losses": [(k, loss_panel(k, one, colours)) for k, one in logged.items()],
        "loss_colours": [
            (term.removeprefix(f"{LOSS}/"), f"var(--{figures.INKS[colours[term]]})")
            for term in terms
        ],
        "quotas": [
            (k, quota_panel(k, one)) for k, one in logged.items() if one.places()
        ],
        "quota_colours": [
            (f"{ordinal(p)} site of the order", f"var(--s{(p - 1) % 8})")
            for p in places
        ],
        "n_logged": {k: counted(len(one.runs), "run") for k, one in logged.items()},
    }


def ordinal(n: int) -> str:
    """Return first, second, third, 4th and so on."""
    return ORDINALS[n - 1] if n <= len(ORDINALS) else f"{n}th"


def loss_panel(learner: str, logged: Logged, colours: Mapping[str, str]) -> Markup:
    """Return the figure of a learner's loss and its terms over all epochs."""
    curves = {term: logged.curve(term) for term in logged.terms()}
    figure = figures.epochs_figure(
        [(*curve, colours[term]) for term, curve in curves.items()],
        epochs=logged.epochs,
        stages=logged.stages,
    )
    total, *_ = curves
    x, y = curves[total]
    points = figures.hover_points(figure.axes[0], x, y, hints(logged, x, curves))
    ends = ", ".join(
        f"{term.removeprefix(f'{LOSS}/')} {number(float(values[-1]))}"
        for term, (_, values) in curves.items()
    )
    return picture(figure, f"loss of {learner} by epoch; at the end: {ends}", points)


def hints(
    logged: Logged, x: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> list[str]:
    """Return the text of each epoch: all curves, and the training accuracy where there is one."""
    shown = {term.removeprefix(f"{LOSS}/"): curve for term, curve in curves.items()}
    if (ACCURACY, 0) in logged.values:
        shown[ACCURACY] = logged.curve(ACCURACY)
    tables = {name: dict(zip(*curve, strict=True)) for name, curve in shown.items()}
    texts = []
    for epoch in x.tolist():
        values = [
            f"{name} {number(float(table[epoch]))}"
            for name, table in tables.items()
            if epoch in table
        ]
        texts.append(f"{_when(logged, epoch)}: {', '.join(values)}")
    return texts


def quota_panel(learner: str, logged: Logged) -> Markup:
    """Return the figure of the quotas of each past site, one line per place in the order."""
    lines = []
    points: list[figures.HoverPoint] = []
    for place in logged.places():
        x, y = logged.curve(QUOTA, place)
        lines.append((x, y, figures.SERIES[(place - 1) % len(figures.SERIES)]))
    figure = figures.epochs_figure(
        lines, epochs=logged.epochs, stages=logged.stages, marked=True
    )
    for place, (x, y, _) in zip(logged.places(), lines, strict=True):
        texts = [
            f"{_when(logged, epoch)}: {ordinal(place)} site {number(value, 1)}"
            for epoch, value in zip(x.tolist(), y.tolist(), strict=True)
        ]
        points += figures.hover_points(figure.axes[0], x, y, texts)
    ends = ", ".join(
        f"{ordinal(place)} site {number(float(y[-1]), 1)}"
        for place, (_, y, _) in zip(logged.places(), lines, strict=True)
    )
    return picture(figure, f"quotas of {learner} by epoch; at the end: {ends}", points)


def _when(logged: Logged, epoch: int) -> str:
    """Return the site and the epoch at it of an epoch that counts on from site to site."""
    site, within = divmod(epoch - 1, logged.epochs)
    return f"site {site + 1}, epoch {within + 1}"
