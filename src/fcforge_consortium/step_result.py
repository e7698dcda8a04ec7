"""The result of what one hospital does: a contribution, shares of a round or a chain's step.

Nothing of it is written yet: a command writes ledger entry and outgoing files together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Record


@dataclass(frozen=True)
class StepResult:
    """A hospital's new records, and the ledger entry that stays with it.

    Attributes
    ----------
    exchange : Exchange
        The received exchange with the new records.
    new : tuple of Record
        The new records.
    entry : LedgerEntry
        The people behind them and their budget. It is written to the ledger before anything leaves.
    before : mapping of str to float
        Metrics of the received model on the hospital's own people; they are shown to the hospital
        and not written to a file.
    files : mapping of aggregator to bytes
        Encrypted shares of a round; `exchange` then holds the notice of them.
    """

    exchange: Exchange
    new: tuple[Record, ...]
    entry: LedgerEntry
    before: Mapping[str, float]
    files: Mapping[str, bytes] = field(default_factory=dict)
