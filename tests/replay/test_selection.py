"""Margins, closeness and the greedy choice against brute force."""

import math

import pytest
import torch

from fcforge.core.randomness import torch_rng
from fcforge.replay.selection import (
    closeness,
    distances,
    even_split,
    farthest_first,
    mahalanobis,
    margin,
    paper_closeness,
    reservoir,
)

pytestmark = pytest.mark.rounding


def brute_force(z, allowed, score, k):
    """Greedy farthest-first in plain Python."""
    pool = [i for i in range(len(z)) if allowed[i]]
    chosen = [max(pool, key=lambda i: (score[i], -i))]
    while len(chosen) < k:
        rest = [i for i in pool if i not in chosen]
        chosen.append(
            max(rest, key=lambda i: (min(math.dist(z[i], z[j]) for j in chosen), -i))
        )
    return chosen


def test_margin_by_hand():
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)]])
    assert margin(logits).tolist() == pytest.approx([0.0, 0.5], abs=1e-6)
    three = torch.log(torch.tensor([[0.2, 0.5, 0.3]]))
    assert float(margin(three)) == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_farthest_first_equals_brute_force(seed):
    rng = torch_rng(seed, "ffs")
    sites, n, d = 3, 14, 4
    z = torch.randn(sites, n, d, generator=rng, dtype=torch.float64)
    score = torch.randn(sites, n, generator=rng, dtype=torch.float64)
    allowed = torch.rand(sites, n, generator=rng) < 0.7
    order = farthest_first(
        torch.stack([distances(s) for s in z]),
        allowed,
        score,
        int(allowed.sum(1).max()),
    )
    for s in range(sites):
        k = int(allowed[s].sum())
        expected = brute_force(z[s].tolist(), allowed[s].tolist(), score[s].tolist(), k)
        assert order[s, :k].tolist() == expected


def test_farthest_first_spreads_more_than_the_best_scores():
    z = torch.randn(60, 3, generator=torch_rng(0, "spread"))
    d, score = distances(z), torch.arange(60.0)
    far = farthest_first(d[None], torch.ones(1, 60, dtype=torch.bool), score[None], 10)[
        0
    ]
    off = ~torch.eye(10, dtype=torch.bool)
    top = score.topk(10).indices
    assert d[far][:, far][off].min() > 2 * d[top][:, top][off].min()


def test_mahalanobis_matches_the_definition():
    z = torch.randn(40, 5, generator=torch_rng(0, "m"), dtype=torch.float64)
    member = torch.arange(40) < 25
    d = mahalanobis(z, member, 0.1)
    own = z[:25] - z[:25].mean(0)
    inverse = torch.linalg.inv(own.T @ own / 25 + 0.1 * torch.eye(5))
    assert torch.allclose(d[:25], torch.einsum("ni,ij,nj->n", own, inverse, own).sqrt())
    assert not d[25:].any()


def test_the_papers_closeness_is_dead_and_ours_is_not():
    """In 256 dimensions the literal value is 0 for everybody: audit, finding M10."""
    rng = torch_rng(0, "readouts")
    y = (torch.arange(120) >= 60).long()
    z = torch.randn(120, 256, generator=rng) * torch.rand(120, 1, generator=rng).add(
        0.5
    )
    d = mahalanobis(z, y == 0, 1e-4)[:60]
    assert float(d.std() / d.mean()) < 0.01  # sqrt(n - 1) for all
    assert float(d.mean()) == pytest.approx(math.sqrt(59), rel=0.01)
    assert float(paper_closeness(z, y).max()) < 1e-5
    ours = closeness(z, y)
    assert 0.05 < float(ours.std()) < 0.3
    assert 0.1 < float(ours.mean()) < 0.4
    near = z.norm(dim=1)
    assert float(torch.corrcoef(torch.stack([near, ours]))[0, 1]) < -0.8


def test_closeness_survives_a_class_of_one():
    z = torch.randn(5, 3, generator=torch_rng(0, "one"))
    for measure in (closeness, paper_closeness):
        assert measure(z, torch.tensor([0, 0, 0, 0, 1])).isfinite().all()


@pytest.mark.parametrize("patients", [1, 13, 100, 319])
def test_even_split_keeps_class_shares(patients):
    y = (torch.arange(320) < patients).long()[
        torch.randperm(320, generator=torch_rng(0, "y"))
    ]
    kept, held = even_split(y, 64)
    assert sorted(torch.cat([kept, held]).tolist()) == list(range(320))
    assert len(held) == 64
    assert abs(int(y[held].sum()) - patients / 5) <= 1


def test_reservoir_keeps_everybody_equally_often():
    rng, counts = torch_rng(0, "reservoir"), torch.zeros(12)
    for _ in range(2000):
        kept = reservoir(reservoir([], range(6), 4, rng), range(6, 12), 4, rng)
        assert len(set(kept)) == 4
        counts[kept] += 1
    expected = 2000 * 4 / 12
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 30  # 11 degrees of freedom: exceeded once in 600 runs
