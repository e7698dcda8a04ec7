import pytest
import torch
from simulated_site import simulate

from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.generators.fcm_vae import FCMVAE
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.training import kl_per_unit, label_nll, reconstruction_nll
from fcforge.generators.gaussian import within_class_variance
from fcforge.graphs import edges
from fcforge.randomness import torch_rng
from fcforge.types import Component

SMALL = {"d_model": 16, "d_ff": 16, "d_z": 8, "batch_size": 16}


def test_latent_given_y_is_bayes_rule() -> None:
    rng = torch.Generator().manual_seed(0)
    w = torch.randn(4, generator=rng).double()
    p = {
        "head.weight": w[None],
        "head.bias": torch.tensor([0.3]).double(),
        "log_sigma_y": torch.tensor(0.5).double().log(),
    }
    noise = torch.randn(200_000, 4, generator=rng).double()
    z = net.latent_given_y(p, torch.ones(200_000).double(), noise, 0.0)
    cov = torch.linalg.inv(torch.eye(4).double() + torch.outer(w, w) / 0.25)
    mean = cov @ w * (1.0 - 0.3) / 0.25
    assert torch.allclose(z.mean(0), mean, atol=0.01)
    assert torch.allclose(torch.cov(z.T), cov, atol=0.02)


def test_kl_and_likelihoods_by_hand() -> None:
    mu, log_var = torch.tensor([[1.0]]), torch.tensor([[0.0]])
    assert kl_per_unit(mu, log_var).item() == 0.5
    q = torch.distributions.Normal(0.7, 1.3)
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0))
    got = kl_per_unit(torch.tensor([[0.7]]), torch.tensor([[1.3]]).square().log())
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)
    x, eta = torch.tensor([[0.2, -0.5]]), torch.tensor([[0.1, 0.3]])
    poisson = (eta.exp() - x.exp() * eta).sum()
    assert reconstruction_nll({}, x, eta, FCMVAE.paper()).item() == pytest.approx(poisson.item())
    assert reconstruction_nll({}, x, eta, FCMVAE.authors()).item() == pytest.approx(
        poisson.item() / 2
    )
    p = {"log_noise": torch.zeros(2)}
    gauss = 0.5 * (x - eta).square().sum()
    assert reconstruction_nll(p, x, eta, FCMVAE()).item() == pytest.approx(gauss.item())


def test_label_noise_has_a_floor() -> None:
    p = {
        "head.weight": torch.zeros(1, 2),
        "head.bias": torch.zeros(1),
        "log_sigma_y": torch.tensor(-20.0),
    }
    out = label_nll(p, torch.zeros(1, 2), torch.ones(1), 0.1)
    assert out.item() == pytest.approx(0.5 * 100 - 2.302585, rel=1e-4)


def test_interaction_is_the_low_rank_form() -> None:
    s = FCMVAE.paper(**SMALL)
    p = net.init(5, 2, s, torch_rng(0))
    z = torch.randn(3, 8, generator=torch_rng(1))
    omega = net.interaction(p, z, 5, s)
    u = (z[1] @ p["factors.weight"].T + p["factors.bias"]).view(5, s.rank)
    by_hand = sum(p["alpha"][r] * u[0, r] * u[2, r] for r in range(s.rank))
    assert omega[1, 1].item() == pytest.approx(by_hand.item(), abs=1e-6)  # edge (0, 2)


def odd_share(s) -> float:
    """Share of the decoder's variance over z that is odd in z."""
    p = net.init(12, 2, s, torch_rng(0))
    z = torch.randn(400, s.d_z, generator=torch_rng(1))
    plus, minus = net.interaction(p, z, 12, s), net.interaction(p, -z, 12, s)
    odd, even = 0.5 * (plus - minus), 0.5 * (plus + minus)
    return float(odd.var(0).sum() / (odd.var(0).sum() + even.var(0).sum()))


def test_published_decoder_is_even_in_z_and_the_careful_one_is_not() -> None:
    assert odd_share(FCMVAE.authors(**SMALL)) < 0.05
    assert odd_share(FCMVAE(**SMALL)) > 0.5


def test_ablations_remove_their_part(small_site) -> None:
    fc = small_site.fc[:4]
    full = FCMVAE(**SMALL)
    p = net.init(12, 2, full, torch_rng(0))
    base = net.encode(p, net.prepare(fc, full), full)[0]
    for switch in ("node_feature", "lae", "sge"):
        s = FCMVAE(**SMALL, **{switch: False})
        inputs = net.prepare(fc, s)
        assert not torch.allclose(net.encode(p, inputs, s)[0], base)
    blind = net.prepare(fc, FCMVAE(**SMALL, node_feature=False))
    assert (blind["features"][..., :12] == 0).all()
    # Without LAE the adjacency bias is not read at all.
    s = FCMVAE(**SMALL, lae=False)
    inputs = net.prepare(fc, s)
    changed = {**inputs, "bias": inputs["bias"] + 5.0 * torch.rand(4, 12, 12)}
    assert torch.equal(net.encode(p, inputs, s)[0], net.encode(p, changed, s)[0])


def test_authors_biases_are_inert_at_the_start(small_site) -> None:
    s = FCMVAE.authors(**SMALL)
    p = net.init(12, 2, s, torch_rng(0))
    inputs = net.prepare(small_site.fc[:3], s)
    off = FCMVAE.authors(lae=False, sge=False, **SMALL)
    assert torch.allclose(net.encode(p, inputs, s)[0], net.encode(p, inputs, off)[0], atol=1e-6)


@pytest.fixture(scope="module")
def fitted():
    site = simulate(60, rois=24, seed=3, effect=1.5)
    out = {}
    for preset in ("authors", "careful"):
        more = {"lr": 1e-2} if preset == "careful" else {}
        gen = getattr(FCMVAE, preset)(epochs=40, **more, **SMALL)
        state = gen.fit(site, torch_rng(0))
        labels = torch.arange(200) % 2
        out[preset] = gen, state, gen.sample(state, labels, torch_rng(1))
    return site, out


def test_authors_collapse_and_careful_does_not(fitted) -> None:
    site, out = fitted
    real = within_class_variance(edges(site.fc), site.y).mean()
    ratio, kl = {}, {}
    for preset, (gen, state, fake) in out.items():
        ratio[preset] = within_class_variance(edges(fake.fc), fake.y).mean() / real
        kl[preset] = gen.diagnostics(state)["kl_nats"]
    assert ratio["authors"] < 0.2
    assert 0.8 < ratio["careful"] < 1.2
    assert kl["careful"] > 3 * kl["authors"]
    gen, state, _ = out["careful"]
    assert gen.diagnostics(state)["active_units"] >= 4


def test_careful_carries_the_diagnosis_and_is_valid(fitted) -> None:
    site, out = fitted
    _, _, fake = out["careful"]
    assert torch.linalg.eigvalsh(fake.fc.double()).min() > 0
    pair = []
    for batch in (site, fake):
        e = edges(batch.fc)
        pair.append(e[batch.y == 1].mean(0) - e[batch.y == 0].mean(0))
    assert torch.corrcoef(torch.stack(pair))[0, 1] > 0.95


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="careful"):
        make_generator(Component("fcm_vae", {"preset": "carefull"}))
