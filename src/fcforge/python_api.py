"""`fcforge.run`: an experiment from Python, on arrays or on any dataset of a config.

Shapes: n subjects, R ROIs.
"""

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.core.errors import ConfigError
from fcforge.core.result import RunResult
from fcforge.data.arrays import (
    in_words_of_arrays,
    naming_rows,
    require_valid_arrays,
    write_arrays,
)
from fcforge.data.checks import data_warnings, warning_lines
from fcforge.data.datasets import load_dataset
from fcforge.evaluation.tables import Row, records, results_rows
from fcforge.experiments.collect import collect, kept_by
from fcforge.experiments.config import parse_experiment
from fcforge.experiments.config_files import read_config
from fcforge.experiments.run import prepare, run_experiment, training_store
from fcforge.experiments.work import Progress
from fcforge.report.results_table import IN_WIDE_TERMINAL, results_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fcforge.methods import Method

PARTS = ("method", "model", "generator")
GENERATOR = "fcm_vae"  # of learners given as text that name none


@dataclass(frozen=True, repr=False)
class Results:
    """Results of an experiment; printing them shows the table.

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
        """Rows of the results table, one per learner, with intervals."""
        return results_rows(self.runs, keeps=self.keeps)

    @property
    def table(self) -> "pd.DataFrame":
        """Results table as a DataFrame, with the columns of `fcforge.evaluation.tables.results_frame`."""
        import pandas as pd

        return pd.DataFrame(records(self.rows))

    def __repr__(self) -> str:
        """Return the most important columns as text."""
        return results_table(self.rows, shown=IN_WIDE_TERMINAL).text()

    def plot(self) -> "Figure":
        """Draw each learner's average accuracy (AAA; R² for numbers) and forgetting, with intervals.

        Returns
        -------
        matplotlib Figure
            One line per learner; references are grey. Show it with ``figure.savefig(path)``, or
            as the last line of a notebook cell.
        """
        from matplotlib.figure import Figure

        rows = self.rows[::-1]
        figure = Figure(figsize=(9, 1.2 + 0.35 * len(rows)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        panels = (("aaa", "along the way"), ("fm", "forgotten (FM)"))
        for panel, (key, meaning) in zip(axes, panels, strict=True):
            for place, row in enumerate(rows):
                estimate = row.estimates[key]
                colour = "0.6" if row.is_majority else "#1a5c93"
                panel.plot(estimate.value, place, "o", color=colour)
                panel.plot([estimate.low, estimate.high], [place, place], color=colour)
            panel.grid(axis="x", alpha=0.4)
            metric = "R²" if rows[0].kind == "number" else "accuracy"
            panel.set_xlabel(f"{metric} {meaning}")
        axes[0].set_yticks(range(len(rows)), [row.learner for row in rows])
        return figure


def run(
    experiment: Any,
    y: Any = None,
    site: Any = None,
    *,
    learners: "Sequence[str | Mapping[str, Any] | Method]" = (),
    subject_id: Sequence[Any] | None = None,
    dataset: Mapping[str, Any] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress = lambda done, total, title: None,
) -> Results:
    """Train every learner over the site orders, as ``fcforge run`` does.

    Parameters
    ----------
    experiment : array of shape (n, R, R), path or mapping
        FC matrices of n subjects; or a config file; or its content:
        ``{"dataset": {...}, "experiment": {...}}``.
    y : array of shape (n,), optional
        Diagnosis of every subject, for arrays: 0 for controls and 1 for patients, or words with
        ``dataset={"positive": ..., "negative": ...}``.
    site : array of shape (n,), optional
        Site of every subject, for arrays.
    learners : sequence of str, mapping or Method
        Learners beside those of the config: ``"method/model"`` or ``"method/model/generator"``,
        where methods that replay synthetic subjects take FCM-VAE if no generator is named; or a
        mapping as in ``[[learner]]``, whose ``estimator`` may be an unfitted scikit-learn estimator
        and whose ``method`` may be an object, ``AGEM(memory=128)``; or such an object alone. The class
        of an object must be in a file, because a run stores the name ``"module:Class"``.
    subject_id : sequence, optional
        Id of every subject, for arrays.
    dataset : mapping, optional
        Further settings of the dataset ``folder``, for arrays.
    settings : mapping of str to mapping, optional
        Further tables of the config, for arrays, e.g. ``{"training": {"epochs": 20}}``.
    out : path, optional
        Run folder, for `fcforge report` and to continue. Without it nothing is left on disk.
        Arrays are stored next to it, in ``<out>_data.npz``.
    jobs : int
        Worker processes. With more than one, a script needs ``if __name__ == "__main__":``, and
        estimators are given by name, ``"module:function"``: workers cannot see an object.
    device : str
        Device of networks: cpu or cuda.
    progress : callable
        Receives (site trainings done, site trainings in all, the last one).

    Returns
    -------
    Results

    Warns
    -----
    UserWarning
        For what `fcforge check` warns of at sites, for example diagnoses that look swapped.

    Examples
    --------
    >>> from sklearn.linear_model import RidgeClassifier
    >>> sites = {"name": "simulated", "n_sites": 2, "scale": 0.1, "n_rois": 8}
    >>> ridge = {"title": "ridge", "estimator": RidgeClassifier(), "keeps": "cumulative"}
    >>> run({"dataset": sites}, learners=[ridge]).table["learner"].tolist()
    ['majority class', 'majority class of each site', 'ridge']
    """
    if isinstance(learners, str | Mapping):
        raise ConfigError(
            f"learners={learners!r} is not a list.",
            do=f"Write learners=[{learners!r}].",
        )
    with ExitStack() as stack:

        def temporary_folder() -> Path:
            """Make a folder that is deleted when the experiment has ended."""
            return Path(stack.enter_context(tempfile.TemporaryDirectory()))

        ids: list[str] | None = None  # of subjects in arrays
        rows: AbstractContextManager[None] = nullcontext()
        origin = Path("experiment")  # paths of a mapping start at the current folder
        if isinstance(experiment, str | Path | Mapping):
            if y is not None:
                raise ConfigError(
                    "y and site belong to arrays, not to a config.",
                    do="Give learners by keyword: run(config, learners=[...]).",
                )
            if isinstance(experiment, Mapping):
                config = dict(experiment)
            else:
                config = read_config(experiment)
                origin = Path(experiment)
        else:
            path = Path(f"{out}_data.npz") if out else temporary_folder() / "data.npz"
            if not learners:
                raise ConfigError(
                    "arrays need learners.",
                    do='For example learners=["finetune/gcn", "forge/gcn"].',
                )
            ids = write_arrays(path, experiment, y, site, subject_id)
            rows = naming_rows(path.resolve(), ids)
            table = {"name": "folder", "path": str(path.resolve()), **(dataset or {})}
            config = {**(settings or {}), "dataset": table}
        further = [_learner_table(learner) for learner in learners]
        config["learner"] = [*config.get("learner", ()), *further]
        parsed = parse_experiment(config, origin)
        with rows:
            cohort = None
            if ids is not None:
                cohort = load_dataset(parsed.dataset)
                require_valid_arrays(cohort, ids)
            prepared = prepare(parsed, cohort)
        # people that the caller wanted to be left out are no news
        lines = data_warnings(prepared.cohort, of_loading=False)
        for line in [*lines, *warning_lines(prepared.public_warnings)]:
            text = line.removeprefix("WARNING: ")
            if ids is not None:
                text = in_words_of_arrays(text, ids)
            warnings.warn(text, stacklevel=2)
        # One job trains one lane after another in this process, so that estimator objects work and scripts
        # need no guard. None leaves the choice to `run_experiment`: processes on a CPU, many lanes on a GPU.
        lanes_at_once = 1 if jobs == 1 and device == "cpu" else None
        root = out if out is not None else temporary_folder()
        with training_store(prepared, root) as store:
            run_experiment(
                prepared,
                store,
                jobs=jobs,
                device=device,
                group=lanes_at_once,
                progress=progress,
            )
        return Results(collect(store)[0], kept_by(store))


def _method_table(method: "Method") -> dict[str, Any]:
    """Return an object of a method as the table of a config that names its class and settings."""
    from fcforge.estimator.parameters import registered_name, settings_of

    cls = type(method)
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise ConfigError(
            f"the class {cls.__name__} is in no file that can be imported, and a run stores its name.",
            do=f"Save it in a file and import it from there: from my_methods import {cls.__name__}.",
        )
    return {"name": registered_name(cls), **settings_of(method)}


def _learner_table(learner: "str | Mapping[str, Any] | Method") -> Mapping[str, Any]:
    """Return a learner, given as a mapping, text or a method, as a table of a config."""
    from fcforge.methods import METHODS, Method

    if isinstance(learner, Method):
        generator = {"generator": GENERATOR} if learner.needs_generator else {}
        learner = {"method": learner, **generator}
    if isinstance(learner, Mapping):
        if isinstance(learner.get("method"), Method):
            learner = {**learner, "method": _method_table(learner["method"])}
        for part in PARTS:
            if not isinstance(learner.get(part, ""), str | Mapping):
                raise ConfigError(
                    f"a learner's {part} is an object; a run stores names.",
                    do='Write "module:Class", or train the object with ForgeClassifier. Only an object '
                    "of a Method can be given.",
                )
        return learner
    parts = learner.split("/") if isinstance(learner, str) else []
    if not 1 <= len(parts) <= len(PARTS):
        raise ConfigError(
            f'the learner {learner!r} is neither "method/model" nor a mapping.',
            do='For an estimator of scikit-learn write {"title": ..., "estimator": ..., '
            '"keeps": ...}.',
        )
    names = dict(zip(PARTS, parts, strict=False))
    method = METHODS.get(names["method"])
    if method is not None and method.needs_generator:
        names = {"generator": GENERATOR, **names}
    return names
