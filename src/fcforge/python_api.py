"""`fcforge.run`: an experiment from Python, with any scikit-learn estimator among its learners."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.core.result import RunResult
from fcforge.evaluation.tables import Row, records, results_rows
from fcforge.experiments.collect import collect, kept_by
from fcforge.experiments.config import parse_experiment
from fcforge.experiments.config_files import read_config
from fcforge.experiments.plan import Progress
from fcforge.experiments.run import prepare, run_experiment, training_store

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Results:
    """What an experiment gave.

    Attributes
    ----------
    runs : list of RunResult
        Raw scores of every run.
    keeps : dict
        What each learner keeps between sites, by its title.
    """

    runs: list[RunResult]
    keeps: dict[str, str]

    @cached_property
    def rows(self) -> list[Row]:
        """One row per learner, with intervals."""
        return results_rows(self.runs, keeps=self.keeps)

    @property
    def table(self) -> "pd.DataFrame":
        """The rows as a table, see `fcforge.evaluation.tables`."""
        import pandas as pd

        return pd.DataFrame(records(self.rows))


def run(
    experiment: str | Path | Mapping[str, Any],
    learners: Sequence[Mapping[str, Any]] = (),
    *,
    out: str | Path | None = None,
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress = lambda done, total, what: None,
) -> Results:
    """Train every learner over the site orders, as ``fcforge run`` does.

    Parameters
    ----------
    experiment : path or mapping
        A config file, or its content: ``{"dataset": {...}, "experiment": {...}}``.
    learners : sequence of mapping
        Rows beside those of the config, as in ``[[learner]]``. ``estimator`` may be an unfitted
        scikit-learn estimator itself.
    out : path, optional
        Run folder, for `fcforge report` and to continue; without it nothing is left on disk.
    jobs : int
        Worker processes. With more than one, a script needs ``if __name__ == "__main__":``, and
        estimators are given by name, ``"module:function"``: workers cannot see an object.
    device : str
        Of networks: cpu or cuda.
    progress : callable
        Told (site trainings done, in all, what was done last).

    Returns
    -------
    Results

    Examples
    --------
    >>> from sklearn.linear_model import RidgeClassifier
    >>> sites = {"name": "simulated", "n_sites": 2, "scale": 0.1, "n_rois": 8}
    >>> row = {"title": "ridge", "estimator": RidgeClassifier(), "keeps": "cumulative"}
    >>> run({"dataset": sites}, [row]).table["learner"].tolist()
    ['majority class', 'majority class of each site', 'ridge']
    """
    if isinstance(experiment, Mapping):
        data = dict(experiment)
        place = Path("experiment")  # paths start at the current folder
    else:
        data = read_config(experiment)
        place = Path(experiment)
    data["learner"] = [*data.get("learner", ()), *learners]
    prepared = prepare(parse_experiment(data, place))
    # one job: in this process, where objects are known and a script needs no guard
    here = 1 if jobs == 1 and device == "cpu" else None
    folder = tempfile.TemporaryDirectory() if out is None else nullcontext(str(out))
    with folder as root:
        with training_store(prepared, root) as store:
            run_experiment(
                prepared, store, jobs=jobs, device=device, group=here, progress=progress
            )
        return Results(collect(store)[0], kept_by(store))
