"""`fcforge check`: find faults of a config or a dataset before anything runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import counted
from fcforge.core.options import CheckRequest
from fcforge.core.settings import override_only
from fcforge.data.checks import check_cohort, class_counts
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import dataset_of, load_dataset
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


def check_target(asked: CheckRequest) -> Verdict:
    """Check a config, a data file or a data folder.

    A config (.toml) is checked whole: its dataset, and that every learner can be built. Anything
    else is loaded as dataset ``folder``; a site that cannot be split is a warning there, since the
    people may be meant for a public start.
    """
    target = asked.target
    if target.suffix == ".toml":
        if asked.loading:
            given = ", ".join(f"--set dataset.{name}=..." for name in asked.loading)
            raise ConfigError("a config says itself how its data are read.", do=given)
        return _check_config(target, asked.overrides, asked.allow_code)
    if not target.exists():
        raise DataError("no such file or folder.", where=target)
    changed = override_only({"dataset": {}}, asked.overrides)
    said = {**asked.loading, "path": str(target)}
    cohort = load_dataset(dataset_of("folder", said, changed["dataset"]))
    return Verdict(str(target), cohort, check_cohort(cohort, to_split=False), [])


def _check_config(target: Path, settings: Sequence[str], allow_code: bool) -> Verdict:
    from fcforge.experiments.collect import describe_sites
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.run import leak_notes, prepare

    experiment = load_experiment(target, settings, allow_code=allow_code)
    cohort = load_dataset(experiment.dataset)
    findings = check_cohort(cohort)
    notes = []
    if not any(f.severity == "error" for f in findings):
        plan = prepare(experiment, cohort).plan
        describe_sites(cohort, experiment)  # the split itself may be impossible
        notes = [f"{counted(len(experiment.learners), 'learner')}, {plan.words}"]
    notes += leak_notes(experiment)
    return Verdict(str(target), cohort, findings, notes)
