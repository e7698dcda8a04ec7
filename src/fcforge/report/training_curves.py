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

    A past site's place is its number in the site order, from 1; place 0 stands for curves that
    belong to no past site.

    Attributes
    ----------
    epochs : int
        Epochs per site.
    stages : int
        Sites of the longest order.
    runs : set
        (order, seed) of the runs that have a log.
    values : mapping of (name, place) to mapping of epoch to list of float
        Values of a curve in each run. Epochs are counted from the first site on. Curves are the
        terms of the loss, the training accuracy, and the quotas of each past site.
    """

    epochs: int = 1
    stages: int = 1
    runs: set[tuple[tuple[str, ...], int]] = field(default_factory=set)
    values: dict[tuple[str, int], dict[int, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add(self, site: LoggedSite, entries: Sequence[Entry]) -> None:
        """Add the log entries of one run at one site."""
        self.epochs = max(self.epochs, site.spec.training.epochs)
        # a learner that trains on all sites together has one stage
        self.stages = max(
            self.stages, 1 if site.site == ALL_SITES else site.position + 1
        )
        self.runs.add((site.spec.order, site.spec.seed))
        for name, past_site, epoch, value in entries:
            is_shown = name.startswith(f"{LOSS}/") or name in (ACCURACY, QUOTA)
            if is_shown and np.isfinite(value):
                place = site.spec.order.index(past_site) + 1 if past_site else 0
                x = site.position * site.spec.training.epochs + epoch
                self.values[name, place][x].append(value)

    def curve(self, name: str, place: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs (n,) of a curve and its values (n,), mean over runs."""
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
        """Return the places in the order of the past sites that have a quota."""
        return sorted(place for name, place in self.values if name == QUOTA)


def read_logged(store: Store) -> dict[str, Logged]:
    """Read the logs of a run folder by the learner's title; a learner without logs is not in the result."""
    _, plan, _ = stored_plan(store)
    complete_keys, _ = store.complete(plan.nodes, checksums=False)
    entries: dict[str, list[Entry] | None] = {}
    by_title: dict[str, Logged] = defaultdict(Logged)
    for site in logged_sites(plan):
        if site.key not in complete_keys:
            continue
        if site.key not in entries:
            entries[site.key] = site.entries(store)
        if site_entries := entries[site.key]:
            by_title[site.spec.learner.title].add(site, site_entries)
    return dict(by_title)


# -- for the page ----------------------------------------------------------------------------------
def curves_of_training(logged: Mapping[str, Logged]) -> dict[str, Any]:
    """Return figures, legends and notes of the logged numbers, for the template."""
    logged = {title: log for title, log in logged.items() if log.terms()}
    all_terms = [term for log in logged.values() for term in log.terms()]
    distinct = dict.fromkeys(all_terms)
    terms = sorted(distinct, key=lambda term: term != TOTAL)  # the total first
    colours = {
        term: figures.SERIES[k % len(figures.SERIES)]
        for k, term in enumerate(t for t in terms if t != TOTAL)
    }
    colours[TOTAL] = figures.INK
    places = sorted({p for log in logged.values() for p in log.places()})
    return {
        "losses": [(k, loss_panel(k, log, colours)) for k, log in logged.items()],
        "loss_colours": [
            (term.removeprefix(f"{LOSS}/"), f"var(--{figures.INKS[colours[term]]})")
            for term in terms
        ],
        "quotas": [
            (k, quota_panel(k, log)) for k, log in logged.items() if log.places()
        ],
        "quota_colours": [
            (f"{ordinal(p)} site of the order", f"var(--s{(p - 1) % 8})")
            for p in places
        ],
        "n_logged": {k: counted(len(log.runs), "run") for k, log in logged.items()},
    }


def ordinal(n: int) -> str:
    """Return first, second, third, 4th and so on."""
    return ORDINALS[n - 1] if n <= len(ORDINALS) else f"{n}th"


def loss_panel(learner: str, logged: Logged, colours: Mapping[str, str]) -> Markup:
    """Return the figure of a learner's loss and its terms over all epochs.

    Parameters
    ----------
    learner : str
        Title of the learner.
    logged : Logged
        Its logs.
    colours : mapping of str to str
        Colour of each term of the loss.
    """
    curves = {term: logged.curve(term) for term in logged.terms()}
    figure = figures.epochs_figure(
        [(*curve, colours[term]) for term, curve in curves.items()],
        epochs=logged.epochs,
        stages=logged.stages,
    )
    # the total, or the only term: the points at the pointer lie on it
    first, *_ = curves
    x, y = curves[first]
    points = figures.hover_points(figure.axes[0], x, y, hints(logged, x, curves))
    ends = ", ".join(
        f"{term.removeprefix(f'{LOSS}/')} {number(float(values[-1]))}"
        for term, (_, values) in curves.items()
    )
    return picture(figure, f"loss of {learner} by epoch; at the end: {ends}", points)


def hints(
    logged: Logged, x: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> list[str]:
    """Return the text at the pointer for each epoch: all curves, and training accuracy if logged.

    Parameters
    ----------
    logged : Logged
        Logs of one learner.
    x : ndarray of shape (n,)
        Epochs, counted from the first site on.
    curves : mapping of str to (epochs, values)
        Terms of the loss.
    """
    all_curves = {
        term.removeprefix(f"{LOSS}/"): curve for term, curve in curves.items()
    }
    if (ACCURACY, 0) in logged.values:
        all_curves[ACCURACY] = logged.curve(ACCURACY)
    tables = {
        name: dict(zip(*curve, strict=True)) for name, curve in all_curves.items()
    }
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
    """Return the figure of the sampler's quotas, one line per past site (position in the order).

    A quota is the number of a past site's subjects that may be replayed until the next choice.

    Parameters
    ----------
    learner : str
        Title of the learner.
    logged : Logged
        Its logs.
    """
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
    """Return site and epoch at that site, in words, of an epoch counted from the first site on."""
    site, within = divmod(epoch - 1, logged.epochs)
    return f"site {site + 1}, epoch {within + 1}"
