"""The sampler as a whole: bookkeeping by hand, and a simulated consortium with three sites."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from fcforge.core.randomness import torch_rng
from fcforge.models.base import Output
from fcforge.replay.bandit import Bandit
from fcforge.replay.hcts import (
    HCTS,
    SAMPLERS,
    AuthorsHCTS,
    Choice,
    HCTSState,
    PaperHCTS,
    even_choice,
    take_first,
)
from fcforge.replay.selection import (
    Contexts,
    Labelled,
    Prototypes,
    closeness,
    contexts,
    held_out_quality,
    prototypes_of,
)

LITERAL = SAMPLERS["paper"]
FORGET = torch.tensor([0.30, 0.15, 0.0])
BEST = 0.9


def start(sampler: HCTS, sites: int = 3) -> HCTSState:
    state = sampler.start("cpu")
    for _ in range(sites):
        state = sampler.add_site(state, torch.tensor(BEST))
    return state


def look(
    accuracy: torch.Tensor, ce: torch.Tensor, n: int, rng: torch.Generator
) -> Contexts:
    sites = accuracy.shape[-1]
    lead = accuracy.shape[:-1]
    psi = torch.rand(*lead, sites, n, 2, generator=rng)
    z = torch.rand(*lead, sites, n, 2, generator=rng)
    return Contexts(accuracy, ce, psi, torch.cdist(z, z))


def simulate(
    sampler: HCTS, refreshes: int = 16, runs: int = 300, n: int = 24
) -> torch.Tensor:
    """Shares (runs, sites) after some refreshes in a world whose rewards are informative.

    Replaying a site repairs its cross-entropy in proportion to what it has forgotten, plus
    noise. Nothing is fed back, so every run sees the same three sites: forgetting .30/.15/0.
    """
    rng = torch_rng(0, "consortium")
    state = pytree.tree_map(lambda v: v.expand(runs, *v.shape), start(sampler))
    step = torch.func.vmap(partial(sampler.refresh, capacity=n))
    ce = torch.full((runs, 3), 0.7)
    for r in range(refreshes + 1):
        accuracy = BEST - FORGET + 0.015 * torch.randn(runs, 3, generator=rng)
        keys = torch.arange(runs, dtype=torch.int32) * 1000 + r
        state, choice = step(state, look(accuracy, ce, n, rng), keys)
        ce = ce - 0.3 * FORGET + 0.03 * torch.randn(runs, 3, generator=rng)
    return choice.quota / n


UNBELIEVING = HCTS(sites=Bandit(belief=0.0))


@pytest.mark.parametrize("sampler", [HCTS(), UNBELIEVING])
def test_default_allocates_to_the_site_that_forgets(sampler):
    """With its prior belief, and by learning alone."""
    share = simulate(sampler)
    mean = share.mean(0)
    assert mean[0] > 0.5  # forgot .30
    assert mean[0] > mean[1] + 0.2 > mean[2] + 0.25
    assert float((share.argmax(1) == 0).float().mean()) > 0.97


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_literal_allocates_at_random(temperature):
    """Audit, finding M8: a third each on average, whoever forgets, and far from it every time."""
    share = simulate(replace(LITERAL, temperature=temperature))
    assert (share.mean(0) - 1 / 3).abs().max() < 0.08  # standard error .02
    assert share.mean(0)[0] < share.mean(0)[1] + 0.05
    assert share.std(0).min() > 0.2
    assert float((share.argmax(1) == 0).float().mean()) < 0.45


def test_before_any_reward():
    """The belief leans to the forgetful site, without it nobody leads; the literal is a lottery."""
    assert simulate(HCTS(), refreshes=0).mean(0)[0] > 0.5
    blank = simulate(UNBELIEVING, refreshes=0)
    assert (blank.mean(0) - 1 / 3).abs().max() < 0.05
    assert blank.std(0).max() < 0.16
    assert simulate(LITERAL, refreshes=0).std(0).max() > 0.2


def test_reward_goes_to_the_choice_that_was_trained_on():
    rng = torch_rng(0, "credit")
    before = torch.tensor([0.8, 0.6])
    after = torch.tensor([0.5, 0.9])
    for sampler in (HCTS(), LITERAL):
        state = start(sampler, 2)
        key = torch.tensor(1, dtype=torch.int32)
        state, _ = sampler.refresh(
            state, look(before, torch.tensor([0.7, 0.7]), 5, rng), key, 4
        )
        started = pytree.tree_map(
            lambda x: x.repeat_interleave(2, 0), sampler.sites.start("cpu")
        )
        assert torch.equal(state.sites.s, started.s)  # no reward yet
        state, _ = sampler.refresh(
            state, look(after, torch.tensor([0.6, 0.8]), 5, rng), key, 4
        )
        phi = torch.stack([before, (BEST - before).clamp(min=0)], -1)
        r = torch.sigmoid(torch.tensor([0.1, -0.1]) / sampler.reward_scale)
        r = r - 0.5 if sampler.variant == "stable" else r
        expected = sampler.sites.update(
            started,
            phi[:, :, None] * phi[:, None, :],
            phi * r[:, None],
            torch.ones(2, dtype=torch.bool),
        )
        assert torch.allclose(state.sites.s, expected.s)
        assert torch.allclose(state.sites.b, expected.b)


def test_the_authors_code_by_hand():
    """lambda 10 and 5, sigma .10 and .15; the first refresh of a site earns 1/2."""
    code = SAMPLERS["authors"]
    assert (code.sites.prior, code.sites.noise) == (10.0, 0.10)
    assert (code.subjects.prior, code.subjects.noise) == (5.0, 0.15)
    assert (code.prototype_weight, code.UPDATE_JITTER) == (0.2, 1e-4)
    assert (code.temperature, code.shortlist, code.reward_scale) == (0.3, 3, 0.05)
    assert (AuthorsHCTS.LEAST_SHARE, AuthorsHCTS.LIMITS) == (0.05, (32, 128))
    state = start(code, 2)
    accuracy, rng = torch.tensor([0.8, 0.6]), torch_rng(0, "first")
    seen = look(accuracy, torch.tensor([0.7, 0.9]), 5, rng)
    state, choice = code.refresh(state, seen, torch.tensor(1, dtype=torch.int32), 4)
    phi = torch.tensor([[0.8, 0.1], [0.6, 0.3]])  # best .9
    outer = phi[:, :, None] * phi[:, None, :]
    torch.testing.assert_close(state.sites.s, 0.98 * 10 * torch.eye(2) + 0.02 * outer)
    torch.testing.assert_close(state.sites.b, 0.02 * 0.5 * phi)
    for site, quota in enumerate(choice.quota.tolist()):
        mine = choice.active[choice.active // 5 == site] % 5
        psi = seen.psi[site, mine]
        assert len(psi) == quota
        moment = 0.98 * 5 * torch.eye(2) + 0.02 * psi.T @ psi
        torch.testing.assert_close(state.subjects.s[site], moment)
        torch.testing.assert_close(state.subjects.b[site], 0.02 * 0.5 * psi.mean(0))
    assert float(choice.share.min()) >= 0.05


@pytest.mark.parametrize(("sites", "total"), [(1, 128), (2, 256), (3, 256), (9, 256)])
def test_limits_of_the_authors_code(sites, total):
    code = SAMPLERS["authors"]
    even, sums = torch.full((sites,), 1 / sites), []
    for shares in (even, torch.eye(sites)[0]):
        quota, expected = code.deal(shares, 256, 131)
        assert int(quota.sum()) == expected
        assert int(quota.max()) <= 128
        assert int(quota.min()) >= min(32, 256 // sites)
        sums.append(expected)
    assert sums == [total, total]


def test_sample_moments_by_hand():
    psi = torch.tensor([[[1.0, 0.0], [1.0, 2.0], [5.0, 5.0]]])
    chosen, quota = torch.tensor([[True, True, False]]), torch.tensor([2])
    outer, mean = LITERAL.moments(psi, chosen, quota)
    assert outer.tolist() == [[[2.0, 2.0], [2.0, 4.0]]]  # summed over the choice
    assert mean.tolist() == [[1.0, 1.0]]
    outer, mean = HCTS().moments(psi, chosen, quota)
    assert outer.tolist() == [[[1.0, 1.0], [1.0, 2.0]]]
    assert mean.tolist() == [[1.0, 1.0]]


def test_choice_obeys_quota_and_shortlist():
    sampler = HCTS()
    rng = torch_rng(0, "choice")
    state = start(sampler)
    state, choice = sampler.refresh(
        state,
        look(BEST - FORGET, torch.zeros(3), 10, rng),
        torch.tensor(5, dtype=torch.int32),
        12,
    )
    assert len(set(choice.active.tolist())) == 12
    assert (
        torch.bincount(choice.active // 10, minlength=3).tolist()
        == choice.quota.tolist()
    )


def test_take_first_by_hand():
    order = torch.tensor([[4, 0, 2], [1, 3, 0]])
    active, mask = take_first(order, torch.tensor([1, 3]), 4, 5)
    assert active.tolist() == [4, 6, 8, 5]
    assert mask.tolist() == [[False] * 4 + [True], [True, True, False, True, False]]


def test_even_choice_is_even():
    choice = even_choice(torch.rand(3, 10, generator=torch_rng(0, "even")), 8, HCTS())
    assert sorted(choice.quota.tolist()) == [2, 3, 3]
    assert len(set(choice.active.tolist())) == 8


def test_draws_weigh_sites_equally_or_by_share():
    choice = Choice(
        torch.arange(10), torch.tensor([8, 2, 0]), torch.tensor([0.3, 0.7, 0.0])
    )
    key = torch.tensor(3, dtype=torch.int32)
    slots, weight = PaperHCTS().draw_slots(choice, key, 900)
    site = (slots >= 8).long()
    assert float(weight[:300].sum()) == pytest.approx(1 / 3, abs=1e-5)
    assert site[:300].sum() == 0
    assert (site[300:600] == 1).all()
    assert not weight[600:].any()  # an empty site has no part
    slots, weight = AuthorsHCTS().draw_slots(choice, key, 900)
    assert float((slots < 8).float().mean()) == pytest.approx(0.3, abs=0.05)
    assert float(weight.sum()) == pytest.approx(1.0, abs=1e-5)
    assert set(slots.tolist()) == set(range(10))


def test_held_out_ignores_empty_places():
    logits = torch.tensor([[0.0, 2.0], [0.0, 2.0], [9.0, 0.0]])
    there = torch.tensor([True, True, False])
    accuracy, ce = held_out_quality(logits, torch.tensor([1, 0, 1]), there, 3)
    assert float(accuracy) == 0.5
    expected = torch.nn.functional.cross_entropy(logits[:2], torch.tensor([1, 0]))
    assert float(ce) == pytest.approx(float(expected), abs=1e-6)


def test_with_test_subjects_accuracy_is_theirs_and_the_reward_that_of_the_proxies():
    logits = torch.tensor([[0.0, 2.0], [0.0, 2.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    y, there = torch.tensor([1, 0, 0, 0, 0]), torch.tensor([1, 1, 1, 1, 0]) > 0
    accuracy, ce = held_out_quality(logits, y, there, 2)
    assert float(accuracy) == 0.5  # of two test subjects; the fifth place is empty
    expected = torch.nn.functional.cross_entropy(logits[:2], y[:2])
    assert float(ce) == pytest.approx(float(expected), abs=1e-6)


def test_look_reads_contexts_off_the_network():
    z = torch.randn(20, 3, generator=torch_rng(0, "look"))

    def forward(rows: torch.Tensor) -> Output:
        return Output(z[rows, :2], z[rows], {})

    rows, y = torch.arange(12).reshape(2, 6), torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    dev, dev_y = torch.tensor([[12, 13], [14, -1]]), torch.tensor([[0, 1], [1, 0]])
    seen = contexts(forward, Labelled(rows, y), Labelled(dev, dev_y), 2, closeness)
    assert float(seen.accuracy[1]) == float(z[14, 1] > z[14, 0])
    p = torch.softmax(z[7, :2], 0)
    assert float(seen.psi[1, 1, 0]) == pytest.approx(
        float((p[0] - p[1]).abs()), abs=1e-6
    )
    assert float(seen.distance[0, 1, 4]) == pytest.approx(
        float((z[1] - z[4]).norm()), abs=1e-5
    )


# -- running averages of the paper and the authors' code ---------------------------------
def numpy_closeness(readouts, y, variant):
    """One site's closeness at every refresh, written anew from the equations, in numpy."""
    added = 1e-4 if variant == "authors" else 0.0  # at every update
    averages = {}
    for z in readouts:
        near = np.zeros(len(y))
        for label in set(y.tolist()):
            own = z[y == label]
            mean = own.mean(0)
            eye = np.eye(z.shape[1])
            several = len(own) > 1
            cov = np.cov(own, rowvar=False, ddof=1) if several else 1e-4 * eye
            if label in averages:
                old_mean, old_cov = averages[label]
                mean = 0.8 * old_mean + 0.2 * mean
                cov = 0.8 * old_cov + 0.2 * cov
            cov = cov + added * eye
            averages[label] = (mean, cov)
            for place in np.flatnonzero(y == label):
                left = z[place] - mean
                d = np.sqrt(left @ np.linalg.inv(cov + 1e-4 * eye) @ left)
                near[place] = 1 - np.tanh(d)
        yield near, averages


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("kinds", [(9, 6), (14, 1), (2, 13)])
def test_closeness_follows_running_averages(variant, kinds):
    """Two sites; the second joins after two refreshes, and starts with its own averages."""
    sampler = SAMPLERS[variant]
    rng = torch_rng(0, "averages")
    y = torch.repeat_interleave(torch.arange(2), torch.tensor(kinds))
    n = len(y)
    drift = torch.linspace(0, 1, 5)[:, None, None, None]
    z = 0.5 * torch.randn(5, 2, n, 3, generator=rng) + drift  # (refresh, site, n, d)
    rows = torch.arange(2 * n).reshape(2, n)
    held = torch.zeros(2, 1, dtype=torch.int64)
    state = sampler.add_site(sampler.start("cpu", 2, 3), torch.tensor(BEST))
    seen = []
    for refresh in range(5):
        sites = 1 if refresh < 2 else 2
        if refresh == 2:
            state = sampler.add_site(state, torch.tensor(BEST))

        def forward(of: torch.Tensor, now: int = refresh) -> Output:
            readout = z[now].flatten(0, 1)[of]
            return Output(readout[:, :2], readout, {})

        look_now = contexts(
            forward,
            Labelled(rows[:sites], y.expand(sites, n)),
            Labelled(held[:sites], held[:sites]),
            1,
            sampler.closeness,
            averages=sampler.averages(state),
        )
        seen.append(look_now.psi[..., 1])
        key = torch.tensor(refresh, dtype=torch.int32)
        state, _ = sampler.refresh(state, look_now, key, 4)
    labels = y.numpy()
    for site, first in ((0, 0), (1, 2)):
        readouts = z[first:, site].numpy().astype(np.float64)
        steps = list(numpy_closeness(readouts, labels, variant))
        for refresh, (expected, _) in enumerate(steps, start=first):
            ours = seen[refresh][site].numpy()
            np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-6)
        averages = steps[-1][1]
        for label, (mean, cov) in averages.items():
            mine = state.prototypes
            np.testing.assert_allclose(mine.mean[site, label], mean, rtol=1e-6)
            np.testing.assert_allclose(
                mine.covariance[site, label], cov, rtol=1e-6, atol=1e-9
            )
    # the average lags behind the drift: without it closeness would be another
    present = sampler.closeness(z[-1, 0], y, 2).numpy()
    assert np.abs(present - seen[-1][0].numpy()).max() > 0.05


def test_the_jitter_of_the_authors_code_accumulates():
    y = torch.zeros(6, dtype=torch.int64)
    z = torch.zeros(6, 2)  # no spread at all: the covariance is the jitter
    for variant, expected in (("paper", 0.0), ("authors", 1e-4 * (1 + 0.8 + 0.64))):
        sampler = SAMPLERS[variant]
        state = sampler.add_site(sampler.start("cpu", 1, 2), torch.tensor(BEST))
        for _ in range(3):
            found = sampler.averages(state).updated(0, prototypes_of(z, y, 1))
            whole = Prototypes(*(part[None] for part in found))
            state = state._replace(prototypes=whole, seen=torch.ones(1) > 0)
        diagonal = state.prototypes.covariance[0, 0].diagonal()
        np.testing.assert_allclose(diagonal, expected, rtol=1e-6, atol=1e-12)


def test_readouts_that_never_change_are_their_own_averages():
    sampler = SAMPLERS["paper"]
    state = sampler.add_site(sampler.start("cpu"), torch.tensor(BEST))
    assert sampler.averages(state) is None
    z = torch.randn(12, 3, generator=torch_rng(0, "fixed"))
    y = (torch.arange(12) >= 5).long()
    expected = next(numpy_closeness([z.numpy().astype(float)], y.numpy(), "paper"))[0]
    np.testing.assert_allclose(sampler.closeness(z, y, 2), expected, rtol=1e-4)
    assert HCTS().start("cpu", 2, 3).prototypes == ()  # the default keeps none
