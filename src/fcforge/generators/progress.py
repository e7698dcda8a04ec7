"""Progress of generators that train in epochs or steps, for callers that want to show it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int, Mapping[str, float]], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Call `listener` with (done, total, terms of the loss) whenever a fit inside makes progress."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: int, total: int, terms: Mapping[str, float]) -> None:
    """Pass the progress of a fit to the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total, terms)
