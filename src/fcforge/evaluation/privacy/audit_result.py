"""What an audit is made with and what it found."""

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
# what the strongest attack comes to
TOLD = {
    True: "An attacker can tell who took part.",
    False: "No attack tried told who took part.",
}
TIMES = (
    "Shown one person who took part and one who did not, the strongest attack ('{}', on {}) picks "
    "the right one {:.0f} times in 100; guessing gets 50."
)


@dataclass(frozen=True)
class AuditPlan:
    """How much work an audit does.

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
    """One attack on one release.

    `control` is the AUC of the same scores for pseudo-members: half of the people who were
    never trained on against the other half. Away from 0.5 it is the split, not the release,
    that tells people apart.
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
        found = {}
        for name, value in vars(self).items():
            found[name] = value.to_json() if isinstance(value, Estimate) else value
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AuditRow":
        """Invert `to_json` (to four digits)."""
        found: dict[str, Any] = dict(data)
        for key, value in data.items():
            if isinstance(value, list):
                found[key] = Estimate(*value)
        return cls(**found)


@dataclass(frozen=True)
class AuditResult:
    """All rows of an audit and what it was made with."""

    rows: tuple[AuditRow, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain nested data."""
        rows = [row.to_json() for row in self.rows]
        return {"about": dict(self.about), "rows": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AuditResult":
        """Invert `to_json`."""
        rows = map(AuditRow.from_json, data["rows"])
        return cls(tuple(rows), dict(data["about"]))

    def row(self, release: str, attack: str) -> AuditRow:
        """Return the row of that attack on that release."""
        return next(r for r in self.rows if (r.release, r.attack) == (release, attack))

    def beats_chance(self, row: AuditRow) -> bool:
        """Return whether an attack surely beat guessing, and what it does on the untrained row."""
        if row.release == UNTRAINED:
            return False
        untrained = [
            other.auc.high
            for other in self.rows
            if (other.release, other.attack) == (UNTRAINED, row.attack)
        ]
        to_beat = max([0.5, *untrained])
        return row.auc.low > 0.5 and row.auc.value > to_beat

    def words(self) -> list[str]:
        """Return whether the strongest attack tells who took part, and how often it is right."""
        rows = [row for row in self.rows if not row.is_reference]
        if given := self.about.get(
            "released"
        ):  # other releases are there to compare with
            rows = [row for row in rows if row.release == given]
        if not rows:
            return []
        sure = [row for row in rows if self.beats_chance(row)]
        worst = max(sure or rows, key=lambda row: row.auc.value)
        found = (worst.attack, worst.release, 100 * worst.auc.value)
        return [TOLD[bool(sure)], TIMES.format(*found)]


def read_audit(path: str | Path) -> AuditResult:
    """Return an audit from its audit.json, e.g. for the report page."""
    try:
        return AuditResult.from_json(json.loads(Path(path).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is not an audit ({error}).", where=path) from error
