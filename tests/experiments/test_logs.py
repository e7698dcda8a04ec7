"""Logs of whole runs: each (run, site) once, also after a kill; numbers as without a log."""

import csv
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.training_log import SiteLog
from fcforge.experiments.execute import Place
from fcforge.experiments.logs import (
    event_path,
    folder_name,
    logged_sites,
    scalars,
    unlogged,
    write_csv,
    write_tensorboard,
)
from fcforge.experiments.run import prepare, train
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.work import Work
from real_runs import chain_config, fcforge, small_experiment
from small_world import cohort, learner_spec, plan_of, run_plan, run_spec

VAE = Component("fcm_vae", {"epochs": 3, "d_model": 8, "d_ff": 8, "d_z": 4})


def logged(plan):
    nodes = {key: replace(node, logged=True) for key, node in plan.nodes.items()}
    return replace(plan, nodes=nodes)


def rows(store):
    with (store.root / "log.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def identity(row):
    return tuple(v for k, v in row.items() if k != "value")


def orders_plan(method="forge", generator=VAE):
    learner = replace(learner_spec(method), generator=generator)
    base = run_spec(learner, training=Training(epochs=2, batch_size=16))
    return plan_of(base, replace(base, order=base.order[::-1]), replace(base, seed=1))


def test_a_table_has_every_run_site_and_epoch_once(tmp_path):
    plan = orders_plan()
    run_plan(logged(plan), tmp_path)
    store = Store(tmp_path)
    write_csv(store, plan)
    table = rows(store)
    assert max(Counter(map(identity, table)).values()) == 1
    totals = Counter(
        (r["seed"], r["order"], r["position"], r["site"], r["epoch"])
        for r in table
        if r["name"] == "loss/total"
    )
    assert len(totals) == 3 * 3 * 2  # runs, sites, epochs
    kl = [r for r in table if r["name"] == "generator/kl"]
    assert len(kl) == 3 * 3 * 3
    for row in table:
        assert row["site"] == row["order"].split(">")[int(row["position"]) - 1]
        if row["past_site"]:
            place = row["order"].split(">").index(row["past_site"])
            assert place < int(row["position"]) - 1
    assert not unlogged(store, plan)


def test_a_killed_run_continues_without_a_row_twice(tmp_path):
    """The first half of the nodes, a table, then the rest: the table of one go."""
    plan = logged(orders_plan())
    run_plan(plan, tmp_path / "whole")
    write_csv(Store(tmp_path / "whole"), plan)
    store = Store(tmp_path / "killed")
    trainer = Trainer(cohort(), store)
    for node in list(plan.nodes.values())[: len(plan.nodes) // 2]:
        trainer.run([node])
    write_csv(store, plan)
    write_tensorboard(store, plan)
    part = rows(store)
    early = {p.name for p in (store.root / "tensorboard").rglob("events*")}
    assert len(part) > 0
    work = Work(plan, store, lambda *_: None)
    again = Trainer(cohort(), store)
    while (node := work.take()) is not None:
        again.run([node])
        work.done([node], "")
    write_csv(store, plan)
    write_tensorboard(store, plan)
    assert len(part) < len(rows(store))
    assert rows(store) == rows(Store(tmp_path / "whole"))
    assert early < {p.name for p in (store.root / "tensorboard").rglob("events*")}


def test_nodes_trained_before_the_log_are_counted_not_invented(tmp_path):
    plan = orders_plan("finetune", None)
    run_plan(plan, tmp_path)
    run_plan(logged(plan), tmp_path)
    store = Store(tmp_path)
    write_csv(store, plan)
    assert rows(store) == []
    assert len(unlogged(store, plan)) == plan.trainings


def test_a_damaged_log_is_a_damaged_node(tmp_path):
    plan = orders_plan("finetune", None)
    run_plan(logged(plan), tmp_path)
    store = Store(tmp_path)
    key = list(plan.nodes)[-1]
    path = store.folder(key) / "log.json"
    path.write_text(path.read_text().replace("loss", "gain", 1))
    with pytest.raises(StoreError, match=r"damaged file.*log\.json|log\.json"):
        store.read_log(key)
    assert not store.verify(key).scores
    path.unlink()
    assert not store.verify(key).scores


def test_a_model_of_all_sites_is_logged_once(tmp_path):
    plan = logged(plan_of(run_spec(learner_spec("joint"), 3)))
    run_plan(plan, tmp_path)
    assert [one.site for one in logged_sites(plan)] == ["(all sites)"]
    write_csv(Store(tmp_path), plan)
    assert {row["site"] for row in rows(Store(tmp_path))} == {"(all sites)"}


def test_steps_go_on_from_site_to_site():
    plan = orders_plan()
    one = list(logged_sites(plan))[1]
    log = SiteLog()
    for epoch in (1, 2):
        log.add("loss/total", epoch, 1.0)
    log.add_history({"kl": [1.0, 1.0, 1.0]})
    steps = [(s.tag, s.step) for s in scalars(one, list(log))]
    assert sorted(steps) == [
        ("generator/kl", 4),
        ("generator/kl", 5),
        ("generator/kl", 6),
        ("loss/total", 3),
        ("loss/total", 4),
    ]


def test_folders_of_different_runs_differ(tmp_path):
    names = ["a/b", "a_b", "a%2Fb", "..", ".", "", "A>B", "A~B", "ü", "x" * 300]
    names += ["x" * 301, "a.", "a ", "con", "NUL.x", "console", 'a:"*?|<b']
    made = [folder_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        (tmp_path / name).mkdir()
        assert not re.search(r'[<>:"/\\|?*]|[. ]$', name)  # as Windows wants it
        assert name.split(".")[0].upper() not in ("CON", "NUL")
    learner = LearnerSpec(Component("finetune"), Component("gcn"), title="../../up")
    spec = replace(run_spec(learner_spec("finetune")), learner=learner)
    one = next(logged_sites(plan_of(spec)))
    assert tmp_path in event_path(tmp_path, one).resolve().parents


@pytest.mark.parametrize("log", ["csv", "tensorboard"])
def test_a_run_with_a_log_has_the_scores_of_one_without(tmp_path, log):
    prepared = prepare(small_experiment())
    place = Place("cpu", 1)
    plain = train(prepared, tmp_path / "plain", place, lambda *_: None)
    store = train(prepared, tmp_path / log, place, lambda *_: None, log)
    for key in prepared.plan.nodes:
        a, b = plain.read_scores(key), store.read_scores(key)
        assert all(np.array_equal(a[site], b[site]) for site in a)
        assert plain.read_log(key) is None
    assert (store.root / {"csv": "log.csv"}.get(log, log)).exists()
    assert not list(plain.root.glob("log*"))


def test_the_command_names_the_log_and_what_it_lacks(tmp_path):
    config = chain_config(tmp_path / "small.toml", "finetune")
    few = ("--set", "training.epochs=1", "--set", "experiment.orders=1")
    first = fcforge("run", config, *few, "--out", tmp_path / "run", "--jobs", "1")
    assert first.code == 0
    log = ("--log", "csv", "--jobs", "1")
    again = fcforge("run", config, *few, "--out", tmp_path / "run", *log)
    assert again.code == 0
    assert "log.csv" in again.err
    assert "ran without a log" in again.err
    wrong = fcforge("run", config, "--log", "html")
    assert wrong.code == 2
    assert "tensorboard" in wrong.err
