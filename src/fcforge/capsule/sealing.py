"""Seal, open, verify. Everything is checked before anything of a capsule is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.capsule import ledger
from fcforge.capsule.arrays import (
    check_lane,
    check_subjects,
    read_lane,
    read_subjects,
    write_lane,
    write_subjects,
)
from fcforge.capsule.container import (
    HELD_OUT,
    LANE,
    LEDGER,
    MANIFEST,
    MAX_BYTES,
    MAX_TEXT,
    REMEMBERED,
    SEAL,
    SEALED_PARTS,
    damaged,
    read_parts,
    write_parts,
)
from fcforge.capsule.contents import Capsule, Settings
from fcforge.errors import CapsuleError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT, VERSION = "fcforge-capsule", 1
REAL_FLAG = "allow_real_subjects"


@dataclass(frozen=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str = ""


# -- sealing -----------------------------------------------------------------------------------
def seal(
    capsule: Capsule,
    out: str | Path,
    *,
    key: Ed25519PrivateKey | None = None,
    allow_real_subjects: bool = False,
    overwrite: bool = False,
) -> Capsule:
    """Write a capsule to a file (or a folder, when `out` has no suffix), whole or not at all.

    Parameters
    ----------
    capsule : Capsule
    out : path
    key : Ed25519PrivateKey, optional
        Signs the manifest, which covers every part.
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
    capsule = replace(capsule, entries=entries, signed_by="")
    parts = {
        LEDGER: ledger.write(entries),
        LANE: write_lane(capsule.lane),
        REMEMBERED: write_subjects(capsule.remembered),
        HELD_OUT: write_subjects(capsule.held_out),
    }
    manifest = ledger.canonical(_manifest(capsule, parts))
    identity = ledger.sha256(manifest)
    public, signature = "", ""
    if key is not None:
        from fcforge.capsule.signing import sign

        public, signature = sign(key, identity)
    parts[MANIFEST] = manifest
    parts[SEAL] = ledger.canonical(
        {"manifest_sha256": identity, "public_key": public, "signature": signature}
    )
    write_parts(parts, out, overwrite=overwrite)
    return replace(capsule, id=identity, signed_by=public)


def flagged(capsule: Capsule, allow_real_subjects: bool) -> tuple[ledger.Entry, ...]:
    """The ledger, with the permission to seal real subjects where it is needed and given."""
    if not capsule.holds_real:
        return capsule.entries
    last = capsule.entries[-1]
    if REAL_FLAG in last["flags"]:
        return capsule.entries
    if not allow_real_subjects:
        method = capsule.settings.learner.title
        raise CapsuleError(
            f"learner '{method}' would carry real subjects to the next hospital.",
            do="Choose a method that keeps none, or give --allow-real-subjects "
            "(recorded in the ledger).",
        )
    return ledger.append(capsule.entries[:-1], {**last, "flags": [*last["flags"], REAL_FLAG]})


def _manifest(capsule: Capsule, parts: dict[str, bytes]) -> dict[str, Any]:
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
            for name in SEALED_PARTS
        },
    }


# -- opening -----------------------------------------------------------------------------------
def open_capsule(
    path: str | Path, *, trusted: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> Capsule:
    """Open a capsule after every check of `verify` has passed.

    Parameters
    ----------
    path : path
        Capsule file or folder.
    trusted : sequence of str
        Hex Ed25519 public keys; when given, the capsule must be signed by one of them.
    max_bytes : int
        Largest capsule that is read at all.

    Raises
    ------
    CapsuleError
        On anything that is not exactly a capsule; nothing is written anywhere.
    """
    capsule: Capsule | None = None
    try:
        for _, found in _steps(path, trusted, max_bytes):
            capsule = found
    except CapsuleError as error:
        raise error if error.where else damaged(error.what, path) from error
    if capsule is None:
        raise damaged("holds nothing.", path)
    return capsule


def verify(
    path: str | Path, *, trusted: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> list[Check]:
    """Check a capsule step by step; a failed check is the last one of the list."""
    names = iter(STEPS)
    checks: list[Check] = []
    try:
        for detail, _ in _steps(path, trusted, max_bytes):
            checks.append(Check(next(names), True, detail))
    except CapsuleError as error:
        checks.append(Check(next(names), False, error.what))
    return checks


STEPS = ("container", "seal", "signature", "manifest", "parts", "ledger", "network", "subjects")


def _steps(
    path: str | Path, trusted: Sequence[str], max_bytes: int
) -> Iterator[tuple[str, Capsule | None]]:
    """The checks in the order of `STEPS`; the last one hands out the capsule."""
    parts = read_parts(path, max_bytes)
    for name in (MANIFEST, LEDGER, SEAL):
        if len(parts[name]) > MAX_TEXT:
            raise CapsuleError(f"part '{name}' is larger than {MAX_TEXT} bytes.")
    yield f"{len(parts)} parts, {sum(map(len, parts.values()))} bytes", None

    sealed = ledger.parse(parts[SEAL], SEAL)
    identity = ledger.sha256(parts[MANIFEST])
    if set(sealed) != {"manifest_sha256", "public_key", "signature"}:
        raise CapsuleError("the seal is not written as fcforge writes it.")
    if sealed["manifest_sha256"] != identity:
        raise CapsuleError("the manifest is not the one that was sealed.")
    yield f"id {identity[:16]}", None

    signed_by = _signer(sealed, identity, trusted)
    yield f"by {signed_by[:16]}" if signed_by else "not signed", None

    manifest = ledger.parse(parts[MANIFEST], MANIFEST)
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise CapsuleError(
            f"is of format {manifest.get('format')!r} version {manifest.get('version')!r}; "
            f"this fcforge reads {FORMAT} version {VERSION}."
        )
    yield f"{FORMAT} version {VERSION}", None

    for name in SEALED_PARTS:
        expected = {"sha256": ledger.sha256(parts[name]), "size": len(parts[name])}
        if _get(manifest, "parts", name) != expected:
            raise CapsuleError(f"part '{name}' is not the one that was sealed.")
    yield "all SHA-256 sums and sizes agree", None

    entries = ledger.read(parts[LEDGER])
    settings, sites = _agree(manifest, entries)
    yield f"{len(entries)} entries, unbroken", None

    lane, learner = read_lane(parts[LANE], settings)
    remembered = read_subjects(parts[REMEMBERED], settings.n_rois, REMEMBERED)
    check_lane(lane, learner, len(remembered))
    yield f"{sum(p.numel() for p in lane.params.values())} parameters, all finite", None

    held_out = read_subjects(parts[HELD_OUT], settings.n_rois, HELD_OUT)
    for subjects in (remembered, held_out):
        check_subjects(subjects, len(sites))
    capsule = Capsule(
        settings,
        sites,
        lane,
        remembered,
        held_out,
        entries,
        identity,
        manifest["parent"],
        signed_by,
    )
    if bool(held_out.real.any()):
        raise CapsuleError("a held-out set holds real subjects.")
    if capsule.holds_real and REAL_FLAG not in entries[-1].get("flags", ()):
        raise CapsuleError("holds real subjects without the flag that allows it.")
    # whoever agrees in all of the above must also have been written by `seal`
    if ledger.canonical(_manifest(capsule, parts)) != parts[MANIFEST]:
        raise CapsuleError("the manifest says something else than the parts.")
    yield f"{len(remembered)} remembered, {len(held_out)} held out", capsule


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _signer(sealed: dict[str, Any], identity: str, trusted: Sequence[str]) -> str:
    public, signature = sealed["public_key"], sealed["signature"]
    if not isinstance(public, str) or not isinstance(signature, str):
        raise CapsuleError("the seal is not written as fcforge writes it.")
    if public or signature:
        from fcforge.capsule.signing import check_signature

        if (public, signature) != (public.lower(), signature.lower()):
            raise CapsuleError("the seal is not written as fcforge writes it.")
        check_signature(public, signature, identity)
    if trusted and public not in trusted:
        raise CapsuleError("is not signed by a trusted key." if public else "is not signed.")
    return public


LEARN_KEYS = {
    "kind", "number", "previous", "site", "time", "parent", "parent_signed_by", "settings",
    "counts", "metrics", "calibration", "reference", "flags", "environment", "seconds",
}  # fmt: skip


def _agree(
    manifest: dict[str, Any], entries: Sequence[ledger.Entry]
) -> tuple[Settings, tuple[str, ...]]:
    """Settings and sites of a manifest whose every claim is also in the ledger."""
    settings = Settings.from_json(_get(manifest, "settings") or {})
    learned = ledger.learned(entries)
    if not learned or entries[0]["kind"] != "learn":
        raise CapsuleError("the ledger does not say which site was learned first.")
    for entry in learned:
        if set(entry) != LEARN_KEYS or entry["settings"] != manifest["settings"]:
            raise CapsuleError(f"ledger line {entry['number'] + 1} disagrees with the manifest.")
        check_entry(entry)
    sites = tuple(entry["site"] for entry in learned)
    if list(sites) != manifest.get("sites") or len(set(sites)) != len(sites):
        raise CapsuleError("the sites of the manifest are not those of the ledger.")
    return settings, sites


def check_entry(entry: ledger.Entry) -> None:
    """Raise unless the parts of a learn entry that are computed with have the right types."""
    temperature = _get(entry, "calibration", "temperature")
    reference = [_get(entry, "reference", name) for name in ("inside", "outside")]
    numbers = [x for x in (temperature, *reference) if x is not None]
    if not all(isinstance(x, (int, float)) and 0 < x < 1e9 for x in numbers):
        raise CapsuleError(f"ledger line {entry['number'] + 1} holds an impossible number.")
    texts = (entry["site"], entry["time"], entry["parent"], entry["parent_signed_by"])
    if not all(isinstance(x, str) and len(x) <= 200 for x in texts) or not entry["site"]:
        raise CapsuleError(f"ledger line {entry['number'] + 1} names its site or time wrongly.")
    flags = entry["flags"]
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise CapsuleError(f"ledger line {entry['number'] + 1} has odd flags.")
