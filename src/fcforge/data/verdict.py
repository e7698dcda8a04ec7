"""Result of the check of a dataset or an experiment."""

from dataclasses import asdict, dataclass
from typing import Any

from fcforge.data.checks import class_counts, why_not_splittable
from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault, grouped


@dataclass(frozen=True)
class Verdict:
    """Result of the check of a dataset or an experiment.

    Attributes
    ----------
    what : str
        Name of the checked config, file or folder.
    cohort : Cohort
    findings : list of Fault
        Faults of the cohort, one per subject.
    notes : list of str
        Remarks on the experiment.
    public : bool
        Whether the data are for a base model only, so that no site has to be split.
    """

    what: str
    cohort: Cohort
    findings: list[Fault]
    notes: list[str]
    public: bool = False

    @property
    def ok(self) -> bool:
        """Whether the data can be used as intended: no error, and no site that a run refuses."""
        return not self.has_errors and (self.public or not self.unsplittable)

    @property
    def has_errors(self) -> bool:
        """Whether there is an error among the findings."""
        return any(f.severity == "error" for f in self.findings)

    @property
    def unsplittable(self) -> list[str]:
        """Sites that cannot be split in training, validation and test, so that a run refuses them."""
        cohort = self.cohort
        return [
            site
            for site in cohort.site_names
            if why_not_splittable(cohort.y[cohort.site == site], cohort.target)
        ]

    def sites(self) -> dict[str, dict[str, int]]:
        """Return the number of subjects of each site, and of its patients or of each class."""
        target = self.cohort.target
        counts_of_sites = {}
        for site in self.cohort.site_names:
            y = self.cohort.y[self.cohort.site == site]
            counts = {"subjects": len(y)}
            of_classes = class_counts(y, target)
            if target.kind == "two classes":
                counts["patients"] = of_classes[1]
            if target.kind == "more classes":
                counts |= dict(zip(target.classes, of_classes, strict=True))
            counts_of_sites[site] = counts
        return counts_of_sites

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
        """Findings, with equal ones about several subjects merged into one."""
        return grouped(self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values for `--json`, with one finding per subject."""
        return {
            "what": self.what,
            "ok": self.ok,
            "n_rois": self.cohort.n_rois,
            "target": self.target,
            "sites": self.sites(),
            "findings": [asdict(finding) for finding in self.findings],
            "notes": self.notes,
        }
