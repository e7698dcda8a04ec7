"""Codes of diagnoses that differ between sites, such as 0 and 1 at one and 1 and 2 at another.

Taken together such codes are three classes, of which one is two groups. Only sites with two codes
are compared: a site with one code may lack the other class. Sites that have all codes of two others,
each of `MIN_PER_CLASS` people or more, show what the codes mean. Fewer may be mistyped: a code of a
tenth of a site's people or less is not counted as one of the site's codes (`usual_codes`). Otherwise

- different numbers are a conflict, also as digits behind one word (G0 and G1, G1 and G2), unless the
  word is a known one, whose digits are subtypes (ASD-1),
- numbers at one site and words at another are a conflict,
- words are a conflict if a word of each site names the same group: HC and TC, ASD and autism, ASD and
  patient. Words of subtypes, such as autism and asperger, and other words may differ.

If the user listed the classes, numbers are no conflict where both sites have the controls' code (0
and 1, 0 and 2: two disorders) or no code is at both sites (0 and 1, 2 and 3: new classes). The
latter is a warning. So is a conflict of sites that have fewer than `MIN_PER_CLASS` people of a code, and
one that appears only if all codes of fewer people are left out beside two others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from fcforge.core.formatting import abbreviated
from fcforge.core.labels import plain_word
from fcforge.data.checks import MIN_PER_CLASS
from fcforge.data.faults import Fault, Severity
from fcforge.data.participants import CONTROLS, PATIENTS, SUBTYPES
from fcforge.imaging.parsers import as_number

RECODE = (
    "If these are the same two groups, recode them so that a code means one group at all sites, "
    "for example 0 for controls and 1 for patients. If they are three groups or more, name them by "
    "words at every site, for example HC, MDD and BP."
)
RENAME = (
    "If these are the same two groups, recode them so that each group has one word at all sites. If "
    "they are groups of their own, name them by words that are not synonyms, for example ASD-1 and "
    "ASD-2."
)
SHOWN_SITES = 3
# A word and one digit, such as G0 or "group 1". ICD-10 codes have two digits (F20, F31), and are words.
_NUMBERED = re.compile(r"(.*[^\W\d_])[\W_]*\d")
STRAY = 0.1  # people of a stray code per person of each usual code
PeopleOfCode = Mapping[str, Mapping[Any, int]]  # by site and code
Pair = frozenset[Any]  # the two codes of a site


def coding_fault(
    people_of_code: PeopleOfCode, *, controls: Any = None, listed: bool = False
) -> Fault | None:
    """Return how sites contradict each other in the codes of diagnoses; None if they do not.

    The rules are in the head of this module.

    Parameters
    ----------
    people_of_code : mapping of site to mapping of code to int
        Numbers of people by code: a number, a text or a truth value.
    controls
        Code of the controls, if the user listed the classes.
    listed : bool
        Whether the user listed the classes.

    Returns
    -------
    Fault or None
        An error or a warning.

    Examples
    --------
    >>> fault = coding_fault({"A": {0: 9, 1: 9}, "B": {1: 9, 2: 9}})
    >>> fault.what
    'sites code the diagnosis differently: 0 and 1 (A); 1 and 2 (B). Together they would be 3 classes.'
    >>> coding_fault({"A": {0: 9, 1: 9}, "B": {1: 9}})
    """
    fault = _fault_of_pairs(people_of_code, STRAY, controls, listed)
    if fault is None:  # a rare code may be mistyped as well
        fault = _fault_of_pairs(people_of_code, 1.0, controls, listed)
        return fault and replace(fault, severity="warning")
    return fault


def _fault_of_pairs(
    people_of_code: PeopleOfCode, stray: float, controls: Any, listed: bool
) -> Fault | None:
    """Return the fault of sites that have two codes without stray ones.

    Parameters
    ----------
    people_of_code, controls, listed
        As in `coding_fault`.
    stray : float
        As in `usual_codes`.
    """
    sites_of_pair: dict[Pair, list[str]] = {}
    for site, people in people_of_code.items():
        pair = usual_codes(people, stray)
        if len(pair) == 2:
            sites_of_pair.setdefault(pair, []).append(site)
    faulty: set[Pair] = set()
    is_error = False
    for one, other in combinations(sites_of_pair, 2):
        doubtful = listed and are_numbers(one | other) and not one & other
        if not doubtful and not _in_conflict(one, other, controls):
            continue
        if _shown_together(one | other, people_of_code):
            continue
        faulty |= {one, other}
        are_frequent = all(
            any(
                min(people_of_code[site][code] for code in pair) >= MIN_PER_CLASS
                for site in sites_of_pair[pair]
            )
            for pair in (one, other)
        )
        is_error |= not doubtful and (are_frequent or not listed)
    if not faulty:
        return None
    shown = []
    for pair, sites in sites_of_pair.items():
        if pair in faulty:
            first, second = sorted(pair, key=_order)
            shown.append(f"{first} and {second} ({abbreviated(sites, SHOWN_SITES)})")
    codes = frozenset().union(*faulty)
    message = (
        f"sites code the diagnosis differently: {'; '.join(shown)}. Together they would be "
        f"{len(codes)} classes."
    )
    for text in _strays(people_of_code, stray):
        message += f" {text}: mistyped?"
        break
    severity: Severity = "error" if is_error else "warning"
    has_numbers = are_numbers(codes) or any(map(is_number, codes))
    return Fault(severity, message, RECODE if has_numbers else RENAME)


def usual_codes(people: Mapping[Any, int], stray: float = STRAY) -> frozenset[Any]:
    """Return the codes of a site without stray ones.

    A code beside two others is stray if it has fewer than `MIN_PER_CLASS` people, and at most the share
    `stray` of the people of each of the two most frequent codes.

    Parameters
    ----------
    people : mapping of code to int
        Numbers of the site's people.
    stray : float

    Examples
    --------
    >>> sorted(usual_codes({0: 24, 1: 35, 2: 1}))
    [0, 1]
    >>> sorted(usual_codes({0: 24, 1: 35, 2: 5}))
    [0, 1, 2]
    """
    if len(people) < 3:
        return frozenset(people)
    second = sorted(people.values())[-2]
    most = min(MIN_PER_CLASS - 1, stray * second)
    return frozenset(code for code, n in people.items() if n > most)


def is_number(code: Any) -> bool:
    """Return whether the code of a diagnosis is a number, also one written as text.

    Examples
    --------
    >>> is_number(1), is_number("2.0"), is_number("HC")
    (True, True, False)
    """
    if isinstance(code, (bool, int, float)):
        return True
    return as_number(str(code)) is not None


def are_numbers(codes: Iterable[Any]) -> bool:
    """Return whether all codes are numbers, or one digit each behind the same word.

    Digits behind a known word, such as ASD or patient, are subtypes.

    Examples
    --------
    >>> are_numbers([0, "1"]), are_numbers(["G0", "G1"]), are_numbers(["group 1", "Group-2"])
    (True, True, True)
    >>> are_numbers(["G0", "HC"]), are_numbers(["ASD-1", "ASD-2"]), are_numbers(["F20", "F31"])
    (False, False, False)
    """
    every = list(codes)
    if all(map(is_number, every)):
        return True
    matches = [_NUMBERED.fullmatch(plain_word(str(code))) for code in every]
    words = {match[1] if match else "" for match in matches}
    return len(words) == 1 and not words & {"", *CONTROLS, *PATIENTS}


def isolated_site(people_of_code: PeopleOfCode) -> str:
    """Return the last site of two classes or more that no other site has; "" if there is none.

    Another site must have two classes or more, too.
    """
    n_sites = Counter(code for codes in people_of_code.values() for code in codes)
    several = [site for site, codes in people_of_code.items() if len(codes) > 1]
    for site in reversed(several if len(several) > 1 else []):
        if all(n_sites[code] == 1 for code in people_of_code[site]):
            return site
    return ""


def classes_apart(people_of_code: PeopleOfCode) -> list[tuple[Any, Any]]:
    """Return the pairs of classes that are at no site together, in sorted order.

    Sites with one class and stray codes are not counted. A class that is at no other site is in no pair.
    """
    together: dict[Any, set[Any]] = {}
    for people in people_of_code.values():
        codes = usual_codes(people)
        if len(codes) > 1:
            for code in codes:
                together.setdefault(code, set()).update(codes)
    ordered = sorted(together, key=_order)
    return [(a, b) for a, b in combinations(ordered, 2) if b not in together[a]]


def stray_class(people_of_code: PeopleOfCode) -> str:
    """Return a text about the first code that is stray at every site that has it; "" if there is none."""
    usual = frozenset().union(*map(usual_codes, people_of_code.values()))
    for text in _strays(people_of_code, STRAY, usual):
        return text
    return ""


def _strays(
    people_of_code: PeopleOfCode, stray: float, usual: frozenset[Any] = frozenset()
) -> Iterator[str]:
    """Yield a text about each stray code of a site, except codes that are in `usual`."""
    for site, people in people_of_code.items():
        for code in sorted(
            set(people) - usual_codes(people, stray) - usual, key=_order
        ):
            have = "has" if people[code] == 1 else "have"
            n = "1 person" if people[code] == 1 else f"{people[code]} people"
            yield f"{n} of site '{site}' {have} the code {code!r}"


def _in_conflict(one: Pair, other: Pair, controls: Any) -> bool:
    """Return whether two sites with different codes may have coded the same groups.

    Parameters
    ----------
    one, other : frozenset of two codes
        Codes of each site.
    controls
        Code of the controls, if the user listed the classes.
    """
    union = one | other
    if are_numbers(union):
        return controls is None or one & other != {controls}
    if any(map(is_number, union)):
        return True
    return any(_same_group(a, b) for a in one - other for b in other - one)


def _same_group(word: Any, other: Any) -> bool:
    """Return whether two words may name the same group of people.

    Examples
    --------
    >>> _same_group("HC", "TC"), _same_group("ASD", "autism"), _same_group("SZ", "patient")
    (True, True, True)
    >>> _same_group("autism", "asperger"), _same_group("ASD", "ADHD"), _same_group("SZ", "BP")
    (False, False, False)
    """
    a, b = plain_word(str(word)), plain_word(str(other))
    if a in CONTROLS or b in CONTROLS:
        return a in CONTROLS and b in CONTROLS
    if a not in PATIENTS or b not in PATIENTS:
        return False
    if "" in (PATIENTS[a], PATIENTS[b]):  # "patient" may have any disorder
        return True
    subtypes = {SUBTYPES.get(a, ""), SUBTYPES.get(b, "")}
    return PATIENTS[a] == PATIENTS[b] and (len(subtypes) == 1 or "" in subtypes)


def _shown_together(codes: frozenset[Any], people_of_code: PeopleOfCode) -> bool:
    """Return whether sites that have all codes have `MIN_PER_CLASS` people of each, taken together."""
    showing = [people for people in people_of_code.values() if codes <= set(people)]
    return all(sum(p[code] for p in showing) >= MIN_PER_CLASS for code in codes)


def _order(code: Any) -> tuple[float, str]:
    """Return the key by which codes are sorted: numbers by value, then words."""
    number = as_number(str(code))
    return (number if number is not None else float("inf"), str(code))
