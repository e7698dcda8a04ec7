"""Independent edges: moments by hand, and samples that are no correlation matrices."""

import torch

from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators.edge_gauss import EdgeGauss
from fcforge.graphs import edges


def test_edge_gauss_has_independent_edges(small_site) -> None:
    gen = EdgeGauss()
    labels = torch.arange(2000) % 2
    state = gen.fit(small_site, torch_rng(0))
    e = torch.atanh(edges(gen.sample(state, labels, torch_rng(1)).fc))
    residual = e - state.model.mean[labels]
    corr = torch.corrcoef(residual.T) - torch.eye(residual.shape[1])
    assert corr.abs().max() < 0.12
    assert torch.allclose(residual.std(0), state.model.sd, rtol=0.1)


def test_means_and_spreads_by_hand() -> None:
    z = torch.tensor([[0.0], [0.2], [0.4], [1.0]])
    fc = torch.eye(2).expand(4, 2, 2).clone()
    fc[:, 0, 1] = fc[:, 1, 0] = torch.tanh(z[:, 0])
    state = EdgeGauss().fit(FCBatch(fc, torch.tensor([0, 0, 1, 1])), torch_rng(0))
    torch.testing.assert_close(state.model.mean, torch.tensor([[0.1], [0.7]]))
    # squares 0.02 and 0.18 within the classes, two degrees of freedom
    torch.testing.assert_close(state.model.sd, torch.tensor([0.1]).sqrt())


def test_samples_are_not_correlation_matrices(small_site) -> None:
    gen = EdgeGauss()
    out = gen.sample(
        gen.fit(small_site, torch_rng(0)), torch.arange(50) % 2, torch_rng(1)
    )
    assert (torch.linalg.eigvalsh(out.fc)[:, 0] < 0).float().mean() > 0.2
