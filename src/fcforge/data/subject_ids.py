"""Subject ids of one person in two spellings, such as "sub-01" and "SUB-01", "0050286" and "50286".

Equal ids are an error of a dataset, because one person could be in training and test. Ids that are
equal without outer blanks are equal ids. Ids that are equal without case, inner blanks, the prefix
``sub-`` and leading zeros are a warning:

- at one site always. One table has one way to number its people.
- at two sites where the number has `LONG` digits or more. Such ids were not counted from 1.
- at two sites where scans are alike. Short numbers are shared by chance: hospitals count their
  people from 1, one with leading zeros, the next without. A scan therefore counts only if it and
  the scan of the same number are each other's most similar scan among all of the two sites. This
  happens by chance to one pair of numbers in n - 1, so the count of such pairs has about a Poisson
  distribution. The warning needs p < `CHANCE`, divided by the number of pairs of sites compared.

Scans of one person by two preprocessings correlate 0.55 on ABIDE I (median of 871 people), scans of
two people at most 0.76, so that no fixed limit would do.

Letters of shapes: n people of two sites, E edges.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from fcforge.core.formatting import abbreviated
from fcforge.core.names import BLANK, folded
from fcforge.data.cohort import MIN_ROIS, Cohort
from fcforge.data.duplicates import unit_edges
from fcforge.data.faults import Fault

LONG = 5  # digits of a number that a site has not counted from 1
CHANCE = 0.01  # p of mutually most similar scans below which numbers are no chance
SHOWN_PAIRS = 3
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_PREFIX = re.compile(r"^sub[-_ ]?(?=\w)")
Pair = tuple[int, int]  # rows of two people


def bare_id(subject_id: str) -> str:
    r"""Return an id without blanks and invisible characters at its ends.

    Examples
    --------
    >>> bare_id(" sub-01\u00a0"), bare_id("\ufeffsub-01"), bare_id("s 01")
    ('sub-01', 'sub-01', 's 01')
    """
    start, end = 0, len(subject_id)
    while start < end and _is_blank(subject_id[start]):
        start += 1
    while end > start and _is_blank(subject_id[end - 1]):
        end -= 1
    return subject_id[start:end]


def _is_blank(character: str) -> bool:
    """Return whether a character is a space or invisible."""
    if character.isspace() or character in BLANK:
        return True
    return unicodedata.category(character) in ("Cc", "Cf")


def plain_id(subject_id: str) -> str:
    """Return an id without case, outer blanks, the prefix ``sub-`` and leading zeros of its numbers.

    Invisible characters are removed, and inner blanks become one.

    Examples
    --------
    >>> plain_id("SUB-01 "), plain_id("0050286"), plain_id("NYU_007"), plain_id("s  1")
    ('1', '50286', 'nyu_7', 's 1')
    """
    visible = "".join(c for c in subject_id if c.isspace() or not _is_blank(c))
    return _ZEROS.sub("", _PREFIX.sub("", folded(visible)))


def id_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield a warning for each site, or pair of sites, with ids that may be of one person.

    The rules are in the head of this module. Ids that are equal without outer blanks are left to
    `fcforge.data.checks`, where they are errors.

    Parameters
    ----------
    cohort : Cohort
        With FC that is not finite, scans are not compared.
    """
    rows_of: dict[str, list[int]] = {}
    ids = cohort.subject_id.tolist()
    for row, subject_id in enumerate(ids):
        rows_of.setdefault(plain_id(subject_id), []).append(row)
    within: dict[tuple[str, ...], list[Pair]] = {}
    counted: list[Pair] = []  # short numbers of two sites
    for plain, rows in rows_of.items():
        for pair in combinations(rows, 2):
            one, other = (ids[row] for row in pair)
            if bare_id(one) == bare_id(other):
                continue
            sites = tuple(dict.fromkeys(str(cohort.site[row]) for row in pair))
            if len(sites) == 1 or sum(map(str.isdigit, plain)) >= LONG:
                within.setdefault(sites, []).append(pair)
            else:
                counted.append(pair)
    for sites, pairs in within.items():
        yield _fault(ids, sites, pairs, "")
    alike: dict[tuple[str, ...], list[Pair]] = {}
    for pair in _alike_beyond_chance(cohort, counted):
        sites = tuple(str(cohort.site[row]) for row in pair)
        alike.setdefault(sites, []).append(pair)
    for sites, pairs in alike.items():
        yield _fault(ids, sites, pairs, ", and their scans are alike")


def _fault(
    ids: Sequence[str], sites: tuple[str, ...], pairs: Sequence[Pair], more: str
) -> Fault:
    """Return the warning about pairs of ids at one site or two.

    Parameters
    ----------
    ids : sequence of str
        Ids of all people.
    sites : tuple of str
    pairs : sequence of (int, int)
    more : str
        Further evidence that the people are one.
    """
    words = [f"{ids[one]!r} and {ids[other]!r}" for one, other in pairs]
    where = f" (sites '{sites[0]}' and '{sites[1]}')" if len(sites) == 2 else ""
    what = (
        f"subject ids differ only in case, blanks, 'sub-' or leading zeros{more}: "
        f"{abbreviated(words, SHOWN_PAIRS)}{where}."
    )
    second = ids[pairs[0][1]]
    do = (
        f"If each pair is one person, leave one of the two out: leave_out = [{second!r}] in "
        "[dataset]. Otherwise they may stay."
    )
    return Fault("warning", what, do, site=sites[0] if len(sites) == 1 else "")


def _alike_beyond_chance(cohort: Cohort, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of rows whose scans are each other's most similar, if chance does not explain them.

    Parameters
    ----------
    cohort : Cohort
    pairs : sequence of (int, int)
        Rows of people at two sites whose ids are the same number.
    """
    if not pairs or cohort.n_rois < MIN_ROIS or not np.isfinite(cohort.fc).all():
        return []
    by_sites: dict[tuple[str, str], list[Pair]] = {}
    for one, other in pairs:
        first, second = str(cohort.site[one]), str(cohort.site[other])
        ordered = (one, other) if first < second else (other, one)
        by_sites.setdefault((min(first, second), max(first, second)), []).append(
            ordered
        )
    edges = {
        name: unit_edges(cohort.fc[cohort.site == name])
        for name in {name for sites in by_sites for name in sites}
    }
    place: dict[int, int] = {}  # of each row within its site
    for name in edges:
        rows = np.flatnonzero(cohort.site == name).tolist()
        place |= {row: k for k, row in enumerate(rows)}
    found: list[Pair] = []
    for (first, second), of_sites in by_sites.items():
        likeness = edges[first] @ edges[second].T
        nearest = likeness.argmax(1)
        nearest_back = likeness.argmax(0)
        alike = []
        for one, other in of_sites:
            i, j = place[one], place[other]
            if nearest[i] == j and nearest_back[j] == i:
                alike.append((one, other))
        expected = len(of_sites) / (sum(likeness.shape) - 1)
        if alike and _poisson_tail(len(alike), expected) < CHANCE / len(by_sites):
            found += alike
    return found


def _poisson_tail(least: int, mean: float) -> float:
    """Return the probability that a Poisson variable of this mean is `least` or more."""
    term = math.exp(-mean)
    below = 0.0
    for k in range(least):
        below += term
        term *= mean / (k + 1)
    return 1.0 - below
