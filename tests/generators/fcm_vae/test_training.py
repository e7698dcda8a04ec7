"""FCM-VAE's objective by hand on three ROIs, its training loop, and sites side by side.

Lanes in float64: the keys' bias has no gradient but rounding, and Adam makes steps of any gradient.
"""

import math

import pytest
import torch
from simulated_site import simulate

from fcforge.core.errors import DataError
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators.fcm_vae import AuthorsVAE, PaperVAE, StableVAE
from fcforge.generators.fcm_vae.training import (
    LaneBatches,
    Lanes,
    adam_step,
    train,
    train_lanes,
)
from fcforge.generators.latent import kl_per_unit
from fcforge.graphs import edges
from fcforge.nn.adam import Adam

VARIANTS = StableVAE.variants
SMALL = {"d_model": 16, "d_ff": 16, "d_z": 8, "batch_size": 16}


def test_kl_and_likelihoods_by_hand() -> None:
    mu, log_var = torch.tensor([[1.0]]), torch.tensor([[0.0]])
    assert kl_per_unit(mu, log_var).item() == 0.5
    q = torch.distributions.Normal(0.7, 1.3)
    expected = torch.distributions.kl_divergence(
        q, torch.distributions.Normal(0.0, 1.0)
    )
    got = kl_per_unit(torch.tensor([[0.7]]), torch.tensor([[1.3]]).square().log())
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)
    x, eta = torch.tensor([[0.2, -0.5]]), torch.tensor([[0.1, 0.3]])
    poisson = (eta.exp() - x.exp() * eta).sum()
    assert PaperVAE().reconstruction_nll({}, x, eta).item() == pytest.approx(
        poisson.item()
    )
    assert AuthorsVAE().reconstruction_nll({}, x, eta).item() == pytest.approx(
        poisson.item() / 2
    )
    p = {"log_noise": torch.zeros(2)}
    gauss = 0.5 * (x - eta).square().sum()
    assert StableVAE().reconstruction_nll(p, x, eta).item() == pytest.approx(
        gauss.item()
    )


def test_label_noise_has_a_floor() -> None:
    p = {
        "head.weight": torch.zeros(1, 2),
        "head.bias": torch.zeros(1),
        "log_sigma_y": torch.tensor(-20.0),
    }
    out = StableVAE().label_nll(p, torch.zeros(1, 2), torch.ones(1))
    assert out.item() == pytest.approx(0.5 * 100 - 2.302585, rel=1e-4)


def still_life(s, rois: int = 3):
    """A network whose encoder says mu 0.5, log variance 0 and whose decoder hears only z_0."""
    p = {k: torch.zeros_like(v) for k, v in s.init(rois, torch_rng(0)).items()}
    p["mu.bias"] = torch.full((s.d_z,), 0.5)
    p["factors.weight"][:, 0] = 1.0  # U_ur(z) = z_0 everywhere
    p["alpha"] = torch.full((s.rank,), 0.1)
    p["head.weight"][0, 0], p["head.bias"] = 2.0, torch.tensor([0.25])
    p["log_sigma_y"] = torch.tensor(0.5).log()
    p["gate_scale"] = torch.tensor(8.0)  # only the authors' gate has one
    return p


def batch_of_one(s, y: int = 1) -> dict[str, torch.Tensor]:
    fc = torch.tensor([[[1.0, 0.8, -0.5], [0.8, 1.0, 0.4], [-0.5, 0.4, 1.0]]])
    target = torch.tensor([[0.3, -0.2, 0.1]])
    return {
        **s.prepare(fc),
        "target": target,
        "y": torch.tensor([y]),
        "weight": torch.ones(1),
    }


def assert_parts(terms, parts: dict[str, float]) -> None:
    """Every term of the ELBO is what was computed by hand."""
    for name, value in parts.items():
        assert float(getattr(terms, name)) == pytest.approx(value, rel=1e-5), name


def test_the_paper_elbo_of_three_rois_by_hand() -> None:
    tiny = {"d_model": 2, "heads": 1, "d_ff": 2, "layers": 1, "k_pe": 1, "d_z": 2}
    s = PaperVAE(**tiny, rank=4, dropout=0.0)
    noise = torch.tensor([[1.0, 0.0]])
    p = still_life(s)
    p["factors_hidden.weight"][0, 0] = 1.0  # U_ur(z) = gelu(z_0) everywhere
    loss, terms = s.negative_elbo(p, batch_of_one(s), noise, {}, s.beta)
    z0 = 0.5 + 1.0
    logit = math.log(0.01 / 0.99)
    gate = [
        -math.log1p(math.exp(-(a + logit))) for a in (1.0, 0.0, 1.0)
    ]  # edges 01, 02, 12
    u = z0 * 0.5 * (1 + math.erf(z0 / math.sqrt(2)))
    eta = [4 * 0.1 * u**2 + g for g in gate]
    reconstruction = sum(
        math.exp(e) - math.exp(x) * e
        for e, x in zip(eta, (0.3, -0.2, 0.1), strict=True)
    )
    label = 0.5 * ((1 - (0.25 + 2 * z0)) / 0.5) ** 2 + math.log(0.5)
    kl = 2 * 0.5 * 0.5**2
    parts = {"reconstruction": reconstruction, "label": label, "kl": kl}
    assert_parts(terms, parts)
    assert float(loss) == pytest.approx(reconstruction + label + 2 * kl, rel=1e-5)


def test_the_authors_objective_differs_where_their_code_does() -> None:
    s = AuthorsVAE(
        d_model=2, heads=1, d_ff=2, layers=1, k_pe=1, d_z=2, rank=4, dropout=0.0
    )
    noise = torch.tensor([[1.0, 0.0]])
    loss, terms = s.negative_elbo(still_life(s), batch_of_one(s), noise, {}, s.beta)
    logit = math.log(0.01 / 0.99)
    gate = [-math.log1p(math.exp(-(8 * a + logit))) for a in (1.0, 0.0, 1.0)]
    # rows of U scaled to length 1: each of 4 entries is 1/2, so omega = 4 * 0.1 / 4
    eta = [0.1 + g for g in gate]
    reconstruction = (
        sum(
            math.exp(e) - math.exp(x) * e
            for e, x in zip(eta, (0.3, -0.2, 0.1), strict=True)
        )
        / 3
    )
    label = 0.5 * ((1 - (0.25 + 2 * 0.5)) / 0.5) ** 2 + math.log(
        0.5
    )  # the head reads the mean
    parts = {"reconstruction": reconstruction, "label": label, "kl": 0.25}
    assert_parts(terms, parts)
    assert float(loss) == pytest.approx(reconstruction + label + 2 * 0.25, rel=1e-5)


def test_the_stable_objective_is_gaussian_with_free_bits() -> None:
    s = StableVAE(
        d_model=2, heads=1, d_ff=2, layers=1, k_pe=1, d_z=2, rank=4, free_bits=0.2
    )
    p = still_life(s)
    p["baseline"] = torch.tensor(
        [[9.0, 9.0, 9.0], [0.1, 0.1, 0.1]]
    )  # y = 1 takes the second
    p["log_noise"] = torch.tensor([0.0, math.log(4.0), 0.0])
    noise = torch.tensor([[-0.5, 0.0]])  # z_0 = 0: nothing moves
    loss, terms = s.negative_elbo(p, batch_of_one(s), noise, {}, 1.0)
    gaps = [(0.3 - 0.1) ** 2, (-0.2 - 0.1) ** 2 / 4 + math.log(4.0), 0.0]
    label = 0.5 * ((1 - 0.25) / 0.5) ** 2 + math.log(0.5)
    # the KL term is what the units cost, the loss has what is not free
    parts = {"reconstruction": 0.5 * sum(gaps), "label": label, "kl": 0.25}
    assert_parts(terms, parts)
    # either unit costs 0.125 nats, less than the 0.2 that are free: both count as 0.2
    assert float(loss) == pytest.approx(0.5 * sum(gaps) + label + 0.4, rel=1e-5)


def test_weights_leave_out_what_only_fills_the_batch(small_site) -> None:
    s = StableVAE(**SMALL)
    p = s.init(12, torch_rng(0))
    fc, y = small_site.fc[:5], small_site.y[:5]
    target = torch.randn(5, 66, generator=torch_rng(1))
    noise = torch.randn(5, 8, generator=torch_rng(2))
    whole = {**s.prepare(fc), "target": target, "y": y, "weight": torch.ones(5)}
    three = {k: v[:3] for k, v in whole.items()}
    expected = s.negative_elbo(p, three, noise[:3], {}, 1.0)[0]
    filled = {**whole, "weight": torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])}
    torch.testing.assert_close(s.negative_elbo(p, filled, noise, {}, 1.0)[0], expected)
    idle = {**whole, "weight": torch.zeros(5)}
    assert torch.isfinite(s.negative_elbo(p, idle, noise, {}, 1.0)[0])


def test_the_kl_warms_up() -> None:
    s = StableVAE(beta=2.0, warmup=4)
    assert [s.kl_weight(e) for e in range(5)] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert PaperVAE().kl_weight(0) == 2.0


def test_baselines_start_at_what_fits_best(small_site) -> None:
    y = small_site.y
    target = torch.randn(40, 66, generator=torch_rng(0))
    s = StableVAE(**SMALL)
    subjects = {**s.prepare(small_site.fc), "target": target, "y": y}
    p = s.initial_params(subjects, torch_rng(1))
    p |= {k: v.requires_grad_() for k, v in p.items() if k in ("baseline", "log_noise")}
    s.reconstruction_nll(p, target, p["baseline"][y]).sum().backward()
    assert p["baseline"].grad.abs().max() < 1e-3  # a stationary point
    published = PaperVAE(**SMALL).initial_params(subjects, torch_rng(1))
    assert (published["baseline"] == 0).all()


def test_training_lowers_the_objective(small_site) -> None:
    s = StableVAE(epochs=30, lr=1e-2, warmup=0, **SMALL)
    _, site = s.prepare_site(simulate(40))
    (params,) = train(s, [site], [torch_rng(0)])[0]
    assert not any(v.requires_grad for v in params.values())
    batch = {**site, "weight": torch.ones(40)}
    noise = torch.randn(40, s.d_z, generator=torch_rng(1))
    before, after = (
        s.negative_elbo(p, batch, noise, {}, 1.0)[0]
        for p in (s.initial_params(site, torch_rng(0)), params)
    )
    assert after < before - 5


LANES_SMALL = {
    "d_model": 8,
    "d_ff": 8,
    "d_z": 4,
    "rank": 4,
    "k_pe": 3,
    "batch_size": 8,
    "epochs": 3,
}


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def sites_of(s, sizes=(9, 16, 21)):
    found = []
    for i, n in enumerate(sizes):
        _, site = s.prepare_site(simulate(n, rois=6, seed=i))
        found.append(
            {k: v.double() if v.is_floating_point() else v for k, v in site.items()}
        )
    return found


@pytest.mark.rounding
@pytest.mark.parametrize("variant", ["stable", "paper", "authors"])
def test_a_lane_is_the_site_alone(variant, double) -> None:
    """Sites of 2, 2 and 3 steps per epoch, the last ones of odd size."""
    s = VARIANTS[variant](**{**LANES_SMALL, "heads": 2})
    sites = sites_of(s)
    rngs = [torch_rng(i) for i in range(3)]
    together, histories = train_lanes(s, sites, rngs)
    for i, site in enumerate(sites):
        (alone,), (history,) = train(s, [site], [torch_rng(i)])
        torch.testing.assert_close(histories[i], history, atol=1e-7, rtol=1e-6)
        assert list(alone) == list(together[i])
        for name, value in alone.items():
            laned = together[i][name]
            torch.testing.assert_close(laned, value, atol=1e-7, rtol=1e-6)
    assert not torch.equal(together[0]["mu.weight"], together[1]["mu.weight"])


@pytest.mark.rounding
def test_fits_of_lanes_are_the_fits_alone() -> None:
    """The whole state, in float32 and to its tolerance; the authors' attention has no biases."""
    gen = AuthorsVAE(**LANES_SMALL)
    batches = [simulate(n, rois=6, seed=i) for i, n in enumerate((10, 15))]
    together = gen.fit_lanes(batches, [torch_rng(i) for i in range(2)])
    for i, batch in enumerate(batches):
        alone = gen.fit(batch, torch_rng(i))
        assert set(alone.named()) == set(together[i].named())
        y = torch.arange(6) % 2
        fc = [
            edges(gen.sample(state, y, torch_rng(9)).fc)
            for state in (alone, together[i])
        ]
        torch.testing.assert_close(*fc, atol=1e-4, rtol=1e-3)
        assert torch.equal(alone.counts, together[i].counts)


def test_adam_of_lanes_is_torchs_where_a_lane_works(double) -> None:
    s = StableVAE(lr=0.1, clip=1.0)
    rows = {"w": torch.randn(2, 5, generator=torch_rng(0))}
    lanes = Lanes(rows, torch.func.vmap(Adam.start)(rows), torch.zeros(2, 3))
    theirs = [row.clone().requires_grad_() for row in rows["w"]]
    torchs = [torch.optim.Adam([row], lr=0.1) for row in theirs]
    for i in range(6):
        gradient = torch.randn(2, 5, generator=torch_rng(1, i))
        active = torch.tensor(
            [True, i % 2 == 0]
        )  # the second lane works every other step
        lanes = adam_step(s, lanes, {"w": gradient}, active)
        for lane in (0, 1):
            if active[lane]:
                theirs[lane].grad = gradient[lane].clone()
                torch.nn.utils.clip_grad_norm_([theirs[lane]], 1.0)
                torchs[lane].step()
    expected = torch.stack([t.detach() for t in theirs])
    torch.testing.assert_close(lanes.params["w"], expected, atol=1e-6, rtol=1e-6)
    assert lanes.optimiser.t.tolist() == [6.0, 3.0]


def test_an_epoch_shows_every_subject_once_and_lets_short_lanes_rest() -> None:
    s = StableVAE(**LANES_SMALL)
    sites = [
        s.prepare_site(simulate(n, rois=6, seed=i))[1] for i, n in enumerate((5, 17))
    ]
    for i, site in enumerate(sites):
        site["y"] = torch.arange(len(site["y"])) + 100 * i  # who is who
    batches = LaneBatches(s, sites, [torch_rng(0), torch_rng(1)])
    steps = list(batches.epoch())
    assert len(steps) == 3  # 17 subjects by eights
    assert [step.weight.sum(1).tolist() for step in steps] == [[5, 8], [0, 8], [0, 1]]
    for lane, n in ((0, 5), (1, 17)):
        rows = torch.cat([step.rows[lane][step.weight[lane] > 0] for step in steps])
        assert sorted(batches.bank["y"][rows].tolist()) == [
            100 * lane + i for i in range(n)
        ]


def test_one_unusable_site_stops_all_before_training() -> None:
    good = simulate(12, rois=6)
    with pytest.raises(DataError, match="too few"):
        StableVAE(**LANES_SMALL).fit_lanes(
            [good, good.select(slice(0, 2))], [torch_rng(0), torch_rng(1)]
        )
    bad = FCBatch(good.fc * torch.nan, good.y)
    with pytest.raises(DataError, match="not a correlation"):
        StableVAE(**LANES_SMALL).fit_lanes([good, bad], [torch_rng(0), torch_rng(1)])
