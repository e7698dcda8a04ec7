"""`fcforge tune`: choose hyper-parameters on inner validation, once, before any test is looked at.

The first two sites of two random orders are taken. Of each only those are kept whom no seed of the
experiment tests: the test subjects are not even handed to the runner. They are cut again, several
times, into an inner training and a validation part; every setting of a method's grid is learned on
the former and scored on the latter. The setting with the highest AAA there is frozen for all
orders; ties go to the lower Brier score, then to the default. Many seeds test nearly everybody:
then tune on sites that are not tested at all (experiments/tune_development.toml).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcforge.files import whole_file, write_text
from fcforge.messages import ConfigError
from fcforge.metrics import finite
from fcforge.randomness import numpy_rng
from fcforge.runner.collect import collect
from fcforge.runner.config import Experiment
from fcforge.runner.execute import Place
from fcforge.runner.pipelines import pipeline_of
from fcforge.runner.plan import Progress, list_orders
from fcforge.runner.run import Prepared, open_store, prepare, run_experiment
from fcforge.sites import Cohort, load_dataset, make_sites, require_valid
from fcforge.stats import group, means
from fcforge.studies.grids import candidates
from fcforge.types import Component, Leaks, LearnerSpec, RunResults

N_ORDERS = 2
N_SITES = 2
DATA = "training_parts.npz"


@dataclass(frozen=True)
class Trial:
    """One setting of one learner, and how it did on validation (NaN where it diverged)."""

    learner: LearnerSpec
    aaa: float
    brier: float


Trials = Mapping[str, Sequence[Trial]]
"""What was tried of each learner, by title, the default first; nothing where nothing can be."""


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Highest AAA, then lowest Brier score, then the first; a diverged trial is last."""

    def rank(trial: Trial) -> tuple[float, float]:
        if not np.isfinite([trial.aaa, trial.brier]).all():
            return (np.inf, np.inf)
        return (-round(trial.aaa, 9), trial.brier)

    return min(trials, key=rank)


def first_sites(sites: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """First two sites of two random orders, the same on every machine."""
    if len(sites) < N_SITES:
        raise ConfigError(
            "tuning needs two sites.", do=f"The dataset has: {', '.join(sites)}."
        )
    every = list(permutations(sites, N_SITES))
    rng = numpy_rng(0, "tune", *sites)
    n = min(N_ORDERS, len(every))
    chosen = rng.choice(len(every), n, replace=False)
    return tuple(every[i] for i in np.sort(chosen))


def training_parts(
    cohort: Cohort, names: Sequence[str], experiment: Experiment
) -> Cohort:
    """Subjects of the named sites whom no seed of the experiment tests."""
    tested = set()
    for seed in experiment.seeds:
        for name, site in make_sites(cohort, seed, experiment).items():
            tested |= {(name, who) for who in site.subject_ids["test"]}
    people = zip(cohort.site.tolist(), cohort.subject_id.tolist(), strict=True)
    keep = np.array([who[0] in names and who not in tested for who in people])
    left = cohort.select(keep)
    few = []
    for name in names:
        y = left.y[left.site == name]
        if min(np.bincount(y, minlength=2)) < 5:
            few.append(name)
    if few:
        raise ConfigError(
            f"fewer than 5 of a class are left to tune on at {', '.join(few)}, once the test "
            f"subjects of the config's seeds ({len(experiment.seeds)}) are cut away.",
            do="Tune on sites that are not tested (as experiments/tune_development.toml), or set "
            "fewer seeds.",
        )
    return left


def inner_experiment(
    experiment: Experiment, sites: Sequence[str], repeats: int, budget: int = 0
) -> Experiment:
    """All candidates of all learners on the first sites; its "test" part is the validation part.

    Leaks are off: they would let a method look at the part it is chosen on.
    """
    tried = []
    for learner in experiment.learners:
        for k, candidate in enumerate(_tries(learner, budget)):
            tried.append(replace(candidate, title=f"{learner.title} #{k}"))
    if not tried:
        raise ConfigError("no learner of this config has anything to tune.")
    if experiment.val_fraction == 0:
        raise ConfigError(
            "tuning needs a validation part.", do="Set val_fraction = 0.2."
        )
    small = replace(
        experiment, orders=first_sites(sites), seeds=tuple(range(repeats)), folds=0
    )
    honest = replace(small, leaks=Leaks(), test_fraction=experiment.val_fraction)
    return replace(honest, title=f"tuning: {experiment.title}", learners=tuple(tried))


def _tries(learner: LearnerSpec, budget: int) -> list[LearnerSpec]:
    found = candidates(learner, budget)
    return found if len(found) > 1 else []


def prepare_tuning(
    experiment: Experiment, folder: Path, repeats: int, budget: int = 0
) -> Prepared:
    """Cut the training parts out, write them into the folder, plan the trials."""
    cohort = load_dataset(experiment.dataset)
    require_valid(cohort)
    inner = inner_experiment(experiment, cohort.site_names, repeats, budget)
    assert isinstance(inner.orders, tuple)
    names = [s for s in cohort.site_names if any(s in order for order in inner.orders)]
    parts = training_parts(cohort, names, experiment)
    who = {"site": parts.site, "subject_id": parts.subject_id, "label": parts.y}
    with whole_file(
        folder / DATA
    ) as file:  # as dataset `folder` reads it: workers load it
        np.savez(file, fc=parts.fc, **who)  # type: ignore[arg-type]
    path = (folder / DATA).resolve()
    data = Component("folder", {"path": str(path), "sites": names})
    return prepare(replace(inner, dataset=data))


def judge_trials(experiment: Experiment, results: RunResults, budget: int) -> Trials:
    """How every setting of every learner did in the finished trials."""
    by_title = group(results)
    found: dict[str, list[Trial]] = {}
    for learner in experiment.learners:
        trials = found[learner.title] = []
        for k, candidate in enumerate(_tries(learner, budget)):
            runs = by_title[f"{learner.title} #{k}"]
            score = [np.nan, np.nan]
            if all(finite(run) for run in runs):
                metrics = ("accuracy", "brier")
                score = [means(runs, metric, ("aaa",))["aaa"] for metric in metrics]
            trials.append(Trial(candidate, *score))
    return found


def tune(
    experiment: Experiment,
    folder: Path,
    place: Place,
    repeats: int = 3,
    budget: int = 0,
    *,
    progress: Progress = lambda done, total, last: None,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """Tune every learner of an experiment; writes and returns the frozen learners as TOML.

    Parameters
    ----------
    experiment : Experiment
    folder : Path
        Gets ``tuned.toml``, ``trials.csv`` and the runs; the same call again continues.
    place : Place
        Where to train.
    repeats : int
        Times the training parts are cut into inner training and validation part.
    budget : int
        Settings tried per learner, the same for all, of rate, weight decay, epochs and strength
        together; 0 tries each method's grid of strengths.
    progress, say : callable
        Told how many trainings are done, and what is tried.
    """
    prepared = prepare_tuning(experiment, folder, repeats, budget)
    inner = prepared.experiment
    listed = list_orders(inner.orders, prepared.cohort.site_names)
    orders = [" > ".join(order) for order in listed]
    settings = f"{len(inner.learners)} settings on {', '.join(orders)}"
    say(f"{settings}: {prepared.plan.words}")
    store = open_store(prepared, folder / "runs")
    where: Any = {"jobs": place.jobs, "device": place.device}
    where["group"] = 1 if place == Place() else None  # one worker: this process
    run_experiment(prepared, store, **where, progress=progress)
    trials = judge_trials(experiment, collect(store)[0], budget)
    text = as_toml(experiment.learners, trials, orders, repeats)
    write_text(folder / "tuned.toml", text)
    write_text(folder / "trials.csv", as_csv(trials))
    return text


# -- text ----------------------------------------------------------------------------------------
def toml_value(value: Any) -> str:
    """A plain value as TOML; strings as JSON writes them, which TOML reads alike."""
    if isinstance(value, Mapping):
        inside = ", ".join(
            f"{k} = {toml_value(v)}" for k, v in value.items() if v is not None
        )
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value)


def learner_toml(learner: LearnerSpec) -> str:
    """A ``[[learner]]`` table; a remark for an estimator that no file can name."""
    said: dict[str, Any] = {"title": learner.title}
    if pipeline := pipeline_of(learner):
        if ":" not in pipeline.estimator:
            named = toml_value(learner.title)
            return f"# {named} was handed over as an object of Python"
        settings = ("estimator", "keeps", "input")
        said |= {name: getattr(pipeline, name) for name in settings}
        if pipeline.site:
            said["site"] = True
    else:
        for kind in ("method", "model", "generator"):
            part = getattr(learner, kind)
            if part:
                table = {"name": part.name, **part.params}
                said[kind] = table if part.params else part.name
    if learner.training:
        said["training"] = learner.training
    if not learner.start:
        said["start"] = False
    lines = [f"{name} = {toml_value(value)}" for name, value in said.items()]
    return "\n".join(["[[learner]]", *lines])


def as_toml(
    learners: Sequence[LearnerSpec], trials: Trials, orders: Sequence[str], repeats: int
) -> str:
    """Frozen learners, each with how it was chosen."""
    how = f"# orders {', '.join(orders)}; inner cuts: {repeats}."
    head = (
        "# Frozen by `fcforge tune`: inner validation on subjects whom no seed tests,"
    )
    blocks = [f"{head}\n{how}"]
    for learner in learners:
        note = "# nothing to tune"
        if tried := trials.get(learner.title):
            best = best_trial(tried)
            learner = best.learner
            default = f"(default {tried[0].aaa:.3f})"
            note = f"# best of {len(tried)} on validation: AAA {best.aaa:.3f} {default}"
        blocks.append(f"{note}\n{learner_toml(learner)}")
    return "\n\n".join(blocks) + "\n"


def as_csv(trials: Trials) -> str:
    """Every trial: learner, settings, validation AAA and Brier score, whether it was chosen."""
    rows = []
    for title, tried in trials.items():
        for trial in tried:
            both = {**trial.learner.method.params, **trial.learner.training}
            settings = json.dumps(both, sort_keys=True)
            chosen = int(trial is best_trial(tried))
            rows.append((title, settings, trial.aaa, trial.brier, chosen))
    heads = ["learner", "settings", "aaa", "brier", "chosen"]
    table = pd.DataFrame(rows, columns=heads)
    return table.to_csv(index=False, lineterminator="\n", float_format="%.6f")
