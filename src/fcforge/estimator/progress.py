"""Lines about the progress of a site's training, for ``verbose`` of the estimators."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fcforge.generators.progress import listening


class Progress:
    """Lines about one site's training on standard output.

    Parameters
    ----------
    site : str
    n : int
        Subjects.
    epochs : int
    verbose : int
        0 prints nothing, 1 a line per site, 2 and more also ten lines on the way.
    """

    def __init__(self, site: str, n: int, epochs: int, verbose: int) -> None:
        self.site = site
        self.n = n
        self.epochs = epochs
        self.verbose = verbose
        self.done = 0

    def __enter__(self) -> Callable[[], None]:
        """Start the clock and return the function to call after every epoch."""
        self.begun = time.perf_counter()
        self._fits = listening(self._fit if self.verbose > 1 else None)
        self._fits.__enter__()
        return self._epoch

    def __exit__(self, *error: Any) -> None:
        """Print the line of the site, unless an exception ended its training."""
        self._fits.__exit__(*error)
        if self.verbose and error[0] is None:
            seconds = time.perf_counter() - self.begun
            print(f"[fcforge] site '{self.site}': {self.n} subjects, {seconds:.1f} s")

    def _epoch(self) -> None:
        """Count an epoch of the network's training."""
        self.done += 1
        self._line("epoch", self.done, self.epochs)

    def _fit(self, done: int, total: int, terms: Mapping[str, float]) -> None:
        """Report the progress of the generator's fit; its loss terms are not printed."""
        self._line("generator", done, total)

    def _line(self, work: str, done: int, total: int) -> None:
        """Print "WORK 3 of 10" if `verbose` is 2 or more, about ten times between 0 and `total`."""
        if self.verbose > 1 and (done == total or done % max(1, total // 10) == 0):
            print(f"[fcforge] site '{self.site}': {work} {done} of {total}")
