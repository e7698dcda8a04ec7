"""Seal, open and verify a chained capsule.

Every array is hashed into the last line of the ledger that learned, and its author signs the line:
a signature covers all that travels. Opening checks everything before anything is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fcforge.capsule import arrays, chain, home, ledger, lines
from fcforge.capsule import container as box
from fcforge.capsule.contents import Capsule
from fcforge.capsule.keys import Keyring, read_keyring, read_public
from fcforge.errors import CapsuleError, at
from fcforge.text import counted

REAL_FLAG = "allow_real_subjects"
STEPS = ("container", "ledger", "signatures", "network", "subjects")


def seal(
    capsule: Capsule,
    out: str | Path,
    *,
    key: ledger.PrivateKey | None = None,
    allow_real_subjects: bool = False,
    overwrite: bool = False,
) -> Capsule:
    """Write a capsule to a file (or a folder, when `out` has no suffix), whole or not at all.

    Receipts of those who were just learned are written beside it: they must stay at home.

    Parameters
    ----------
    capsule : Capsule
    out : path
    key : PrivateKey, optional
        Signs the ledger lines that are new, the last of which covers every array.
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
    network = {**capsule.lane.named(), **arrays.named_harmony(capsule.harmony)}
    each = (network, vars(capsule.remembered), vars(capsule.held_out))
    parts = {
        name: arrays.save_arrays(a) for name, a in zip(box.ARRAYS, each, strict=True)
    }
    last, entries = capsule.entries[-1], capsule.entries
    if capsule.holds_real and REAL_FLAG not in last["flags"]:
        require_allowed(capsule.settings, allow_real_subjects and not capsule.id)
        last = {**last, "flags": [*last["flags"], REAL_FLAG]}
    if not capsule.id:  # an opened capsule has lines of others only
        if last["kind"] == "learn":
            last = {**last, "arrays": _sums(parts)}
        entries, first = (*entries[:-1], last), ledger.first_new(entries)
        ledger.require_same_signing(
            [e["key"] for e in entries[:first]], key is not None
        )
        entries = ledger.sign_new(entries, key) if key is not None else entries
    parts[box.LEDGER] = ledger.write(entries)
    whole = box.sealed(box.CHAIN, capsule.settings.to_json(), parts)
    box.write_parts(whole, out, overwrite=overwrite)
    if capsule.receipts:
        home.write_own(home.Home(capsule.receipts), home.receipt_of(out))
    return replace(capsule, entries=entries, id=ledger.sha256(whole[box.MANIFEST]))


def _sums(parts: Mapping[str, bytes]) -> str:
    """What a ledger line says of the arrays that travel with it."""
    sums = {name: ledger.sha256(parts[name]) for name in box.ARRAYS}
    return ledger.sha256(ledger.canonical(sums))


def require_allowed(settings: chain.ChainSettings, allowed: bool) -> None:
    """Refuse to seal real subjects unless that was allowed by name."""
    if not allowed:
        raise CapsuleError(
            f"learner '{settings.learner.title}' would carry real subjects to the next hospital.",
            do="Choose a method that keeps none, or give --allow-real-subjects "
            "(recorded in the ledger).",
        )


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
        raise CapsuleError(
            "only a sealed capsule can be audited.", do="Seal and open it first."
        )
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
    return replace(capsule, entries=entries, id="", parent=capsule.id)


@dataclass(frozen=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class Trust:
    """Whose capsules are accepted.

    Attributes
    ----------
    keys : tuple of str
        Hex Ed25519 public keys; when given, the capsule and every ledger line must be signed by
        one of them.
    required : bool, optional
        Whether every ledger line must be signed; by default, as soon as any is.
    keyring : Keyring
        Names keys, and knows those that were revoked.
    """

    keys: tuple[str, ...] = ()
    required: bool | None = None
    keyring: Keyring = field(default_factory=Keyring)

    @classmethod
    def of(cls, files: Sequence[str | Path], required: bool | None = None) -> Self:
        """Trust in the public keys of PEM files; the user's keyring names and revokes."""
        return cls(tuple(read_public(path) for path in files), required, read_keyring())

    def require(self, key: str, what: str, site: str) -> None:
        """Raise `CapsuleError` for a line or record of a site that is not signed by its key.

        Without keys all pass but what a revoked key of the keyring signed, and what is said for a
        site that the keyring has another key of.
        """
        self.keyring.require_valid(key, what, site)
        if self.keys and key not in self.keys:
            by = f"by key {key[:16]}, which is not trusted" if key else "by nobody"
            raise CapsuleError(
                f"{what} is signed {by}.",
                do="Ask the hospital for its public key and name it with --trust.",
            )


ANY = Trust()  # nobody in particular


def open_capsule(
    path: str | Path, trust: Trust = ANY, max_bytes: int = box.MAX_BYTES
) -> Capsule:
    """Open a capsule (file or folder) after every check of `verify` has passed.

    Parameters
    ----------
    path : path
    trust : Trust
        Whose signatures are asked for.
    max_bytes : int
        Largest capsule that is read at all.

    Raises
    ------
    CapsuleError
        On anything that is not exactly a capsule; nothing is written anywhere.
    """
    opening = _Opening(trust)
    with at(path, do=box.ASK_AGAIN):
        for _ in opening.steps(path, max_bytes):
            pass
    return opening.capsule()


def verify(
    path: str | Path, trust: Trust = ANY, max_bytes: int = box.MAX_BYTES
) -> list[Check]:
    """Check a capsule step by step; a failed check is the last one of the list."""
    names, checks = iter(STEPS), list[Check]()
    try:
        for detail in _Opening(trust).steps(path, max_bytes):
            checks.append(Check(next(names), True, detail))
    except CapsuleError as error:
        checks.append(Check(next(names), False, error.what))
    return checks


class _Opening:
    """A capsule on its way through the checks; every step leaves what the next ones need."""

    def __init__(self, trust: Trust) -> None:
        self.trust = trust

    def steps(self, path: str | Path, max_bytes: int) -> Iterator[str]:
        """Run the checks in the order of `STEPS`, and say what each found."""
        self.parts = box.read_parts(path, box.CHAIN, max_bytes)
        for name in STEPS:
            yield getattr(self, f"_{name}")()

    def _container(self) -> str:
        said = box.opened(self.parts, box.CHAIN)
        self.settings = chain.ChainSettings.from_json(
            said if isinstance(said, dict) else {}
        )
        self.identity = ledger.sha256(self.parts[box.MANIFEST])
        size = f"{len(self.parts)} parts, {sum(map(len, self.parts.values()))} bytes"
        return f"id {self.identity[:16]}, {size}, all as they were sealed"

    def _ledger(self) -> str:
        self.entries = ledger.read(self.parts[box.LEDGER])
        for entry in self.entries:
            lines.check_line(entry)
        learned = ledger.learned(self.entries)
        if self.entries[0]["kind"] != "learn":
            raise CapsuleError("the ledger does not say which site was learned first.")
        if any(entry["settings"] != self.settings.digest for entry in learned):
            raise CapsuleError(
                "the settings of the manifest are not those of the ledger."
            )
        if learned[-1]["arrays"] != _sums(self.parts):
            raise CapsuleError("the arrays are not those of the ledger's last site.")
        self.sites = tuple(entry["site"] for entry in learned)
        if len(set(self.sites)) < len(learned):
            raise CapsuleError("the ledger learns a site twice.")
        for entry in self.entries:
            if (
                entry["kind"] == "audit"
                and entry["result"].get("site") not in self.sites
            ):
                raise CapsuleError(
                    f"ledger line {entry['number'] + 1} audits a site it never saw."
                )
        return f"{counted(len(self.entries), 'line')}, unbroken"

    def _signatures(self) -> str:
        named, own = self.trust.keyring.said, dict[str, str]()
        said = [(f"ledger line {e['number'] + 1}", e) for e in self.entries]
        for what, entry in said:
            if entry["key"] or entry["signature"]:
                ledger.check_signed(entry, what)
        signed = [(what, entry["key"] or entry["signature"]) for what, entry in said]
        ledger.require_signed(signed, self.trust.required)
        for what, entry in said:
            site = entry.get("site") or entry["result"]["site"]
            self.trust.require(entry["key"], what, site)
            ledger.require_author(
                site, own.setdefault(site, entry["key"]), entry["key"], "audit"
            )
        if not any(own.values()):
            return "no line is signed: anybody can have written them"
        whose = [
            f"{e.get('site', e['kind'])} by {named(e['key'])}" for e in self.entries
        ]
        return f"{counted(len(said), 'line')}: {', '.join(whose)}"

    def _network(self) -> str:
        n_rois, sites, parts = self.settings.n_rois, len(self.sites), self.parts
        self.lane, learner, self.harmony = arrays.read_lane(
            parts[box.LANE], self.settings
        )
        arrays.check_harmony(self.harmony, n_rois, ledger.learned(self.entries))
        both = (box.REMEMBERED, box.HELD_OUT)
        found = [
            arrays.read_subjects(parts[part], n_rois, sites, part) for part in both
        ]
        self.remembered, self.held_out = found
        arrays.check_lane(self.lane, learner, len(self.remembered), sites)
        return f"{sum(p.numel() for p in self.lane.params.values())} parameters, all finite"

    def _subjects(self) -> str:
        capsule = self.capsule()
        if bool(capsule.held_out.real.any()):
            raise CapsuleError("a held-out set holds real subjects.")
        if capsule.holds_real and REAL_FLAG not in capsule.entries[-1]["flags"]:
            raise CapsuleError("holds real subjects without the flag that allows it.")
        return f"{len(self.remembered)} remembered, {len(self.held_out)} held out"

    def capsule(self) -> Capsule:
        """What was opened."""
        return Capsule(
            self.settings,
            self.sites,
            self.lane,
            self.remembered,
            self.held_out,
            self.entries,
            self.identity,
            self.entries[-1]["parent"],
            self.harmony,
        )
