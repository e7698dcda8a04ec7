"""Checking, planning and training of an experiment, as `fcforge run` does it.

A node is one site training of the prefix tree (`fcforge.experiments.plan`), stored as one folder. It is no
machine: those that train are called workers.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcforge.core.errors import StoreError
from fcforge.core.names import with_visits
from fcforge.core.options import LogFormat
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.confounds import require_covariates, values_sha256
from fcforge.data.datasets import load_dataset
from fcforge.data.faults import Fault
from fcforge.experiments.collect import describe_sites, stored_plan
from fcforge.experiments.config import Experiment
from fcforge.experiments.config_code import code_files, import_dataset, import_parts
from fcforge.experiments.execute import Place, default_jobs, run_lanes, run_local
from fcforge.experiments.logs import written_logs
from fcforge.experiments.pipelines import pipeline_of
from fcforge.experiments.plan import Plan, make_plan, stored_runs
from fcforge.experiments.public_subjects import load_public, resolve_public
from fcforge.experiments.store import MADE_BY, Store
from fcforge.experiments.traits import stored_traits
from fcforge.experiments.visit_sizes import require_enough_at_visits
from fcforge.experiments.work import Progress, Work


@dataclass(frozen=True)
class Prepared:
    """Experiment that has passed every check that needs no training.

    Attributes
    ----------
    experiment : Experiment
    cohort : Cohort
        Its data.
    plan : Plan
        Its prefix tree.
    data_sha256 : str
        Digest of the data.
    public_warnings : tuple of Fault
        Warnings about the public people of a base model beside the tested ones.
    confounds_sha256 : tuple of str
        Digests of the covariates that are removed, of the tested and of the public people; empty if none
        are removed.
    """

    experiment: Experiment
    cohort: Cohort
    plan: Plan
    data_sha256: str
    public_warnings: tuple[Fault, ...] = ()
    confounds_sha256: tuple[str, ...] = ()


def prepare(experiment: Experiment, cohort: Cohort | None = None) -> Prepared:
    """Load and check the data of an experiment, check that its learners can be built, and plan its runs.

    Parameters
    ----------
    experiment : Experiment
    cohort : Cohort, optional
        Its data; by default they are loaded.

    Raises
    ------
    FCForgeError
        If the data are not usable, or a learner cannot be built or cannot learn the target.
    """
    from fcforge.methods import build_learner, require_kind

    import_dataset(experiment.dataset)
    for learner in experiment.learners:
        import_parts(learner)
    cohort = load_dataset(experiment.dataset) if cohort is None else cohort
    require_valid(cohort)
    if experiment.own_threshold:
        require_kind(cohort.target, ("two classes",), "own_threshold", "[evaluation]")
    for learner in experiment.learners:
        pipeline = pipeline_of(learner)
        if pipeline:
            pipeline.require(cohort.target)
        else:
            has_base_model = experiment.base_model is not None
            build_learner(learner, cohort.n_rois, has_base_model, cohort.target)
    require_enough_at_visits(experiment, cohort)
    if experiment.confounds:
        ids = cohort.subject_id.tolist()
        where = "[confounds]"
        require_covariates(cohort.covariates, experiment.confounds, ids, where)
    warnings: tuple[Fault, ...] = ()
    if experiment.base_model is not None:
        public, warnings = resolve_public(experiment.base_model.dataset, cohort)
        experiment = replace(experiment, base_model=public)
    confounds_sha256: tuple[str, ...] = ()
    if experiment.confounds:
        everybody = [cohort]
        if experiment.base_model is not None:
            people = load_public(experiment.base_model)
            ids = people.subject_id.tolist()
            where = "public people"
            require_covariates(people.covariates, experiment.confounds, ids, where)
            everybody.append(people)
        confounds_sha256 = tuple(
            values_sha256(people, experiment.confounds) for people in everybody
        )
    sha = cohort.content_sha256()
    visits = with_visits(cohort.site_names, experiment.visits)
    plan = make_plan(experiment.specs(cohort.site_names, sha), visits)
    return Prepared(experiment, cohort, plan, sha, warnings, confounds_sha256)


def open_store(prepared: Prepared, out: str | Path) -> Store:
    """Return the run folder of an experiment, which is new or holds the same experiment.

    Learners, seeds or orders may be added to a folder; stored nodes are used again.

    Parameters
    ----------
    prepared : Prepared
    out : path

    Raises
    ------
    StoreError
        If the folder holds other data or another experiment, whose results would silently disappear from the
        report.
    """
    store = Store(out)
    if (store.root / "experiment.json").is_file():
        _refuse_another(store, prepared)
    else:
        _refuse_foreign(store)
    store.write_experiment(_experiment_json(prepared))
    return store


def _refuse_foreign(store: Store) -> None:
    """Raise `StoreError` if the path is a file, or a folder that is no run folder."""
    if store.is_foreign() and not (store.root / "experiment.json").is_file():
        raise StoreError(
            "this is a file, or a folder that holds other things than a run.",
            where=store.root,
            do="Choose another --out.",
        )


def _experiment_json(prepared: Prepared) -> dict[str, Any]:
    """Return the content of experiment.json."""
    return {
        "fcforge": MADE_BY,
        "experiment": prepared.experiment.to_json(),
        "methods": stored_traits(prepared.experiment.learners),
        "runs": stored_runs(prepared.plan),
        "sites": list(prepared.cohort.site_names),
        "data_sha256": prepared.data_sha256,
        "confounds_sha256": list(prepared.confounds_sha256),
        "n_rois": prepared.cohort.n_rois,
        "target": asdict(prepared.cohort.target),
        "roi_names": list(prepared.cohort.roi_names),
        "site_facts": describe_sites(prepared.cohort, prepared.experiment),
    }


def _refuse_another(store: Store, prepared: Prepared) -> None:
    """Raise `StoreError` if a run folder holds another experiment.

    The same experiment has at least one learner in common, and common learners have common nodes.
    """
    stored, plan, data = stored_plan(store)
    maker = data.get("fcforge", "an earlier one")
    if maker != MADE_BY:
        message = (
            f"this folder was begun by another fcforge ({maker}), this is {MADE_BY}."
        )
        hint = "Choose another --out, or go on with that version. `fcforge report` reads both."
        raise StoreError(message, where=store.root, do=hint)
    old = plan.nodes_of_learners()
    new = prepared.plan.nodes_of_learners()
    both = old.keys() & new.keys()
    changed = sorted(title for title in both if old[title].isdisjoint(new[title]))
    if changed or not both:
        message = f"this folder holds another experiment ('{stored.title}')"
        reason = "other data or settings and learners"
        if changed:
            reason = _reason_for_another(plan, prepared.plan, changed[0])
        hint = "Choose another --out, or delete the folder."
        raise StoreError(f"{message}: {reason}.", where=store.root, do=hint)
    # Keys of runs hold the names of the confounds, not their values; older folders state no digest.
    digests = data.get("confounds_sha256")
    if digests and digests != list(prepared.confounds_sha256):
        names = ", ".join(prepared.experiment.confounds)
        raise StoreError(
            f"this folder holds runs with other values of the covariates that are removed ({names}).",
            where=store.root,
            do="Choose another --out, or delete the folder.",
        )


def _reason_for_another(stored: Plan, new: Plan, title: str) -> str:
    """Return why the runs of a learner have other keys than the stored ones, as far as that is known.

    Parameters
    ----------
    stored, new : Plan
        The plan of the run folder, and the one to be run.
    title : str
        Title of a learner in both.
    """
    before, now = (
        [spec for spec, _ in plan.runs if spec.learner.title == title]
        for plan in (stored, new)
    )
    files = code_files(now[0].learner)
    code = f"code ({', '.join(files)})"
    if files and any(spec in before for spec in now):
        return f"other {code} of learner '{title}'"
    what = f"data, settings or {code}" if files else "data or settings"
    return f"other {what} for learner '{title}'"


MOST_LANES = 128  # networks that train in parallel on a GPU; more gain little


def run_experiment(
    prepared: Prepared,
    store: Store,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    group: int | None = None,
    progress: Progress = lambda done, total, title: None,
) -> None:
    """Train every node (site training) that is missing or damaged in a run folder, on this machine.

    Parameters
    ----------
    prepared : Prepared
    store : Store
    jobs : int, optional
        Number of worker processes; all cores by default.
    device : str
    group : int, optional
        Largest number of lanes (networks that train in parallel) in this process. By default a CPU uses worker
        processes instead.
    progress : callable
        Called with the number of site trainings done, their total, and a description of the last one.
    """
    work = Work(prepared.plan, store, progress)
    if device == "cpu" and group is None:
        return run_local(work, jobs or default_jobs())
    from fcforge.experiments.trainer import Trainer

    trainer = Trainer(prepared.cohort, store, device, group or MOST_LANES)
    return run_lanes(work, trainer)


@contextmanager
def training_store(prepared: Prepared, folder: str | Path) -> Iterator[Store]:
    """Yield the run folder of an experiment, locked for this command.

    Temporary files that killed commands have left are deleted.

    Raises
    ------
    StoreError
        If the folder holds something else, or another command is training into it.
    """
    store = Store(folder)
    _refuse_foreign(store)
    with store.exclusive():
        yield open_store(prepared, folder)


def train(
    prepared: Prepared,
    folder: Path,
    place: Place,
    progress: Progress,
    log: LogFormat | None = None,
    *,
    keep_networks: bool = False,
) -> Store:
    """Train every node (site training) that is missing or damaged in a run folder, as `fcforge run` does.

    Parameters
    ----------
    prepared : Prepared
    folder : Path
        Run folder.
    place : Place
        Device, worker processes or cluster.
    progress : callable
        Called with the number of site trainings done, their total, and a description of the last one.
    log : {"csv", "tensorboard"}, optional
        Format of the log of every site training; None logs nothing.
    keep_networks : bool
        Whether to store the trained network of every run (`fcforge.experiments.networks`).

    Returns
    -------
    Store
        The run folder.
    """
    from fcforge.experiments.cluster import open_cluster, run_on

    if keep_networks:
        from fcforge.experiments.networks import export_networks, keeping_networks

        prepared = replace(prepared, plan=keeping_networks(prepared.plan))
    # before the folder is made: a cluster that does not answer leaves nothing behind
    with (
        open_cluster(place.cluster) if place.cluster else nullcontext() as client,
        training_store(prepared, folder) as store,
        written_logs(store, prepared.plan, log, progress) as (logged_plan, report),
    ):
        if client is None:  # no cluster
            logged = replace(prepared, plan=logged_plan)
            run_experiment(
                logged, store, jobs=place.jobs, device=place.device, progress=report
            )
        else:
            run_on(client, Work(logged_plan, store, report))
        if keep_networks:
            export_networks(store, logged_plan)
    return store


def leak_notes(experiment: Experiment) -> list[str]:
    """Return a warning for every leak that is on."""
    active = experiment.leaks.active()
    return [f"LEAK ON: {name}. Test data steer this run." for name in active]
