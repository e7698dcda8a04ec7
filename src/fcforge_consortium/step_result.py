"""The result of one hospital's step, before it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Record


@dataclass(frozen=True)
class StepResult:
    """A hospital's new records, and what it keeps of them.

    Attributes
    ----------
    exchange : Exchange
        With the new records.
    new : tuple of Record
    entry : LedgerEntry
        The people behind them and their budget. It stays in the ledger, which is written before
        anything leaves.
    before : mapping
        Accuracy and AUROC of the model that came in, on the hospital's own people; for the
        hospital's eyes.
    files : mapping of aggregator to bytes
        Encrypted shares of a round; `exchange` then holds the notice of them.
    """

    exchange: Exchange
    new: tuple[Record, ...]
    entry: LedgerEntry
    before: Mapping[str, float]
    files: Mapping[str, bytes] = field(default_factory=dict)
