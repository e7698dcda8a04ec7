"""From the stored nodes of a run folder to results: one `RunResult` per complete run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.core.errors import ConfigError, StoreError
from fcforge.core.names import with_visits
from fcforge.core.result import RunResult, RunResults
from fcforge.core.settings import checked
from fcforge.core.spec import RunSpec
from fcforge.core.subjects import Site
from fcforge.core.target import Target
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import Plan, make_plan, read_stored_runs, trainings
from fcforge.experiments.run_keys import keys_of_specs
from fcforge.experiments.site_thresholds import (
    OWN,
    OWN_FOLDS,
    with_own_thresholds,
    without_fold,
)
from fcforge.experiments.store import Store
from fcforge.experiments.traits import read_traits, traits_of

if TYPE_CHECKING:
    from fcforge.data.cohort import Cohort


Scores = Mapping[Any, Mapping[str, np.ndarray]]  # by key of a node and by site


def describe_sites(cohort: "Cohort", experiment: Experiment) -> dict[str, Any]:
    """Return facts about the subjects of every seed and site, which reports need.

    They are the labels, ids and covariates of test subjects and the share of patients in training. They
    contain no FC and are stored in the run folder, so that reports need neither the data nor torch.

    Returns
    -------
    dict
        Facts by seed (as text) and site, as JSON.
    """
    from fcforge.data.splits import make_sites

    facts: dict[str, Any] = {}
    for seed in experiment.seeds:
        by_site = facts[str(seed)] = {}
        for name, site in make_sites(cohort, seed, experiment).items():
            by_site[name] = _describe(site, cohort.target.outputs)
            if experiment.own_threshold:
                folds = (without_fold(site, fold, seed) for fold in range(OWN_FOLDS))
                by_site[name]["folds"] = [part.test.y.tolist() for part in folds]
    return facts


def _describe(site: Site, outputs: int) -> dict[str, Any]:
    """Return the facts of one site.

    ``train_positive`` is the mean of the target over the training subjects: the share of patients, the share
    of each class if there are more than two, or the mean of a numeric target.

    Parameters
    ----------
    site : Site
    outputs : int
        Number of outputs of a network: that of the classes, or 1 for a numeric target.
    """
    tested = site.covariates.get("test", {})
    y = site.learning(with_val=True).y.numpy()
    mean = y.mean()
    if outputs > 2:
        mean = np.bincount(y, minlength=outputs) / len(y)
    return {
        "labels": site.test.y.tolist(),
        "subject_ids": list(site.subject_ids["test"]),
        "covariates": {name: values.tolist() for name, values in tested.items()},
        "n_train": len(site.train) + len(site.val),
        "train_positive": mean.tolist(),
    }


def stored_plan(store: Store) -> tuple[Experiment, Plan, dict]:
    """Return what a run folder states of its experiment.

    Returns
    -------
    experiment : Experiment
    plan : Plan
    data : dict
        Content of experiment.json.

    Raises
    ------
    StoreError
        If experiment.json is missing or damaged.
    """
    try:
        data = store.read_experiment()
        experiment = Experiment.from_json(data["experiment"])
        specs = experiment.specs(data["sites"], data["data_sha256"])
        if "runs" in data:
            plan = read_stored_runs(data["runs"], specs)
        else:
            plan = _plan_of_older_folder(store, specs, data)
        for seed in experiment.seeds:
            data["site_facts"][str(seed)]  # raises KeyError if it is missing
        return experiment, plan, data
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise store.unreadable(error) from error


def _plan_of_older_folder(store: Store, specs: Sequence[RunSpec], data: Any) -> Plan:
    """Return the plan of a folder of an earlier version, whose experiment.json has no keys of nodes.

    The keys are found by the specs that the nodes' files contain.

    Parameters
    ----------
    store : Store
    specs : sequence of RunSpec
        Runs of the experiment.
    data : mapping
        Content of experiment.json.
    """
    stored = {}
    for key in store.done():
        try:
            meta = store.read_meta(key)
        except StoreError:  # a damaged node counts as missing
            continue
        if "spec" in meta:
            stored[key] = RunSpec.from_json(meta["spec"])
    traits = read_traits(data.get("methods", {}))
    return make_plan(specs, data["sites"], traits, keys_of_specs(stored))


def collect(store: Store) -> tuple[list[RunResult], int]:
    """Return the results of all complete runs of a folder, and the number of runs of its plan.

    A run with a damaged node counts as incomplete. With ``own_threshold`` every run counts twice, once with
    each site's own threshold.

    Raises
    ------
    StoreError
        If no run is complete.
    """
    experiment, plan, data = stored_plan(store)
    whole, _ = store.complete(plan.nodes, checksums=False)
    scores = {}
    for key in whole:
        try:
            scores[key] = store.read_scores(key)
        except StoreError:  # its runs count as incomplete, as `fcforge status` shows
            continue
    metas = {key: store.read_meta(key) for key in scores}
    made = []
    for spec, keys in plan.stages:  # with the runs that only fit own thresholds
        if all(key in scores for key in keys):
            made.append(result_of(spec, keys, scores, metas, data))
    results = [result for result in made if result.spec.left_out is None]
    asked = len(plan.runs)
    if not results:
        raise StoreError(
            f"none of the {asked} runs is complete yet.",
            where=store.root,
            do="See `fcforge status`; `fcforge run` with the same config continues.",
        )
    if not experiment.own_threshold:
        return results, asked
    scores_of = {result.spec: result.scores for result in made}
    return [*results, *_with_own_thresholds(results, scores_of, data)], 2 * asked


def _with_own_thresholds(
    results: RunResults, known: Mapping[RunSpec, Mapping[str, np.ndarray]], data: Any
) -> Iterator[RunResult]:
    """Yield each run with every site's own threshold, if the runs without each of its folds are complete.

    Parameters
    ----------
    results : sequence of RunResult
    known : mapping of RunSpec to mapping of site to ndarray
        Scores of all complete runs, those that leave a fold out included.
    data : mapping
        Content of experiment.json.
    """
    for result in results:
        specs = [replace(result.spec, left_out=fold) for fold in range(OWN_FOLDS)]
        folds = [known[spec] for spec in specs if spec in known]
        if len(folds) == OWN_FOLDS:
            facts = data["site_facts"][str(result.spec.seed)]
            labels = {site: facts[site]["folds"] for site in result.sites}
            yield with_own_thresholds(result, folds, labels)


def result_of(
    spec: RunSpec, keys: Sequence[Any], scores: Scores, metas: Mapping, data: Any
) -> RunResult:
    """Return the result of one run.

    Parameters
    ----------
    spec : RunSpec
    keys : sequence
        Keys of its nodes, the untrained network first.
    scores : mapping of key to mapping of site to ndarray of shape (n_test, ...)
        Scores of every node for each site's test subjects.
    metas : mapping of key to mapping
        Facts of the nodes (`Store.read_meta`).
    data : mapping
        Content of experiment.json.
    """
    sites = with_visits(data["sites"], spec.visits)
    facts = data["site_facts"][str(spec.seed)]
    target = Target(**checked(Target, data.get("target", {}), "target"))

    def in_unit(values: Any) -> Any:
        """Return numbers of a numeric target in their unit, all else unchanged."""
        return values if target.classes else target.restored(np.asarray(values))

    learned = keys[1:]
    after = {}
    for site in sites:
        after[site] = in_unit(np.stack([scores[key][site] for key in learned]))
    return RunResult(
        spec=spec,
        sites=sites,
        scores=after,
        initial={s: in_unit(scores[keys[0]][s]) for s in sites},
        y={s: in_unit(np.asarray(facts[s]["labels"])) for s in sites},
        subject_ids={s: tuple(facts[s]["subject_ids"]) for s in sites},
        train_mean={s: in_unit(facts[s]["train_positive"]) for s in sites},
        memory_bytes=np.array([metas[key]["memory_bytes"] for key in learned]),
        seconds=np.array([metas[key]["seconds"] for key in learned]),
        environment=metas[keys[-1]]["environment"],
    )


def kept_by(store: Store) -> dict[str, str]:
    """Return what each learner of a run folder keeps between sites, by the learner's title."""
    experiment, _, data = stored_plan(store)
    known = read_traits(data.get("methods", {}))
    kept = {row.title: traits_of(row, known).keeps for row in experiment.learners}
    return kept | {title + OWN: keeps for title, keeps in kept.items()}


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run folder.

    Attributes
    ----------
    title, folder : str
        Title of the experiment, and path of the folder.
    trained, trainings : int
        Number of site trainings that are stored, and of all in the plan.
    learners : dict of title to dict
        For each learner the number of runs that are complete (``done``) and of all (``asked``).
    disk : int
        Bytes on disk.
    damaged : int
        Number of nodes whose files are missing or have another size than was written; the next run trains
        them again.
    """

    title: str
    folder: str
    trained: int
    trainings: int
    learners: dict[str, dict[str, int]]
    disk: int
    damaged: int = 0


def progress_of(folder: str | Path) -> RunProgress:
    """Return the progress of a run folder, learner by learner."""
    store = Store(folder)
    experiment, plan, _ = stored_plan(store)
    done, damaged = store.complete(plan.nodes, checksums=False)
    learners: dict[str, dict[str, int]] = {}
    for spec, keys in plan.runs:
        row = learners.setdefault(spec.learner.title, {"done": 0, "asked": 0})
        row["asked"] += 1
        row["done"] += all(key in done for key in keys)
    trained = trainings(node for key, node in plan.nodes.items() if key in done)
    return RunProgress(
        experiment.title,
        str(folder),
        trained,
        plan.trainings,
        learners,
        store.size(),
        len(damaged),
    )
