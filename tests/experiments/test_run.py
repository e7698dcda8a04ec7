"""A run: killed and resumed it is the one nobody disturbed; folders and precisions refused."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import BaseModelSpec, LearnerSpec, Training
from fcforge.data.cohort import write_people
from fcforge.data.datasets import load_dataset
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.execute import Place
from fcforge.experiments.run import open_store, prepare, run_experiment, train
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.work import Work
from real_runs import (
    assert_same_run,
    contents,
    do_damage,
    fcforge,
    finished,
    small_config,
    small_experiment,
    without_seconds,
)


def start_run(folder: Path) -> subprocess.Popen[bytes]:
    """`fcforge run` with two workers, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "fcforge.cli",
        "run",
        small_config(),
        "--out",
        folder,
    ]
    return subprocess.Popen(
        [*map(str, command), "--jobs", "2", "--device", "cpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_nodes(process: subprocess.Popen[bytes], folder: Path, n: int) -> None:
    store, limit = Store(folder), time.monotonic() + 120
    while len(store.done()) < n:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < limit, "no node after two minutes"
        time.sleep(0.01)


def test_kill_and_the_same_command_again(tmp_path):
    reference, folder = finished().folder, tmp_path / "killed"
    process = start_run(folder)
    try:
        wait_for_nodes(process, folder, 5)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert not alive, "workers outlive their killed parent"
    done = Store(folder).done()
    assert 5 <= len(done) < len(Store(reference).done())

    # half a run can be looked at
    status = fcforge("status", folder)
    assert status.code == 0
    assert "site trainings done" in status.out

    again = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 2, "--device", "cpu"
    )
    assert again.code == 0, again.err
    assert_same_run(folder, reference)
    tables = [
        without_seconds((f / "table.csv").read_text()) for f in (folder, reference)
    ]
    assert tables[0] == tables[1]
    assert len(tables[0]) > 6
    # what was there was not trained again
    store = Store(folder)
    assert done <= store.done()


def test_a_finished_run_is_not_trained_again():
    folder = finished().folder
    before = stamps(folder)
    table = (folder / "table.csv").read_text()
    answer = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 1, "--device", "cpu"
    )
    assert answer.code == 0
    assert answer.out == finished().answer.out
    assert before == stamps(folder)
    assert (folder / "table.csv").read_text() == table


def lanes(prepared, folder: Path) -> Store:
    """Run in this process (as on a GPU): no worker to start."""
    store = open_store(prepared, folder)
    run_experiment(prepared, store, device="cpu", group=4)
    return store


def stamps(folder: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in (folder / "nodes").rglob("*")}


def test_more_learners_use_what_is_there(tmp_path):
    lanes(prepare(small_experiment(0, "finetune")), tmp_path)
    before = stamps(tmp_path)
    store = lanes(prepare(small_experiment(0, "finetune", "analytic")), tmp_path)
    assert before.items() < stamps(tmp_path).items()
    results, asked = collect(store)
    assert len(results) == asked == 4
    assert {r.spec.learner.title for r in results} == {
        "finetune/linear",
        "analytic/linear",
    }


def test_a_folder_with_other_data_is_refused(tmp_path):
    lanes(prepare(small_experiment(0)), tmp_path)
    stored = contents(tmp_path)
    with pytest.raises(StoreError, match=r"other data.*another --out"):
        open_store(prepare(small_experiment(1)), tmp_path)
    assert contents(tmp_path).keys() == stored.keys()


@pytest.mark.parametrize("public", [False, True])
def test_a_folder_with_other_values_of_confounds_is_refused(public, tmp_path):
    """Head motion that was corrected leaves the keys of runs as they are."""
    out = tmp_path / "run"
    data, motion = tmp_path / "people.npz", tmp_path / "motion.npz"
    simulated = {"n_sites": 5, "n_rois": 8, "scale": 0.1}
    cohort = load_dataset(Component("simulated", simulated))
    write_people(data, cohort)
    where = {"path": str(data), "covariates": str(motion)}
    folder = {**where, "sites": list(cohort.site_names[:2])}
    others = {**where, "sites": list(cohort.site_names[2:])}

    def prepared(factor: float, person: int):
        fd = np.linspace(0.1, 0.5, len(cohort))
        fd[person] *= factor
        np.savez(motion, subject_id=cohort.subject_id, mean_fd=fd)
        base = BaseModelSpec(Component("folder", others)) if public else None
        return prepare(
            replace(
                small_experiment(0, "analytic"),
                dataset=Component("folder", folder),
                confounds=("mean_fd",),
                base_model=base,
            )
        )

    first, last = 0, len(cohort) - 1  # a tested person, a public person
    before = prepared(1.0, first)
    lanes(before, out)
    assert len(before.confounds_sha256) == 1 + public
    lanes(prepared(1.0, last), out)  # the same values
    for person in (first, last) if public else (first,):
        changed = prepared(2.0, person)
        assert changed.plan.nodes.keys() == before.plan.nodes.keys()
        with pytest.raises(StoreError, match=r"other values .*mean_fd.*another --out"):
            open_store(changed, out)


@pytest.mark.parametrize(
    ("maker", "says"), [(None, "an earlier one"), ("0.1.0", r"0\.1\.0")]
)
def test_a_folder_of_another_version_is_refused_and_can_still_be_read(
    maker, says, tmp_path
):
    prepared = prepare(small_experiment())
    store = lanes(prepared, tmp_path)
    said = {k: v for k, v in store.read_experiment().items() if k != "fcforge"}
    store.write_experiment({**said, "fcforge": maker} if maker else said)
    with pytest.raises(StoreError, match=rf"\({says}\).*another --out"):
        open_store(prepared, tmp_path)
    assert len(collect(store)[0]) == 2


def test_a_folder_whose_nodes_have_keys_of_an_earlier_version_can_still_be_read(
    tmp_path,
):
    prepared = prepare(small_experiment(0, "finetune", "analytic"))
    store = lanes(prepared, tmp_path)
    expected, _ = collect(store)
    for number, key in enumerate(sorted(store.done())):
        store.folder(key).rename(store.folder(f"older{number}"))
    data = store.read_experiment()
    del data["runs"]
    store.write_experiment({**data, "fcforge": "0.2.0"})
    results, asked = collect(store)
    assert len(results) == asked == 4
    for old, new in zip(results, expected, strict=True):
        assert old.spec == new.spec
        for site in new.sites:
            assert (old.scores[site] == new.scores[site]).all()


def test_a_folder_or_file_that_is_no_run_is_refused(tmp_path):
    prepared = prepare(small_experiment())
    (tmp_path / "thesis.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(StoreError, match="another --out"):
            open_store(prepared, place)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "empty").mkdir()
    open_store(prepared, tmp_path / "empty")


def test_a_run_killed_while_it_wrote_its_first_file_can_start_again(tmp_path):
    (tmp_path / ".experiment.json.a8s7").write_text('{"half": ')
    store = open_store(prepare(small_experiment()), tmp_path)
    assert store.read_experiment()["sites"]


def small_place() -> Place:
    return Place("cpu", jobs=1)


def test_leftovers_of_a_killed_run_are_swept(tmp_path):
    prepared = prepare(small_experiment())
    store = lanes(prepared, tmp_path)
    leftover = tmp_path / "nodes" / ".0123456789abcdef.0123456789ab"
    leftover.mkdir()
    done = store.done()
    train(prepared, tmp_path, small_place(), lambda *step: None)
    assert store.done() == done
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["meta.json", "scores.npz", "lane.safetensors"])
@pytest.mark.parametrize("damage", ["truncate", "one bit", "delete"])
def test_damaged_nodes_are_trained_again_by_the_same_command(name, damage, tmp_path):
    prepared = prepare(small_experiment(0, "finetune", "analytic"))
    good = lanes(prepared, tmp_path / "good")
    store = open_store(prepared, tmp_path / "bad")
    parents = [n for n in prepared.plan.nodes.values() if n.depth == 1]
    Trainer(prepared.cohort, store).run(parents[:1])
    Trainer(prepared.cohort, store).run(parents[1:2])
    for node in parents[:2]:
        do_damage(store.folder(node.key) / name, damage)
    lanes(prepared, tmp_path / "bad")
    assert good.done() == store.done()
    assert_same_run(tmp_path / "bad", tmp_path / "good")


def test_a_finished_run_with_twenty_damaged_nodes_is_mended(tmp_path):
    """Status and report see the damage; the same command gives the undisturbed tables."""
    folder = tmp_path / "run"
    shutil.copytree(finished().folder, folder)
    store = Store(folder)
    keys = sorted(store.done())[:20]
    for k, key in enumerate(keys):
        name = ("scores.npz", "meta.json")[k % 2]
        do_damage(store.folder(key) / name, ("truncate", "empty", "delete")[k % 3])
    status = fcforge("status", folder)
    assert f"{len(keys)} damaged site trainings" in status.out
    assert fcforge("report", folder).code in (0, 2)  # as far as runs are complete
    again = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 1, "--device", "cpu"
    )
    assert again.code == 0, again.err
    assert again.out == finished().answer.out
    assert_same_run(folder, finished().folder)


def test_a_damaged_generator_is_fitted_again(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished().folder, folder)
    (state, *_) = (folder / "generators").glob("*.safetensors")
    do_damage(state, "one bit")
    for key in sorted(Store(folder).done()):
        Store(folder).drop(key)
    again = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 1, "--device", "cpu"
    )
    assert again.code == 0, again.err
    assert_same_run(folder, finished().folder)


def test_a_run_killed_at_random_moments_is_the_undisturbed_run(tmp_path):
    """Kill -9 the command and its workers three times, at moments that differ on every run."""
    folder = tmp_path / "killed"
    moments = random.Random()
    for _ in range(3):
        process = start_run(folder)
        time.sleep(moments.uniform(1.0, 8.0))
        family = [*psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.kill()
        process.wait()
        psutil.wait_procs(family, timeout=15)
    again = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 2, "--device", "cpu"
    )
    assert again.code == 0, again.err
    assert_same_run(folder, finished().folder)
    left = [
        p for part in (".", "nodes", "generators") for p in (folder / part).glob(".*")
    ]
    assert [p.name for p in left] == [".lock"]


# -- states ------------------------------------------------------------------------------------
def states(folder: Path) -> set[str]:
    return {p.parent.name for p in (folder / "nodes").glob("*/lane.safetensors")}


@pytest.mark.parametrize("how", [{"group": 4}, {"jobs": 2}], ids=["lanes", "workers"])
def test_a_finished_run_keeps_scores_and_no_state(how, tmp_path):
    prepared = prepare(small_experiment(0, "finetune", "analytic"))
    store = open_store(prepared, tmp_path)
    run_experiment(prepared, store, **how)
    assert states(tmp_path) == set()
    results, asked = collect(store)
    assert len(results) == asked == 4


def three_sites(orders: tuple[tuple[int, ...], ...]) -> Experiment:
    data = {"n_sites": 3, "n_rois": 8, "scale": 0.1}
    names = load_dataset(Component("simulated", data)).site_names
    return Experiment(
        Component("simulated", data),
        (LearnerSpec(Component("er", {"memory": 6}), Component("linear")),),
        orders=tuple(tuple(names[i] for i in order) for order in orders),
        training=Training(epochs=1, batch_size=8),
    )


def test_a_killed_run_keeps_the_states_it_still_needs(tmp_path):
    """After A > B of A > B > C and A > C > B: A has one more child, B is to be learned from."""
    prepared = prepare(three_sites(((0, 1, 2), (0, 2, 1))))
    store, told = open_store(prepared, tmp_path), []
    work = Work(
        prepared.plan, store, lambda done, total, what: told.append((done, total))
    )
    trainer = Trainer(prepared.cohort, store)
    root, a, ab = list(prepared.plan.nodes.values())[:3]
    for node in (root, a, ab):
        trainer.run([node])
        work.done([node], node.title)
    assert told == [(0, 5), (0, 5), (1, 5), (2, 5)]
    assert states(tmp_path) == {a.key, ab.key}
    lanes(prepared, tmp_path)  # the same command again
    assert states(tmp_path) == set()
    whole = lanes(prepared, tmp_path / "whole")
    assert_same_run(tmp_path, whole.root)


def test_an_order_that_is_added_later_finds_no_state_and_gives_the_same_numbers(
    tmp_path,
):
    """A is trained once more, bit by bit; nothing else that was stored is touched."""
    lanes(prepare(three_sites(((0, 1, 2),))), tmp_path / "grown")
    before = stamps(tmp_path / "grown")
    prepared = prepare(three_sites(((0, 1, 2), (0, 1), (0, 2, 1))))
    store = lanes(prepared, tmp_path / "grown")
    lanes(prepared, tmp_path / "once")
    assert_same_run(tmp_path / "grown", tmp_path / "once")
    after = stamps(tmp_path / "grown")
    again = {p.parent for p, at in before.items() if p.is_file() and after[p] != at}
    assert [store.read_meta(p.name)["parent"] for p in again] == [None]
    assert len(collect(store)[0]) == 3
