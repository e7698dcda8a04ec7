"""Trust: the conditions that a reader sets on the signatures of a file before using it.

Three things decide: keys named on the command line (``--trust``), whether everything must be signed
(``--require-signature``), and the user's keyring (`records.keyring`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from fcforge.core.errors import ExchangeError
from fcforge_consortium.options import TrustRequest

if TYPE_CHECKING:
    from fcforge_consortium.records.kinds import Record
from fcforge_consortium.records.keyring import Keyring, around, read_keyring
from fcforge_consortium.records.keys import read_public


@dataclass(frozen=True)
class Trust:
    """Conditions on the signatures of records.

    Attributes
    ----------
    keys : tuple of str
        Ed25519 public keys in hex; if given, every record must be signed by one of them.
    required : bool
        Whether every record must be signed. If False, either all records but the root are signed or
        none is.
    keyring : Keyring
        Owners and revocations of known keys.
    """

    keys: tuple[str, ...] = ()
    required: bool = False
    keyring: Keyring = field(default_factory=Keyring)

    @classmethod
    def asked(cls, request: TrustRequest) -> Self:
        """Make the trust of a command from its options and the user's keyring.

        Parameters
        ----------
        request : TrustRequest
            Its `trust` names files of public keys.

        Returns
        -------
        Trust
        """
        keys = tuple(read_public(path) for path in request.trust)
        return cls(keys, request.require_signature, read_keyring())

    def require(self, record: "Record", line: Sequence[str] = ()) -> None:
        """Raise `ExchangeError` for a record without a trusted signature.

        Without `keys`, only the keyring is checked: revoked keys, and sites with a known key. An
        unsigned root passes here, because the signed records that build on it name it by its id;
        `require_signed` checks that there are any.

        Parameters
        ----------
        record : Record
        line : sequence of str, optional
            Keys of the record's author, first to last, as its rotations connect them.
        """
        key = record.key
        title = f"the {record.title}"
        self.keyring.require_valid(key, title, record.site, line)
        if record.kind != "base_model":  # its author is not a site
            self.keyring.require_owner(key, title, record.site)
        if record.is_root and not key:
            return
        if self.keys and set(self.keys).isdisjoint(around(key, line)):
            by = f"by key {key[:16]}, which is not trusted" if key else "by nobody"
            raise ExchangeError(
                f"the {record.title} is signed {by}.",
                do="Ask the hospital for its public key and name it with --trust.",
            )

    def require_signed(self, records: "Sequence[Record]") -> None:
        """Raise `ExchangeError` for a record without a required signature.

        If any record but the root is signed, all of them must be. The root needs a signature of its
        own if signatures are required, or if keys are given and the root stands alone.

        Parameters
        ----------
        records : sequence of Record
            All records of a file, or of several files to merge.
        """
        only_root = all(record.is_root for record in records)
        all_needed = self.required or (only_root and bool(self.keys))
        candidates = [record for record in records if all_needed or not record.is_root]
        unsigned = [record.title for record in candidates if not record.key]
        some_signed = len(unsigned) < len(candidates)
        if unsigned and (all_needed or some_signed):
            removed = ", though others are: its signature may have been removed"
            raise ExchangeError(
                f"the {unsigned[0]} is not signed{removed if some_signed else ''}.",
                do="Ask its author for a signed one: `fcforge consortium keys new KEY`, then --sign KEY "
                "with the command that makes it.",
            )
