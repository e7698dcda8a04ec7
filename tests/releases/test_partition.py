"""Partitions: inner products give the product's own numbers."""

import numpy as np
import pytest
from public_people import people

from fcforge.releases import vector
from fcforge.releases.features import class_logits, vertices
from fcforge.releases.partition import Partition, deal
from fcforge.releases.start import StartSettings, make_start


def made(classes):
    x, y, site = people(200, 45, sites=5, classes=classes)
    x[:, 1] += y  # more than a small public head finds
    return x, y, np.array(site)


@pytest.fixture(scope="module")
def world():
    return made(2)


def dealt(world, **more):
    x, y, site = world
    rng = np.random.default_rng(0)
    rows = deal(site, y, 80, rng)
    return Partition(x, y, site, rows, rng, **more)


def test_sites_are_dealt_whole_and_hospitals_cut_within_diagnoses(world):
    _, y, site = world
    public, learn, test = deal(site, y, 80, np.random.default_rng(0))
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
    settings = StartSettings(axes=4, gamma=gamma, directions=12, pull=11.0)
    placed = part.start(settings)
    start = make_start(x[public], y[public], settings, columns)
    assert placed.size == pytest.approx(start.size, rel=1e-3)
    assert placed.clip == pytest.approx(start.clip, rel=1e-3)
    total = vector.contributions(start, x[learn], y[learn]).sum(0).astype(float)
    units = noise * vector.SENSITIVITY
    if noise:  # the partition's first draw, as a vector
        drawn = part.noise[..., 0]
        drawn = drawn if gamma else drawn @ start.axes[:, :4]
        drawn = np.concatenate([drawn, part.noise_half[:, :1]], 1)
        total = total + units * np.append(drawn, part.noise_count[0])
    head = vector.head(start, vector.solve(start, total, units**2))
    wanted = start.standardise(x[test]) @ head.weight + head.bias
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
