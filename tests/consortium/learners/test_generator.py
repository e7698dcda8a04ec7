"""released: the state is a site's release, and whatever is drawn follows from it and the start."""

from functools import cache

import numpy as np
import pytest
import torch
from simulated_site import simulate

from fcforge.base_model.features import log_features
from fcforge.base_model.model import fit_base_model
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.space import ContributionSpace
from fcforge_consortium.learners.generator import (
    Contributed,
    draw_features,
    draw_subjects,
    to_fc,
)
from fcforge_consortium.learners.public_space import space_of


@cache
def public() -> PublicSubjects:
    people = simulate(60, seed=3)
    features = log_features(people.fc.numpy())
    y = people.y.numpy()
    base_model = fit_base_model(features, y)
    return PublicSubjects(people.fc.numpy(), y, np.full(60, "P"), base_model)


def start() -> ContributionSpace:
    return space_of(public())


@cache
def site():
    return simulate(40, seed=4)


def exact() -> Contributed:
    return Contributed(mechanism="none", public=public())


def test_the_state_is_the_release():
    state = exact().fit(site(), torch_rng(0))
    assert list(state.named()) == ["counts", "model.contribution"]
    assert state.model.contribution.shape == (78 + 2,)
    people = site()
    features = log_features(people.fc.numpy(), start().base.shrink)
    each = vector.contribution_rows(start(), features, people.y.numpy())
    np.testing.assert_array_equal(state.model.contribution.numpy(), each.sum(0))


def test_either_diagnosis_can_be_drawn_whatever_the_site_had():
    patients = site().select(site().y == 1)
    state = exact().fit(patients, torch_rng(0))
    assert state.counts.tolist() == [1, 1]
    drawn = exact().sample(state, torch.tensor([0, 1]), torch_rng(1))
    assert drawn.y.tolist() == [0, 1]
    assert drawn.fc.shape == (2, 12, 12)


def test_noise_is_that_of_the_budget():
    """Over many seeds the release varies about the exact one by the noise's standard deviation."""
    made = Contributed(epsilon=2.0, delta=1e-3, noise="seeded", public=public())
    sure = exact().fit(site(), torch_rng(0)).model.contribution
    seeds = range(300)
    off = torch.stack(
        [made.fit(site(), torch_rng(s)).model.contribution - sure for s in seeds]
    )
    sd = vector.noise_units(2.0, 1e-3)
    assert float(off.double().std()) == pytest.approx(sd, rel=0.05)
    assert float(off.double().mean().abs()) < 4 * sd / off.numel() ** 0.5


def test_a_small_epsilon_stays_nearer_to_the_base_model_alone():
    """The head is a posterior mean: the noisier the release, the smaller the step it takes."""
    base = vector.stepped_model(start(), np.zeros(79))
    release = exact().fit(site(), torch_rng(0))
    steps = []
    for epsilon in (8.0, 1.0, 0.1):
        head = Contributed(epsilon=epsilon, public=public()).linear_model(release.model)
        steps.append(np.linalg.norm(head.weight - base.weight))
    assert steps[0] > steps[1] > steps[2]


def test_diagnoses_follow_the_release_and_not_the_site():
    """A share of patients may not leave outside the budget: the labels given are not looked at."""
    state = exact().fit(site(), torch_rng(0))
    all_sick, all_well = (
        torch.ones(40, dtype=torch.int64),
        torch.zeros(40, dtype=torch.int64),
    )
    a, b = (exact().diagnoses(state.model, y, 50) for y in (all_sick, all_well))
    assert torch.equal(a, b)
    share = 0.5 * (1 + float(exact().linear_model(state.model).bias))
    assert int(a.sum()) == min(max(round(50 * share), 1), 49)


def test_without_public_subjects_it_says_what_to_do():
    with pytest.raises(ConfigError, match="generator 'contributed'") as e:
        Contributed().fit(site(), torch_rng(0))
    assert "[base_model] table" in str(e.value)


def test_drawn_features_have_the_public_moments_on_the_axes():
    x = draw_features(start(), 40_000, torch.Generator().manual_seed(0))
    z = x @ start().axes
    wanted = np.diag(78 * start().variance[:-1])
    np.testing.assert_allclose(z.T @ z / len(z), wanted, atol=0.15, rtol=0.05)


def test_every_subject_is_a_correlation_matrix():
    x = draw_features(start(), 50, torch.Generator().manual_seed(1))
    fc = to_fc(start().base, x)
    assert fc.dtype == np.float32
    assert fc.shape == (50, 12, 12)
    assert np.array_equal(np.diagonal(fc, axis1=1, axis2=2), np.ones((50, 12)))
    assert np.abs(fc).max() <= 1.0
    assert np.linalg.eigvalsh(fc.astype(float)).min() > -1e-5


def test_subjects_have_the_diagnoses_asked_for():
    head = vector.LinearModel(start().base.weight * 3, start().base.bias)
    y = np.arange(400) % 2
    x = draw_subjects(start(), head, y, torch.Generator().manual_seed(2))
    score = x @ head.weight + head.bias
    assert score[y == 1].mean() > score[y == 0].mean() + 0.1
    again = draw_subjects(start(), head, y, torch.Generator().manual_seed(2))
    assert np.array_equal(x, again)


def test_the_head_of_many_synthetic_subjects_is_the_head():
    """Closed form and replay agree: least squares on replayed subjects gives the head back."""
    beta = np.random.default_rng(0).normal(size=79) * 0.1
    head = vector.LinearModel(*vector.stepped_model(start(), beta))
    small = vector.LinearModel(
        head.weight * 0.5, head.bias * 0.5
    )  # no score leaves [-1, 1]
    rng = torch.Generator().manual_seed(3)
    x = draw_features(start(), 60_000, rng)
    share = 0.5 * (1.0 + x @ small.weight + small.bias)
    patient = torch.rand(len(x), generator=rng).numpy() < share
    t = 2.0 * patient - 1.0
    value, vectors = np.linalg.eigh(x.T @ x / len(x))
    kept = vectors[:, value > 1e-6 * value.max()]
    design = np.concatenate([x @ kept, np.ones((len(x), 1))], 1)
    found = np.linalg.lstsq(design, t, rcond=None)[0]
    score = design @ found
    wanted = x @ small.weight + small.bias
    assert np.corrcoef(score, wanted)[0, 1] > 0.97
    assert ((score - wanted) ** 2).mean() ** 0.5 < 0.25 * wanted.std()
