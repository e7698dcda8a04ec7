"""Counts and shares of people in the record of a chain's step, with small counts suppressed.

A count of 1 to 9 people could point at a person, so the record does not have it. Nor may an accuracy be
so precise that such a count follows from it. The arrays of a step may still give it away: synthetic
subjects have the classes in the proportion of the real ones.
"""

from collections.abc import Sequence

from torch import Tensor

from fcforge.core.subjects import Site
from fcforge.core.target import Target
from fcforge_consortium.records.kinds import SplitCounts, StepCounts

SMALL_CELL = 10  # counts of subjects below this are never written
STEPS_OF_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)  # steps to which a share may be rounded


def counts_of(site: Site, target: Target) -> StepCounts:
    """Return the subjects of a site by split and class, small counts suppressed.

    There are no totals, which would reveal suppressed counts, and no counts for a numeric target.

    Parameters
    ----------
    site : Site
    target : Target

    Returns
    -------
    StepCounts
    """

    def counted(y: Tensor) -> SplitCounts:
        """Return the counts of one split with the labels y (n,)."""
        if not target.classes:
            return SplitCounts(controls=None, patients=None)
        return SplitCounts(
            controls=suppressed(int((y == 0).sum())),
            patients=suppressed(int((y > 0).sum())),
        )

    learning = counted(site.learning(with_val=True).y)
    return StepCounts(learning=learning, test=counted(site.test.y))


def suppressed(count: int) -> int | None:
    """Return a count of subjects, or None if it is positive and below `SMALL_CELL`.

    Examples
    --------
    >>> suppressed(34), suppressed(3), suppressed(0)
    (34, None, 0)
    """
    return None if 0 < count < SMALL_CELL else count


def published_share(share: float, counts: Sequence[int | None]) -> float | None:
    """Round a share of people so that it reveals no suppressed count.

    For example, 13 controls, a suppressed number of patients and an accuracy of exactly 0.65 would mean
    7 patients, as 13 of 20 is 0.65. The share is rounded to the finest step at which every possible
    value of the suppressed counts can give the rounded share.

    Parameters
    ----------
    share : float
        Share of people, such as an accuracy, between 0 and 1.
    counts : sequence of int or None
        People of each class as they are published; None for a suppressed count.

    Returns
    -------
    float or None
        None if even the coarsest step would reveal something.

    Examples
    --------
    >>> published_share(13 / 20, (13, 7)), published_share(0.7512345, (413, 387))
    (0.65, 0.75)
    >>> published_share(13 / 20, (13, None))
    0.6
    """
    known = sum(n for n in counts if n is not None)
    hidden = sum(n is None for n in counts)
    totals = range(known + hidden, known + hidden * (SMALL_CELL - 1) + 1)
    for step in STEPS_OF_SHARES:
        level = round(share / step)
        if all(any(round(k / n / step) == level for k in range(n + 1)) for n in totals):
            return round(level * step, 2)
    return None
