from dataclasses import replace

import pytest
import torch
from simulated_site import simulate

from fcforge.core.randomness import torch_rng
from fcforge.generators.coordinates import from_off_log
from fcforge.generators.fcm_vae import StableVAE
from fcforge.generators.gaussian import within_class_variance
from fcforge.graphs import edges

VARIANTS = StableVAE.variants
SMALL = {"d_model": 16, "d_ff": 16, "d_z": 8, "batch_size": 16}


@pytest.fixture(scope="module")
def fitted():
    site = simulate(60, rois=24, seed=3, effect=1.5)
    out = {}
    for variant in ("authors", "stable"):
        more = {"lr": 1e-2} if variant == "stable" else {}
        gen = VARIANTS[variant](epochs=40, **more, **SMALL)
        state = gen.fit(site, torch_rng(0))
        labels = torch.arange(200) % 2
        out[variant] = gen, state, gen.sample(state, labels, torch_rng(1))
    return site, out


def test_authors_collapse_and_stable_does_not(fitted) -> None:
    site, out = fitted
    real = within_class_variance(edges(site.fc), site.y).mean()
    ratio, active = {}, {}
    for variant, (gen, state, fake) in out.items():
        ratio[variant] = within_class_variance(edges(fake.fc), fake.y).mean() / real
        active[variant] = gen.diagnostics(state)["active_units"]
    assert ratio["authors"] < 0.2
    assert 0.8 < ratio["stable"] < 1.2
    assert active["stable"] >= 4
    assert active["stable"] > active["authors"]


def test_stable_carries_the_diagnosis_and_is_valid(fitted) -> None:
    site, out = fitted
    _, _, fake = out["stable"]
    assert torch.linalg.eigvalsh(fake.fc.double()).min() > 0
    pair = []
    for batch in (site, fake):
        e = edges(batch.fc)
        pair.append(e[batch.y == 1].mean(0) - e[batch.y == 0].mean(0))
    assert torch.corrcoef(torch.stack(pair))[0, 1] > 0.95


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_clipped_samples_are_correlation_matrices(variant, small_site) -> None:
    gen = VARIANTS[variant](epochs=1, **SMALL)
    state = gen.fit(small_site, torch_rng(0))
    labels = torch.arange(6) % 2
    # edges that no correlation matrix has together
    odd = 2 * torch.randn(state.model.network["baseline"].shape, generator=torch_rng(1))
    network = {**state.model.network, "baseline": odd}
    model = state.model._replace(network=network)
    raw = gen.draw(model, labels, torch_rng(2))
    clipped = replace(gen, project="clip").draw(model, labels, torch_rng(2))
    assert torch.linalg.eigvalsh(raw.double()).min() < 0
    assert torch.linalg.eigvalsh(clipped.double()).min() > 0
    ones = torch.ones(len(labels), raw.shape[-1])
    torch.testing.assert_close(clipped.diagonal(dim1=-2, dim2=-1), ones)


@pytest.mark.parametrize("variant", ["stable", "paper"])
def test_coordinates_are_standardised_and_undone(variant, small_site) -> None:
    frame, site = VARIANTS[variant]().prepare_site(small_site)
    x = site["target"]
    assert float(x.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1.0, abs=1e-5)
    x = x * frame.unit + frame.centre
    if variant == "paper":
        assert torch.allclose(torch.tanh(x), edges(small_site.fc), atol=1e-5)
        return
    shrunk = 0.98 * small_site.fc + 0.02 * torch.eye(12)
    back, _ = from_off_log(x, start=frame.start)
    assert torch.allclose(edges(back), edges(shrunk), atol=2e-3)


def test_baselines_make_the_models_class_means_exact(fitted) -> None:
    """nu_e(y) = mean of class y - E[omega(z) | y]."""
    site, out = fitted
    gen, state, _ = out["stable"]
    params = state.model.network
    target = gen.prepare_site(site)[1]["target"]
    for c in (0, 1):
        y = torch.full((4000,), c)
        z = state.model.latent.draw(y, torch_rng(5))
        mean = params["baseline"][c] + gen.interaction(params, z, 24).mean(0)
        gap = (mean - target[site.y == c].mean(0)).abs().mean()
        assert gap < 0.03  # 512 draws were used to refit


def test_diagnostics_are_plain_numbers(fitted) -> None:
    _, out = fitted
    for variant, (gen, state, _) in out.items():
        found = gen.diagnostics(state)
        assert found["active_units"] == int(state.model.active_units)
        assert all(isinstance(v, float) for v in found.values())
        assert ("latent_share" in found) == (variant == "stable")


def test_the_history_has_the_terms_of_every_epoch(fitted) -> None:
    _, out = fitted
    for _, state, _ in out.values():
        history = state.model.history
        assert history.shape == (40, 3)
        assert torch.isfinite(history).all()
        assert history[-1, 0] < history[0, 0]  # the reconstruction gets better
        assert (history[:, 2] >= 0).all()


@pytest.mark.parametrize("variant", ["stable", "authors"])
def test_a_state_survives_being_stored_by_name(fitted, variant) -> None:
    gen, state, fake = fitted[1][variant]
    named = state.named()
    assert "model.network.mu.weight" in named
    again = gen.read_state(dict(reversed(named.items())))
    assert isinstance(again.model, gen.state_type)
    labels = torch.arange(200) % 2
    assert torch.equal(gen.sample(again, labels, torch_rng(1)).fc, fake.fc)
    del named["model.frame.unit"]
    with pytest.raises(KeyError, match=r"frame\.unit"):
        gen.read_state(named)
