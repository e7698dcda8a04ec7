"""`fcforge check`: find faults of a config or a dataset before anything runs."""

from collections.abc import Sequence
from pathlib import Path

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import counted
from fcforge.core.options import CheckRequest
from fcforge.core.overrides import override_only
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import dataset_of, load_dataset
from fcforge.data.verdict import Verdict


def check_target(asked: CheckRequest) -> Verdict:
    """Check a config, a data file or a data folder.

    For a config (.toml) the dataset is checked, and that every learner can be built. Anything else is loaded
    as the dataset ``folder``. There a site that cannot be split is only a warning, because its subjects may
    be meant as public subjects for a base model. The data are accepted if the request says so.

    Parameters
    ----------
    asked : CheckRequest
        Options of the command.

    Raises
    ------
    FCForgeError
        If the config or the data cannot be read.
    """
    target = asked.target
    if target.suffix == ".toml":
        if asked.loading:
            given = ", ".join(f"--set dataset.{name}=..." for name in asked.loading)
            raise ConfigError(
                "options for reading data have no effect on a config, which states them itself.",
                do=f"Use {given}.",
            )
        if asked.public:
            raise ConfigError(
                "--public has no effect on a config: a run splits every site.",
                do="Leave --public out, or check the data file or folder.",
            )
        return _check_config(target, asked.overrides, asked.allow_code)
    if not target.exists():
        raise DataError("no such file or folder.", where=target)
    changed = override_only({"dataset": {}}, asked.overrides)
    settings = {**asked.loading, "path": str(target)}
    cohort = load_dataset(dataset_of("folder", settings, changed["dataset"]))
    findings = check_cohort(cohort, to_split=False)
    return Verdict(str(target), cohort, findings, [], public=asked.public)


def _check_config(target: Path, settings: Sequence[str], allow_code: bool) -> Verdict:
    """Check a config: its dataset, its splits and its learners.

    Parameters
    ----------
    target : Path
        The config.
    settings : sequence of str
        Values of ``--set``, each like ``"training.epochs=5"``.
    allow_code : bool
        Whether modules beside the config may be imported (`fcforge.experiments.config_code`).
    """
    from fcforge.experiments.collect import describe_sites
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.run import leak_notes, prepare

    experiment = load_experiment(target, settings, allow_code=allow_code)
    cohort = load_dataset(experiment.dataset)
    findings = check_cohort(cohort)
    notes = []
    if not any(f.severity == "error" for f in findings):
        prepared = prepare(experiment, cohort)
        findings += prepared.public_warnings
        # only for its errors: it splits every site with every seed, which may be impossible
        describe_sites(cohort, experiment)
        notes = [
            f"{counted(len(experiment.learners), 'learner')}, {prepared.plan.words}"
        ]
    notes += leak_notes(experiment)
    return Verdict(str(target), cohort, findings, notes)
