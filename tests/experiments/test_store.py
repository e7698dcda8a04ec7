"""The run folder: whole or not at all, damage is named, leftovers are swept."""

import json
import os

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.collect import stored_plan
from fcforge.experiments.config import Experiment
from fcforge.experiments.store import LANE, Store

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
    scores, tensors = store.read_scores("k"), store.read_lane("k")
    assert scores.keys() == SCORES.keys()
    assert all((scores[s] == SCORES[s]).all() for s in SCORES)
    assert all(torch.equal(tensors[k], v) for k, v in TENSORS.items())
    assert store.size() == sum(
        p.stat().st_size for p in store.root.rglob("*.*") if p.is_file()
    )
    assert os.listdir(store.root / "nodes") == ["k"]


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
    for damage in ("truncate", "empty", "noise", "flip", "delete")
    if (name, damage) != (LANE, "flip")  # safetensors has no checksum
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damage_says_what_to_do(name, damage, tmp_path):
    store = filled(tmp_path)
    path = store.root / "nodes" / "k" / name
    data = path.read_bytes()
    if damage == "delete":
        path.unlink()
    else:
        half = len(data) // 2
        flipped = bytes(b ^ 0xFF for b in data[half : half + 40])
        path.write_bytes(
            {
                "truncate": data[:half],
                "empty": b"",
                "noise": bytes(range(256)),
                "flip": data[:half] + flipped + data[half + 40 :],
            }[damage]
        )
    read = {
        "meta.json": store.read_meta,
        "scores.npz": store.read_scores,
        LANE: store.read_lane,
    }
    with pytest.raises(StoreError, match="Delete its folder") as e:
        read[name]("k")
    assert str(path.parent) in str(e.value)


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
        ({"experiment": 3}, "not iterable"),
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
