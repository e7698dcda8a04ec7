"""Receipts: a hospital's own proof of whom it learned.

The ledger holds a salted hash of the learned people, their scans and diagnoses, in the order
learned (the commitment). It tells nobody anything without the salt, which stays at home in the
receipt, as does the list. An audit must be of the same people, or it would find nothing and look
reassuring.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fcforge.capsule import ledger
from fcforge.errors import DataError
from fcforge.writing import write_bytes

FORMAT = "fcforge-receipt"
Person = tuple[str, str, str]  # id, SHA-256 of the FC, diagnosis
People = tuple[Person, ...]


def fingerprints(fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> People:
    """(id, SHA-256 of the FC, diagnosis) of every scan, in order."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    return tuple(
        (str(i), hashlib.sha256(scan.tobytes()).hexdigest(), str(int(diagnosis)))
        for i, scan, diagnosis in zip(ids, scans, y, strict=True)
    )


def read_people(data: Sequence[Sequence[str]]) -> People:
    """People of a file; `ValueError` where they are not as `fingerprints` gives them."""
    return tuple((str(who), str(scan), str(diagnosis)) for who, scan, diagnosis in data)


def commitment(salt: str, people: Sequence[Sequence[str]]) -> str:
    """Salted SHA-256 of people, scans and diagnoses, in order: tells nothing without the salt."""
    return ledger.sha256(ledger.canonical([salt, [list(p) for p in people]]))


def new_salt() -> str:
    """128 random bits, hex."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class LinkReceipt:
    """Who was learned at one site.

    Attributes
    ----------
    site, salt : str
    people : tuple of (id, FC hash, diagnosis)
        In the order learned; ids are empty where none were known.
    """

    site: str
    salt: str
    people: People

    @classmethod
    def of(cls, site: str, fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> LinkReceipt:
        """A new receipt, with a salt of its own."""
        return cls(site, new_salt(), fingerprints(fc, ids or [""] * len(fc), y))

    @property
    def commitment(self) -> str:
        """What the ledger says of them."""
        return commitment(self.salt, self.people)

    def require(self, said: str, fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> None:
        """Raise `DataError` unless these people are those of the receipt and of the ledger.

        Parameters
        ----------
        said : str
            Commitment of the ledger.
        fc : ndarray of shape (n, R, R)
        ids : sequence of str
        y : ndarray of shape (n,)
        """
        where = f"site '{self.site}'"
        if self.commitment != said:
            raise DataError(
                "the receipt is not of what the capsule learned.",
                where=where,
                do="Use the receipt that was written when this site was learned.",
            )
        unnamed = all(not who for who, *_ in self.people)
        found = fingerprints(fc, [""] * len(fc) if unnamed else ids, y)
        same = sorted(found) == sorted(self.people) if unnamed else found == self.people
        if not same:
            raise DataError(
                "these are not the data the capsule learned, so members cannot be told from "
                "others.",
                where=where,
                do="Give exactly what `fcforge learn` was given: the same scans under the same "
                "ids with the same diagnoses.",
            )


def receipt_of(out: str | Path) -> Path:
    """Where the receipt of a capsule is written: beside it."""
    return Path(f"{out}.receipt.json")


def write_receipt(receipt: LinkReceipt, path: str | Path) -> Path:
    """Write a receipt whole or not at all, readable by its owner only."""
    data = {"format": FORMAT, **asdict(receipt)}
    try:
        write_bytes(path, json.dumps(data, indent=1).encode(), private=True)
    except OSError as error:
        raise DataError(
            f"the receipt cannot be written ({error.strerror}).",
            where=str(path),
            do="Make room and learn the site again: nobody can audit it without a receipt.",
        ) from error
    return Path(path)


def read_receipt(path: str | Path) -> LinkReceipt:
    """The receipt in a file."""
    try:
        data = json.loads(Path(path).read_bytes())
        if data["format"] != FORMAT:
            raise ValueError("another format")
        return LinkReceipt(str(data["site"]), str(data["salt"]), read_people(data["people"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"is not a receipt of fcforge ({error}).",
            where=str(path),
            do="Name the file that `fcforge learn` wrote beside the capsule.",
        ) from error
