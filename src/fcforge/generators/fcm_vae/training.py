"""FCM-VAE's objective and training loop."""

import torch
from torch import Tensor

from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.generators.layers import N_CLASSES, Params, adam, device_rng, normal, trainable

CURVE = ("kl", "reconstruction", "label_nll")


def reconstruction_nll(p: Params, target: Tensor, log_rate: Tensor, s: VAESettings) -> Tensor:
    """-log p(edges | z) per subject (n,), up to a constant.

    Poisson on x = exp(target): lambda - x log lambda. A quasi-likelihood, since x is not a count.
    Gaussian on the coordinate itself with a learnt variance per edge.
    """
    if s.likelihood == "poisson":
        eta = log_rate.clamp(-10.0, 10.0)
        per_edge = eta.exp() - target.clamp(-8.0, 8.0).exp() * eta
    else:
        per_edge = 0.5 * ((target - log_rate).square() * (-p["log_noise"]).exp() + p["log_noise"])
    return per_edge.sum(-1) if s.summed else per_edge.mean(-1)


def label_nll(p: Params, z: Tensor, y: Tensor, floor: float) -> Tensor:
    """-log N(y; b + w'z, sigma_y^2) per subject (n,), up to a constant."""
    sigma = p["log_sigma_y"].exp().clamp(floor, 10.0)
    return 0.5 * ((y - net.head(p, z)) / sigma).square() + sigma.log()


def kl_per_unit(mu: Tensor, log_var: Tensor) -> Tensor:
    """KL(q(z | FC) || N(0, I)) of every subject and unit, (n, d_z)."""
    return 0.5 * (mu.square() + log_var.exp() - 1.0 - log_var)


def start_at_maximum_likelihood(p: Params, target: Tensor, y: Tensor, s: VAESettings) -> None:
    """Edge baselines (and noise) at what fits best before z says anything."""
    if s.likelihood == "poisson":
        value = target.clamp(-8.0, 8.0).exp().mean(0, keepdim=True).log()
        p["baseline"] = value.expand_as(p["baseline"]).clone()
        return
    p["baseline"] = class_means(target, y) if s.class_baseline else target.mean(0, keepdim=True)
    p["log_noise"] = within_class_variance(target, y).clamp_min(1e-4).log()


def start(subjects: Params, s: VAESettings, rng: torch.Generator) -> Params:
    """Fresh parameters for a site's subjects, on the CPU."""
    p = net.init(subjects["features"].shape[1], N_CLASSES, s, rng)
    if s.edge_start == "mle":
        start_at_maximum_likelihood(p, subjects["target"].cpu(), subjects["y"].cpu(), s)
    return p


def kl_weight(epoch: int, s: VAESettings) -> float:
    """Beta, growing from 0 over the first `warmup` epochs."""
    return s.beta * min(1.0, (epoch + 1) / s.warmup) if s.warmup else s.beta


def train(subjects: Params, s: VAESettings, rng: torch.Generator) -> tuple[Params, Params]:
    """Maximise the supervised ELBO of one site with Adam.

    Parameters
    ----------
    subjects : dict
        What `network.prepare` gives, ``target`` (n, p): standardised coordinates, ``y`` (n,).

    Returns
    -------
    params : dict of Tensor
        Detached.
    curve : dict of Tensor of shape (epochs,)
        Mean ``kl``, ``reconstruction`` and ``label_nll`` per subject in every epoch.
    """
    n, device = len(subjects["y"]), subjects["y"].device
    p = trainable(start(subjects, s, rng), device)
    optimiser = adam(p, lr=s.lr)
    rng = device_rng(rng, device)
    curve = torch.zeros(s.epochs, len(CURVE), device=device)
    for epoch in range(s.epochs):
        order = torch.randperm(n, generator=rng, device=device)
        for index in order.split(s.batch_size):
            batch = {k: v[index] for k, v in subjects.items()}
            loss, parts = sampled_elbo(p, batch, s, kl_weight(epoch, s), rng)
            optimiser.zero_grad()
            loss.backward()
            if s.clip:
                torch.nn.utils.clip_grad_norm_(list(p.values()), s.clip)
            optimiser.step()
            curve[epoch] += parts * len(index) / n
    return {k: v.detach() for k, v in p.items()}, as_curve(curve)


def as_curve(curve: Tensor) -> Params:
    """Columns of (epochs, 3) by name."""
    return dict(zip(CURVE, curve.T.clone(), strict=True))


def sampled_elbo(
    p: Params, batch: dict[str, Tensor], s: VAESettings, beta: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`negative_elbo` with one draw of dropout and z."""
    n, rois = batch["features"].shape[:2]
    masks = net.dropout_masks(n, rois, s, rng)
    return negative_elbo(p, batch, normal(n, s.d_z, rng=rng), masks, s, beta)


def negative_elbo(
    p: Params,
    batch: dict[str, Tensor],
    noise: Tensor,
    masks: dict[str, Tensor],
    s: VAESettings,
    beta: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Minus the supervised ELBO of a batch (eq. elbo), and its parts (`CURVE`).

    Parameters
    ----------
    batch : dict
        What `network.prepare` gives, ``target`` (n, p) and ``y`` (n,); ``weight`` (n,) where some
        subjects only fill the batch: 1 for those that count, else 0.
    noise : Tensor of shape (n, d_z)
        Of the draw z = mu + sigma noise.
    masks : dict
        From `network.dropout_masks`.
    """
    y, weight = batch["y"], batch.get("weight")

    def mean(x: Tensor) -> Tensor:
        return x.mean(0) if weight is None else weight @ x / weight.sum().clamp_min(1.0)

    mu, log_var = net.encode(p, batch, s, masks)
    z = mu + (0.5 * log_var).exp() * noise
    log_rate = p["baseline"][y if s.class_baseline else torch.zeros_like(y)]
    log_rate = log_rate + net.interaction(p, z, batch["features"].shape[1], s)
    if s.gate == "class":
        log_rate = log_rate + net.gate_log(p, batch["gate"], s)
    rec = mean(reconstruction_nll(p, batch["target"], log_rate, s))
    label = mean(label_nll(p, z if s.head_on_z else mu, y.to(z.dtype), s.sigma_y_floor))
    units = mean(kl_per_unit(mu, log_var))
    # Free bits: a unit that costs less than the allowance is not pushed down further.
    cost = units.clamp_min(s.free_bits).sum()
    return rec + label + beta * cost, torch.stack([units.sum(), rec, label]).detach()
