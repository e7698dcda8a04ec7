"""Expected gain of sums: what the table says, and when a hospital is advised to stay with the base model."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from public_people import people

from fcforge.base_model.calibration import class_logits, vertices
from fcforge_consortium.base_model import expected_gain as module
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.expected_gain import (
    ExpectedGains,
    Partition,
    random_partition,
)
from fcforge_consortium.base_model.planning import (
    CHOSEN,
    noise_per_subject,
    planned_noise,
    planned_settings,
)
from fcforge_consortium.base_model.record import expected_gain_of
from fcforge_consortium.base_model.space import SpaceSettings, fit_base_and_space
from fcforge_consortium.privacy.noise import sigma_for


def made(classes):
    x, y, site = people(200, 45, sites=5, classes=classes)
    x[:, 1] += y  # more than a small base model finds
    return x, y, np.array(site)


@pytest.fixture(scope="module")
def world():
    return made(2)


def dealt(world, **more):
    x, y, site = world
    rng = np.random.default_rng(0)
    rows = random_partition(site, y, 80, rng)
    return Partition(x, y, site, rows, rng, **more)


def test_sites_are_dealt_whole_and_hospitals_cut_within_diagnoses(world):
    _, y, site = world
    public, learn, test = random_partition(site, y, 80, np.random.default_rng(0))
    everybody = np.concatenate([public, learn, test])
    assert sorted(everybody.tolist()) == list(range(200))
    assert len(public) == 80
    assert not set(site[public]) & set(site[learn])
    assert set(site[learn]) == set(site[test])
    assert len(test) == 36  # six of twenty in each diagnosis of three hospitals
    assert y[test].mean() == 0.5


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("noise", [0.0, 2.5])
def test_scores_are_those_of_releases(classes, gamma, noise):
    """The same head from vectors in all directions, noise and all."""
    world = made(classes)
    x, y, _ = world
    columns = max(1, classes - 1)
    part = dealt(world, draws=2, directions=12)
    public, learn, test = part.rows
    settings = SpaceSettings(axes=4, gamma=gamma, directions=12, pull=11.0)
    placed = part.space(settings)
    start = fit_base_and_space(x[public], y[public], settings, columns)
    assert placed.size == pytest.approx(start.size, rel=1e-3)
    assert placed.clip == pytest.approx(start.clip, rel=1e-3)
    total = vector.contribution_rows(start, x[learn], y[learn]).sum(0).astype(float)
    units = noise * vector.SENSITIVITY
    if noise:  # the partition's first draw, as a vector
        drawn = part.noise[..., 0]
        drawn = drawn if gamma else drawn @ start.axes[:, :4]
        drawn = np.concatenate([drawn, part.noise_half[:, :1]], 1)
        total = total + units * np.append(drawn, part.noise_count[0])
    head = vector.stepped_model(start, vector.solve(start, total, units**2))
    wanted = start.base.standardise(x[test]) @ head.weight + head.bias
    found = part.scores(placed, noise)[:, 0]
    found = found.reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, atol=4e-3 * np.abs(wanted).max())


def test_auroc_counts_pairs_within_hospitals_alone(world):
    part = dealt(world)
    offsets = {name: 100.0 * k for k, name in enumerate(np.unique(part.site_test))}
    shift = np.array([offsets[name] for name in part.site_test])
    score = part.score[part.rows[2]]
    assert part.auroc(score + shift[:, None]) == part.auroc(score)
    assert part.auroc(part.y_test.astype(float)[:, None]) == 1.0
    assert part.auroc(np.zeros((len(shift), 1))) == 0.5


def test_auroc_of_three_classes_is_the_mean_over_them():
    """Macro AUROC of scikit-learn within a hospital, of logits; a number counts ordered pairs."""
    from sklearn.metrics import roc_auc_score

    part = dealt(made(3))
    rng = np.random.default_rng(1)
    score = rng.normal(size=(len(part.y_test), 2)) + 0.5 * vertices(3)[part.y_test]
    part.site_test = np.full(len(score), "one")
    logits = class_logits(score)
    each = [roc_auc_score(part.y_test == k, logits[:, k]) for k in range(3)]
    assert part.auroc(score) == pytest.approx(np.mean(each))
    number = dealt(made(0))
    assert number.auroc(number.y_test[:, None]) == 1.0
    assert number.auroc(-number.y_test[:, None]) == 0.0


def test_ridge_on_everybody_by_scikit(world):
    from sklearn.linear_model import Ridge

    part = dealt(world)
    public, learn, test = part.rows
    both = np.concatenate([public, learn])
    fitted = Ridge(alpha=45.0).fit(part.x[both], part.t[both])
    np.testing.assert_allclose(
        part.ridge(), fitted.predict(part.x[test]).reshape(-1, 1), atol=1e-8
    )


def planned_gain(world, people, hospitals):
    """What sums of a planned consortium would add to the base model."""
    plans = planned_noise(people, hospitals)
    return expected_gain_of(ExpectedGains(*world, set(plans.values())), plans)


def row_of(found, epsilon):
    """What two aggregators would add."""
    return next(r for r in found.rows if (r.epsilon, r.aggregators) == (epsilon, True))


def test_the_table_of_a_plan(world, monkeypatch):
    monkeypatch.setattr(module, "PARTITIONS", 4)
    found = planned_gain(world, people=2000, hospitals=20)
    assert [(r.epsilon, r.aggregators) for r in found.rows[:2]] == [
        (None, True),
        (8.0, True),
    ]
    assert len(found.rows) == 10
    assert found.pooled > 0.02
    exact = found.rows[0]
    assert exact.gain > 0.5 * found.pooled
    assert 0.5 < found.public < 1.0
    again = planned_gain(world, people=2000, hospitals=20)
    assert again == found


@pytest.mark.parametrize("classes", [0, 3])
def test_other_targets_are_told_the_same_way(classes, monkeypatch):
    monkeypatch.setattr(module, "PARTITIONS", 6)
    x, y, site = people(240, 45, sites=5, classes=classes)
    if classes:
        x[:, 1] += 1.5 * y
    else:  # a number is easy
        x = x + 2 * np.random.default_rng(0).normal(size=x.shape)
    world = (x, y, np.array(site))
    found = planned_gain(world, people=20_000, hospitals=5)
    assert 0.5 < found.public < 0.9
    assert found.pooled > 0.01
    assert row_of(found, 1.0).gain > 0.3 * found.pooled  # so many hardly hear the noise


def test_more_people_bear_more_noise(world, monkeypatch):
    monkeypatch.setattr(module, "PARTITIONS", 4)
    few = planned_gain(world, people=20, hospitals=20)
    many = planned_gain(world, people=20_000, hospitals=20)
    assert row_of(many, 1.0).gain > row_of(few, 1.0).gain + 0.01


def dealings(*gains):
    """ExpectedGains whose gains at noise 0 are these, by the pull."""
    made = ExpectedGains(np.zeros((2, 3)), np.zeros(2), np.zeros(2), {0.0})
    made.references = [(0.7, 0.1)] * len(gains)
    made.gains = {0.0: [np.array(row) for row in gains]}
    return made


def test_a_stronger_pull_must_be_surely_better():
    surely = [[0.0, 0.1, 0.0, 0, 0], [0.02, 0.13, 0.0, 0, 0]]
    assert dealings(*surely).best_pull(0.0) == pytest.approx((1, 0.115, 0.015))
    perhaps = dealings([0.0, 0.1, 0.0, 0, 0], [0.05, 0.0, 0.0, 0, 0])
    assert perhaps.best_pull(0.0)[0] == 0  # ahead by .025 with an error of .075
    assert dealings(surely[0]).best_pull(0.0)[0] == 0  # one dealing has no error


def suited(features, y, site, noise):
    return ExpectedGains(features, y, site, {noise}).settings(noise)


def test_few_people_and_a_good_base_model_stay_public(world):
    """Ten people at epsilon 1: noise alone. Many people move as the table of plans says."""
    few = noise_per_subject(10, 1.0)
    usual = planned_settings(few, 45)
    held = suited(*world, few)
    assert held.pull > usual.pull
    assert asdict(held) == {**asdict(usual), "pull": held.pull}
    many = noise_per_subject(100_000, 1.0)
    assert suited(*world, many) == planned_settings(many, 45)
    one_site = (world[0], world[1], np.array(["A"] * 200))
    assert suited(*one_site, few) == usual


RESULTS = Path(__file__).parents[3] / "paper" / "choices" / "sums.json"


def test_noise_per_subject_by_hand():
    assert noise_per_subject(100, None) == 0.0
    assert noise_per_subject(100, 1.0, 2) == pytest.approx(
        sigma_for(1.0) * 2**0.5 / 100
    )
    # every hospital's own noise: seventeen doses instead of two
    local = noise_per_subject(600, 1.0, 17)
    assert local == pytest.approx(noise_per_subject(600, 1.0) * (17 / 2) ** 0.5)


def test_the_nearest_level_is_taken():
    for level, settings in CHOSEN.items():
        assert planned_settings(level) == settings
    assert planned_settings(1e-9) == CHOSEN[0.0]
    assert planned_settings(10.0) == CHOSEN[0.03]
    assert planned_settings(0.0021) == CHOSEN[0.0015]  # nearer by its logarithm
    assert planned_settings(0.0022) == CHOSEN[0.003]


def test_fewer_features_are_held_more_strongly_and_more_as_before():
    base = CHOSEN[0.01]
    assert planned_settings(0.01, 6786 // 4).pull == pytest.approx(
        2 * base.pull, rel=1e-3
    )
    assert planned_settings(0.01, 80_200) == base


def test_louder_noise_speaks_of_fewer_directions():
    assert CHOSEN[0.03].gamma < CHOSEN[0.01].gamma < CHOSEN[0.003].gamma


def test_the_table_is_what_the_run_chose():
    found = json.loads(RESULTS.read_text())
    for row in found["levels"]:
        settings = CHOSEN[row["nu"]]
        chosen = {
            name: getattr(settings, name)
            for name in ("axes", "gamma", "pull", "even", "clip")
        }
        assert chosen == {name: row[name] for name in chosen}
