"""Networks of a run: every method and model comes back with the scores that the run stored."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

import fcforge as package
from fcforge.core.errors import ConfigError, DataError, FCForgeError
from fcforge.core.spec import Training
from fcforge.data.splits import make_sites
from fcforge.experiments.networks import (
    export_networks,
    keeping_networks,
    load_network,
    without_network,
)
from fcforge.experiments.store import NETWORK, Store
from fcforge.methods import METHODS
from fcforge.models import MODELS
from real_runs import chain_config, fcforge
from small_world import cohort, learner_spec, order, plan_of, run_plan, run_spec

TRAINING = Training(epochs=2, batch_size=16)


def trained(folder, method, model=None, n_sites=2):
    spec = run_spec(learner_spec(method, model=model), n_sites, training=TRAINING)
    plan = keeping_networks(plan_of(spec))
    run_plan(plan, folder)
    ((_, keys),) = plan.runs
    return plan, Store(folder), keys[-1]


def check_scores(store, key):
    network = load_network(store.folder(key) / NETWORK)
    stored = store.read_scores(key)
    for name, site in make_sites(cohort(), 0).items():
        scores = network.scores(site.test.fc.numpy())
        np.testing.assert_array_equal(scores, stored[name])
        chosen = network.predict(site.test.fc.numpy())
        np.testing.assert_array_equal(chosen, (scores > 0.5).astype(int))
    return network


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_predicts_from_its_file_what_the_run_stored(method, tmp_path):
    _, store, key = trained(tmp_path, method)
    network = check_scores(store, key)
    assert network.order
    assert " > ".join(network.order) in repr(network)
    assert network.n_rois == cohort().n_rois


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_predicts_from_its_file_what_the_run_stored(model, tmp_path):
    _, store, key = trained(tmp_path, "finetune", model)
    check_scores(store, key)


def test_a_file_holds_nothing_that_the_method_remembers(tmp_path):
    """ER's file has the arrays of fine-tuning's: no memory, no addresses of subjects."""
    names = {}
    for method in ("er", "forge", "finetune"):
        _, store, key = trained(tmp_path / method, method, "gcn")
        data = (store.folder(key) / NETWORK).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        names[method] = set(json.loads(data[8 : 8 + size])) - {"__metadata__"}
        assert all(str(one).encode() not in data for one in cohort().subject_id)
    assert names["er"] == names["forge"] == names["finetune"]


def test_only_the_last_networks_are_kept_and_change_no_number(tmp_path):
    plan, store, key = trained(tmp_path / "kept", "finetune", n_sites=3)
    plain = plan_of(plan.stages[0][0])
    run_plan(plain, tmp_path / "plain")
    for one in plain.nodes:
        a, b = store.read_scores(one), Store(tmp_path / "plain").read_scores(one)
        assert all(np.array_equal(a[site], b[site]) for site in a)
        assert (store.folder(one) / NETWORK).is_file() == (one == key)
    export_networks(store, plan)
    (path,) = (store.root / "networks").rglob("*.safetensors")
    assert path.stem == "~".join(order()[:3])
    assert load_network(path).order == order()[:3]
    assert without_network(store, plan) == 0
    assert without_network(Store(tmp_path / "plain"), plan) == 1
    network = store.folder(key) / NETWORK
    network.write_bytes(network.read_bytes()[:-1])
    assert not store.verify(key).scores  # trained again


def rewritten(data, change):
    """The file with a changed header."""
    size = struct.unpack("<Q", data[:8])[0]
    outer = json.loads(data[8 : 8 + size])
    change(outer["__metadata__"])
    text = json.dumps(outer).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def test_wrong_and_damaged_files_are_named_errors(tmp_path):
    _, store, key = trained(tmp_path / "run", "finetune")
    data = (store.folder(key) / NETWORK).read_bytes()
    path = tmp_path / "x.safetensors"

    def refused(content, words):
        path.write_bytes(content)
        with pytest.raises(FCForgeError, match=words):
            load_network(path)

    with pytest.raises(DataError, match="cannot be read"):
        load_network(tmp_path / "nothing")
    refused(b"", "not the file of a network")
    refused(b"PK\x03\x04" * 99, "not the file of a network")
    refused((store.folder(key) / "scores.npz").read_bytes(), "not the file of a netw")
    refused(data[:-4], "arrays cannot be read")
    flipped = bytearray(data)
    flipped[-2] ^= 1
    refused(bytes(flipped), "is damaged")

    def other_seed(metadata):
        header = json.loads(metadata["fcforge_network"])
        metadata["fcforge_network"] = json.dumps({**header, "seed": 7})

    refused(rewritten(data, other_seed), "is damaged")

    def newer(metadata):
        header = json.loads(metadata["fcforge_network"])
        metadata["fcforge_network"] = json.dumps({**header, "version": 99})

    refused(rewritten(data, newer), "format 99")
    for place in range(0, len(data) - 8, max(1, len(data) // 200)):
        broken = bytearray(data)
        broken[place] ^= 4
        path.write_bytes(bytes(broken))
        with pytest.raises(FCForgeError):
            load_network(path)


@pytest.mark.parametrize(
    ("fc", "words"),
    [
        (np.eye(12), "shape"),
        (np.eye(11)[None], "12 ROIs"),
        (np.full((1, 12, 12), np.nan), "not finite"),
        (3 * np.eye(12)[None], "not a symmetric matrix of correlations"),
        (np.triu(np.ones((1, 12, 12))), "not a symmetric"),
    ],
)
def test_what_is_no_fc_is_refused(tmp_path_factory, fc, words):
    folder = tmp_path_factory.getbasetemp() / "refused"
    if not folder.exists():
        trained(folder, "finetune", "linear", 1)
    store = Store(folder)
    (path,) = store.root.rglob(NETWORK)
    with pytest.raises(DataError, match=words):
        load_network(path).predict(fc)


def test_code_of_others_is_imported_only_if_allowed(tmp_path):
    _, store, key = trained(tmp_path / "run", "finetune")
    source = store.folder(key) / NETWORK
    from safetensors.torch import load, save

    from fcforge.experiments import networks

    data = source.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    metadata = json.loads(data[8 : 8 + size])["__metadata__"]
    text = metadata["fcforge_network"].replace('"finetune"', '"nowhere:Method"')
    tensors = load(data)
    digest = networks.digest_of(text, tensors)
    path = tmp_path / "x.safetensors"
    path.write_bytes(save(tensors, {"fcforge_network": text, "sha256": digest}))
    with pytest.raises(ConfigError, match=r"nowhere:Method.*allow_code=True"):
        load_network(path)


def test_networks_of_runs_without_confounds_alone():
    spec = replace(run_spec(learner_spec("finetune")), confounds=("age",))
    with pytest.raises(ConfigError, match="age is regressed out"):
        keeping_networks(plan_of(spec))


def test_the_command_writes_networks_that_open(tmp_path):
    config = chain_config(tmp_path / "small.toml", "finetune")
    small = ("training.epochs=1", "experiment.orders=1", "dataset.n_rois=10")
    words = [word for setting in small for word in ("--set", setting)]
    folder = tmp_path / "run"
    done = fcforge(
        "run", config, "--out", folder, *words, "--jobs", 1, "--keep-networks"
    )
    assert done.code == 0, done.err
    assert "networks:" in done.err
    paths = list((folder / "networks").rglob("*.safetensors"))
    assert paths
    for path in paths:
        network = package.load_network(path)
        proba = network.predict_proba(np.eye(10)[None])
        assert proba.shape == (1, 2)
        assert proba.sum() == pytest.approx(1)
    again = fcforge("run", config, "--out", folder, *words, "--jobs", 1)
    assert again.code == 0
    assert torch.is_tensor(next(iter(network.lane.params.values())))
