"""Plan and result of an audit that attacks a generator or a contribution."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate

BOOTSTRAP = "bootstrap"
UNTRAINED = "untrained"
REFERENCES = BOOTSTRAP, UNTRAINED
# sentence about the strongest attack, by whether it beats guessing
VERDICTS = {
    True: "An attacker can tell who took part.",
    False: "No attack tried told who took part.",
}
SUCCESS_RATE = (
    "Shown one person who took part and one who did not, the strongest attack ('{}', on {}) picks "
    "the right one {:.0f} times in 100; guessing gets 50."
)


@dataclass(frozen=True)
class AuditPlan:
    """Sizes of an audit.

    Attributes
    ----------
    worlds : int
        Retrainings per generator; every one is attacked and is a shadow model of the others.
    multiple : int
        Synthetic subjects per training subject. With 1, a copying generator leaves a third of
        its members uncopied and the leak looks smaller than it is.
    reference : float
        Share of the site that is the attacker's own reference.
    n_draws : int
        Bootstrap draws of the intervals.
    seed : int
    """

    worlds: int = 8
    multiple: int = 4
    reference: float = 0.25
    n_draws: int = 200
    seed: int = 0


@dataclass(frozen=True)
class AuditRow:
    """Success of one attack on one release (the synthetic subjects or numbers of one row).

    Attributes
    ----------
    release, attack : str
    auc : Estimate
        Area under the ROC curve of "was trained on".
    tpr : Estimate
        Share of members recognised at 1 % false alarms.
    identified : Estimate or None
        Share of members linked to the right person; None where the attack does not link.
    control : Estimate
        AUC of the same scores for pseudo-members: half of the people who were never trained on
        against the other half. Where it differs from 0.5, the split and not the release tells
        people apart.
    is_reference : bool
        Whether the row is one of the two `REFERENCES`.
    """

    release: str
    attack: str
    auc: Estimate
    tpr: Estimate
    identified: Estimate | None
    control: Estimate
    is_reference: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, intervals as [value, low, high]."""
        plain = {}
        for name, value in vars(self).items():
            plain[name] = value.to_json() if isinstance(value, Estimate) else value
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AuditRow":
        """Return the row that `to_json` wrote (numbers to four digits)."""
        fields: dict[str, Any] = dict(data)
        for key, value in data.items():
            if isinstance(value, list):
                fields[key] = Estimate(*value)
        return cls(**fields)


@dataclass(frozen=True)
class AuditResult:
    """All rows of an audit, and its settings in `about`."""

    rows: tuple[AuditRow, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain nested data."""
        rows = [row.to_json() for row in self.rows]
        return {"about": dict(self.about), "rows": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AuditResult":
        """Return the result that `to_json` wrote."""
        rows = map(AuditRow.from_json, data["rows"])
        return cls(tuple(rows), dict(data["about"]))

    def row(self, release: str, attack: str) -> AuditRow:
        """Return the row of that attack on that release."""
        return next(r for r in self.rows if (r.release, r.attack) == (release, attack))

    def beats_chance(self, row: AuditRow) -> bool:
        """Return whether an attack is better than guessing, beyond its interval.

        It must also be better than the same attack on the untrained reference, to the upper end of
        that interval.
        """
        if row.release == UNTRAINED:
            return False
        untrained = [
            reference.auc.high
            for reference in self.rows
            if (reference.release, reference.attack) == (UNTRAINED, row.attack)
        ]
        to_beat = max([0.5, *untrained])
        return row.auc.low > 0.5 and row.auc.value > to_beat

    def words(self) -> list[str]:
        """Return two sentences: whether the strongest attack can tell who took part, and how often.

        They are about the release that `about["released"]` names (the others are comparisons), else
        about all releases that are no reference. Without such rows the list is empty.
        """
        rows = [row for row in self.rows if not row.is_reference]
        if released := self.about.get("released"):
            rows = [row for row in rows if row.release == released]
        if not rows:
            return []
        sure = [row for row in rows if self.beats_chance(row)]
        worst = max(sure or rows, key=lambda row: row.auc.value)
        numbers = (worst.attack, worst.release, 100 * worst.auc.value)
        return [VERDICTS[bool(sure)], SUCCESS_RATE.format(*numbers)]


def read_audit(path: str | Path) -> AuditResult:
    """Read an audit from its audit.json."""
    try:
        return AuditResult.from_json(json.loads(Path(path).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is not an audit ({error}).", where=path) from error
