"""Six people, a ledger entry of them, and a ledger."""

from pathlib import Path

import numpy as np

from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.people import people_of

N = 6


def scans(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([np.corrcoef(rng.normal(size=(14, 40))) for _ in range(n)])


FC = scans()
IDS = [f"p{k}" for k in range(N)]
Y = np.array([0, 1, 1, 0, 0, 1])
PEOPLE = people_of(FC, IDS, Y)


def entry(people=PEOPLE, epsilon=1.0, delta=1e-6, site="NYU", number=1, **more):
    said = {"people": people, "epsilon": epsilon, "delta": delta}
    return LedgerEntry(site=site, number=number, **said, **more)


def opened(place, key=None, site="NYU"):
    """Open a ledger; begin it if there is none, or if its first line was cut off."""
    begun = Path(place).exists() and b"\n" in Path(place).read_bytes()
    new = None if begun else Ledger.new(site, key)
    return Ledger.open(place, key, new=new)
