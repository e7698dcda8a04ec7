"""Tables are run, packed and read back as they were; published pages agree with paper/results/."""

from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import run_tables as script
from paper_tables import printed_tables, read_folder
from scores import read_table

from fcforge.core.component import Component
from fcforge.evaluation.forgetting import summary

EXPERIMENTS = Path(__file__).parents[2] / "paper" / "experiments"


def test_every_wanted_table_can_be_loaded():
    for name in script.WANTED:
        experiment = script.load(name, "tf32")
        assert experiment.training.precision == "tf32"
        file, _, setting = name.partition("+")
        strict = file.startswith("leaks_single") or "leaks" not in file
        assert bool(experiment.leaks.active()) == (
            not strict or setting in ("leaks", "epoch", "context", "generator", "all")
        )
    known = set(printed_tables()) - {"main_abide_tuned"}
    known = {n for n in known if not n.startswith("edges")}
    assert {n for n in known if (EXPERIMENTS / f"{n}.toml").is_file()} <= set(
        script.WANTED
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_run_and_read_end_to_end(processes, tmp_path, capsys, monkeypatch):
    """Two tables of one dataset share their nodes; packed and unpacked they read the same."""
    # threads: processes would load torch
    monkeypatch.setattr(script, "load_once", lambda: None)
    monkeypatch.setattr(
        script, "ProcessPoolExecutor", lambda n, how: ThreadPoolExecutor(1)
    )
    data = Component(
        "simulated", {"preset": "easy", "n_rois": 10, "n_sites": 2, "scale": 0.1}
    )
    plan = tmp_path / "plan"
    plan.mkdir()
    for name in ("main_abide", "buffer"):
        whole = script.load(name)
        rows = tuple(
            le for le in whole.learners if le.title in ("Base", "ER", "ER 256")
        )
        small = replace(whole.training, epochs=1)
        experiment = replace(
            whole, dataset=data, learners=rows, seeds=(0,), training=small
        )
        asked = {"experiment": experiment.to_json(), "commit": "abc", "settings": []}
        (plan / f"{name}.json").write_text(script.json.dumps(asked))
    args = Namespace(
        folder=plan,
        root=tmp_path / "root",
        out=tmp_path / "out",
        device="cpu",
        group=1,
        limit=600,
        processes=processes,
    )
    script.run(args)
    said = capsys.readouterr().out
    together = processes == 1
    assert ("main_abide 0/8" if together else "main_abide, Base 0/4") in said
    last = said.splitlines()[-1]
    assert last.endswith("buffer 4/4 " if together else "buffer, ER 256 4/4 ")
    results = tmp_path / "results"
    script.read(
        Namespace(
            folder=args.out,
            root=tmp_path / "back",
            results=results,
            only=None,
            commit="",
        )
    )
    assert "buffer: 1 learners" in capsys.readouterr().out
    for name in ("main_abide", "buffer"):
        table, about = read_table(results / f"{name}.npz")
        assert about["commit"] == "abc"
        stored = read_folder(args.root / name).groups
        assert list(table.groups) == list(stored)
        for title, runs in table.groups.items():
            for ours, theirs in zip(runs, stored[title], strict=True):
                assert ours.spec.order == theirs.spec.order
                assert summary(ours) == summary(theirs)


def test_learners_of_one_generator_or_method_are_one_share():
    learners = script.load("main_529").learners
    shares = [[own.title for own in some] for some in script.shares_of(learners)]
    assert ["FORGE (FCM-VAE)"] in shares[:2]
    assert ["FORGE (Gaussian)"] in shares[:2]
    assert {own for some in shares for own in some} == {own.title for own in learners}
    grid = script.load("lambda_grid_529").learners
    assert len(script.shares_of(grid)) == 1
