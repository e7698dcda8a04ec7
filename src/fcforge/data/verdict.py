"""Result of the check of a dataset or an experiment."""

from dataclasses import asdict, dataclass
from typing import Any

from fcforge.data.checks import class_counts
from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault, grouped


@dataclass(frozen=True)
class Verdict:
    """Result of a check: the cohort, its faults, and notes on the experiment."""

    what: str
    cohort: Cohort
    findings: list[Fault]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether the data can be trained on: there is no error among the findings."""
        return not any(f.severity == "error" for f in self.findings)

    def sites(self) -> dict[str, dict[str, int]]:
        """Subjects of every site, and its patients or the members of each class."""
        target = self.cohort.target
        found = {}
        for site in self.cohort.site_names:
            y = self.cohort.y[self.cohort.site == site]
            found[site] = {"subjects": len(y)}
            counts = class_counts(y, target)
            if target.kind == "two classes":
                found[site]["patients"] = counts[1]
            if target.kind == "more classes":
                found[site] |= dict(zip(target.classes, counts, strict=True))
        return found

    @property
    def target(self) -> str:
        """Target with its classes or limits, in words."""
        target = self.cohort.target
        if target.kind == "number":
            low, high = target.limits
            return f"{target.name}, a number from {low:g} to {high:g}"
        counts = class_counts(self.cohort.y, target)
        both = zip(target.classes, counts, strict=True)
        named = ", ".join(f"{name} ({n})" for name, n in both)
        return f"{len(counts)} diagnoses: {named}"

    @property
    def complaints(self) -> list[Fault]:
        """Findings with the same words about several subjects as one."""
        return grouped(self.findings)

    def to_json(self) -> dict[str, Any]:
        """For `--json`: every subject by itself."""
        about = {"what": self.what, "ok": self.ok, "n_rois": self.cohort.n_rois}
        about["target"] = self.target
        findings = [asdict(finding) for finding in self.findings]
        found = {"findings": findings, "notes": self.notes}
        return {**about, "sites": self.sites(), **found}
