import pytest
import torch

from fcforge.errors import ConfigError
from fcforge.generators.corr_gauss import CorrGauss, within_class_variance
from fcforge.graphs import edges, log_edges
from fcforge.randomness import torch_rng


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


def test_moments_of_the_coordinates_are_those_of_the_subjects(small_site) -> None:
    """Without matching, samples in off-log coordinates have the fitted mean and covariance."""
    gen = CorrGauss(variance_match=False, mean_match=False, covariance_shrink=0.0)
    state = gen.fit(small_site, torch_rng(0))
    y = torch.arange(20000) % 2
    noise = gen.noise(state, y, torch_rng(1))
    x = log_edges(small_site.fc, 0.02)
    for c in (0, 1):
        torch.testing.assert_close(state["mean"][c], x[small_site.y == c].mean(0))
    residual = torch.cat([x[small_site.y == c] - x[small_site.y == c].mean(0) for c in (0, 1)])
    expected = residual.T @ residual / 38
    error = (torch.cov(noise.T) - expected).norm() / expected.norm()
    assert float(error) < 0.08  # sampling error of 20,000 draws is about 0.035


def test_rank_and_class_keep_do_what_they_say(small_site) -> None:
    gen = CorrGauss(rank=3, class_keep=0.0)
    state = gen.fit(small_site, torch_rng(0))
    assert state["factors"].shape == (3, 66)
    assert gen.diagnostics(state)["rank"] == 3
    torch.testing.assert_close(state["mean"][0], state["mean"][1])
    torch.testing.assert_close(state["class_fc"][0], state["class_fc"][1])


def test_antithetic_draws_have_the_exact_mean_in_coordinates(small_site) -> None:
    gen = CorrGauss(antithetic=True)
    state = gen.fit(small_site, torch_rng(0))
    y = torch.tensor([0, 0, 1, 1, 0, 0])
    noise = gen.noise(state, y, torch_rng(1))
    torch.testing.assert_close(noise[y == 0].mean(0), torch.zeros(66), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"shrink": 1.0}, "shrink = 1.0 is not a share below 1"),
        ({"covariance_shrink": 1.5}, "covariance_shrink = 1.5 is not a share"),
        ({"rank": 0}, "rank = 0 is too small"),
        ({"variance_match": "yes"}, "variance_match = 'yes' is not true or false"),
    ],
)
def test_settings_out_of_range_are_refused(setting, words) -> None:
    with pytest.raises(ConfigError, match=words):
        CorrGauss(**setting)
