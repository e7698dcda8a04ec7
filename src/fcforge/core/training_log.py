"""The log of a network's training at one site: series of numbers by epoch.

A *lane* is one training run: one learner, one site order, one seed. Each lane has its own log.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

LOSS = "loss"
REPLAY = "replay"
GENERATOR = "generator"
RATE = "learning rate"
ACCURACY = "training accuracy"
ERROR = "training squared error"


class Entry(NamedTuple):
    """One number of a log.

    Attributes
    ----------
    name : str
        Such as ``loss/current``, ``learning rate``, ``replay/quota`` or ``generator/kl``.
    past_site : str
        Past site that the number belongs to, e.g. its share of the replay; "" if to none.
    epoch : int
        Epoch, counted from 1: of the network or, for names under ``generator/``, of the generator.
        Choices of replayed subjects carry the number of the epoch that they precede.
    value : float
    """

    name: str
    past_site: str
    epoch: int
    value: float


class SiteLog:
    """Log of one lane at one site: series of numbers by name and past site."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)

    def add(self, name: str, epoch: int, value: float, past_site: str = "") -> None:
        """Add a number, rounded to float32; arguments as in `Entry`."""
        # through the shortest text of the float32, so that files hold 0.1 and not 0.10000000149
        self._series[name, past_site][epoch] = float(str(np.float32(value)))

    def add_history(self, history: Mapping[str, Iterable[float]]) -> None:
        """Add the terms of a generator's loss: by name of the term, its value at each epoch."""
        for name, values in history.items():
            for epoch, value in enumerate(values, 1):
                self.add(f"{GENERATOR}/{name}", epoch, float(value))

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries, series by series."""
        for (name, past_site), points in self._series.items():
            for epoch, value in points.items():
                yield Entry(name, past_site, epoch, value)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the log as plain values, which `entries_of` reads."""
        return [
            {
                "name": name,
                "past_site": past_site,
                "epochs": list(points),
                "values": list(points.values()),
            }
            for (name, past_site), points in self._series.items()
        ]


def entries_of(stored: Any) -> list[Entry]:
    """Return the entries of a log that `SiteLog.to_json` has written.

    Raises
    ------
    ValueError, TypeError, KeyError
        If `stored` is not such a log.
    """
    entries = []
    for series in stored:
        name, past_site = str(series["name"]), str(series["past_site"])
        for epoch, value in zip(series["epochs"], series["values"], strict=True):
            entries.append(Entry(name, past_site, int(epoch), float(value)))
    return entries
