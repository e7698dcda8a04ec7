"""Names of sites and labels: one spelling each, and no two that a reader could confuse.

A record is found by the name of its author. A name that only looks like another hospital's could
speak beside that hospital's key, so a name has one spelling in Latin letters, and a file does not
hold two names that a reader could take for each other.
"""

from collections.abc import Iterable

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.names import (
    LONGEST_NAME,
    canonical_name,
    first_look_alikes,
    name_fault,
)

# -- names of sites --------------------------------------------------------------------------------
ON_THE_KEY = "Write it as on the hospital's key."


def site_name(name: str) -> str:
    """Return the canonical spelling of a site's name; `ConfigError` where there is none.

    Parameters
    ----------
    name : str
        As somebody typed it, in any script.

    Examples
    --------
    >>> site_name(" ＮＹＵ  Langone ")
    'NYU Langone'
    """
    canonical = canonical_name(name)
    if fault := name_fault(canonical):
        raise ConfigError(
            f"the site name {name[:LONGEST_NAME]!a} {fault}.", do=ON_THE_KEY
        )
    return canonical


def require_distinct(names: Iterable[str]) -> None:
    """Raise `ExchangeError` if two different names look alike."""
    if pair := first_look_alikes(names):
        raise ExchangeError(
            f"the sites {pair[0]!a} and {pair[1]!a} look alike.",
            do="One may pose as the other; ask both which name is theirs.",
        )
