"""Scores that travel: what is packed comes back, small, and without anybody's name."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper_tables import Finished
from scores import decode, encode, pack, pseudonym, read_table, unpack, write_table

import fake_runs
from fcforge.errors import DataError
from fcforge.metrics import METRICS, cell_values, summary
from fcforge.randomness import numpy_rng
from fcforge.runner.experiment import Experiment
from fcforge.stats import group
from fcforge.types import Component, LearnerSpec, Training

SITES = fake_runs.SITES


@pytest.mark.parametrize("kind", [np.int8, np.int16])
@pytest.mark.parametrize("spread", [1e-6, 0.1, 2.0, 30.0])
def test_order_ties_and_side_are_kept(kind, spread):
    z = numpy_rng(0, "codes", str(spread)).normal(0.05, spread, 60).round(7)
    p = 1 / (1 + np.exp(-np.concatenate([z, z[:5], [0.0]])))
    p = np.concatenate([p, [0.0, 1.0, np.nan]])
    codes = encode(p, kind)
    assert codes.dtype == kind
    known = np.isfinite(p)
    less, less_coded = (x[known][:, None] < x[known] for x in (p, codes))
    assert (less == less_coded).all()
    back = decode(codes)
    assert (np.isnan(back) == ~known).all()
    assert ((back > 0.5) == (p > 0.5)).all()
    assert (back[p == 0.5] == 0.5).all()
    assert (encode(back, kind) == codes).all()


def test_codes_by_hand():
    """|z| / (|z| + 2) in 127 steps: z = 2 is half of the largest share, 0.902."""
    p = np.array([0.5, 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0)), 1.0, 0.0])
    share = 0.5 * (18.420681 + 2) / 18.420681
    assert encode(p).tolist() == [
        0,
        np.ceil(127 * share),
        -np.ceil(127 * share),
        127,
        -127,
    ]
    assert np.abs(decode(encode(p)) - p).max() < 0.005


def test_probabilities_stay_close():
    p = numpy_rng(0, "close").random(40)
    assert np.abs(decode(encode(p)) - p).max() < 0.01
    assert np.abs(decode(encode(p, np.int16)) - p).max() < 2e-5


def test_a_number_does_not_tell_the_name_but_is_the_same_in_every_table():
    assert pseudonym("data", "NYU", "50952") == pseudonym("data", "NYU", "50952")
    assert pseudonym("data", "NYU", "50952") != pseudonym("other", "NYU", "50952")
    assert pseudonym("data", "NYU", "50952") < 2**32


@pytest.fixture(scope="module")
def made():
    learners = ("one", "two")
    runs = [
        r
        for k, title in enumerate(learners)
        for r in fake_runs.fake_learner(
            title, seeds=(3, 5), skill=1.0 + k, memory_bytes=7
        )
    ]
    experiment = Experiment(
        dataset=Component("folder", {"path": "/home/somebody/secret/data.npz"}),
        learners=tuple(
            LearnerSpec(Component("finetune"), Component("gcn"), title=t)
            for t in learners
        ),
        seeds=(3, 5),
        training=Training(epochs=60),
    )
    data = {
        "experiment": experiment.to_json(),
        "sites": list(SITES),
        "data_sha256": "d" * 64,
    }
    table = Finished(group(runs), {"one": "nothing"}, missing=("three",))
    return table, data


def test_what_is_packed_comes_back(made, tmp_path):
    table, data = made
    arrays = pack(table, data, commit="abc", config="[experiment]\n")
    write_table(tmp_path / "t.npz", arrays)
    back, about = read_table(tmp_path / "t.npz")
    assert about["commit"] == "abc"
    assert about["config"] == "[experiment]\n"
    assert (back.keeps, back.missing) == ({"one": "nothing"}, ("three",))
    for title, runs in table.groups.items():
        for before, after in zip(runs, back.groups[title], strict=True):
            assert (after.spec.order, after.spec.seed) == (
                before.spec.order,
                before.spec.seed,
            )
            assert after.spec.learner.title == title
            assert after.memory_bytes.tolist() == before.memory_bytes.tolist()
            for metric in ("accuracy", "balanced_accuracy", "auroc", "f1"):
                assert summary(after, metric) == pytest.approx(
                    summary(before, metric), abs=1e-12
                )
            for site in SITES:
                for metric in set(METRICS) - {"ece"}:
                    old, new = (
                        cell_values(r.scores[site], r.y[site], metric)
                        for r in (before, after)
                    )
                    np.testing.assert_allclose(new, old, atol=0.01)


def test_packing_again_gives_the_same_bytes(made, tmp_path):
    table, data = made
    write_table(tmp_path / "a.npz", pack(table, data))
    back, _ = read_table(tmp_path / "a.npz")
    named = {s: {} for s in SITES}
    for r in table.groups["one"]:
        for s in SITES:
            numbers = [
                f"{pseudonym(data['data_sha256'], s, i):08x}" for i in r.subject_ids[s]
            ]
            named[s] |= dict(zip(numbers, r.subject_ids[s], strict=True))
    again = {
        title: [
            replace(
                r,
                subject_ids={
                    s: tuple(named[s][i] for i in r.subject_ids[s]) for s in SITES
                },
            )
            for r in runs
        ]
        for title, runs in back.groups.items()
    }
    write_table(
        tmp_path / "b.npz", pack(Finished(again, back.keeps, back.missing), data)
    )
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_neither_names_nor_folders_travel(made, tmp_path):
    table, data = made
    arrays = pack(table, data)
    told = arrays["about"].tobytes().decode()
    assert "somebody" not in told
    assert json.loads(told)["experiment"]["dataset"]["params"]["path"] == "data.npz"
    for r in table.groups["one"]:
        assert not any(i in told for ids in r.subject_ids.values() for i in ids)
    assert arrays["test_person"].dtype == np.uint32
    back, _ = unpack(arrays)
    assert all(len(i) == 8 for i in back.groups["one"][0].subject_ids["NYU"])


def test_a_run_that_diverged_stays_diverged(made):
    table, data = made
    broken = table.groups["one"][0]
    scores = {**broken.scores, "UM": np.full_like(broken.scores["UM"], np.nan)}
    groups = {"one": [replace(broken, scores=scores), *table.groups["one"][1:]]}
    back, _ = unpack(pack(Finished(groups, {}), data))
    assert np.isnan(back.groups["one"][0].scores["UM"]).all()
    assert np.isfinite(back.groups["one"][1].scores["UM"]).all()


@pytest.mark.parametrize("harm", ["cut", "text", "other format", "array gone"])
def test_a_damaged_file_is_refused(made, tmp_path, harm):
    arrays, path = pack(*made), tmp_path / "t.npz"
    if harm == "other format":
        told = {**json.loads(arrays["about"].tobytes()), "format": 99}
        arrays["about"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    if harm == "array gone":
        arrays.pop("run_order")
    write_table(path, arrays)
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:2000])
    if harm == "text":
        path.write_text("learner,aaa\n")
    with pytest.raises(DataError, match="not a table of scores"):
        read_table(path)
