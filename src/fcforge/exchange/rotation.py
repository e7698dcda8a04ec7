"""A new key for a hospital: the old one signs it, and both are on record."""

from pathlib import Path

from fcforge.exchange import archive, exchange
from fcforge.exchange.keys import Trust, read_private
from fcforge.exchange.names import site_name
from fcforge.exchange.records import Rotation


def rotate_file(
    old: Path,
    new: Path,
    site: str,
    state: Path,
    out: Path,
    trust: Trust,
    overwrite: bool = False,
) -> Rotation:
    """Write an exchange (or, as ``.record``, the rotation alone) in which `new` signs for a site.

    Parameters
    ----------
    old, new : Path
        Private keys.
    site : str
    state : Path
        Exchange with everything that the site gave: what is not in it is not vouched for.
    out : Path
    trust : Trust
    overwrite : bool
    """
    archive.require_place(out, overwrite=overwrite)
    name = site_name(site)
    found = exchange.open_exchange(state, trust)
    rotated = found.rotated(name, read_private(old), read_private(new))
    last = rotated.of(Rotation, name)[-1:]
    exchange.save(rotated, out, last, overwrite=overwrite)
    return last[0]
