"""Three diagnoses, and a number, from base model to predictions, as hospitals type it."""

import csv
import io
import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fcforge.base_model.calibration import class_logits
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.target import Target
from fcforge.data.datasets import load_dataset
from fcforge.data.simulated import simulate
from fcforge.methods.base import Lane
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.quality import answers_of
from fcforge_consortium.base_model.record import read_base_model
from fcforge_consortium.contributions.prediction import evaluate, predict
from fcforge_consortium.learners.method import Contributions
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.model import Scores
from fcforge_consortium.records.canonical import to_canonical
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.records.policy import Policy
from real_runs import consortium

WORDS = np.array(["HC", "SZ", "BP"])
THREE = {"classes": list(WORDS)}
AGE = {"target": "age", "limits": [5.0, 65.0]}
AGGREGATORS = ("Ministry", "University")


@cache
def people():
    return simulate(
        "easy", n_rois=10, n_sites=6, scale=0.5, d_scale=8.0, disorders=2, seed=3
    )


def sites():
    return people().site_names


def write(path, names, **more):
    """Data of some sites, with ages that the FC tells."""
    who = people()
    level = who.fc.mean((1, 2))
    age = 20 + 15 * (level - level.mean()) / level.std()
    here = np.isin(who.site, names) & more.pop("only", np.ones(len(who), dtype=bool))
    arrays = {"label": WORDS[who.y], "age": np.clip(age, 5, 65), **more}
    np.savez(
        path,
        fc=who.fc[here],
        site=who.site[here],
        subject_id=who.subject_id[here],
        **{k: v[here] for k, v in arrays.items() if v is not None},
    )
    return path


def run(*asked):
    done = consortium(*asked)
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module", params=["three", "age"])
def world(request, tmp_path_factory):
    """A signed base model with aggregators, three contributions merged, and the tested people."""
    folder = tmp_path_factory.mktemp(request.param)
    three = request.param == "three"
    label = {} if three else {"label": None}
    for place, site in enumerate(sites()):
        write(folder / f"{place}.npz", [site], **label)
    said = THREE if three else AGE
    start = ["--data", write(folder / "public.npz", sites()[:2], **label)]
    for name, value in said.items():
        start += ["--set", f"dataset.{name}={json.dumps(value)}"]
    for aggregator in AGGREGATORS:
        run("aggregators", "new", aggregator, "--out", folder / aggregator)
        start += ["--aggregator", folder / f"{aggregator}.card"]
    run("keys", "new", folder / "maker.key")
    start += ["--exact", "--set", "base_model.axes=4", "--sign", folder / "maker.key"]
    run("base-model", *start, "--out", folder / "start.fcx")
    for place in (2, 3, 4):
        run("keys", "new", folder / f"{place}.key")
        learn(folder, place, "--mechanism", "none")
    files = [folder / f"{place}.record" for place in (2, 3, 4)]
    run("merge", folder / "start.fcx", *files, "--out", folder / "all.fcx")
    return SimpleNamespace(folder=folder, three=three)


def learn(folder, place, *more, out="{}.record", ledger="{}.private", key="{}.key"):
    given = ["--site", sites()[place], "--data", folder / f"{place}.npz", "--yes"]
    place_of = folder / ledger.format(place)
    given += ["--ledger", place_of, *([] if place_of.exists() else ["--new-ledger"])]
    given += ["--state", folder / "start.fcx", "--sign", folder / key.format(place)]
    return run("contribute", *given, "--out", folder / out.format(place), *more)


def loaded(world, place):
    policy = open_exchange(world.folder / "start.fcx").root.policy
    asked = {"path": str(world.folder / f"{place}.npz"), **policy.loading}
    return load_dataset(Component("folder", asked))


def test_the_start_says_what_is_learned(world):
    root = open_exchange(world.folder / "start.fcx").root
    told = run("inspect", world.folder / "start.fcx").out
    if world.three:
        assert root.policy.target == Target(classes=tuple(WORDS))
        assert 0.3 < root.expected.majority < root.expected.accuracy[0]
        assert "HC, SZ, BP" in told
    else:
        assert root.policy.target == Target("age", (), (5.0, 65.0))
        assert root.expected.number["r2"][0] > 0.3
        assert 0 < root.expected.number["mae"][0] < 20  # in years
        assert "age (5 to 65)" in told
        assert "The base model alone: R² 0." in told
    assert root.expected_gain is not None


def test_command_line_and_experiment_add_up_the_same_numbers(world, monkeypatch):
    """The sum of a run is that of the releases, bit by bit; answers agree to single precision."""
    found = open_exchange(world.folder / "all.fcx").model
    start = found.base_model.space
    lane = Lane({"head.0.weight": torch.zeros(3, 1)}, {})
    model = SimpleNamespace(n_outputs=found.target.outputs)
    method = Contributions(form="local", mechanism="none")
    monkeypatch.setattr(Contributions, "space", lambda self, public: start)
    public = SimpleNamespace(subjects=None)
    lane = method.start(model, lane, public)
    for place in (2, 3, 4):
        mine = loaded(world, place)
        fc = torch.from_numpy(mine.fc)
        y = torch.from_numpy(mine.y)
        site = SimpleNamespace(public=public, fc=fc, y=y, seed=0, name=sites()[place])
        lane = method.end_site(model, lane, site)
    total = sum(given.numbers for given in found.given)
    assert np.array_equal(lane.state.total.numpy(), total)
    tested = loaded(world, 5)
    x = found.base_model.features(tested.fc, {})
    weight = lane.params["head.0.weight"].numpy().astype(np.float64)
    logits = x @ weight.T + lane.params["head.0.bias"].numpy()
    score = found.score(tested.fc, {}).odds
    known = np.isfinite(score).reshape(len(score), -1).all(1)
    if world.three:
        logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(
        logits.reshape(score.shape)[known], score[known], atol=1e-3
    )


def test_a_head_by_hand(world):
    """Scores of exact sums, solved and read out by the pure functions."""
    found = open_exchange(world.folder / "all.fcx").model
    start = found.base_model.space
    total = sum(given.numbers for given in found.given).astype(float)
    head = vector.stepped_model(start, vector.solve(start, total, 0.0, 3))
    tested = loaded(world, 5)
    z = start.base.standardise(found.base_model.features(tested.fc, {}))
    score = z @ head.weight + head.bias
    said = answers_of(
        found.target, found.odds(found.base_model.features(tested.fc, {}))
    )
    if world.three:
        e = np.exp(class_logits(score) / vector.temperature(start, head))
        np.testing.assert_allclose(said, e / e.sum(1, keepdims=True))
        assert said.shape == (len(tested), 3)
    else:
        np.testing.assert_allclose(said, 35 + 30 * score)


def test_hospitals_add_to_the_base_model_alone_and_people_get_answers(world):
    folder = world.folder
    asked = ("evaluate", folder / "all.fcx", folder / "5.npz")
    rows = json.loads(run(*asked, "--json").out)["rows"]
    metric = "accuracy" if world.three else "r2"
    assert rows["exchange"][metric][0] > (0.5 if world.three else 0.6)
    assert set(rows) == {"exchange", "base model alone"}
    told = run(*asked).out
    assert ("majority class" in told) == world.three
    csv_text = run("predict", folder / "all.fcx", folder / "5.npz").out
    table = list(csv.DictReader(io.StringIO(csv_text)))
    names = ["p_HC", "p_SZ", "p_BP"] if world.three else ["age"]
    answered = [row for row in table if row["status"] == "ok"]
    values = np.array([[float(row[name]) for name in names] for row in answered])
    assert "probability" not in table[0]
    if world.three:
        np.testing.assert_allclose(values.sum(1), 1, atol=2e-4)
    else:
        assert np.corrcoef(values[:, 0], loaded(world, 5).y[: len(values)])[0, 1] > 0.5
    plain = json.loads(
        run("predict", folder / "all.fcx", folder / "5.npz", "--json").out
    )
    assert set(names) <= set(plain["predictions"][0])


def test_a_number_beyond_the_limits_is_told_and_not_cut(world, monkeypatch):
    """1.5 times as far from the middle as a limit is 35 + 1.5 * 30 years, or 35 - 1.5 * 30."""
    if world.three:
        return
    found = open_exchange(world.folder / "all.fcx")
    n = len(loaded(world, 5))
    odds = np.full(n, 0.5)
    odds[:2] = (1.5, -1.5)
    said = Scores(odds, np.zeros(n), ("",) * n)
    monkeypatch.setattr(type(found.model), "score", lambda *_: said)
    rows = predict(found, world.folder / "5.npz")
    assert [row.answers["age"] for row in rows[:3]] == [80, -10, 50]
    assert [bool(row.note) for row in rows[:3]] == [True, True, False]
    assert "outside 5 to 65" in rows[0].note
    assert {row.status for row in rows} == {"ok"}


def test_aggregators_add_the_same_numbers(world):
    """Two aggregators' halves of an exact round are the releases' sum."""
    folder = world.folder
    for place in (2, 3, 4):
        more = ("--round", "spring", "--mechanism", "none")
        run("keys", "new", folder / f"{place}.round.key")
        names = {"ledger": "{}.round.private", "key": "{}.round.key"}
        learn(folder, place, *more, out="{}.notice.record", **names)
    halves = []
    state = folder / "start.fcx"
    for aggregator in sorted(AGGREGATORS):
        shares = sorted(folder.glob(f"*.{aggregator}.share"))
        told = ("--state", state, "--key", folder / aggregator)
        state = folder / f"closed.{aggregator}.fcx"
        run("close", *shares, *told, "--out", state)
    for aggregator in AGGREGATORS:
        shares = sorted(folder.glob(f"*.{aggregator}.share"))
        halves.append(folder / f"{aggregator}.half.record")
        told = ("--state", state, "--key", folder / aggregator)
        run("aggregate", *shares, *told, "--out", halves[-1])
    out = folder / "round.fcx"
    run("merge", folder / "start.fcx", *halves, "--out", out)
    (given,) = open_exchange(out).model.given
    apart = open_exchange(folder / "all.fcx").model.given
    assert np.array_equal(given.numbers, sum(one.numbers for one in apart))
    run("verify", out)


def test_noise_is_on_every_number_and_the_budget_is_that_of_two_classes(world):
    folder = world.folder
    run("keys", "new", folder / "5.key")
    learn(folder, 5, "--epsilon", "8", out="{}.noisy.fcx")
    found = open_exchange(folder / "5.noisy.fcx").model
    (noisy,) = found.given
    mine = loaded(world, 5)
    x = found.base_model.features(mine.fc, {})
    exact = vector.contribution_rows(found.base_model.space, x, mine.y).sum(0)
    units = vector.noise_units(8.0)
    assert noisy.variance == units**2
    drawn = (noisy.numbers - exact) / units
    assert (drawn != 0).mean() > 0.99
    assert 0.7 < drawn.std() < 1.3


def test_what_is_for_two_classes_is_refused_by_name(world, tmp_path):
    folder = world.folder
    told = ("--site", sites()[2], "--data", folder / "2.npz")
    private = folder / "2.private"
    for asked in (
        ("threshold", folder / "all.fcx", *told, "--ledger", private),
        ("audit", folder / "all.fcx", *told, "--ledger", private),
        ("predict", folder / "all.fcx", folder / "5.npz", "--explain", tmp_path / "e"),
    ):
        done = consortium(*asked)
        assert done.code == 2, asked
        assert "for two classes" in " ".join(done.err.split())


def test_a_threshold_of_two_classes_is_for_nothing_else(world, tmp_path):
    """It was applied to ages, and a row of three probabilities was no number."""
    found = open_exchange(world.folder / "all.fcx")
    fitted = Threshold(
        intercept=0.0, slope=2.0, people=9, exchange=found.id, site=sites()[5]
    )
    with pytest.raises(ConfigError, match="for two classes"):
        predict(found, world.folder / "5.npz", threshold=fitted)
    private = Ledger(tmp_path / "p", [fitted])
    assert "own threshold" not in evaluate(found, loaded(world, 5), private).rows


def test_who_is_left_out_for_another_diagnosis_is_told(world, tmp_path):
    """The base model has three groups: a fourth diagnosis is refused by name."""
    if not world.three:
        pytest.skip("of an age nobody has another diagnosis")
    words = WORDS[people().y].astype("U4")
    words[np.flatnonzero(people().site == sites()[3])[:6]] = "ADHD"
    mine = write(tmp_path / "x.npz", sites()[3:4], label=words)
    run("keys", "new", tmp_path / "x.key")
    more = ("--state", world.folder / "start.fcx", "--sign", tmp_path / "x.key")
    asked = ("--data", mine, "--site", sites()[3], "--yes")
    given = (*asked, *more, "--new-ledger", "--out", tmp_path / "x.fcx")
    done = run("contribute", *given)
    assert "6 subjects left out (ADHD: 6)" in done.err
    found = run("evaluate", tmp_path / "x.fcx", mine)
    assert "6 subjects left out (ADHD: 6)" in found.err


def test_a_hospital_need_not_have_every_disorder(world, tmp_path):
    """Nor may it bring other diagnoses, or people without an age."""
    if not world.three:
        write(tmp_path / "x.npz", sites()[3:4], label=None, age=None)
        asked = ("--data", tmp_path / "x.npz", "--site", sites()[3])
        more = ("--state", world.folder / "start.fcx", "--out", tmp_path / "x.fcx")
        done = consortium("contribute", *asked, *more, "--yes")
        assert done.code == 2
        assert "unknown target 'age'" in done.err
        return
    write(tmp_path / "x.npz", sites()[3:4], only=people().y < 2)
    asked = ("--data", tmp_path / "x.npz", "--site", sites()[3], "--yes")
    run("keys", "new", tmp_path / "x.key")
    more = ("--state", world.folder / "start.fcx", "--sign", tmp_path / "x.key")
    given = (*asked, *more, "--new-ledger", "--out", tmp_path / "x.fcx")
    run("contribute", *given)
    (given,) = open_exchange(tmp_path / "x.fcx").model.given
    assert given.sites == (sites()[3],)
    told = run("evaluate", tmp_path / "x.fcx", tmp_path / "x.npz", "--json").out
    assert json.loads(told)["rows"]["exchange"]["auroc"][0] is None


def test_classes_and_limits_are_the_starts_own(world):
    """Nobody's people choose them: other groups, another order, other limits are refused."""
    policy = open_exchange(world.folder / "start.fcx").root.policy
    others = (
        Target(),
        Target(classes=("HC", "BP", "SZ")),
        Target("age", (), (5.0, 60.0)),
        Target("iq", (), (5.0, 65.0)),
    )
    for other in others:
        with pytest.raises(Exception, match="this exchange is about"):
            policy.require_target(other)


def test_two_classes_are_written_as_before():
    """No new word in a file that says nothing new: its signature and id stay."""
    assert b"others" not in to_canonical(Policy())
    assert b"number" not in to_canonical(Policy())
    with pytest.raises(ConfigError, match="first limit must be smaller"):
        Policy.of({"number": {"name": "age", "limits": [65, 5]}})


def test_arrays_of_another_number_of_columns_are_refused(world):
    """A base model of three classes cannot pass for one of two, nor the other way round."""
    found = open_exchange(world.folder / "start.fcx")
    policy = found.root.policy.changed(number=None, others=("x", "y"))
    forged = found.root.changed(policy=policy, key="", signature="")
    other = type(found)(forged, (), dict(found.payloads))
    with pytest.raises(ExchangeError, match=r"array 'bias'|another kind of target"):
        read_base_model(other)
