"""Worker processes: generators are fitted ahead, and a worker that dies is one clear error."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, FCForgeError
from fcforge.core.spec import Training
from fcforge.data.cohort import write_people
from fcforge.data.datasets import load_dataset
from fcforge.experiments import execute
from fcforge.experiments.execute import (
    Place,
    _workers,
    default_jobs,
    fit_ahead,
    pick_device,
    place_to_train,
    wanted_generators,
)
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.work import Work
from real_runs import small_experiment
from small_world import cohort, learner_spec, plan_of, run_plan, run_spec


def test_generators_are_fitted_ahead_and_found(tmp_path):
    """Several processes fit each (site, seed) once; the run then only reads them."""
    path = tmp_path / "data.npz"
    made = cohort()
    np.savez(path, fc=made.fc, label=made.y, site=made.site, subject_id=made.subject_id)
    spec = replace(
        run_spec(learner_spec("forge"), 2),
        dataset=Component("folder", {"path": str(path)}),
        training=Training(epochs=1, batch_size=16),
    )
    plan = plan_of(spec, replace(spec, seed=1))
    store = Store(tmp_path / "run")
    store.root.mkdir()
    said = []
    work = Work(plan, store, lambda *step: said.append(step))
    with _workers(2) as pool:
        fit_ahead(work, pool)
    assert [step[:2] for step in said] == [(0, plan.trainings)] * 5
    ahead = {p.name: p.stat().st_mtime_ns for p in store.generators.iterdir()}
    assert len(ahead) == 8  # two sites, two seeds: generators, and what was drawn
    run_plan(plan, store.root)
    found = {p.name: p.stat().st_mtime_ns for p in store.generators.iterdir()}
    assert found == ahead


def test_generators_that_train_in_lanes_are_fitted_together_and_found(tmp_path):
    """On a GPU all (site, seed) of FCM-VAE are one call; the run then only reads them."""
    vae = Component("fcm_vae", {"epochs": 1, "d_model": 8, "d_ff": 8, "d_z": 4})
    learner = replace(learner_spec("forge"), generator=vae)
    spec = replace(run_spec(learner, 2), training=Training(epochs=1, batch_size=16))
    plan = plan_of(spec, replace(spec, seed=1))
    nodes, store = list(plan.nodes.values()), Store(tmp_path)
    wanted = wanted_generators(nodes)
    assert len(wanted) == 4  # two sites, two seeds
    Trainer(cohort(), store).parts.fit_generators(wanted)
    ahead = {p.name: p.stat().st_mtime_ns for p in store.generators.iterdir()}
    run_plan(plan, store.root)
    assert len(ahead) == 4
    found = {p.name: p.stat().st_mtime_ns for p in store.generators.glob("[!s]*")}
    assert found == ahead  # beside them the subjects that were drawn


def test_generators_without_lanes_are_left_to_whoever_needs_them(tmp_path):
    plan = plan_of(run_spec(learner_spec("forge"), 2))  # corr_gauss
    wanted = wanted_generators(list(plan.nodes.values()))
    assert wanted
    Trainer(cohort(), Store(tmp_path)).parts.fit_generators(wanted)
    assert not Store(tmp_path).generators.exists()


def test_a_dead_worker_is_one_clear_error(tmp_path, monkeypatch):
    class Pool:
        def __init__(self, *args):
            self._processes = {}

        def submit(self, *args):
            from concurrent.futures import Future
            from concurrent.futures.process import BrokenProcessPool

            future: Future = Future()
            future.set_exception(BrokenProcessPool("killed"))
            return future

        def shutdown(self, **kwargs):
            pass

    monkeypatch.setattr(execute, "ProcessPoolExecutor", Pool)
    prepared = prepare(small_experiment())
    with pytest.raises(FCForgeError, match="worker process died"):
        run_experiment(prepared, open_store(prepared, tmp_path / "run"), jobs=1)


# -- where a run is trained, and what is refused before anything is written ------------------------
def without_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_auto_takes_what_there_is(monkeypatch):
    without_gpu(monkeypatch)
    assert place_to_train() == Place("cpu", default_jobs(), "")
    assert place_to_train(jobs=3).jobs == 3
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == "cuda"
    assert pick_device("cuda:1") == "cuda:1"


def test_a_device_that_is_not_there(monkeypatch):
    without_gpu(monkeypatch)
    with pytest.raises(ConfigError, match="device 'tpu'"):
        pick_device("tpu")
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        pick_device("cuda")


def test_a_cluster_trains_on_cpus():
    assert place_to_train("auto", 2, "tcp://a:1") == Place("cpu", 2, "tcp://a:1")
    with pytest.raises(ConfigError, match="cluster"):
        place_to_train("cuda", 2, "tcp://a:1")


def test_a_worker_that_lives_on_loads_data_that_changed(tmp_path):
    """Workers of a cluster serve many runs; the digest of a run says which data it means."""
    path = tmp_path / "data.npz"
    made = cohort()
    dataset = Component("folder", {"path": str(path)})
    trainers = []
    for people in (made, replace(made, fc=(made.fc + np.eye(made.n_rois)) / 2)):
        write_people(path, people)
        sha256 = load_dataset(dataset).content_sha256()
        spec = replace(
            run_spec(learner_spec("finetune"), 2), dataset=dataset, data_sha256=sha256
        )
        trainers.append(execute._trainer(spec, str(tmp_path)))
        assert trainers[-1].parts.cohort.content_sha256() == sha256
        assert execute._trainer(spec, str(tmp_path)) is trainers[-1]
    assert trainers[0] is not trainers[1]
