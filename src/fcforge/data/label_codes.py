"""Codes of diagnoses that differ between sites, such as 0 and 1 at one and 1 and 2 at another.

Taken together such codes are three classes, of which one is two groups. Only sites with two codes
are compared: a site with one code may lack the other class, and a site that has all codes of the
others shows what they mean. If no site has all of them,

- numbers are a conflict. If the user listed the classes, they are one only at a site without the
  controls' code: 0 and 1 at one site and 0 and 2 at another can be two disorders.
- numbers at one site and words at another are a conflict.
- words are a conflict if two of them mean controls (HC and TC). Other words mean the same at every
  site.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fcforge.core.formatting import abbreviated
from fcforge.data.participants import CONTROLS
from fcforge.imaging.parsers import as_number

RECODE = (
    "If these are the same two groups, recode them so that a code means one group at all sites, "
    "for example 0 for controls and 1 for patients. If they are three groups or more, name them by "
    "words at every site, for example HC, MDD and BP."
)
SHOWN_SITES = 3


def coding_conflict(
    codes_of_site: Mapping[str, Collection[Any]], controls: Any = None
) -> str:
    """Return how sites contradict each other in the codes of diagnoses, in words; "" if they do not.

    The rules are in the head of this module.

    Parameters
    ----------
    codes_of_site : mapping of site to codes
        Numbers, texts or truth values that a site's people have.
    controls
        Code of the controls, if the user listed the classes.

    Examples
    --------
    >>> coding_conflict({"A": [0, 1], "B": [1, 2]})
    'sites code the diagnosis differently: 0 and 1 (A); 1 and 2 (B). Together they would be 3 classes.'
    >>> coding_conflict({"A": [0, 1], "B": [1]})
    ''
    """
    codes = {site: frozenset(of_site) for site, of_site in codes_of_site.items()}
    pairs = {site: pair for site, pair in codes.items() if len(pair) == 2}
    union = frozenset().union(*pairs.values())
    if len(union) < 3 or any(of_site >= union for of_site in codes.values()):
        return ""
    numbers = {code for code in union if is_number(code)}
    if numbers == union:
        if controls is not None and all(controls in pair for pair in pairs.values()):
            return ""
    elif not numbers:
        means_control = [c for c in union if str(c).strip().casefold() in CONTROLS]
        if len(means_control) < 2:
            return ""
    sites_of: dict[str, list[str]] = {}
    for site, pair in pairs.items():
        first, second = sorted(pair, key=_order)
        sites_of.setdefault(f"{first} and {second}", []).append(site)
    shown = [
        f"{both} ({abbreviated(sites, SHOWN_SITES)})"
        for both, sites in sites_of.items()
    ]
    return (
        f"sites code the diagnosis differently: {'; '.join(shown)}. Together they would be "
        f"{len(union)} classes."
    )


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


def _order(code: Any) -> tuple[float, str]:
    """Return the key by which codes are sorted: numbers by value, then words."""
    number = as_number(str(code))
    return (number if number is not None else float("inf"), str(code))


def isolated_site(codes_of_site: Mapping[str, Collection[Any]]) -> str:
    """Return the last site of two classes or more that no other site has; "" if there is none.

    Another site must have two classes or more, too.
    """
    for site, codes in reversed([*codes_of_site.items()]):
        others = [c for other, c in codes_of_site.items() if other != site]
        several = len(codes) > 1 and any(len(c) > 1 for c in others)
        if several and all(set(codes).isdisjoint(c) for c in others):
            return site
    return ""
