"""`fcforge tune`: choose hyper-parameters on inner validation, once, before any test is looked at.

The first two sites of two random orders are taken, and of these sites only the subjects whom no
seed of the experiment tests: the test subjects are not even handed to the runner. They are split
again, several times, into an inner training and a validation part. A learner with every setting of
its method's grid (a trial) is trained on the former and scored on the latter. The setting with the
highest AAA there is frozen for all orders; ties go to the lower Brier score, then to the default.
Where many seeds test nearly everybody, tune on sites that are not tested at all
(paper/experiments/tune_development.toml).
"""

import json
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.files import write_text
from fcforge.core.identity import identity
from fcforge.core.leaks import Leaks
from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResults
from fcforge.core.spec import LearnerSpec
from fcforge.data.checks import (
    data_warnings,
    require_valid,
    warn_in_python,
    warning_lines,
)
from fcforge.data.cohort import Cohort, write_people
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.resampling import means
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.execute import Place
from fcforge.experiments.orders import list_orders
from fcforge.experiments.pipelines import pipeline_of
from fcforge.experiments.public_subjects import resolve_public
from fcforge.experiments.run import Prepared, prepare, train
from fcforge.experiments.work import Progress
from fcforge.methods import METHODS
from fcforge.methods.shared.synthetic_memory import LAMBDAS
from fcforge.models import MODELS

N_ORDERS = 2
N_SITES = 2
DATA = "training_parts.npz"
Settings = dict[str, Any]
# what a budget tries beside the strengths: multiples of the model's own rate, weight decays, epochs
RATES = (1.0, 0.3, 3.0)
DECAYS = (2e-4, 1e-2)
EPOCHS = (100, 50, 200)


# -- settings to try: grids.toml, and more with a budget -------------------------------------------
def grid_of(method: Component) -> list[Settings]:
    """Return the settings of a method to try, the default first; [{}] if its grid is empty.

    Grids are in grids.toml. Of FORGE one loss weight is changed at a time; for other methods
    all combinations are listed.
    """
    text = files("fcforge.evaluation").joinpath("grids.toml").read_text()
    grid = tomllib.loads(text).get(method.name, {})
    if "settings" in grid:
        return grid["settings"]
    if method.name == "forge":  # one weight at a time
        lambdas = LAMBDAS[method.params.get("lambdas", "asd")]
        default = dict(zip(grid, lambdas, strict=True))  # the grid has their order
        changed = []
        for name, values in grid.items():
            changed += [{**default, name: value} for value in values]
    else:
        default = grid.pop("default", {})
        crossed = product(*grid.values())
        changed = [dict(zip(grid, row, strict=True)) for row in crossed]
    return [default, *(settings for settings in changed if settings != default)]


def candidates(
    learner: LearnerSpec, budget: int = 0, stated: Collection[str] = ()
) -> list[LearnerSpec]:
    """Return copies of a learner with every setting of its method's grid.

    Settings that the config states stay as they are. Only the other fields of the grid are searched.

    Parameters
    ----------
    learner : LearnerSpec
    budget : int
        Number of settings to try, with random combinations of strength, learning rate, weight
        decay and epochs after the default: the same for every learner whose method has the same
        grid. 0 tries the grid of strengths.
    stated : collection of str
        Training settings that the config states for all learners.

    Returns
    -------
    list of LearnerSpec
        The default first; empty if there is only one setting.
    """
    if pipeline_of(learner):  # an estimator's settings are its own
        return []
    distinct: dict[str, LearnerSpec] = {}
    trainings = _trainings(learner, stated) if budget else [{}]
    for training, settings in product(trainings, grid_of(learner.method)):
        params = _with_defaults(learner.method.params, settings)
        training_settings = _with_defaults(learner.training, training)
        method = replace(learner.method, params=params)
        candidate = replace(learner, method=method, training=training_settings)
        # as text, because settings may be lists
        settings_as_text = repr((sorted(params.items()), training_settings))
        distinct.setdefault(settings_as_text, candidate)
    first, *further = distinct.values()
    if budget:
        rng = numpy_rng(0, "tuning budget", learner.method.name)
        drawn = rng.permutation(len(further))[: budget - 1].tolist()
        further = [further[k] for k in drawn]
    return [first, *further] if further else []


def _with_defaults(stated: Mapping[str, Any], offered: Settings) -> Settings:
    """Return the stated settings, completed by the offered ones; a stated value wins."""
    further = {name: value for name, value in offered.items() if name not in stated}
    return {**stated, **further}


def _trainings(learner: LearnerSpec, stated: Collection[str]) -> list[Settings]:
    """Return combinations of rate, weight decay and epochs, without those the config states.

    A method that trains no network has one, the empty one.

    Parameters
    ----------
    learner : LearnerSpec
    stated : collection of str
        Names of the training settings that the config states.
    """
    if not METHODS[learner.method.name].fits:
        return [{}]
    rate = MODELS[learner.model.name].lr
    combinations = []
    for times, decay, epochs in product(RATES, DECAYS, EPOCHS):
        settings = {"lr": times * rate, "weight_decay": decay, "epochs": epochs}
        combinations.append({k: v for k, v in settings.items() if k not in stated})
    return combinations


def stated_training(experiment: Experiment) -> set[str]:
    """Return names of the training settings that a config states or that differ from their defaults."""
    return {*experiment.training_stated, *identity(experiment.training)}


# -- trials ---------------------------------------------------------------------------------------
def first_sites(sites: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the first two sites of two random orders, the same on every machine."""
    if len(sites) < N_SITES:
        raise ConfigError(
            "tuning needs two sites.", do=f"The dataset has: {', '.join(sites)}."
        )
    orders = list(permutations(sites, N_SITES))
    rng = numpy_rng(0, "tune", *sites)
    n = min(N_ORDERS, len(orders))
    chosen = rng.choice(len(orders), n, replace=False)
    return tuple(orders[i] for i in np.sort(chosen))


def training_parts(
    cohort: Cohort, names: Sequence[str], experiment: Experiment
) -> Cohort:
    """Return the subjects of some sites that no seed of the experiment tests.

    Parameters
    ----------
    cohort : Cohort
    names : sequence of str
        Sites.
    experiment : Experiment

    Raises
    ------
    ConfigError
        If fewer than 5 subjects of a class are left at a site.
    """
    tested = set()
    for seed in experiment.seeds:
        for name, site in make_sites(cohort, seed, experiment).items():
            tested |= {(name, who) for who in site.subject_ids["test"]}
    people = zip(cohort.site.tolist(), cohort.subject_id.tolist(), strict=True)
    keep = np.array([who[0] in names and who not in tested for who in people])
    untested = cohort.select(keep)
    too_small = []
    for name in names:
        y = untested.y[untested.site == name]
        if min(np.bincount(y, minlength=2)) < 5:
            too_small.append(name)
    if too_small:
        raise ConfigError(
            f"fewer than 5 of a class are left to tune on at {', '.join(too_small)}, once the test "
            f"subjects of the config's seeds ({len(experiment.seeds)}) are cut away.",
            do="Tune on sites that are not tested, or set fewer seeds.",
        )
    return untested


def inner_experiment(
    experiment: Experiment, sites: Sequence[str], repeats: int, budget: int = 0
) -> Experiment:
    """Return the trials as an experiment whose "test" part is the validation part.

    Leaks are off: they would let a method look at the part it is chosen on.

    Parameters
    ----------
    experiment : Experiment
    sites : sequence of str
        All sites of the dataset.
    repeats : int
        Number of splits into inner training and validation part.
    budget : int
        As in `candidates`.
    """
    trials = []
    for learner in experiment.learners:
        for k, candidate in enumerate(
            candidates(learner, budget, stated_training(experiment))
        ):
            trials.append(replace(candidate, title=f"{learner.title} #{k}"))
    if not trials:
        raise ConfigError("no learner of this config has anything to tune.")
    if experiment.val_fraction == 0:
        raise ConfigError(
            "tuning needs a validation part.", do="Set val_fraction = 0.2."
        )
    reduced = replace(
        experiment,
        orders=first_sites(sites),
        seeds=tuple(range(repeats)),
        folds=0,
        visits=1,
    )
    without_leaks = replace(
        reduced, leaks=Leaks(), test_fraction=experiment.val_fraction
    )
    return replace(
        without_leaks, title=f"tuning: {experiment.title}", learners=tuple(trials)
    )


def prepare_tuning(
    experiment: Experiment,
    folder: Path,
    repeats: int,
    budget: int = 0,
    *,
    warn: Callable[[str], None] = warn_in_python,
) -> Prepared:
    """Write the subjects to tune on into a folder, and plan the trials (runs of all candidate settings).

    Parameters
    ----------
    experiment : Experiment
        The experiment whose learners are tuned.
    folder : Path
    repeats : int
        Number of inner splits into training and validation parts.
    budget : int
        Largest number of candidate settings per learner; 0 for the whole grid.
    warn : callable
        Called with each line of `data_warnings` about the whole dataset and about public people;
        by default the lines become Python warnings.

    Raises
    ------
    ConfigError
        If the target is not two classes, for which alone settings can be compared.
    """
    cohort = load_dataset(experiment.dataset)
    require_valid(cohort)
    for line in data_warnings(cohort):
        warn(line)
    target = cohort.target
    if target.kind != "two classes":
        raise ConfigError(
            "tuning compares settings by accuracy and Brier score of two classes; the target is "
            f"{target.name}, {target.kind}.",
            do="State the settings in the config, or tune on two of the classes.",
        )
    inner = inner_experiment(experiment, cohort.site_names, repeats, budget)
    assert isinstance(inner.orders, tuple)
    names = [s for s in cohort.site_names if any(s in order for order in inner.orders)]
    parts = training_parts(cohort, names, experiment)
    if experiment.base_model is not None:
        # against all tested sites: of those that are not tuned on, nobody may be public either
        public, doubts = resolve_public(experiment.base_model.dataset, cohort)
        inner = replace(inner, base_model=public)
        for line in warning_lines(doubts):
            warn(line)
    path = (folder / DATA).resolve()  # workers load it
    write_people(path, parts, covariates=experiment.confounds)
    accepted = {
        name: True
        for name in ("allow_duplicates", "allow_unlike_sites")
        if getattr(cohort, name)
    }
    data = Component("folder", {"path": str(path), "sites": names, **accepted})
    return prepare(replace(inner, dataset=data))


def judge_trials(
    experiment: Experiment, results: RunResults, budget: int
) -> pd.DataFrame:
    """Return the validation scores of every trial, that is, of every candidate setting of a learner.

    Parameters
    ----------
    experiment : Experiment
        The experiment whose learners are tuned.
    results : sequence of RunResult
        Runs of the trials.
    budget : int
        As for `prepare_tuning`.

    Returns
    -------
    DataFrame
        Columns learner (its title), candidate (`LearnerSpec`), aaa and brier; NaN if it diverged.
    """
    by_title = by_learner(results)
    rows = []
    for learner in experiment.learners:
        for k, candidate in enumerate(
            candidates(learner, budget, stated_training(experiment))
        ):
            runs = by_title[f"{learner.title} #{k}"]
            score = [np.nan, np.nan]
            if all(finite(run) for run in runs):
                metrics = ("accuracy", "brier")
                score = [means(runs, metric, ("aaa",))["aaa"] for metric in metrics]
            rows.append((learner.title, candidate, *score))
    return pd.DataFrame(rows, columns=["learner", "candidate", "aaa", "brier"])


def best_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Return each learner's trial with the highest AAA, then lowest Brier score, then the first.

    A trial that diverged is last.
    """
    ranked = trials.assign(worse=-trials["aaa"].round(9))
    ordered = ranked.sort_values(["worse", "brier"], kind="stable")
    return ordered.groupby("learner").head(1).sort_index()


def tune(
    experiment: Experiment,
    folder: Path,
    place: Place,
    repeats: int = 3,
    budget: int = 0,
    *,
    progress: Progress = lambda done, total, last: None,
    say: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = warn_in_python,
) -> str:
    """Tune the learners of an experiment and write the chosen settings as TOML.

    Parameters
    ----------
    experiment : Experiment
    folder : Path
        Gets ``tuned.toml``, ``trials.csv`` and the runs; the same call again continues.
    place : Place
        Where to train.
    repeats : int
        Number of splits into inner training and validation part.
    budget : int
        Settings tried per learner, of rate, weight decay, epochs and strength together; 0 tries
        each method's grid of strengths.
    progress : callable
        Called with the number of finished and of all trainings, and the last one.
    say : callable
        Called with messages about the progress.
    warn : callable
        As in `prepare_tuning`.

    Returns
    -------
    str
        Contents of ``tuned.toml``: the tuned learners as ``[[learner]]`` tables.
    """
    prepared = prepare_tuning(experiment, folder, repeats, budget, warn=warn)
    inner = prepared.experiment
    listed = list_orders(inner.orders, prepared.cohort.site_names)
    orders = [" > ".join(order) for order in listed]
    settings = f"{len(inner.learners)} settings on {', '.join(orders)}"
    say(f"{settings}: {prepared.plan.words}")
    store = train(prepared, folder / "runs", place, progress)
    trials = judge_trials(experiment, collect(store)[0], budget)
    text = as_toml(trials, orders, repeats)
    write_text(folder / "tuned.toml", text)
    write_text(folder / "trials.csv", as_csv(trials))
    return text


# -- text ----------------------------------------------------------------------------------------
def toml_value(value: Any) -> str:
    """Return a plain value as TOML; strings are written as in JSON, which TOML reads as well."""
    if isinstance(value, Mapping):
        items = ", ".join(
            f"{k} = {toml_value(v)}" for k, v in value.items() if v is not None
        )
        return f"{{ {items} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value)


def learner_toml(learner: LearnerSpec) -> str:
    """Return a learner as a ``[[learner]]`` table."""
    table: dict[str, Any] = {"title": learner.title}
    for kind in ("method", "model", "generator"):
        if part := getattr(learner, kind):
            table[kind] = {"name": part.name, **part.params}
    if learner.training:
        table["training"] = learner.training
    if not learner.base_model:
        table["base_model"] = False
    lines = [f"{name} = {toml_value(value)}" for name, value in table.items()]
    return "\n".join(["[[learner]]", *lines])


def as_toml(trials: pd.DataFrame, orders: Sequence[str], repeats: int) -> str:
    """Return the best trial of each learner as TOML, with comments on how it was chosen.

    Parameters
    ----------
    trials : DataFrame
        From `judge_trials`.
    orders : sequence of str
        Orders of the trials, as text.
    repeats : int
        Number of splits into inner training and validation part.
    """
    origin = f"# orders {', '.join(orders)}; inner cuts: {repeats}."
    head = (
        "# Frozen by `fcforge tune`: inner validation on subjects whom no seed tests,"
    )
    blocks = [f"{head}\n{origin}"]
    for best in best_trials(trials).itertuples():
        tried = trials[trials["learner"] == best.learner]
        default = f"(default {tried['aaa'].iloc[0]:.3f})"
        note = f"# best of {len(tried)} on validation: AAA {best.aaa:.3f} {default}"
        blocks.append(f"{note}\n{learner_toml(best.candidate)}")
    return "\n\n".join(blocks) + "\n"


def as_csv(trials: pd.DataFrame) -> str:
    """Return all trials as CSV: learner, settings, validation AAA and Brier score, chosen (0 or 1)."""
    settings = []
    for candidate in trials["candidate"]:
        all_settings = {**candidate.method.params, **candidate.training}
        settings.append(json.dumps(all_settings, sort_keys=True))
    best = trials.index.isin(best_trials(trials).index).astype(int)
    table = trials.drop(columns="candidate").assign(chosen=best)
    table.insert(1, "settings", settings)
    return table.to_csv(index=False, lineterminator="\n", float_format="%.6f")
