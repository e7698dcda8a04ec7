"""Open and verify. Everything is checked before anything of a capsule is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.capsule import ledger
from fcforge.capsule.arrays import check_lane, check_subjects, read_lane, read_subjects
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
)
from fcforge.capsule.contents import Capsule, Settings
from fcforge.capsule.judging import DISTANCES
from fcforge.capsule.sealing import FORMAT, REAL_FLAG, VERSION, manifest_of
from fcforge.capsule.signing import read_public
from fcforge.errors import CapsuleError


@dataclass(frozen=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str = ""


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


def intact(checks: Sequence[Check]) -> bool:
    """Whether every step of `verify` was reached and passed."""
    return len(checks) == len(STEPS) and all(check.ok for check in checks)


def open_trusted(path: str | Path, trust: Sequence[str | Path]) -> Capsule:
    """Open a capsule that must be signed by one of the keys (PEM files), if any are given."""
    return open_capsule(path, trusted=[read_public(key) for key in trust])


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

    identity = ledger.sha256(parts[MANIFEST])
    sealed = _sealed(parts[SEAL], identity)
    yield f"id {identity[:16]}", None

    signed_by = _signer(sealed, identity, trusted)
    yield f"by {signed_by[:16]}" if signed_by else "not signed", None

    manifest = _read_manifest(parts[MANIFEST])
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
    check_lane(lane, learner, len(remembered), len(sites))
    yield f"{sum(p.numel() for p in lane.params.values())} parameters, all finite", None

    held_out = read_subjects(parts[HELD_OUT], settings.n_rois, HELD_OUT)
    for subjects in (remembered, held_out):
        check_subjects(subjects, len(sites))
    parent = entries[-1]["parent"]
    capsule = Capsule(
        settings, sites, lane, remembered, held_out, entries, identity, parent, signed_by
    )
    _check_real(capsule)
    # whatever else the manifest says must be what `seal` would say of these parts
    if ledger.canonical(manifest_of(capsule, parts)) != parts[MANIFEST]:
        raise CapsuleError("the manifest says something else than the parts.")
    yield f"{len(remembered)} remembered, {len(held_out)} held out", capsule


def _sealed(data: bytes, identity: str) -> dict[str, Any]:
    sealed = ledger.parse(data, SEAL)
    if set(sealed) != {"manifest_sha256", "public_key", "signature"}:
        raise CapsuleError("the seal is not written as fcforge writes it.")
    if sealed["manifest_sha256"] != identity:
        raise CapsuleError("the manifest is not the one that was sealed.")
    return sealed


def _read_manifest(data: bytes) -> dict[str, Any]:
    manifest = ledger.parse(data, MANIFEST)
    found = manifest.get("format"), manifest.get("version")
    if found != (FORMAT, VERSION):
        raise CapsuleError(
            f"is of format {found[0]!r} version {found[1]!r}; this fcforge reads {FORMAT} "
            f"version {VERSION}."
        )
    return manifest


def _check_real(capsule: Capsule) -> None:
    if bool(capsule.held_out.real.any()):
        raise CapsuleError("a held-out set holds real subjects.")
    if capsule.holds_real and REAL_FLAG not in capsule.entries[-1]["flags"]:
        raise CapsuleError("holds real subjects without the flag that allows it.")


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


COMMON_KEYS = {
    "kind", "number", "previous", "time", "parent", "parent_signed_by", "flags", "environment",
}  # fmt: skip
LEARN_KEYS = COMMON_KEYS | {
    "site", "settings", "counts", "metrics", "calibration", "reference", "seconds",
}  # fmt: skip
AUDIT_KEYS = COMMON_KEYS | {"result"}


def _agree(
    manifest: dict[str, Any], entries: Sequence[ledger.Entry]
) -> tuple[Settings, tuple[str, ...]]:
    """Settings and sites of a manifest whose every claim is also in the ledger."""
    settings = Settings.from_json(_get(manifest, "settings") or {})
    if entries[0]["kind"] != "learn":
        raise CapsuleError("the ledger does not say which site was learned first.")
    for entry in entries:
        if not _right_types(entry):
            raise CapsuleError(f"ledger line {entry['number'] + 1} is not as fcforge writes it.")
    learned = ledger.learned(entries)
    claimed = ledger.canonical(manifest["settings"])  # bytes: False and 0 are not the same
    if any(ledger.canonical(entry["settings"]) != claimed for entry in learned):
        raise CapsuleError("the settings of the manifest are not those of the ledger.")
    sites = tuple(entry["site"] for entry in learned)
    if list(sites) != manifest.get("sites") or len(set(sites)) != len(sites):
        raise CapsuleError("the sites of the manifest are not those of the ledger.")
    return settings, sites


def _right_types(entry: ledger.Entry) -> bool:
    """Whether all that is computed with or shown of an entry has the right type."""
    learns = entry["kind"] == "learn"
    if set(entry) != (LEARN_KEYS if learns else AUDIT_KEYS):
        return False
    texts = [entry["time"], entry["parent"], entry["parent_signed_by"], *_list(entry["flags"])]
    if not all(isinstance(x, str) and len(x) <= 200 for x in texts):
        return False
    if not isinstance(entry["environment"], dict):
        return False
    return _right_learn(entry) if learns else isinstance(entry["result"], dict)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _right_learn(entry: ledger.Entry) -> bool:
    site, held_out = entry["site"], _get(entry, "metrics", "held_out")
    reference, how = entry["reference"], _get(entry, "calibration", "how")
    if not (isinstance(site, str) and 0 < len(site) <= 200 and isinstance(how, str)):
        return False
    if not (isinstance(reference, dict) and isinstance(held_out, dict)):
        return False
    if set(reference) != set(DISTANCES) or len(set(map(type, reference.values()))) != 1:
        return False
    positive = [_get(entry, "calibration", "temperature"), *reference.values()]
    counts = [
        _get(entry, "counts", part, group)
        for part in ("learning", "test")
        for group in ("controls", "patients")
    ]
    shares = [_get(entry, "metrics", "own_test", "accuracy")]
    shares += [_get(found, "accuracy") for found in held_out.values()]
    return all(_number(x, 1e-9, 1e9) for x in positive) and all(
        _number(x, 0, 1e9) for x in (*counts, *shares)
    )


def _number(value: Any, low: float, high: float) -> bool:
    """None, or a number between two bounds."""
    if value is None:
        return True
    return isinstance(value, (int, float)) and low <= value <= high
