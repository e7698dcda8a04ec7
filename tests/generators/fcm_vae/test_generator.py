import pytest
import torch
from simulated_site import simulate

from fcforge.core.randomness import torch_rng
from fcforge.generators.base import network
from fcforge.generators.coordinates import from_off_log
from fcforge.generators.corr_gauss import within_class_variance
from fcforge.generators.fcm_vae import FCMVAE
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.generator import _draw_latent, to_coordinates
from fcforge.graphs import edges

SMALL = {"d_model": 16, "d_ff": 16, "d_z": 8, "batch_size": 16}


@pytest.fixture(scope="module")
def fitted():
    site = simulate(60, rois=24, seed=3, effect=1.5)
    out = {}
    for preset in ("authors", "careful"):
        more = {"lr": 1e-2} if preset == "careful" else {}
        gen = FCMVAE.from_preset(preset, epochs=40, **more, **SMALL)
        state = gen.fit(site, torch_rng(0))
        labels = torch.arange(200) % 2
        out[preset] = gen, state, gen.sample(state, labels, torch_rng(1))
    return site, out


def test_authors_collapse_and_careful_does_not(fitted) -> None:
    site, out = fitted
    real = within_class_variance(edges(site.fc), site.y).mean()
    ratio, active = {}, {}
    for preset, (gen, state, fake) in out.items():
        ratio[preset] = within_class_variance(edges(fake.fc), fake.y).mean() / real
        active[preset] = gen.diagnostics(state)["active_units"]
    assert ratio["authors"] < 0.2
    assert 0.8 < ratio["careful"] < 1.2
    assert active["careful"] >= 4
    assert active["careful"] > active["authors"]


def test_careful_carries_the_diagnosis_and_is_valid(fitted) -> None:
    site, out = fitted
    _, _, fake = out["careful"]
    assert torch.linalg.eigvalsh(fake.fc.double()).min() > 0
    pair = []
    for batch in (site, fake):
        e = edges(batch.fc)
        pair.append(e[batch.y == 1].mean(0) - e[batch.y == 0].mean(0))
    assert torch.corrcoef(torch.stack(pair))[0, 1] > 0.95


@pytest.mark.parametrize("preset", ["careful", "paper"])
def test_coordinates_are_standardised_and_undone(preset, small_site) -> None:
    x, frame = to_coordinates(small_site.fc, FCMVAE.from_preset(preset))
    assert float(x.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1.0, abs=1e-5)
    x = x * frame["unit"] + frame["centre"]
    if preset == "paper":
        assert torch.allclose(torch.tanh(x), edges(small_site.fc), atol=1e-5)
        return
    shrunk = 0.98 * small_site.fc + 0.02 * torch.eye(12)
    back, _ = from_off_log(x, start=frame["start"])
    assert torch.allclose(edges(back), edges(shrunk), atol=2e-3)


def test_baselines_make_the_models_class_means_exact(fitted) -> None:
    """nu_e(y) = mean of class y - E[omega(z) | y]."""
    site, out = fitted
    gen, state, _ = out["careful"]
    params = network(state)
    target, _ = to_coordinates(site.fc, gen)
    for c in (0, 1):
        y = torch.full((4000,), c)
        z = _draw_latent(state, y, torch_rng(5))
        mean = params["baseline"][c] + net.interaction(params, z, 24, gen).mean(0)
        gap = (mean - target[site.y == c].mean(0)).abs().mean()
        assert gap < 0.03  # 512 draws were used to refit


def test_diagnostics_are_plain_numbers(fitted) -> None:
    _, out = fitted
    for preset, (gen, state, _) in out.items():
        found = gen.diagnostics(state)
        assert found["active_units"] == int(state["active_units"])
        assert all(isinstance(v, float) for v in found.values())
        assert ("latent_share" in found) == (preset == "careful")
