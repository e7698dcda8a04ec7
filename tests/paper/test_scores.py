"""Scores that travel: what is packed comes back, small, and without anybody's name."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper_tables import Finished
from scores import (
    DUPLICATE_SCANS,
    decode,
    decode_values,
    duplicate_scans,
    encode,
    encode_values,
    pack,
    places,
    read_table,
    scored,
    unpack,
    write_table,
)

import fake_runs
from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.randomness import numpy_rng
from fcforge.core.spec import LearnerSpec, Training
from fcforge.data.datasets import load_dataset
from fcforge.data.duplicates import find_duplicates
from fcforge.evaluation.forgetting import summary
from fcforge.evaluation.metrics import METRICS, cell_values
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.config import Experiment

SITES = fake_runs.SITES
OF_TWO_CLASSES = {name for name, m in METRICS.items() if "two classes" in m.kinds}
RESULTS = Path(__file__).parents[2] / "paper" / "results"


@pytest.mark.parametrize("kind", [np.int8, np.int16])
@pytest.mark.parametrize("spread", [1e-6, 0.1, 2.0, 30.0])
def test_order_ties_and_side_are_kept(kind, spread):
    z = numpy_rng(0, "codes", str(spread)).normal(0.05, spread, 60).round(7)
    p = 1 / (1 + np.exp(-np.concatenate([z, z[:5], [0.0]])))
    p = np.concatenate([p, [0.0, 1.0, np.nan]])
    codes, grade = encode(p, kind)
    assert codes.dtype == kind
    known = np.isfinite(p)
    less, less_coded = (x[known][:, None] < x[known] for x in (p, codes))
    assert (less == less_coded).all()
    back = decode(codes, grade)
    assert (np.isnan(back) == ~known).all()
    assert ((back > 0.5) == (p > 0.5)).all()
    assert (back[p == 0.5] == 0.5).all()


def test_codes_by_hand():
    """|z| / (|z| + 2) in 63 steps: z = 2 is half of the largest share, 0.902."""
    p = np.array([0.5, 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0)), 1.0, 0.0])
    middle = int(np.ceil(63 * 0.5 * (18.420681 + 2) / 18.420681))
    codes, grade = encode(p)
    assert (codes.tolist(), grade) == ([0, middle, -middle, 63, -63], 0)
    assert np.abs(decode(codes, grade) - p).max() < 0.006


def test_a_cell_of_timid_scores_has_a_grade_of_its_own():
    """A largest logit of 1 is 2^(-k/8) of 18.42 for k = 33.6, rounded down."""
    z = np.array([1.0, -0.5, 0.01])
    codes, grade = encode(1 / (1 + np.exp(-z)))
    assert grade == 33
    largest = 18.420681 * 2 ** (-33 / 8)
    share = np.abs(z) / (np.abs(z) + 2) * (largest + 2) / largest
    assert codes.tolist() == (np.sign(z) * np.ceil(63 * share)).tolist()
    assert np.abs(decode(codes, grade) - 1 / (1 + np.exp(-z))).max() < 0.003


@pytest.mark.parametrize("spread", [0.01, 0.1, 1.0])
def test_probabilities_stay_close_however_tight_they_lie(spread):
    p = 0.5 + spread * (numpy_rng(0, "close").random(40) - 0.5)
    for kind, far in ((np.int8, 0.02), (np.int16, 2e-5)):
        assert np.abs(decode(*encode(p, kind)) - p).max() < far * spread


def test_places_are_those_of_the_sorted_ids(tmp_path, monkeypatch):
    """The list of ids is published by its hash, which does not depend on the order of the file."""
    monkeypatch.setenv("FCFORGE_DATA", str(tmp_path))
    np.savez(tmp_path / "d.npz", subject_id=np.array([50003, 51000, 50002]))
    there = Component("folder", {"path": "/elsewhere/d.npz", "sites": ["NYU"]})
    assert places(there) == {"50002": 0, "50003": 1, "51000": 2}


def test_duplicate_scans_are_those_of_the_published_files(shared_data):
    for file, pairs in DUPLICATE_SCANS.items():
        params = {"path": str(shared_data / file)}
        at = {place: who for who, place in places(Component("folder", params)).items()}
        found = load_dataset(Component("folder", params))
        ids = np.isin(
            found.subject_id, [at[k] for both in pairs.values() for k in both]
        )
        pairs_found = find_duplicates(found.fc[ids], found.subject_id[ids])
        assert {t.second: {t.first, t.second} for t in pairs_found} == {
            second: {at[a], at[b]} for second, (a, b) in pairs.items()
        }


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
    table = Finished(by_learner(runs), {"one": "nothing"}, missing=("three",))
    return table, data


def numbers(table: Finished) -> dict[str, int]:
    runs = [r for group in table.groups.values() for r in group]
    ids = {who for r in runs for found in r.subject_ids.values() for who in found}
    return {who: place for place, who in enumerate(sorted(ids))}


def test_what_is_packed_comes_back(made, tmp_path):
    table, data = made
    arrays = pack(table, data, numbers(table), commit="abc", config="[experiment]\n")
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
                for metric in OF_TWO_CLASSES - {"ece"}:
                    old, new = (
                        cell_values(r.scores[site], r.y[site], metric)
                        for r in (before, after)
                    )
                    np.testing.assert_allclose(new, old, atol=0.02)


@pytest.mark.parametrize("kind", ["number", "more classes"])
def test_other_targets_come_back(kind, tmp_path):
    """Ages to a thousandth of a year, probabilities of three classes to 1e-8."""
    learner = LearnerSpec(Component("analytic"), Component("linear"), title="one")
    rng = numpy_rng(0, "targets", kind)
    groups, tested = [], {}
    for seed in (3, 5):
        tested[seed] = {s: rng.integers(0, 3, 9) for s in SITES}
        for order in (SITES, SITES[::-1]):
            shape = (4, 9) if kind == "number" else (4, 9, 3)
            scores = {s: 60 * rng.random(shape) for s in SITES}
            if kind != "number":
                scores = {s: p / p.sum(-1, keepdims=True) for s, p in scores.items()}
            made = fake_runs.run(
                scores, tested[seed], order=order, seed=seed, learner=learner
            )
            first = {s: p[0] for s, p in scores.items()}
            share = np.array([0.5, 0.3, 0.2])
            more = {"initial": first, "train_mean": dict.fromkeys(SITES, share)}
            if kind == "number":
                y = {s: v + 0.25 for s, v in tested[seed].items()}
                more = {"initial": first, "y": y}
            groups.append(replace(made, **more))
    experiment = Experiment(
        dataset=Component("folder", {"path": "x.npz"}),
        learners=(learner,),
        seeds=(3, 5),
    )
    data = {
        "experiment": experiment.to_json(),
        "sites": list(SITES),
        "data_sha256": "d" * 64,
    }
    table = Finished({"one": groups}, {})
    write_table(tmp_path / "t.npz", pack(table, data, numbers(table), commit="abc"))
    back = read_table(tmp_path / "t.npz")[0].groups["one"]
    near = 0.0006 if kind == "number" else 1e-7
    for before, after in zip(groups, back, strict=True):
        assert after.kind == before.kind == kind
        assert after.spec.order == before.spec.order
        for site in SITES:
            np.testing.assert_allclose(
                after.scores[site], before.scores[site], atol=near
            )
            np.testing.assert_allclose(
                after.initial[site], before.initial[site], atol=near
            )
            assert (after.y[site] == before.y[site]).all()
            assert np.allclose(after.train_mean[site], before.train_mean[site])


def test_predictions_that_are_not_finite_stay_so_and_large_ones_are_refused():
    values = np.array([1.5, np.nan, np.inf])
    back = decode_values(encode_values(values, "number"), "number")
    assert back[0] == 1.5
    assert np.isnan(back[1:]).all()
    with pytest.raises(ValueError, match="too large"):
        encode_values(np.array([3e6]), "number")


def test_packing_again_gives_the_same_bytes(made, tmp_path):
    table, data = made
    write_table(tmp_path / "a.npz", pack(table, data, numbers(table)))
    write_table(tmp_path / "b.npz", pack(table, data, numbers(table)))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_neither_names_nor_folders_travel(made, tmp_path):
    table, data = made
    arrays = pack(table, data, numbers(table))
    told = arrays["about"].tobytes().decode()
    assert "somebody" not in told
    assert json.loads(told)["experiment"]["dataset"]["params"]["path"] == "data.npz"
    for r in table.groups["one"]:
        assert not any(i in told for ids in r.subject_ids.values() for i in ids)
    assert arrays["test_person"].max() < len(numbers(table))


ID = re.compile(r"(?<![\w.])5[01]\d{3}(?![\w.])")  # ABIDE's are 50001 to 51607
# Configs name who is left out, and whom they look like; tables keep their configs.
CONFIGS = (RESULTS.parent / "experiments").rglob("*.toml")
NAMED = {who for path in CONFIGS for who in ID.findall(path.read_text())}


@pytest.mark.parametrize("path", sorted(RESULTS.iterdir()), ids=lambda p: p.name)
def test_results_hold_neither_ids_nor_hashes_of_people(path):
    """A row number stays below the number of people of a file."""
    text = path.read_bytes()
    if path.suffix == ".npz":
        with np.load(path) as archive:
            if path.stem.endswith("_portraits"):
                # synthetic FC and class means, of which nobody has a row
                assert set(archive.files) == {"rows", "where", "control", "patient"}
                assert not {"real", "bootstrap"} & set(archive["rows"].tolist())
                return
            # of sums the place of everybody in each of two files
            of_people = {"test_person", "place_0", "place_1"} & set(archive.files)
            assert of_people
            for name in of_people:
                assert archive[name].max() < 1098
                assert archive[name].dtype == np.uint16
            text = archive["about"].tobytes()
    assert set(ID.findall(text.decode())) <= NAMED


def run_of(sites: dict[str, tuple[str, ...]]):
    """A run whose score of a subject is its number / 100."""
    p = {s: np.array([int(i) / 100 for i in ids]) for s, ids in sites.items()}
    labels = {s: [0, 1, 0][: len(x)] for s, x in p.items()}
    scores = {s: [x, x] for s, x in p.items()}
    return fake_runs.run(scores, labels, initial=p, subject_ids=sites)


@pytest.mark.parametrize(
    ("tested", "left"),
    [
        (("1", "2", "3"), ("2", "3")),  # 1 looks like 4, who was trained on
        (("2", "4", "5"), ("2", "5")),  # the other way round
        (("1", "4", "5"), ("1", "5")),  # both in test: one person, one score
        (("2", "3", "5"), ("2", "3", "5")),  # both in training: nobody is tested
    ],
)
def test_two_scans_of_one_person_are_scored_as_one(tested, left):
    run = scored(run_of({"NYU": tested, "UM": ("7", "8")}), [("1", "4")])
    assert run.subject_ids == {"NYU": left, "UM": ("7", "8")}
    expected = np.array([int(i) / 100 for i in left])
    assert run.scores["NYU"] == pytest.approx(np.stack([expected, expected]))
    assert run.initial["NYU"] == pytest.approx(expected)
    assert len(run.y["NYU"]) == len(left)


def test_pairs_of_which_one_was_left_out_are_no_pairs():
    def told(**params):
        return {"dataset": {"params": {"path": "x/abide1_aal116_dparsf.npz"} | params}}

    assert len(duplicate_scans(told())) == 3
    assert len(duplicate_scans(told(leave_out=["50286"]))) == 2
    assert duplicate_scans({"dataset": {"params": {"preset": "easy"}}}) == []


def test_a_run_that_diverged_stays_diverged(made):
    table, data = made
    broken = table.groups["one"][0]
    scores = {**broken.scores, "UM": np.full_like(broken.scores["UM"], np.nan)}
    groups = {"one": [replace(broken, scores=scores), *table.groups["one"][1:]]}
    back, _ = unpack(pack(Finished(groups, {}), data, numbers(table)))
    assert np.isnan(back.groups["one"][0].scores["UM"]).all()
    assert np.isfinite(back.groups["one"][1].scores["UM"]).all()


@pytest.mark.parametrize("harm", ["cut", "text", "other format", "array gone"])
def test_a_damaged_file_is_refused(made, tmp_path, harm):
    arrays, path = pack(*made, numbers(made[0])), tmp_path / "t.npz"
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
