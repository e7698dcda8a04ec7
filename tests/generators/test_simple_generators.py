import torch

from fcforge.generators.bootstrap import Bootstrap
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.edge_gauss import EdgeGauss
from fcforge.generators.gaussian import within_class_variance
from fcforge.graphs import edges
from fcforge.randomness import torch_rng


def test_bootstrap_returns_members_of_the_right_class(small_site) -> None:
    gen = Bootstrap()
    labels = torch.tensor([0, 1] * 10)
    out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
    assert gen.releases == "real subjects"
    for fc, label in zip(out.fc, labels, strict=True):
        match = (small_site.fc == fc).all(-1).all(-1).nonzero().flatten()
        assert match.numel() == 1
        assert small_site.y[match[0]] == label


def difference(fc: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    e = edges(fc)
    return e[y == 1].mean(0) - e[y == 0].mean(0)


def test_corr_gauss_is_valid_and_carries_means_variance_and_class(small_site) -> None:
    gen = CorrGauss()
    labels = torch.arange(600) % 2
    out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
    assert torch.linalg.eigvalsh(out.fc.double()).min() > 0
    real, fake = edges(small_site.fc), edges(out.fc)
    assert (real.mean(0) - fake.mean(0)).abs().mean() < 0.04
    ratio = (
        within_class_variance(fake, labels).mean()
        / within_class_variance(real, small_site.y).mean()
    )
    assert 0.85 < ratio < 1.15
    pair = torch.stack([difference(small_site.fc, small_site.y), difference(out.fc, labels)])
    assert torch.corrcoef(pair)[0, 1] > 0.9


def test_variance_match_moves_the_variance(small_site) -> None:
    labels = torch.arange(300) % 2
    ratios = {}
    for match in (True, False):
        gen = CorrGauss(variance_match=match, covariance_shrink=0.6)
        out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
        v = within_class_variance(edges(out.fc), labels).mean()
        ratios[match] = float(v / within_class_variance(edges(small_site.fc), small_site.y).mean())
    assert abs(ratios[True] - 1) < abs(ratios[False] - 1)


def test_edge_gauss_has_independent_edges(small_site) -> None:
    gen = EdgeGauss()
    labels = torch.arange(2000) % 2
    state = gen.fit(small_site, torch_rng(0))
    e = torch.atanh(edges(gen.sample(state, labels, torch_rng(1)).fc))
    residual = e - state["mean"][labels]
    corr = torch.corrcoef(residual.T) - torch.eye(residual.shape[1])
    assert corr.abs().max() < 0.12
    assert torch.allclose(residual.std(0), state["sd"], rtol=0.1)
