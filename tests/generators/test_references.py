"""The ends of the scale: real subjects again, and independent edges."""

import torch

from fcforge.generators.references import Bootstrap, EdgeGauss
from fcforge.graphs import edges
from fcforge.randomness import torch_rng
from fcforge.types import FCBatch


def test_bootstrap_returns_members_of_the_right_class(small_site) -> None:
    gen = Bootstrap()
    labels = torch.tensor([0, 1] * 10)
    out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
    assert gen.releases == "real subjects"
    for fc, label in zip(out.fc, labels, strict=True):
        match = (small_site.fc == fc).all(-1).all(-1).nonzero().flatten()
        assert match.numel() == 1
        assert small_site.y[match[0]] == label


def test_a_class_is_drawn_evenly(small_site) -> None:
    gen = Bootstrap()
    state = gen.fit(small_site, torch_rng(0))
    out = gen.sample(state, torch.ones(4000, dtype=torch.int64), torch_rng(1))
    patients = small_site.fc[small_site.y == 1]
    share = [float((out.fc == fc).all(-1).all(-1).float().mean()) for fc in patients]
    assert min(share) > 0.5 / len(patients)
    assert max(share) < 1.5 / len(patients)


def test_two_subjects_are_enough(small_site) -> None:
    pair = small_site.select(slice(0, 2))
    out = Bootstrap().sample(Bootstrap().fit(pair, torch_rng(0)), pair.y, torch_rng(1))
    assert torch.equal(out.fc, pair.fc)


def test_the_state_is_a_copy(small_site) -> None:
    state = Bootstrap().fit(small_site, torch_rng(0))
    state["fc"].zero_()
    assert small_site.fc.abs().sum() > 0


def test_edge_gauss_has_independent_edges(small_site) -> None:
    gen = EdgeGauss()
    labels = torch.arange(2000) % 2
    state = gen.fit(small_site, torch_rng(0))
    e = torch.atanh(edges(gen.sample(state, labels, torch_rng(1)).fc))
    residual = e - state["mean"][labels]
    corr = torch.corrcoef(residual.T) - torch.eye(residual.shape[1])
    assert corr.abs().max() < 0.12
    assert torch.allclose(residual.std(0), state["sd"], rtol=0.1)


def test_means_and_spreads_by_hand() -> None:
    z = torch.tensor([[0.0], [0.2], [0.4], [1.0]])
    fc = torch.eye(2).expand(4, 2, 2).clone()
    fc[:, 0, 1] = fc[:, 1, 0] = torch.tanh(z[:, 0])
    state = EdgeGauss().fit(FCBatch(fc, torch.tensor([0, 0, 1, 1])), torch_rng(0))
    torch.testing.assert_close(state["mean"], torch.tensor([[0.1], [0.7]]))
    # squares 0.02 and 0.18 within the classes, two degrees of freedom
    torch.testing.assert_close(state["sd"], torch.tensor([0.1]).sqrt())


def test_samples_are_not_correlation_matrices(small_site) -> None:
    gen = EdgeGauss()
    out = gen.sample(
        gen.fit(small_site, torch_rng(0)), torch.arange(50) % 2, torch_rng(1)
    )
    assert (torch.linalg.eigvalsh(out.fc)[:, 0] < 0).float().mean() > 0.2
