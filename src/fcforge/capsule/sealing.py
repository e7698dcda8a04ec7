"""Seal a capsule: every part hashed, the hashes in the manifest, the manifest in the seal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.capsule import container as box
from fcforge.capsule import ledger
from fcforge.capsule.arrays import write_lane, write_subjects
from fcforge.capsule.contents import Capsule, ChainSettings
from fcforge.capsule.home import Home, receipt_of, write_home
from fcforge.capsule.keys import public_hex, sign
from fcforge.errors import CapsuleError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT, VERSION = "fcforge-capsule", 2
READ_BY = {1: "fcforge 0.1"}  # releases that read what this one does not
REAL_FLAG = "allow_real_subjects"


def seal(
    capsule: Capsule,
    out: str | Path,
    *,
    key: Ed25519PrivateKey | None = None,
    allow_real_subjects: bool = False,
    overwrite: bool = False,
) -> Capsule:
    """Write a capsule to a file (or a folder, when `out` has no suffix), whole or not at all.

    Receipts of those who were just learned are written beside it: they must stay at home.

    Parameters
    ----------
    capsule : Capsule
    out : path
    key : Ed25519PrivateKey, optional
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
    entries = _signed(capsule, flagged(capsule, allow_real_subjects), key)
    capsule = replace(capsule, entries=entries, signed_by="")
    parts = {
        box.LEDGER: ledger.write(entries),
        box.LANE: write_lane(capsule.lane, capsule.harmony),
        box.REMEMBERED: write_subjects(capsule.remembered),
        box.HELD_OUT: write_subjects(capsule.held_out),
    }
    parts[box.MANIFEST] = ledger.canonical(manifest_of(capsule, parts))
    identity = ledger.sha256(parts[box.MANIFEST])
    public, signature = sign(key, identity) if key is not None else ("", "")
    said = {"manifest_sha256": identity, "public_key": public, "signature": signature}
    box.write_parts({**parts, box.SEAL: ledger.canonical(said)}, out, overwrite=overwrite)
    if capsule.receipts:
        write_home(Home(capsule.receipts), receipt_of(out))
    return replace(capsule, id=identity, signed_by=public)


def _signed(
    capsule: Capsule, entries: tuple[ledger.Entry, ...], key: Ed25519PrivateKey | None
) -> tuple[ledger.Entry, ...]:
    """The ledger with its new lines signed; what was opened has lines of others only."""
    if capsule.id:
        if key is None:
            require_same_signing(entries, signs=False)
        return entries
    require_same_signing(entries[: ledger.first_new(entries)], key is not None)
    return ledger.sign_new(entries, key) if key is not None else entries


def flagged(capsule: Capsule, allow_real_subjects: bool) -> tuple[ledger.Entry, ...]:
    """The ledger, with the permission to seal real subjects where it is needed and given."""
    if not capsule.holds_real:
        return capsule.entries
    last = capsule.entries[-1]
    if REAL_FLAG in last["flags"]:
        return capsule.entries
    if not allow_real_subjects or capsule.id:
        method = capsule.settings.learner.title
        raise CapsuleError(
            f"learner '{method}' would carry real subjects to the next hospital.",
            do="Choose a method that keeps none, or give --allow-real-subjects "
            "(recorded in the ledger).",
        )
    return (*capsule.entries[:-1], {**last, "flags": [*last["flags"], REAL_FLAG]})


def require_same_signing(entries: Sequence[ledger.Entry], signs: bool) -> None:
    """Raise unless a new line is signed where the earlier ones are, and not where they are not.

    Else the next hospital could not tell it from a signature that was taken off.
    """
    signed = [bool(entry["key"]) for entry in entries]
    if not signs and any(signed):
        raise CapsuleError("the lines before yours are signed.", do="Sign yours, too: --sign KEY.")
    if signs and not all(signed):
        raise CapsuleError(
            "the lines before yours are not signed.",
            do="Leave out --sign, or begin the chain anew with a signature.",
        )


def require_own_audit(
    entries: Sequence[ledger.Entry], site: str, key: Ed25519PrivateKey | None
) -> None:
    """Raise unless the audit of a site would be signed as the site's own line is."""
    require_same_signing(entries, key is not None)
    if key is not None:
        ledger.require_author(entries, site, public_hex(key.public_key()))


def with_flags(capsule: Capsule, flags: Sequence[str]) -> Capsule:
    """A capsule that is not sealed yet, with what was accepted in its new ledger line."""
    last = capsule.entries[-1]
    line = {**last, "flags": [*last["flags"], *flags]}
    return replace(capsule, entries=(*capsule.entries[:-1], line))


def manifest_of(capsule: Capsule, parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest: all of it follows from the ledger and the other parts."""
    last = capsule.entries[-1]
    return {
        "format": FORMAT,
        "version": VERSION,
        "settings": capsule.settings.to_json(),
        "sites": list(capsule.sites),
        "keeps": capsule.keeps,
        "parent": last["parent"],
        "created": last["time"],
        "environment": last["environment"],
        "ledger_head": ledger.sha256(ledger.canonical(last)),
        "parts": {
            name: {"sha256": ledger.sha256(parts[name]), "size": len(parts[name])}
            for name in box.SEALED_PARTS
        },
    }


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
        "kind": "audit",
        "time": ledger.now(),
        "parent": capsule.id,
        "flags": last["flags"],
        "environment": last["environment"],
        "result": dict(result),
    }
    entries = ledger.append(capsule.entries, entry)
    return replace(capsule, entries=entries, id="", parent=capsule.id, signed_by="")


def settings_sha256(settings: ChainSettings) -> str:
    """What every ledger line says of the settings: the manifest has them in full."""
    return ledger.sha256(ledger.canonical(settings.to_json()))
