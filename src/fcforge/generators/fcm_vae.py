"""FCM-VAE: the paper's conditional graph VAE, as published and in a form that works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from fcforge.generators import fcm_vae_network as net
from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import N_CLASSES, check_labels, check_site, device_rng
from fcforge.generators.coordinates import clip_to_correlation, matrix_log, shrink_to_identity
from fcforge.generators.fcm_vae_presets import Settings, settings_of
from fcforge.generators.fcm_vae_training import train
from fcforge.generators.gaussian import class_means, draw, residual_factors
from fcforge.generators.layers import Params, frozen, with_prefix
from fcforge.generators.matching import decode, matched_scale, target_means
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.types import FCBatch

SHRINK = 0.02


@dataclass(frozen=True)
class FCMVAE(Generator):
    """FCM-VAE, the FORGE paper's graph-transformer VAE: a preset, one field per deviation from it.

    Parameters
    ----------
    preset : {"careful", "paper", "authors"}
        Where every field that is None takes its value from, see `fcm_vae_presets.Settings`.
    node_feature, lae, sge : bool, optional
        The paper's ablations.
    others : optional
        As documented in `fcm_vae_presets.Settings`.
    """

    name: ClassVar[str] = "fcm_vae"
    preset: str = "careful"
    node_feature: bool | None = None
    lae: bool | None = None
    sge: bool | None = None
    d_model: int | None = None
    d_ff: int | None = None
    d_z: int | None = None
    rank: int | None = None
    dropout: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    beta: float | None = None
    warmup: int | None = None
    free_bits: float | None = None
    odd_decoder: bool | None = None
    unit_factors: bool | None = None
    coordinates: str | None = None
    likelihood: str | None = None
    summed: bool | None = None
    edge_start: str | None = None
    gate: str | None = None
    gate_scale: float | None = None
    head_on_z: bool | None = None
    class_baseline: bool | None = None
    sampling: str | None = None
    residual_noise: bool | None = None
    covariance_shrink: float | None = None
    variance_match: bool | None = None
    mean_match: bool | None = None
    project: str | None = None

    @property
    def settings(self) -> Settings:
        """Preset with this generator's deviations."""
        changes = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name != "preset" and getattr(self, f.name) is not None
        }
        return settings_of(self.preset, changes)

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Train on one site and prepare conditional sampling."""
        s = self.settings
        state: GeneratorState = {"counts": check_site(batch, self.name)}
        state["latent_share"] = torch.zeros((), device=batch.fc.device)
        target = _to_coordinates(batch.fc, s, state)
        state["class_fc"] = target_means(batch, SHRINK)
        inputs = net.prepare(batch.fc, s)
        params, curve = train(target, batch.y, inputs, s, rng)
        state.update(curve)
        with torch.no_grad():
            mu, log_var = net.encode(params, inputs, s)
            _latent_statistics(state, mu, log_var, batch.y)
            state["gate"] = class_means(inputs["gate"], batch.y)
            if s.class_baseline:
                _refit_baseline(params, state, target, batch.y, s, rng)
            if s.residual_noise:
                omega = net.interaction(params, mu, batch.n_rois, s)
                factors, diagonal = residual_factors(
                    target - omega, batch.y, s.covariance_shrink, None
                )
                state["residual_factors"], state["residual_diagonal"] = factors, diagonal
        state.update(frozen(params, "net."))
        state["scale"] = torch.ones((), device=batch.fc.device)
        if s.variance_match:
            state["scale"] = matched_scale(
                lambda scale, labels: self.sample({**state, "scale": scale}, labels, rng),
                batch,
                SHRINK if s.coordinates == "off_log" else 0.0,
            )
        return state

    @torch.no_grad()
    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """Z | y, decode, residual noise if asked, back to correlations."""
        s = self.settings
        labels = check_labels(labels, state["counts"], self.name)
        rng = device_rng(rng, labels.device)
        params = with_prefix(state, "net.")
        z = _draw_latent(params, state, labels, s, rng)
        rois = int(state["rois"])
        baseline = params["baseline"][labels if s.class_baseline else torch.zeros_like(labels)]
        move = net.interaction(params, z, rois, s)
        if s.residual_noise:
            factors = state["residual_factors"]
            noise = draw(len(labels), factors.shape[0], rng) @ factors
            own = draw(len(labels), factors.shape[1], rng) * state["residual_diagonal"]
            move = move + noise + own
        x = baseline + state["scale"] * move
        if s.gate == "class":
            x = x + net.gate_log(params, state["gate"][labels], s)
        if s.likelihood == "poisson":
            x = x.clamp(-10.0, 10.0)  # the authors' bounds on the log-rate
        return FCBatch(_from_coordinates(x, labels, s, state), labels)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Active units, KL, decoder spread over z, last losses."""
        return {
            "active_units": int(state["active_units"]),
            "kl_nats": float(state["kl"][-1]),
            "reconstruction": float(state["reconstruction"][-1]),
            "label_nll": float(state["label_nll"][-1]),
            "latent_share": float(state["latent_share"]),
            "noise_scale": float(state["scale"]),
            "epochs": int(state["kl"].shape[0]),
        }


def _to_coordinates(fc: Tensor, s: Settings, state: GeneratorState) -> Tensor:
    """Standardised coordinates (n, p) the decoder speaks; what undoes them goes into `state`."""
    state["rois"] = torch.tensor(fc.shape[-1])
    if s.coordinates == "off_log":
        log_fc = matrix_log(shrink_to_identity(fc, SHRINK))
        state["start"] = log_fc.diagonal(dim1=-2, dim2=-1).mean(0)
        x = edges(log_fc)
    else:
        x = fisher_z(edges(fc))
    state["centre"], state["unit"] = x.mean(), x.std().clamp_min(1e-6)
    return (x - state["centre"]) / state["unit"]


def _from_coordinates(x: Tensor, labels: Tensor, s: Settings, state: GeneratorState) -> Tensor:
    """Inverse of `_to_coordinates`, with the projection that `s` asks for."""
    x = state["unit"] * x + state["centre"]
    if s.coordinates == "off_log":
        means = state["class_fc"] if s.mean_match else None
        return decode(x, labels, state["start"], means)
    fc = from_edges(torch.tanh(x))
    return clip_to_correlation(fc) if s.project == "clip" else fc


def _latent_statistics(state: GeneratorState, mu: Tensor, log_var: Tensor, y: Tensor) -> None:
    """Class means and pooled covariance factors of the aggregate posterior; active units."""
    state["z_mean"] = class_means(mu, y)
    state["z_factors"], state["z_diagonal"] = residual_factors(mu, y, shrink=0.1)
    state["z_posterior"] = log_var.exp().mean(0).sqrt()
    # Burda et al.: a unit is active when its mean moves over subjects.
    state["active_units"] = (mu.var(0) > 0.01).sum()


def _draw_latent(
    params: Params, state: GeneratorState, labels: Tensor, s: Settings, rng: torch.Generator
) -> Tensor:
    """Z | y (n, d_z) by Bayes' rule from the head or from the class aggregate posterior."""
    n = labels.shape[0]
    if s.sampling == "bayes":
        noise = torch.randn(n, s.d_z, generator=rng, device=rng.device)
        return net.latent_given_label(params, labels.to(noise.dtype), noise, s.sigma_y_floor)
    spread = (state["z_diagonal"].square() + state["z_posterior"].square()).sqrt()
    low = draw(n, state["z_factors"].shape[0], rng) @ state["z_factors"]
    return state["z_mean"][labels] + low + spread * draw(n, s.d_z, rng)


def _refit_baseline(
    params: Params,
    state: GeneratorState,
    target: Tensor,
    y: Tensor,
    s: Settings,
    rng: torch.Generator,
    n: int = 512,
) -> None:
    """nu_e(y) = mean of class y minus E[omega(z) | y], so that the model's class means are exact.

    Also notes the share of coordinate variance that z carries.
    """
    device_gen = device_rng(rng, target.device)
    baseline = class_means(target, y)
    shares = []
    for label in range(N_CLASSES):
        labels = torch.full((n,), label, device=target.device)
        z = _draw_latent(params, state, labels, s, device_gen)
        omega = net.interaction(params, z, int(state["rois"]), s)
        baseline[label] -= omega.mean(0)
        shares.append(omega.var(0).mean())
    params["baseline"] = baseline
    state["latent_share"] = torch.stack(shares).mean() / target.var(0).mean().clamp_min(1e-12)
