"""Progress of generators that train in epochs or steps, for callers that want to show it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int, Mapping[str, float]], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Report the progress of all fits inside the ``with`` block to a listener.

    Parameters
    ----------
    listener : callable or None
        Takes the number of epochs or steps done, their total, and the terms of the loss by name.
        None: nothing is reported.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: int, total: int, terms: Mapping[str, float]) -> None:
    """Pass the progress of a fit to the listener, if there is one.

    Parameters
    ----------
    done, total : int
        Number of epochs or steps, so far and in all.
    terms : mapping of name to float
        Terms of the loss.
    """
    listener = _listener.get()
    if listener is not None:
        listener(done, total, terms)
