"""Remember what is expensive: each thing is made once, however many ask at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class Once:
    """Results by key, valid while their signature stays; the least used ones go first.

    Parameters
    ----------
    most : int
        Results kept.
    at_a_time : int
        How many may be in the making: 200 requests must not open 200 capsules side by side.
    """

    def __init__(self, most: int = 400, at_a_time: int = 2) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._turn = threading.BoundedSemaphore(at_a_time)
        self._found: OrderedDict[Hashable, tuple[Hashable, Future[Any]]] = OrderedDict()

    def get(self, key: Hashable, signature: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make`, which is called only by the first who asks."""
        with self._lock:
            entry = self._found.get(key)
            mine = entry is None or entry[0] != signature
            if entry is None or mine:
                entry = (signature, Future())
                self._found[key] = entry
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        if mine:
            self._fill(key, entry, make)
        return entry[1].result()

    def _fill(
        self, key: Hashable, entry: tuple[Hashable, Future[Any]], make: Callable[[], Any]
    ) -> None:
        try:
            with self._turn:
                entry[1].set_result(make())
        except BaseException as error:
            entry[1].set_exception(error)  # those who wait see the same error
            with self._lock:
                if self._found.get(key) is entry:
                    del self._found[key]
            raise
