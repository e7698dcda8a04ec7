"""Names of sites (hospitals): one canonical form each, and no two that look alike in one file.

Records are found by the name of their author. An author whose name only looks like another
hospital's could pose as that hospital without its key. Therefore a name has one canonical form in
Latin letters, and a file cannot hold two names that look alike.
"""

from collections.abc import Iterable

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.names import (
    LONGEST_NAME,
    canonical_name,
    first_look_alikes,
    name_fault,
)

ON_THE_KEY = "Write it as on the hospital's key."


def site_name(name: str) -> str:
    """Return the canonical form of a site's name; raise `ConfigError` if it has none.

    Parameters
    ----------
    name : str
        Name in any script.

    Returns
    -------
    str
        The name without outer and double spaces, in plain letters.

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
    """Raise `ExchangeError` if two different names look alike.

    Parameters
    ----------
    names : iterable of str
    """
    if pair := first_look_alikes(names):
        raise ExchangeError(
            f"the sites {pair[0]!a} and {pair[1]!a} look alike.",
            do="One may pose as the other. Ask both sites for their names.",
        )
