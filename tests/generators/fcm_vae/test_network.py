"""FCM-VAE's network by hand: inputs, attention, dropout, decoder, Bayes' rule."""

import math

import pytest
import torch

from fcforge.core.randomness import torch_rng
from fcforge.generators.fcm_vae import AuthorsVAE, PaperVAE, StableVAE
from fcforge.generators.latent import latent_given_y
from fcforge.graphs import edges, from_edges

VARIANTS = StableVAE.variants
SMALL = {"d_model": 16, "d_ff": 16, "d_z": 8, "batch_size": 16}
# three ROIs: 0 - 1 strong, 1 - 2 at the threshold, 0 - 2 below it
CHAIN = from_edges(torch.tensor([[0.8, -0.5, 0.4]]))


def test_latent_given_y_is_bayes_rule() -> None:
    rng = torch.Generator().manual_seed(0)
    w = torch.randn(4, generator=rng).double()
    p = {
        "head.weight": w[None],
        "head.bias": torch.tensor([0.3]).double(),
        "log_sigma_y": torch.tensor(0.5).double().log(),
    }
    noise = torch.randn(200_000, 4, generator=rng).double()
    z = latent_given_y(p, torch.ones(200_000).double(), noise, 0.0)
    cov = torch.linalg.inv(torch.eye(4).double() + torch.outer(w, w) / 0.25)
    mean = cov @ w * (1.0 - 0.3) / 0.25
    assert torch.allclose(z.mean(0), mean, atol=0.01)
    assert torch.allclose(torch.cov(z.T), cov, atol=0.02)


def test_interaction_is_the_low_rank_form() -> None:
    s = StableVAE(**SMALL)
    p = s.init(5, torch_rng(0))
    z = torch.randn(3, 8, generator=torch_rng(1))
    omega = s.interaction(p, z, 5)
    u0 = p["factors.bias"].view(5, s.rank)
    u = u0 + (z[1] @ p["factors.weight"].T).view(5, s.rank)
    parts = (
        p["alpha"][r] * (u[0, r] * u[2, r] - u0[0, r] * u0[2, r]) for r in range(s.rank)
    )
    by_hand = sum(parts)
    assert omega[1, 1].item() == pytest.approx(by_hand.item(), abs=1e-6)  # edge (0, 2)


def test_the_papers_factors_are_not_linear_in_z() -> None:
    """U(z) = W gelu(V z + c) + b, as one hidden layer; the authors' is linear."""
    s = PaperVAE(**SMALL)
    p = s.init(5, torch_rng(0))
    z = torch.randn(2, 8, generator=torch_rng(1))
    hidden = z @ p["factors_hidden.weight"].T + p["factors_hidden.bias"]
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    u = (hidden @ p["factors.weight"].T + p["factors.bias"]).view(2, 5, s.rank)
    by_hand = (p["alpha"] * u[1, 0] * u[1, 2]).sum()
    found = s.interaction(p, z, 5)
    assert found[1, 1].item() == pytest.approx(by_hand.item(), abs=1e-6)
    assert "factors_hidden.weight" not in AuthorsVAE(**SMALL).init(5, torch_rng(0))


def test_spectral_weights_start_as_the_authors_draw_them() -> None:
    """xavier_uniform_ of (4, 16, 64): bound sqrt(6 / (64 (16 + 4))), 3.65 times below 1/4."""
    authors, paper = (
        s.init(5, torch_rng(0))["layer0.spectral.weight"]
        for s in (AuthorsVAE(), PaperVAE())
    )
    bound = math.sqrt(6 / 1280)
    assert 0.95 * bound < float(authors.abs().max()) <= bound
    assert float(paper.abs().max() / authors.abs().max()) == pytest.approx(3.65, 0.05)


def odd_share(s) -> float:
    """Share of the decoder's variance over z that is odd in z."""
    p = s.init(12, torch_rng(0))
    z = torch.randn(2000, s.d_z, generator=torch_rng(1))
    plus, minus = s.interaction(p, z, 12), s.interaction(p, -z, 12)
    odd, even = 0.5 * (plus - minus), 0.5 * (plus + minus)
    return float(odd.var(0).sum() / (odd.var(0).sum() + even.var(0).sum()))


def test_published_decoder_is_even_in_z_and_the_stable_one_is_not() -> None:
    # 1.8 % was measured on the authors' own network
    assert odd_share(AuthorsVAE(d_model=16, d_ff=16)) == pytest.approx(0.018, abs=0.01)
    assert odd_share(StableVAE(**SMALL)) > 0.5


def test_ablations_remove_their_part(small_site) -> None:
    fc = small_site.fc[:4]
    full = StableVAE(**SMALL)
    p = full.init(12, torch_rng(0))
    base = full.encode(p, full.prepare(fc))[0]
    for switch in ("node_feature", "lae", "sge"):
        s = StableVAE(**SMALL, **{switch: False})
        inputs = s.prepare(fc)
        assert not torch.allclose(s.encode(p, inputs)[0], base)
    blind = StableVAE(**SMALL, node_feature=False).prepare(fc)
    assert (blind["features"][..., :12] == 0).all()
    # Without LAE the adjacency bias is not read at all.
    s = StableVAE(**SMALL, lae=False)
    inputs = s.prepare(fc)
    changed = {**inputs, "bias": inputs["bias"] + 5.0 * torch.rand(4, 12, 12)}
    assert torch.equal(s.encode(p, inputs)[0], s.encode(p, changed)[0])


def test_authors_biases_are_inert_at_the_start(small_site) -> None:
    s = AuthorsVAE(**SMALL)
    p = s.init(12, torch_rng(0))
    inputs = s.prepare(small_site.fc[:3])
    off = AuthorsVAE(lae=False, sge=False, **SMALL)
    assert torch.allclose(s.encode(p, inputs)[0], off.encode(p, inputs)[0], atol=1e-6)


def test_inputs_of_three_rois_by_hand() -> None:
    s = AuthorsVAE(k_pe=1)
    found = s.prepare(CHAIN)
    # adjacency 0-1, 1-2 with self loops: degrees 2, 3, 2, not divided by the number of ROIs
    rows = [[0.0, 0.8, -0.5], [0.8, 0.0, 0.4], [-0.5, 0.4, 0.0]]
    torch.testing.assert_close(found["features"][0, :, :3], torch.tensor(rows))
    assert found["features"][0, :, -1].tolist() == [2.0, 3.0, 2.0]
    assert found["bias"][0].tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert found["gate"].tolist() == [[1.0, 0.0, 1.0]]
    # the Laplacian's second vector of a path with loops is antisymmetric: (1, 0, -1) / sqrt 2
    second = found["spectral"][0, :, 0]
    torch.testing.assert_close(
        second.abs(), torch.tensor([0.5, 0.0, 0.5]).sqrt(), atol=1e-6, rtol=0
    )


def test_variants_read_degree_and_diagonal_differently() -> None:
    paper, stable = (s.prepare(CHAIN)["features"][0] for s in (PaperVAE(), StableVAE()))
    assert paper[:, -1].tolist() == [1.0, 2.0, 1.0]  # no self loops, as printed
    torch.testing.assert_close(stable[:, -1], torch.tensor([1.0, 2.0, 1.0]) / 3)
    for features in (paper, stable):
        assert features[:, :3].diagonal().tolist() == [1.0, 1.0, 1.0]


def test_the_authors_attention_has_no_biases_and_draws_the_others() -> None:
    p = AuthorsVAE(**SMALL).init(5, torch_rng(0))
    assert not {f"layer0.{part}.bias" for part in ("qkv", "out", "spectral")} & set(p)
    bound = 1 / math.sqrt(5 + 16 + 1)  # torch.nn.Linear: U(-1/sqrt(n_in), 1/sqrt(n_in))
    assert 0.5 * bound < p["input.bias"].abs().max() <= bound
    assert p["input.weight"].abs().max() <= bound
    stable = StableVAE(**SMALL).init(5, torch_rng(0))
    assert (stable["input.bias"] == 0).all()
    assert (stable["layer0.qkv.bias"] == 0).all()


def test_log_variances_are_bounded_unless_the_authors_say_so() -> None:
    fc = CHAIN.repeat(2, 1, 1)
    for s, expected in ((StableVAE(**SMALL), 4.0), (AuthorsVAE(**SMALL), 50.0)):
        p = s.init(3, torch_rng(0))
        p["log_var.weight"], p["log_var.bias"] = (
            torch.zeros(8, 16),
            torch.full((8,), 50.0),
        )
        assert float(s.encode(p, s.prepare(fc))[1].max()) == expected


def test_attention_of_one_head_by_hand() -> None:
    """softmax(QK'/sqrt d + (Phi W)(Phi W)'/sqrt d + A + I) V, written out."""
    s = PaperVAE(d_model=2, heads=1, d_ff=2, layers=1, k_pe=1, d_z=1, rank=1)
    p = s.init(3, torch_rng(0))
    inputs = s.prepare(CHAIN)
    x = torch.randn(1, 3, 2, generator=torch_rng(1))
    got = s.attend(p, "layer0", x, inputs, lambda place, t, rows: t)
    w = p["layer0.qkv.weight"]
    q, k, v = (x[0] @ w[i : i + 2].T for i in (0, 2, 4))
    place = inputs["spectral"][0] @ p["layer0.spectral.weight"].T
    scores = (q @ k.T + place @ place.T) / math.sqrt(2) + inputs["bias"][0]
    expected = torch.softmax(scores, -1) @ v @ p["layer0.out.weight"].T
    torch.testing.assert_close(got[0], expected)


@pytest.mark.parametrize(
    ("variant", "places"),
    [
        ("paper", {"out": (4, 12, 16), "ff2": (4, 12, 16)}),
        (
            "authors",
            {"attention": (4, 4, 12, 12), "hidden": (4, 12, 16), "ff2": (4, 12, 16)},
        ),
    ],
)
def test_dropout_is_where_the_variant_has_it(variant, places) -> None:
    s = VARIANTS[variant](**SMALL)
    masks = s.dropout_masks(4, 12, torch_rng(0))
    assert {k: tuple(m.shape) for k, m in masks.items()} == {
        f"layer{i}.{place}": shape for i in (0, 1) for place, shape in places.items()
    }
    kept = torch.cat([m.flatten().float() for m in masks.values()])
    assert kept.mean().item() == pytest.approx(0.9, abs=0.02)
    assert StableVAE(**SMALL).dropout_masks(4, 12, torch_rng(0)) == {}


def test_dropping_nothing_only_scales(small_site) -> None:
    """Masks of ones multiply the places they stand at by 1 / (1 - p)."""
    s = AuthorsVAE(dropout=0.5, **SMALL)
    p = s.init(12, torch_rng(0))
    inputs = s.prepare(small_site.fc[:2])
    ones = {
        k: torch.ones_like(m) for k, m in s.dropout_masks(2, 12, torch_rng(1)).items()
    }
    # attention and the feed-forward part's output once, its hidden layer once more
    times = {"out.weight": 2, "ff2.bias": 2, "ff2.weight": 4}
    doubled = {k: times.get(k.partition(".")[2], 1) * v for k, v in p.items()}
    torch.testing.assert_close(
        s.encode(p, inputs, ones)[0], s.encode(doubled, inputs)[0], atol=1e-5, rtol=1e-4
    )


def test_gate_is_the_log_sigmoid_of_the_adjacency() -> None:
    s = AuthorsVAE()
    p = {"gate_scale": torch.tensor(8.0)}
    found = s.gate_log(p, torch.tensor([[0.0, 1.0]]))
    logit = math.log(0.01 / 0.99)
    expected = [-math.log1p(math.exp(-x)) for x in (logit, 8 + logit)]
    torch.testing.assert_close(found[0], torch.tensor(expected))


def test_unit_factors_bound_the_interaction() -> None:
    s = AuthorsVAE(**SMALL)
    p = s.init(6, torch_rng(0))
    omega = s.interaction(p, 100 * torch.randn(50, 8, generator=torch_rng(1)), 6)
    assert omega.abs().max() <= p["alpha"].abs().max() + 1e-6
    assert omega.shape == (50, edges(torch.eye(6)).numel())
