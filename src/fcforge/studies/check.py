"""`fcforge check`: what is wrong with a config or a dataset, before anything runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fcforge.errors import DataError
from fcforge.sites import Cohort, Fault, check_cohort, load_dataset
from fcforge.text import counted
from fcforge.types import Component


@dataclass(frozen=True)
class Verdict:
    """What was looked at and what was found."""

    what: str
    cohort: Cohort
    findings: list[Fault]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether a run could start."""
        return not any(f.severity == "error" for f in self.findings)

    def sites(self) -> dict[str, dict[str, int]]:
        """Subjects and patients of every site."""
        n = Counter(self.cohort.site.tolist())
        patients = Counter(self.cohort.site[self.cohort.y == 1].tolist())
        return {
            s: {"subjects": n[s], "patients": patients[s]}
            for s in self.cohort.site_names
        }

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        about = {"what": self.what, "ok": self.ok, "n_rois": self.cohort.n_rois}
        found = {"findings": [asdict(f) for f in self.findings], "notes": self.notes}
        return {**about, "sites": self.sites(), **found}


def check_target(target: Path, settings: Sequence[str] = ()) -> Verdict:
    """Check a config, a data file or a data folder.

    A config is checked whole: its dataset, and that every learner can be built. Anything else is
    loaded as dataset ``folder``.
    """
    if target.suffix == ".toml":
        return _check_config(target, settings)
    if not target.exists():
        raise DataError("no such file or folder.", where=str(target))
    cohort = load_dataset(Component("folder", {"path": str(target)}))
    return Verdict(str(target), cohort, check_cohort(cohort), [])


def _check_config(target: Path, settings: Sequence[str]) -> Verdict:
    from fcforge.runner.collect import describe_sites
    from fcforge.runner.config import load_experiment
    from fcforge.runner.run import prepare

    experiment = load_experiment(target, settings)
    cohort = load_dataset(experiment.dataset)
    findings = check_cohort(cohort)
    notes = []
    if not any(f.severity == "error" for f in findings):
        plan = prepare(experiment, cohort).plan
        describe_sites(cohort, experiment)  # the split itself may be impossible
        notes = [
            f"{counted(len(experiment.learners), 'learner')}, {counted(len(plan.stages), 'run')}, "
            f"{counted(plan.trainings, 'site training')}{plan.saving}"
        ]
    notes += [f"LEAK ON: {name}" for name in experiment.leaks.active()]
    return Verdict(str(target), cohort, findings, notes)
