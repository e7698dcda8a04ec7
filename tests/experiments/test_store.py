"""The run folder: whole or not at all, damage is named, leftovers are swept."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.collect import stored_plan
from fcforge.experiments.config import Experiment
from fcforge.experiments.store import LANE, Store
from fcforge.experiments.store import SCORES as SCORES_FILE
from real_runs import do_damage

SCORES = {
    "A": np.array([0.1, 0.9], dtype=np.float32),
    "B": np.array([0.5], dtype=np.float32),
}
TENSORS = {"params/w": torch.arange(6.0).reshape(2, 3), "state/n": torch.tensor(3)}


def filled(tmp_path, key: str = "k") -> Store:
    store = Store(tmp_path / "run")
    store.write_node(key, {"seconds": 1.5}, SCORES, TENSORS)
    return store


def test_what_is_written_is_read(tmp_path):
    store = filled(tmp_path)
    assert store.has("k")
    assert store.done() == {"k"}
    assert store.read_meta("k") == {"seconds": 1.5, "sites": ["A", "B"]}
    assert store.verify("k") == (True, True)
    scores, tensors = store.read_scores("k"), store.read_lane("k")
    assert scores.keys() == SCORES.keys()
    assert all((scores[s] == SCORES[s]).all() for s in SCORES)
    assert all(torch.equal(tensors[k], v) for k, v in TENSORS.items())
    assert store.size() == sum(
        p.stat().st_size for p in store.root.rglob("*.*") if p.is_file()
    )
    assert os.listdir(store.root / "nodes") == ["k"]


def test_tensors_that_share_memory_are_written(tmp_path):
    """An anchor may be the network's own parameters, a view of them, or one number repeated."""
    w = torch.arange(6.0).reshape(2, 3)
    shared = {
        "params/w": w,
        "state/anchor/w": w,
        "state/row": w[1],
        "state/turned": w.T,
        "state/repeated": torch.ones(1).expand(4),
        "state/with_grad": w.clone().requires_grad_(),
    }
    store = Store(tmp_path / "run")
    store.write_node("k", {}, SCORES, shared)
    read = store.read_lane("k")
    assert all(torch.equal(read[k], v) for k, v in shared.items())


ODD = [
    "Site One",
    "a/b",
    "../up",
    "Würzburg · 東京",
    "file",
    "arr_0",
    ".hidden",
    "allow_pickle",
]


def test_a_site_may_have_any_name(tmp_path):
    store = Store(tmp_path)
    scores = {name: np.full(2, i, dtype=np.float32) for i, name in enumerate(ODD)}
    store.write_node("k", {}, scores, None)
    assert {s: v[0] for s, v in store.read_scores("k").items()} == {
        s: i for i, s in enumerate(ODD)
    }
    assert sorted(p.name for p in (tmp_path / "nodes" / "k").iterdir()) == [
        "meta.json",
        "scores.npz",
    ]


@pytest.mark.parametrize("moment", ["scores", "lane", "rename"])
@pytest.mark.parametrize(
    "trouble", [OSError("disk full"), KeyboardInterrupt(), MemoryError()]
)
def test_a_crash_while_writing_leaves_nothing(moment, trouble, tmp_path, monkeypatch):
    import safetensors.torch

    def fail(*args, **kwargs):
        raise trouble

    where = {
        "scores": (np, "savez"),
        "lane": (safetensors.torch, "save_file"),
        "rename": (os, "rename"),
    }[moment]
    with monkeypatch.context() as patch:
        patch.setattr(*where, fail)
        with pytest.raises(
            StoreError if isinstance(trouble, OSError) else type(trouble)
        ):
            filled(tmp_path)
    store = Store(tmp_path / "run")
    assert store.done() == set()
    assert os.listdir(store.root / "nodes") == []
    assert filled(tmp_path).done() == {"k"}


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    """safetensors raises an error of its own, which is no OSError."""
    import safetensors.torch
    from safetensors import SafetensorError

    def fail(*args, **kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(StoreError, match="No space left") as caught:
        filled(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_faster_worker_wins(tmp_path):
    store = filled(tmp_path)
    store.write_node("k", {"seconds": 99.0}, SCORES, TENSORS)
    assert store.read_meta("k")["seconds"] == 1.5
    assert os.listdir(store.root / "nodes") == ["k"]


def test_unfinished_nodes_are_not_done(tmp_path):
    store = filled(tmp_path)
    (store.root / "nodes" / ".other.x7d").mkdir()
    assert store.done() == {"k"}
    assert not store.has("other")


def test_a_node_can_be_dropped(tmp_path):
    store = filled(tmp_path)
    assert store.has("k")
    store.drop("k")
    store.drop("k")
    assert not store.has("k")


DAMAGE = [
    (name, damage)
    for name in ("meta.json", "scores.npz", LANE)
    for damage in ("truncate", "empty", "noise", "flip", "one bit", "delete")
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damage_is_detected_and_says_what_to_do(name, damage, tmp_path):
    store = filled(tmp_path)
    path = store.root / "nodes" / "k" / name
    do_damage(path, damage)
    assert store.verify("k") == (name == LANE, name == SCORES_FILE)
    read = {
        "meta.json": store.read_meta,
        "scores.npz": store.read_scores,
        LANE: store.read_lane,
    }
    with pytest.raises(StoreError, match="Run the same command again") as e:
        read[name]("k")
    assert str(path.parent) in str(e.value)


@pytest.mark.parametrize("damage", ["truncate", "empty", "delete"])
def test_sizes_alone_show_what_was_cut(damage, tmp_path):
    store = filled(tmp_path)
    do_damage(store.folder("k") / "scores.npz", damage)
    assert store.complete(["k", "absent"], checksums=False) == (set(), {"k"})


def test_a_lane_that_was_dropped_is_no_damage(tmp_path):
    store = filled(tmp_path)
    store.drop_lane("k")
    assert store.verify("k") == (True, False)
    assert store.complete(["k"]) == ({"k"}, set())


def test_nodes_of_older_folders_have_no_checksums_and_are_read(tmp_path):
    store = filled(tmp_path)
    path = store.folder("k") / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({"seconds": meta["seconds"], "sites": meta["sites"]}))
    assert store.verify("k") == (True, True)
    assert store.read_scores("k")["A"].tolist() == SCORES["A"].tolist()


# -- one command at a time ----------------------------------------------------------------------
HOLD = """
import sys, time
from fcforge.experiments.store import Store
with Store(sys.argv[1]).exclusive():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_command_is_refused_until_the_first_has_ended(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "locked\n"
        busy = rf"process {first.pid} on .*Wait until"
        with pytest.raises(StoreError, match=busy), Store(tmp_path).exclusive():
            pass
        first.kill()  # the lock goes with the process
        first.wait()
    with Store(tmp_path).exclusive():
        pass


def test_leftovers_of_killed_commands_are_deleted_and_nothing_else(tmp_path):
    store = filled(tmp_path)
    leftovers = [
        store.root / ".experiment.json.0123456789ab.json",
        store.root / "nodes" / ".k.0123456789ab",
        store.generators / ".abc.0123456789ab.safetensors",
    ]
    kept = [store.root / ".DS_Store", store.root / ".git", store.root / ".notes.txt"]
    store.generators.mkdir()
    for path in (*leftovers, *kept):
        path.mkdir() if path.name in (".k.0123456789ab", ".git") else path.touch()
    (leftovers[1] / "scores.npz").touch()
    with store.exclusive():
        assert not any(path.exists() for path in leftovers)
        assert all(path.exists() for path in kept)
    assert store.done() == {"k"}


def test_a_damaged_or_missing_experiment_says_so(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(StoreError, match=r"not a run folder.*--out"):
        store.read_experiment()
    store.write_experiment({"a": [1, "é"]})
    assert store.read_experiment() == {"a": [1, "é"]}
    for text in ('{"a": [1', "[1]", "3"):
        (tmp_path / "experiment.json").write_text(text)
        with pytest.raises(StoreError, match="Delete this file"):
            stored_plan(store)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"experiment": 3}, "has no attribute"),
        ({"experiment": {}}, "missing 2 required"),
        ({"sites": None}, "NoneType"),
        ({"site_facts": {}}, "no '0'"),
        ({"experiment": {"new": 1}}, "unknown setting 'new'"),
    ],
)
def test_an_experiment_of_another_version_is_one_clear_error(change, says, tmp_path):
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    whole = {
        "experiment": Experiment(Component("simulated"), (learner,)).to_json(),
        "sites": ["A", "B"],
        "data_sha256": "0" * 64,
        "site_facts": {"0": {}},
    }
    store = Store(tmp_path)
    store.write_experiment(whole)
    assert len(stored_plan(store)[1].stages) == 2
    if change.get("experiment") == {"new": 1}:
        change = {"experiment": {**whole["experiment"], "new": 1}}
    store.write_experiment({**whole, **change})
    with pytest.raises(StoreError, match=f"{says}.*Delete this file"):
        stored_plan(store)


def test_foreign_files_are_told_from_our_own(tmp_path):
    store = Store(tmp_path)
    assert not Store(tmp_path / "nowhere").is_foreign()
    (tmp_path / ".experiment.json.x").write_text(json.dumps({}))
    assert not store.is_foreign()
    (tmp_path / "thesis.docx").touch()
    assert store.is_foreign()
    (tmp_path / "nodes").mkdir()  # a run, and something that lies beside it
    assert not store.is_foreign()
    assert Store(tmp_path / "thesis.docx").is_foreign()
