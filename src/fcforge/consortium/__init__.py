"""A consortium around a public start: releases of hospitals, merged, withdrawn, verified.

>>> from fcforge.consortium import make_public, Consortium  # doctest: +SKIP
>>> start = make_public(cohort, sites=["PITT", "YALE"])  # doctest: +SKIP
"""

from fcforge.capsule.home import Home, read_home, write_own
from fcforge.consortium.files import (
    read_consortium,
    read_release,
    write_consortium,
    write_release,
)
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import PublicStart, make_public
from fcforge.consortium.records import Release, Withdrawal

__all__ = [
    "Consortium",
    "Home",
    "PublicStart",
    "Release",
    "Withdrawal",
    "make_public",
    "read_consortium",
    "read_home",
    "read_release",
    "write_consortium",
    "write_own",
    "write_release",
]
