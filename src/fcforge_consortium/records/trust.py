"""Trust: whose signatures a reader accepts."""

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
    """Whose records are accepted.

    Attributes
    ----------
    keys : tuple of str
        Hex Ed25519 public keys; when given, every record must be signed by one of them.
    required : bool
        Whether every record must be signed; else as soon as any is.
    keyring : Keyring
        Names keys, and knows those that were revoked.
    """

    keys: tuple[str, ...] = ()
    required: bool = False
    keyring: Keyring = field(default_factory=Keyring)

    @classmethod
    def asked(cls, request: TrustRequest) -> Self:
        """Trust in the public keys of PEM files; the user's keyring names and revokes."""
        keys = tuple(read_public(path) for path in request.trust)
        return cls(keys, request.require_signature, read_keyring())

    def require(self, record: "Record", line: Sequence[str] = ()) -> None:
        """Raise `ExchangeError` for a record of a site that is not signed by its key.

        Without keys all pass but what a revoked key of the keyring signed, and what is said for a
        site that the keyring has another key of. An unsigned root passes: the records name it by
        its id (`require_signed`: where there are any). `line` as in `Keyring.require_valid`.
        """
        key = record.key
        self.keyring.require_valid(key, f"the {record.title}", record.site, line)
        if record.is_root and not key:
            return
        if self.keys and set(self.keys).isdisjoint(around(key, line)):
            by = f"by key {key[:16]}, which is not trusted" if key else "by nobody"
            raise ExchangeError(
                f"the {record.title} is signed {by}.",
                do="Ask the hospital for its public key and name it with --trust.",
            )

    def require_signed(self, records: "Sequence[Record]") -> None:
        """Raise `ExchangeError` for a record without a signature where one is needed.

        A root needs one where signatures are required, or where keys are named and no record
        that they signed names it.
        """
        alone = all(record.is_root for record in records)
        needed = self.required or (alone and bool(self.keys))
        asked = [record for record in records if needed or not record.is_root]
        bare = [record.title for record in asked if not record.key]
        others = len(bare) < len(asked)
        if bare and (needed or others):
            lost = ", though others are: its signature may have been taken off"
            raise ExchangeError(
                f"the {bare[0]} is not signed{lost if others else ''}.",
                do="Ask whoever made it for a signed one: `fcforge consortium keys new KEY`, then --sign KEY "
                "with the command that makes it.",
            )
