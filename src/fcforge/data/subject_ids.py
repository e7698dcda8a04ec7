"""Subject ids of one person in two spellings, such as "sub-01" and "SUB-01", "Pitt_0050286" and "50286".

Equal ids are an error of a dataset, because one person could be in training and test. Ids that are
equal without outer blanks are equal ids. Two other ids may be of one person if they have the same
*key* (`person_keys`). It is the longest number of an id, if that has `LONG` digits or more without
leading zeros. Otherwise it is the id without case, inner blanks, the prefix ``sub-``, leading zeros
and the session.

A long number is no person's number

- if it is a date beside another number ("01_20190101"),
- if the id is a hash ("3f50279ab9012cd4"), as the estimators give to scans: its digits are chance,
- if two ids of one table have it beside other letters or numbers ("HC10001" and "SZ10001",
  "NCT01234567_1" and "NCT01234567_2"). These letters and numbers then belong to the key.

Ids with the same key are a warning:

- at one site always. One table has one way to number its people.
- at two sites where the number is long. Such ids were not counted from 1.
- at two sites where scans are alike. Short numbers are shared by chance: hospitals count their
  people from 1, one with leading zeros, the next without. A scan therefore counts only if it and
  the scan of the same number are each other's most similar scan among all of the two sites. This
  happens by chance to one pair of numbers in n - 1, so the count of such pairs has about a Poisson
  distribution. The warning needs p < `CHANCE`, divided by the number of pairs of sites compared.

Between public and tested people long numbers are an error (`shared_long_numbers`), because a base
model that has seen a tested person proves nothing.

Scans of one person by two preprocessings correlate 0.55 on ABIDE I (median of 871 people), scans of
two people at most 0.76, so that no fixed limit would do.

Letters of shapes: n people of two sites, E edges.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from fcforge.core.formatting import abbreviated
from fcforge.core.names import BLANK, folded
from fcforge.data.cohort import MIN_ROIS, Cohort
from fcforge.data.duplicates import unit_edges
from fcforge.data.faults import Fault

LONG = (
    5  # digits, without leading zeros, of a number that a site has not counted from 1
)
CHANCE = 0.01  # p of mutually most similar scans below which numbers are no chance
SHOWN_PAIRS = 3
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_PREFIX = re.compile(r"^sub[-_ ]?(?=\w)")
_SESSION = re.compile(r"[\W_]+(?:session|ses|run|visit)(?:[-_ ]+[^\W_]+|\d+)")
_DATE = re.compile(
    r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{4}|\d{6})?"
)
_HASH = re.compile(r"(?=.*[a-f])[0-9a-f][0-9a-f-]{15,}")
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
_PERSON = {"s", "sub", "subj", "subject", "participant", "id"}  # no part of a name
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
    return _ZEROS.sub("", _PREFIX.sub("", _visible(subject_id)))


def _visible(subject_id: str) -> str:
    """Return an id without case, outer blanks and invisible characters."""
    return folded("".join(c for c in subject_id if c.isspace() or not _is_blank(c)))


class _Parts(NamedTuple):
    """Parts of an id.

    Attributes
    ----------
    text : str
        The id as `plain_id` returns it, without the session.
    number : str
        Its longest number, of `LONG` digits or more; "" without such a number.
    rest : str
        Letters and digits beside the number, without words such as "subject"; "" without a number.
    """

    text: str
    number: str = ""
    rest: str = ""


def _parts(subject_id: str) -> _Parts:
    """Return the parts of an id; of several longest numbers the last is taken."""
    text = _SESSION.sub("", plain_id(subject_id))
    visible = _visible(subject_id)
    if _HASH.fullmatch(_PREFIX.sub("", visible)):
        return _Parts(text)
    whole = _SESSION.sub("", _ZEROS.sub("", visible))
    tokens = _TOKEN.findall(whole)  # "subj" would lose its "sub" in `text`
    numbers = [token for token in tokens if token.isdigit()]
    usable = [
        number
        for number in numbers
        if len(number) >= LONG and not (len(numbers) > 1 and _DATE.fullmatch(number))
    ]
    if not usable:
        return _Parts(text)
    number = max(reversed(usable), key=len)
    others = [token for token in tokens if token != number and token not in _PERSON]
    return _Parts(text, number, "".join(others))


def _no_person_numbers(table: Sequence[_Parts]) -> set[str]:
    """Return the long numbers that two ids of a table have beside other letters or numbers.

    Letters may be missing or abbreviated: "50279", "Pitt_50279" and "Pittsburgh_50279" may be one person.
    """
    rests: dict[str, set[str]] = {}
    for parts in table:
        if parts.rest:
            rests.setdefault(parts.number, set()).add(parts.rest)
    return {
        number
        for number, of_number in rests.items()
        if any(
            not (short.isalpha() and long.startswith(short))
            for short, long in pairwise(sorted(of_number))
        )
    }


def person_keys(*tables: Sequence[str]) -> list[list[str]]:
    """Return the key of each id of some tables; equal keys may be one person.

    The rules are in the head of this module.

    Parameters
    ----------
    *tables : sequence of str
        Ids of each table of people, such as those of a run and those of a base model.

    Examples
    --------
    >>> person_keys(["0050279", "S-50279", "UM_1_0050279", "sub-01_ses-2", "2019-01"])
    [['50279', '50279', '50279', '1', '2019-1']]
    >>> person_keys(["HC10001", "SZ10001", "sz-10001"])
    [['hc 10001', 'sz 10001', 'sz 10001']]
    """
    parsed = [[_parts(subject_id) for subject_id in table] for table in tables]
    shared: set[str] = set()
    for table in parsed:
        shared |= _no_person_numbers(table)
    keys = []
    for table in parsed:
        of_table = []
        for parts in table:
            beside = parts.rest if parts.number in shared else ""
            key = f"{beside} {parts.number}".strip() if parts.number else parts.text
            of_table.append(key)
        keys.append(of_table)
    return keys


def _is_long(key: str) -> bool:
    """Return whether a key has a number of `LONG` digits or more."""
    return any(len(digits) >= LONG for digits in re.findall(r"\d+", key))


def shared_long_numbers(ids: Sequence[str], others: Sequence[str]) -> list[Pair]:
    """Return the pairs of an id and one of another table that have the same long number.

    Parameters
    ----------
    ids, others : sequence of str

    Returns
    -------
    list of (int, int)
        Places in `ids` and in `others`.

    Examples
    --------
    >>> shared_long_numbers(["50003", "50004", "7"], ["Pitt_0050004", "sub-7"])
    [(1, 0)]
    """
    keys, other_keys = person_keys(ids, others)
    places: dict[str, list[int]] = {}
    for place, key in enumerate(other_keys):
        places.setdefault(key, []).append(place)
    return [
        (one, other)
        for one, key in enumerate(keys)
        if _is_long(key)
        for other in places.get(key, ())
    ]


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
    for row, key in enumerate(person_keys(ids)[0]):
        rows_of.setdefault(key, []).append(row)
    within: dict[tuple[str, ...], list[Pair]] = {}
    counted: list[Pair] = []  # short numbers of two sites
    for key, rows in rows_of.items():
        for pair in combinations(rows, 2):
            one, other = (ids[row] for row in pair)
            if bare_id(one) == bare_id(other):
                continue
            sites = tuple(dict.fromkeys(str(cohort.site[row]) for row in pair))
            if len(sites) == 1 or _is_long(key):
                within.setdefault(sites, []).append(pair)
            else:
                counted.append(pair)
    for sites, pairs in within.items():
        yield _fault(ids, sites, pairs, "")
    yield from _alike_faults(cohort, counted)


def respelt_faults(cohort: Cohort, is_public: np.ndarray) -> Iterator[Fault]:
    """Yield a warning for each pair of a public and a tested site with short ids that may be of one person.

    Parameters
    ----------
    cohort : Cohort
        Public and tested people. With FC that is not finite, scans are not compared.
    is_public : ndarray of shape (n,), bool
    """
    ids = cohort.subject_id.tolist()
    rows_of: dict[str, list[int]] = {}
    keys = person_keys(ids)[0]
    for row in np.flatnonzero(is_public).tolist():
        rows_of.setdefault(keys[row], []).append(row)
    pairs = [
        (public, row)
        for row in np.flatnonzero(~is_public).tolist()
        for public in rows_of.get(keys[row], ())
        if not _is_long(keys[row]) and bare_id(ids[public]) != bare_id(ids[row])
    ]
    yield from _alike_faults(cohort, pairs)


def _alike_faults(cohort: Cohort, pairs: Sequence[Pair]) -> Iterator[Fault]:
    """Yield a warning for each pair of sites with ids of the same key and scans that are alike.

    Parameters
    ----------
    cohort : Cohort
    pairs : sequence of (int, int)
        Rows of people at two sites whose ids have the same key.
    """
    ids = cohort.subject_id.tolist()
    alike: dict[tuple[str, ...], list[Pair]] = {}
    for pair in _alike_beyond_chance(cohort, pairs):
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
    kind = "look like one person's in two spellings"
    if all(plain_id(ids[one]) == plain_id(ids[other]) for one, other in pairs):
        kind = "differ only in case, blanks, 'sub-' or leading zeros"
    what = f"subject ids {kind}{more}: {abbreviated(words, SHOWN_PAIRS)}{where}."
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
