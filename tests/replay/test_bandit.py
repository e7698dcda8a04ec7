"""The bandit against numbers worked out by hand, and its budget against every rounding case."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcforge.core.randomness import torch_rng
from fcforge.replay.bandit import (
    Bandit,
    Moments,
    PaperBandit,
    half_solve_2x2,
    limited_quotas,
    quotas,
    reward,
    shares,
    solve_2x2,
    standardised,
)

YES = torch.tensor([True])


def moments(phi: list[float], r: float) -> tuple[torch.Tensor, torch.Tensor]:
    v = torch.tensor([phi])
    return v[:, :, None] * v[:, None, :], v * r


def test_paper_update_by_hand():
    bandit = PaperBandit(prior=10.0, gamma=0.5)
    s, b = bandit.update(bandit.start("cpu"), *moments([2.0, 1.0], 3.0), YES)
    # A = .5 * 10 I + .5 * [[4, 2], [2, 1]];  b = .5 * 3 * [2, 1]
    assert torch.allclose(s[0], torch.tensor([[7.0, 1.0], [1.0, 5.5]]))
    assert torch.allclose(b[0], torch.tensor([3.0, 1.5]))
    mean, precision = bandit.posterior(Moments(s, b))
    # det = 37.5: mean = [(5.5 * 3 - 1 * 1.5) / 37.5, (7 * 1.5 - 1 * 3) / 37.5]
    assert torch.allclose(mean[0], torch.tensor([0.4, 0.2]))
    assert torch.equal(precision, s)


def test_ridge_update_by_hand():
    bandit = Bandit(prior=2.0, gamma=0.5, belief=1.5, pooled=False)
    s, b = bandit.start("cpu")
    assert not s.any()
    s, b = bandit.update(Moments(s, b), *moments([2.0, 1.0], 3.0), YES)
    s, b = bandit.update(Moments(s, b), *moments([0.0, 1.0], 1.0), YES)
    # S = .5 * [[4, 2], [2, 1]] + [[0, 0], [0, 1]];  b = .5 * [6, 3] + [0, 1]
    assert torch.allclose(s[0], torch.tensor([[2.0, 1.0], [1.0, 1.5]]))
    assert torch.allclose(b[0], torch.tensor([3.0, 2.5]))
    mean, precision = bandit.posterior(Moments(s, b))
    assert torch.allclose(precision[0], torch.tensor([[4.0, 1.0], [1.0, 3.5]]))
    # right side b + 2 * (0, 1.5) = [3, 5.5], det = 13
    assert torch.allclose(
        mean[0], torch.tensor([(3.5 * 3 - 5.5) / 13, (4 * 5.5 - 3) / 13])
    )


def test_ridge_keeps_its_prior_and_the_paper_form_loses_it():
    """After 1000 rewards in one direction, what is known of the other direction?"""
    for kind, expected in ((Bandit, 0.1), (PaperBandit, 0.0)):
        bandit = kind(prior=0.1, gamma=0.98, pooled=False)
        s, b = bandit.start("cpu")
        for _ in range(1000):
            s, b = bandit.update(Moments(s, b), *moments([1.0, 0.0], 1.0), YES)
        precision = bandit.posterior(Moments(s, b))[1]
        assert float(precision[0, 1, 1]) == pytest.approx(expected, abs=1e-6)


def test_arm_without_reward_stays():
    bandit = Bandit(pooled=False)
    s, b = (x.repeat_interleave(2, 0) for x in bandit.start("cpu"))
    outer, gain = moments([1.0, 1.0], 1.0)
    s, b = bandit.update(
        Moments(s, b),
        outer.repeat(2, 1, 1),
        gain.repeat(2, 1),
        torch.tensor([True, False]),
    )
    assert s[0].any()
    assert not s[1].any()
    assert b[0].any()
    assert not b[1].any()


def test_pooled_arms_share_what_they_learn_and_what_they_draw():
    bandit = Bandit(prior=1.0, belief=0.0, pooled=True)
    s = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 3.0]]])
    b = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    mean, _ = bandit.posterior(Moments(s, b))
    assert torch.allclose(mean, torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    drawn = bandit.draw(
        Moments(s, b), torch.randn(2, 2, generator=torch_rng(0, "draw"))
    )
    assert torch.equal(drawn[0], drawn[1])


def test_thompson_draws_have_the_posterior_mean_and_covariance():
    bandit = PaperBandit(noise=0.5)
    a = torch.tensor([[2.0, 0.6], [0.6, 1.0]])
    b = torch.tensor([1.0, -0.5])
    n = 40_000
    normal = torch.randn(n, 2, generator=torch_rng(0, "thompson"))
    w = bandit.draw(Moments(a.expand(n, 2, 2), b.expand(n, 2)), normal)
    assert torch.allclose(w.mean(0), torch.linalg.solve(a, b), atol=0.02)
    assert torch.allclose(torch.cov(w.T), 0.25 * torch.linalg.inv(a), atol=0.01)


def test_two_by_two_solvers_match_lapack():
    x = torch.randn(50, 2, 2, generator=torch_rng(0, "spd"), dtype=torch.float64)
    a = x @ x.transpose(1, 2) + 0.1 * torch.eye(2)
    b = torch.randn(50, 2, generator=torch_rng(0, "rhs"), dtype=torch.float64)
    assert torch.allclose(solve_2x2(a, b), torch.linalg.solve(a, b))
    upper = torch.linalg.cholesky(a).transpose(1, 2)
    assert torch.allclose(half_solve_2x2(a, b), torch.linalg.solve(upper, b))


def test_reward_by_hand():
    before, after = torch.tensor([0.7, 0.7]), torch.tensor([0.6, 0.7])
    raw = reward(before, after, 0.1)
    assert raw.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 0.5], abs=1e-6)


def test_zscore_of_two_sites_is_a_coin_and_temperature_is_not():
    tiny = torch.tensor([1e-6, 2e-6])
    literal = shares(standardised(tiny), temperature=1.0, floor=0.0)
    # z = -1 and +1 whatever the utilities: weights e^-1 and e^1
    assert literal.tolist() == pytest.approx([0.1192, 0.8808], abs=1e-3)
    repaired = shares(tiny, temperature=0.1, floor=0.25)
    assert repaired.tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


def test_shares_by_hand():
    u = torch.tensor([0.1, 0.0])
    w = shares(u, temperature=0.1, floor=0.5)
    assert w.tolist() == pytest.approx(
        [0.25 + 0.5 * 0.7311, 0.25 + 0.5 * 0.2689], abs=1e-4
    )


def test_zscore_of_equal_utilities_is_even():
    w = shares(standardised(torch.zeros(3)), temperature=1.0, floor=0.0)
    assert torch.allclose(w, torch.full((3,), 1 / 3))


def dealt(share, total, cap) -> list[int]:
    return quotas(torch.tensor(share), total, torch.tensor(cap)).tolist()


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("cap", "total", "got"),
    [
        ([10, 2, 10], 12, [5, 2, 5]),
        ([3, 3], 10, [3, 3]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([0, 4], 3, [0, 3]),
        ([1, 100, 7], 20, [1, 12, 7]),
    ],
)
def test_equal_shares_leave_what_a_small_cell_cannot_take_to_the_others(
    cap, total, got
):
    assert dealt([1.0] * len(cap), total, cap) == got


def test_quotas_by_hand():
    assert dealt([0.5, 0.3, 0.2], 10, [100] * 3) == [5, 3, 2]
    # 3.5, 2.1, 1.4 of 7: the largest remainder gets the seventh
    assert dealt([0.5, 0.3, 0.2], 7, [100] * 3) == [4, 2, 1]
    # capped at 4: what is over flows to the others in proportion 3 : 2
    assert dealt([0.5, 0.3, 0.2], 9, [4] * 3) == [4, 3, 2]
    # not enough candidates: everybody gives all
    assert dealt([0.9, 0.1], 100, [8, 8]) == [8, 8]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=1, max_size=7),
    st.integers(1, 400),
    st.integers(1, 300),
    st.floats(0, 1),
)
def test_quotas_use_the_whole_budget(utility, total, cap, floor):
    share = shares(torch.tensor(utility), temperature=0.5, floor=floor)
    k = quotas(share, total, torch.full(share.shape, cap))
    n = len(utility)
    assert int(k.sum()) == min(total, n * cap)
    assert int(k.min()) >= 0
    assert int(k.max()) <= cap
    if total <= cap:  # no cap in force: each within one of its share
        assert float((k - total * share).abs().max()) < 1 + 1e-3


@pytest.mark.parametrize(
    ("sites", "total", "cap"), [(1, 256, 256), (3, 256, 256), (4, 256, 80)]
)
def test_quotas_use_the_whole_budget_in_thousands_of_cases(sites, total, cap):
    spread = 10 ** torch.linspace(-3, 1.5, 4000)
    utility = (
        torch.randn(4000, sites, generator=torch_rng(0, "utility")) * spread[:, None]
    )
    k = torch.func.vmap(lambda w: quotas(w, total, torch.full((sites,), cap)))(
        torch.softmax(utility, 1)
    )
    assert (k.sum(1) == min(total, sites * cap)).all()
    assert ((k >= 0) & (k <= cap)).all()


def test_quotas_grow_with_the_share():
    share = torch.softmax(torch.randn(200, 5, generator=torch_rng(0, "shares")), 1)
    k = torch.func.vmap(lambda w: quotas(w, 256, torch.full((5,), 256)))(share)
    more = share[:, :, None] > share[:, None, :]
    assert not (more & (k[:, :, None] < k[:, None, :])).any()
    assert torch.equal(k[7], quotas(share[7], 256, torch.full((5,), 256)))


@pytest.mark.parametrize(
    ("share", "total", "low", "high", "quota"),
    [
        (
            [0.9, 0.1],
            256,
            32,
            128,
            [128, 128],
        ),  # 230 and 25: what the first cannot hold
        ([0.6, 0.35, 0.05], 256, 32, 128, [128, 96, 32]),  # 153, 89, 12: 7 are missing
        ([0.34, 0.33, 0.33, 0.0], 100, 20, 50, [34, 20, 26, 20]),  # 20 too many
        ([1.0], 128, 32, 128, [128]),
    ],
)
def test_limited_quotas_by_hand(share, total, low, high, quota):
    assert limited_quotas(torch.tensor(share), total, low, high).tolist() == quota


def dealt_one_by_one(share, total, low, high):
    """The rule of the authors' code in plain Python."""
    k = [max(low, min(high, int(s * total))) for s in share]
    by_share = sorted(range(len(k)), key=lambda i: share[i])
    while sum(k) < total:
        i = next(i for i in sorted(by_share, key=lambda i: -share[i]) if k[i] < high)
        k[i] += 1
    while sum(k) > total:
        i = next(i for i in by_share if k[i] > low)
        k[i] -= 1
    return k


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=7))
def test_limited_quotas_deal_like_the_authors_code(weights):
    share = torch.softmax(torch.tensor(weights, dtype=torch.float64) / 200, 0)
    low, high = 6, 40
    total = min(64, len(weights) * high)
    quota = limited_quotas(share, total, low, high)
    assert quota.tolist() == dealt_one_by_one(share.tolist(), total, low, high)
