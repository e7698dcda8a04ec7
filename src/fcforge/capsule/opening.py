"""Open and verify. Everything is checked before anything of a capsule is used."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fcforge.capsule import arrays, ledger
from fcforge.capsule import container as box
from fcforge.capsule.chain import ChainSettings
from fcforge.capsule.contents import Capsule
from fcforge.capsule.keys import Keyring, read_keyring, read_public
from fcforge.capsule.lines import check_line
from fcforge.capsule.sealing import FORMAT, READ_BY, REAL_FLAG, VERSION, manifest_of
from fcforge.errors import CapsuleError, at
from fcforge.text import counted

STEPS = (
    "container", "seal", "signature", "manifest", "parts", "ledger", "signatures", "network",
    "subjects",
)  # fmt: skip


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


NOBODY = Trust()  # in particular


def open_capsule(
    path: str | Path, trusted: Trust = NOBODY, max_bytes: int = box.MAX_BYTES
) -> Capsule:
    """Open a capsule (file or folder) after every check of `verify` has passed.

    Parameters
    ----------
    path : path
    trusted : Trust
        Whose signatures are asked for.
    max_bytes : int
        Largest capsule that is read at all.

    Raises
    ------
    CapsuleError
        On anything that is not exactly a capsule; nothing is written anywhere.
    """
    opening = _Opening(trusted)
    with at(path, do=box.ASK_AGAIN):
        for _ in opening.steps(path, max_bytes):
            pass
    return opening.capsule()


def verify(
    path: str | Path, trusted: Trust = NOBODY, max_bytes: int = box.MAX_BYTES
) -> list[Check]:
    """Check a capsule step by step; a failed check is the last one of the list."""
    names, checks = iter(STEPS), list[Check]()
    try:
        for detail in _Opening(trusted).steps(path, max_bytes):
            checks.append(Check(next(names), True, detail))
    except CapsuleError as error:
        checks.append(Check(next(names), False, error.what))
    return checks


def intact(checks: Sequence[Check]) -> bool:
    """Whether every step of `verify` was reached and passed."""
    return len(checks) == len(STEPS) and all(check.ok for check in checks)


class _Opening:
    """A capsule on its way through the checks; every step leaves what the next ones need."""

    def __init__(self, trust: Trust) -> None:
        self.trust = trust

    def steps(self, path: str | Path, max_bytes: int) -> Iterator[str]:
        """Run the checks in the order of `STEPS`, and say what each found."""
        self.parts = box.read_parts(path, max_bytes)
        for name in STEPS:
            yield getattr(self, f"_{name}")()

    def _container(self) -> str:
        for name in (box.MANIFEST, box.LEDGER, box.SEAL):
            if len(self.parts[name]) > box.MAX_TEXT:
                raise CapsuleError(f"part '{name}' is larger than {box.MAX_TEXT} bytes.")
        return f"{len(self.parts)} parts, {sum(map(len, self.parts.values()))} bytes"

    def _seal(self) -> str:
        self.identity = ledger.sha256(self.parts[box.MANIFEST])
        self.sealed = ledger.parse(self.parts[box.SEAL], box.SEAL)
        if set(self.sealed) != {"manifest_sha256", "public_key", "signature"}:
            raise CapsuleError("the seal is not written as fcforge writes it.")
        if self.sealed["manifest_sha256"] != self.identity:
            raise CapsuleError("the manifest is not the one that was sealed.")
        return f"id {self.identity[:16]}"

    def _signature(self) -> str:
        public, signature = self.sealed["public_key"], self.sealed["signature"]
        if not isinstance(public, str) or not isinstance(signature, str):
            raise CapsuleError("the seal is not written as fcforge writes it.")
        if public or signature:
            if (public, signature) != (public.lower(), signature.lower()):
                raise CapsuleError("the seal is not written as fcforge writes it.")
            ledger.check_signature(public, signature, self.identity, "does not fit this capsule")
            self.trust.keyring.require_valid(public, "it")
        if self.trust.keys and public not in self.trust.keys:
            raise CapsuleError("is not signed by a trusted key." if public else "is not signed.")
        if self.trust.required and not public:
            raise CapsuleError("is not signed.")
        self.signed_by = public
        return f"by {self.trust.keyring.said(public)}" if public else "not signed"

    def _manifest(self) -> str:
        self.manifest = ledger.parse(self.parts[box.MANIFEST], box.MANIFEST)
        form, version = self.manifest.get("format"), self.manifest.get("version")
        if (form, version) != (FORMAT, VERSION):
            reader = READ_BY.get(version, "a newer fcforge") if type(version) is int else "another"
            raise CapsuleError(
                f"is of format {form!r:.40} version {version!r:.20}, which {reader} reads; this "
                f"fcforge reads {FORMAT} version {VERSION}."
            )
        return f"{FORMAT} version {VERSION}"

    def _parts(self) -> str:
        listed = self.manifest.get("parts")
        for name in box.SEALED_PARTS:
            expected = {"sha256": ledger.sha256(self.parts[name]), "size": len(self.parts[name])}
            if not isinstance(listed, dict) or listed.get(name) != expected:
                raise CapsuleError(f"part '{name}' is not the one that was sealed.")
        return "all SHA-256 sums and sizes agree"

    def _ledger(self) -> str:
        self.entries = ledger.read(self.parts[box.LEDGER])
        for entry in self.entries:
            check_line(entry)
        if self.entries[0]["kind"] != "learn":
            raise CapsuleError("the ledger does not say which site was learned first.")
        said = self.manifest.get("settings")
        self.settings = ChainSettings.from_json(said if isinstance(said, dict) else {})
        learned = ledger.learned(self.entries)
        if any(entry["settings"] != self.settings.digest for entry in learned):
            raise CapsuleError("the settings of the manifest are not those of the ledger.")
        self.sites = tuple(entry["site"] for entry in learned)
        if list(self.sites) != self.manifest.get("sites") or len(set(self.sites)) < len(learned):
            raise CapsuleError("the sites of the manifest are not those of the ledger.")
        for entry in self.entries:
            if entry["kind"] == "audit" and entry["result"].get("site") not in self.sites:
                raise CapsuleError(f"ledger line {entry['number'] + 1} audits a site it never saw.")
        return f"{len(self.entries)} entries, unbroken"

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
            ledger.require_author(site, own.setdefault(site, entry["key"]), entry["key"], "audit")
        if not any(own.values()):
            return "no line is signed: anybody can have written them"
        if not self.signed_by:
            raise CapsuleError("is not signed, though its ledger is.")
        whose = [f"{e.get('site', e['kind'])} by {named(e['key'])}" for e in self.entries]
        return f"{counted(len(said), 'line')}: {', '.join(whose)}"

    def _network(self) -> str:
        n_rois = self.settings.n_rois
        self.lane, learner, self.harmony = arrays.read_lane(self.parts[box.LANE], self.settings)
        arrays.check_harmony(self.harmony, n_rois, ledger.learned(self.entries))
        self.remembered = arrays.read_subjects(self.parts[box.REMEMBERED], n_rois, box.REMEMBERED)
        arrays.check_lane(self.lane, learner, len(self.remembered), len(self.sites))
        return f"{sum(p.numel() for p in self.lane.params.values())} parameters, all finite"

    def _subjects(self) -> str:
        held_out, n_rois = self.parts[box.HELD_OUT], self.settings.n_rois
        self.held_out = arrays.read_subjects(held_out, n_rois, box.HELD_OUT)
        for subjects in (self.remembered, self.held_out):
            arrays.check_subjects(subjects, len(self.sites))
        capsule = self.capsule()
        if bool(capsule.held_out.real.any()):
            raise CapsuleError("a held-out set holds real subjects.")
        if capsule.holds_real and REAL_FLAG not in capsule.entries[-1]["flags"]:
            raise CapsuleError("holds real subjects without the flag that allows it.")
        # whatever else the manifest says must be what `seal` would say of these parts
        if ledger.canonical(manifest_of(capsule, self.parts)) != self.parts[box.MANIFEST]:
            raise CapsuleError("the manifest does not agree with the parts.")
        return f"{len(self.remembered)} remembered, {len(self.held_out)} held out"

    def capsule(self) -> Capsule:
        """What was opened."""
        return Capsule(
            self.settings, self.sites, self.lane, self.remembered, self.held_out, self.entries,
            self.identity, self.entries[-1]["parent"], self.signed_by, self.harmony,
        )  # fmt: skip
