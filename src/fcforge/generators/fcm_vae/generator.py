"""FCM-VAE: the paper's conditional graph VAE, as published and in a form that works."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators import corr_gauss
from fcforge.generators.base import (
    N_CLASSES,
    RNG,
    FCBatch,
    Generator,
    GeneratorState,
    Params,
    RNGs,
    frozen,
    moved,
    network,
    normal,
)
from fcforge.generators.coordinates import in_parts
from fcforge.generators.corr_gauss import class_means, residual_factors, residual_noise
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.generators.fcm_vae.training import train
from fcforge.graphs import edges, fisher_z, from_edges, n_rois_of
from fcforge.nn.resources import give_back, one_thread

SHRINK = 0.02


@dataclass(frozen=True)
class FCMVAE(VAESettings, Generator):
    """FCM-VAE, the FORGE paper's graph-transformer VAE; presets "careful", "paper", "authors".

    Its fields are those of `fcm_vae.settings.VAESettings`.
    """

    name = "fcm_vae"

    def learn_lanes(
        self, batches: Sequence[FCBatch], rngs: RNGs
    ) -> list[GeneratorState]:
        """Train on every site and prepare conditional sampling.

        Networks are trained together. What comes before and after is work for CPU cores, one site
        each, and draws the numbers of a fit on the CPU.
        """
        home = batches[0].fc.device
        batches = [FCBatch(batch.fc.cpu(), batch.y.cpu()) for batch in batches]
        with one_thread(), ThreadPoolExecutor() as pool:
            frames, sites = zip(*pool.map(self._site, batches), strict=True)
        trained = train([moved(site, home) for site in sites], self, rngs)
        give_back()
        on_cpu = [moved(p, "cpu") for p in trained]
        with one_thread(), ThreadPoolExecutor() as pool:
            states = list(pool.map(self._finish, batches, frames, sites, on_cpu, rngs))
        return [moved(state, home) for state in states]

    def _site(self, batch: FCBatch) -> tuple[GeneratorState, Params]:
        """What undoes the coordinates of a site's subjects, and what training reads of them."""
        target, frame = to_coordinates(batch.fc, self)
        read = net.prepare(batch.fc, self)
        return frame, {**read, "y": batch.y, "target": target}

    @torch.no_grad()
    def _finish(
        self,
        batch: FCBatch,
        frame: GeneratorState,
        site: Params,
        params: Params,
        rng: RNG,
    ) -> GeneratorState:
        """State of a trained network: what conditional sampling needs besides."""
        mu, log_var = _encoded(params, site, self)
        # Burda et al.: a unit is active when its mean moves over subjects.
        state = {**frame, "active_units": (mu.var(0) > 0.01).sum()}
        if not self.careful:
            gate = class_means(site["gate"], batch.y)
            return {**state, "gate": gate, **frozen(params)}
        state |= _latent_statistics(mu, log_var, batch.y)
        target = site["target"]
        _refit_baseline(params, state, target, batch.y, self, rng)
        left = target - _interactions(params, mu, self)
        factors, diagonal = residual_factors(left, batch.y)
        state |= {
            "residual_factors": factors.half(),  # nearly all of the state
            "residual_diagonal": diagonal,
            "class_fc": corr_gauss.target_means(batch, SHRINK),
            **frozen(params),
        }
        return corr_gauss.matched(self, state, batch, SHRINK, rng)

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Z | y, decode, back to correlations."""
        params = network(state)
        if self.careful:
            x = _interactions(params, _draw_latent(state, y, rng), self)
            factors = state["residual_factors"]
            x += residual_noise(factors, state["residual_diagonal"], len(y), rng)
            x *= state["scale"]
            x += params["baseline"][y]
        else:
            noise = normal(len(y), self.d_z, rng=rng, to=y.device)
            label = y.to(noise.dtype)
            z = net.latent_given_y(params, label, noise, self.sigma_y_floor)
            x = _interactions(params, z, self)
            x += params["baseline"]
            x += net.gate_log(params, state["gate"][y], self)
            x = x.clamp(-10.0, 10.0)  # the authors' bounds on the log-rate
        x *= state["unit"]
        x += state["centre"]
        if self.careful:
            return corr_gauss.decode(x, y, state["start"], state["class_fc"])
        return from_edges(torch.tanh(x))


def to_coordinates(fc: Tensor, s: VAESettings) -> tuple[Tensor, GeneratorState]:
    """Standardised coordinates (n, p) the decoder speaks, and what undoes them."""
    frame = {}
    if s.careful:
        x, frame["start"] = corr_gauss.off_log(fc, SHRINK)
    else:
        x = fisher_z(edges(fc))
    frame |= {"centre": x.mean(), "unit": x.std().clamp_min(1e-6)}
    return (x - frame["centre"]) / frame["unit"], frame


def _encoded(params: Params, site: Params, s: VAESettings) -> tuple[Tensor, Tensor]:
    """Mean and log variance of q(z | FC) of all subjects, those of many ROIs few at a time."""
    read = {k: site[k] for k in ("features", "spectral", "bias")}

    def both(rows: Tensor) -> Tensor:
        some = {k: v[rows] for k, v in read.items()}
        return torch.stack(net.encode(params, some, s), 1)

    n, rois, _ = site["features"].shape
    mu, log_var = in_parts(both, torch.arange(n), rois).unbind(1)
    return mu.contiguous(), log_var.contiguous()


def _interactions(params: Params, z: Tensor, s: VAESettings) -> Tensor:
    """`network.interaction`, of many ROIs few subjects at a time."""
    rois = n_rois_of(params["baseline"].shape[1])
    return in_parts(lambda part: net.interaction(params, part, rois, s), z, rois)


def _latent_statistics(mu: Tensor, log_var: Tensor, y: Tensor) -> GeneratorState:
    """Class means and pooled covariance factors of the aggregate posterior."""
    factors, diagonal = residual_factors(mu, y)
    spread = log_var.exp().mean(0).sqrt()
    return {
        "z_mean": class_means(mu, y),
        "z_factors": factors,
        "z_spread": (diagonal.square() + spread.square()).sqrt(),
    }


def _draw_latent(state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
    """Z | y (n, d_z) from the class aggregate posterior."""
    mean = state["z_mean"][y]
    low = normal(len(y), len(state["z_factors"]), rng=rng, to=y.device)
    own = normal(*mean.shape, rng=rng, to=y.device)
    return mean + low @ state["z_factors"] + state["z_spread"] * own


def _refit_baseline(
    params: Params,
    state: GeneratorState,
    target: Tensor,
    y: Tensor,
    s: VAESettings,
    rng: RNG,
) -> None:
    """nu_e(y) = mean of class y minus E[omega(z) | y], so that the model's class means are exact.

    Also notes the share of coordinate variance that z carries.
    """
    baseline = class_means(target, y)
    shares = []
    for label in range(N_CLASSES):
        z = _draw_latent(state, torch.full((512,), label), rng)
        omega = _interactions(params, z, s)
        baseline[label] -= omega.mean(0)
        shares.append(omega.var(0).mean())
        del omega  # before the next of its size
    params["baseline"] = baseline
    of_target = target.var(0).mean().clamp_min(1e-12)
    state["latent_share"] = torch.stack(shares).mean() / of_target
