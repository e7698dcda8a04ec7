"""Seal a capsule: every part hashed, the hashes in the manifest, the manifest in the seal."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.capsule import container as box
from fcforge.capsule import ledger
from fcforge.capsule.arrays import named_harmony, save_arrays
from fcforge.capsule.chain import ChainSettings
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import Home, receipt_of, write_home
from fcforge.capsule.ledger import PrivateKey
from fcforge.errors import CapsuleError

FORMAT, VERSION = "fcforge-capsule", 2
READ_BY = {1: "fcforge 0.1"}  # releases that read what this one does not
REAL_FLAG = "allow_real_subjects"


def seal(
    capsule: Capsule, out: str | Path, *, key: PrivateKey | None = None,
    allow_real_subjects: bool = False, overwrite: bool = False,
) -> Capsule:  # fmt: skip
    """Write a capsule to a file (or a folder, when `out` has no suffix), whole or not at all.

    Receipts of those who were just learned are written beside it: they must stay at home.

    Parameters
    ----------
    capsule : Capsule
    out : path
    key : PrivateKey, optional
        Signs the manifest, which covers every part, and the ledger lines that are new in it.
    allow_real_subjects : bool
        A method that keeps real subjects (or a generator that copies them) is refused without
        it; the permission is written into the ledger for everyone to read.
    overwrite : bool
        Replace an existing file.

    Returns
    -------
    Capsule
        The same with its new id.
    """
    entries = flagged(capsule, allow_real_subjects)
    if not (capsule.id and key):  # an opened capsule has lines of others only
        old = entries if capsule.id else entries[: ledger.first_new(entries)]
        ledger.require_same_signing([line["key"] for line in old], key is not None)
    if key is not None and not capsule.id:
        entries = ledger.sign_new(entries, key)
    capsule = replace(capsule, entries=entries, signed_by=ledger.public_hex(key))
    parts = {
        box.LEDGER: ledger.write(entries),
        box.LANE: save_arrays({**capsule.lane.named(), **named_harmony(capsule.harmony)}),
        box.REMEMBERED: save_arrays(vars(capsule.remembered)),
        box.HELD_OUT: save_arrays(vars(capsule.held_out)),
    }
    parts[box.MANIFEST] = ledger.canonical(manifest_of(capsule, parts))
    identity = ledger.sha256(parts[box.MANIFEST])
    said = {"public_key": capsule.signed_by, "signature": ledger.sign(key, identity)}
    parts[box.SEAL] = ledger.canonical({"manifest_sha256": identity, **said})
    box.write_parts(parts, out, overwrite=overwrite)
    if capsule.receipts:
        write_home(Home(capsule.receipts), receipt_of(out))
    return replace(capsule, id=identity)


def flagged(capsule: Capsule, allow_real_subjects: bool) -> tuple[ledger.Entry, ...]:
    """The ledger, with the permission to seal real subjects where it is needed and given."""
    last = capsule.entries[-1]
    if not capsule.holds_real or REAL_FLAG in last["flags"]:
        return capsule.entries
    require_allowed(capsule.settings, allow_real_subjects and not capsule.id)
    return (*capsule.entries[:-1], {**last, "flags": [*last["flags"], REAL_FLAG]})


def require_allowed(settings: ChainSettings, allowed: bool) -> None:
    """Refuse to seal real subjects unless that was allowed by name."""
    if not allowed:
        raise CapsuleError(
            f"learner '{settings.learner.title}' would carry real subjects to the next hospital.",
            do="Choose a method that keeps none, or give --allow-real-subjects "
            "(recorded in the ledger).",
        )


def manifest_of(capsule: Capsule, parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest: all of it follows from the ledger and the other parts."""
    last = capsule.entries[-1]
    return {
        "format": FORMAT, "version": VERSION, "settings": capsule.settings.to_json(),
        "sites": list(capsule.sites), "keeps": capsule.settings.keeps, "parent": last["parent"],
        "created": last["time"], "environment": last["environment"],
        "ledger_head": ledger.sha256(ledger.canonical(last)),
        "parts": {
            name: {"sha256": ledger.sha256(parts[name]), "size": len(parts[name])}
            for name in box.SEALED_PARTS
        },
    }  # fmt: skip


def with_audit(capsule: Capsule, result: Mapping[str, Any]) -> Capsule:
    """The capsule with an audit written into its ledger, to be sealed again.

    Parameters
    ----------
    capsule : Capsule
        Opened, so that it has an id: the audit says which capsule was audited.
    result : mapping
        Plain numbers and texts.
    """
    if not capsule.id:
        raise CapsuleError("only a sealed capsule can be audited.", do="Seal and open it first.")
    last = capsule.entries[-1]
    entry = {
        "kind": "audit", "time": ledger.now(), "parent": capsule.id, "flags": last["flags"],
        "environment": last["environment"], "result": dict(result),
    }  # fmt: skip
    entries = ledger.append(capsule.entries, entry)
    return replace(capsule, entries=entries, id="", parent=capsule.id, signed_by="")
