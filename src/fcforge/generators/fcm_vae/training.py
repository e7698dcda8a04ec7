"""FCM-VAE's training: sites side by side, each as if it were alone.

The networks are stacked and their losses summed (`torch.func.vmap`); on a GPU a step is captured
once and replayed: twenty networks take the time of one. A lane takes as many steps per
epoch as its own subjects ask for; in the others it rests. Batches and noise come from the lane's
own generator on the CPU, so that they are those of the same site alone; dropout is drawn where the
networks are.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.generators.base import RNG, Params, device_rng, linear, normal, stacked
from fcforge.generators.corr_gauss import class_means, within_class_variance
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.nn.adam import Adam
from fcforge.nn.cuda_graphs import Graphed


def reconstruction_nll(
    p: Params, target: Tensor, log_rate: Tensor, s: VAESettings
) -> Tensor:
    """-log p(edges | z) per subject (n,), up to a constant.

    Poisson on x = exp(target): lambda - x log lambda. A quasi-likelihood, since x is not a count.
    Careful: Gaussian on the coordinate itself with a learnt variance per edge.
    """
    if s.careful:
        per_edge = 0.5 * (
            (target - log_rate).square() * (-p["log_noise"]).exp() + p["log_noise"]
        )
    else:
        eta = log_rate.clamp(-10.0, 10.0)
        per_edge = eta.exp() - target.clamp(-8.0, 8.0).exp() * eta
    return per_edge.mean(-1) if s.authors else per_edge.sum(-1)


def label_nll(p: Params, z: Tensor, y: Tensor, floor: float) -> Tensor:
    """-log N(y; b + w'z, sigma_y^2) per subject (n,), up to a constant."""
    sigma = p["log_sigma_y"].exp().clamp(floor, 10.0)
    error = (y - linear(p, "head", z)[:, 0]) / sigma
    return 0.5 * error.square() + sigma.log()


def kl_per_unit(mu: Tensor, log_var: Tensor) -> Tensor:
    """KL(q(z | FC) || N(0, I)) of every subject and unit, (n, d_z)."""
    return 0.5 * (mu.square() + log_var.exp() - 1.0 - log_var)


def start(subjects: Params, s: VAESettings, rng: RNG) -> Params:
    """Fresh parameters for a site's subjects, on the CPU.

    Careful: edge baselines and noise at what fits best before z says anything.
    """
    p = net.init(subjects["features"].shape[1], s, rng)
    if s.careful:
        target = subjects["target"].cpu()
        y = subjects["y"].cpu()
        p["baseline"] = class_means(target, y)
        p["log_noise"] = within_class_variance(target, y).clamp_min(1e-4).log()
    return p


def kl_weight(epoch: int, s: VAESettings) -> float:
    """Beta, growing from 0 over the first `warmup` epochs."""
    return s.beta * min(1.0, (epoch + 1) / s.warmup) if s.warmup else s.beta


def negative_elbo(
    p: Params,
    batch: dict[str, Tensor],
    noise: Tensor,
    masks: dict[str, Tensor],
    s: VAESettings,
    beta: float | Tensor,
) -> Tensor:
    """Minus the supervised ELBO of a batch (eq. elbo).

    Parameters
    ----------
    batch : dict
        What `network.prepare` gives, ``target`` (n, p), ``y`` (n,) and ``weight`` (n,): 1 for those
        that count, 0 for those that only fill the batch.
    noise : Tensor of shape (n, d_z)
        Of the draw z = mu + sigma noise.
    masks : dict
        From `network.dropout_masks`.
    """
    y = batch["y"]
    weight = batch["weight"]

    def mean(x: Tensor) -> Tensor:
        return weight @ x / weight.sum().clamp_min(1.0)

    mu, log_var = net.encode(p, batch, s, masks)
    z = mu + (0.5 * log_var).exp() * noise
    log_rate = p["baseline"][y if s.careful else torch.zeros_like(y)]
    log_rate = log_rate + net.interaction(p, z, batch["features"].shape[1], s)
    if not s.careful:
        log_rate = log_rate + net.gate_log(p, batch["gate"], s)
    rec = mean(reconstruction_nll(p, batch["target"], log_rate, s))
    read = mu if s.authors else z
    label = mean(label_nll(p, read, y.to(z.dtype), s.sigma_y_floor))
    units = mean(kl_per_unit(mu, log_var))
    # Free bits: a unit that costs less than the allowance is not pushed down further.
    cost = units.clamp_min(s.free_bits).sum()
    return rec + label + beta * cost


class Lanes(NamedTuple):
    """Parameters of all networks, and their optimiser, along a first (lane) dimension."""

    params: Params
    optimiser: Adam


class Step(NamedTuple):
    """One step's subjects (lanes, b) by row of the bank, what they weigh, noise and dropout."""

    rows: Tensor
    weight: Tensor
    noise: Tensor
    masks: Params


def adam_step(lanes: Lanes, gradient: Params, active: Tensor, s: VAESettings) -> Lanes:
    """Take one step of Adam in the `active` lanes (lanes,); the others stay as they are."""
    clip = s.clip or math.inf

    def step(lane: Lanes, gradient: Params) -> Lanes:
        return Lanes(*lane.optimiser.step(lane.params, gradient, lr=s.lr, clip=clip))

    def pick(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)

    return pytree.tree_map(pick, torch.func.vmap(step)(lanes, gradient), lanes)


class LaneBatches:
    """Batches of all lanes, filled up to one size; what only fills up weighs nothing."""

    def __init__(
        self, sites: Sequence[Params], s: VAESettings, rngs: Sequence[RNG]
    ) -> None:
        self.s = s
        self.rngs = rngs
        self.sizes = [len(site["y"]) for site in sites]
        self.device = sites[0]["y"].device
        self.rois = sites[0]["features"].shape[1]
        self.mask_rngs = [device_rng(rng, self.device) for rng in rngs]
        self.bank = sites[0]
        if len(sites) > 1:
            self.bank = {k: torch.cat([site[k] for site in sites]) for k in sites[0]}

    def epoch(self) -> Iterator[Step]:
        """Every lane's subjects once, in its own order; a lane that is through rests."""
        orders = [
            torch.randperm(n, generator=rng).split(self.s.batch_size)
            for n, rng in zip(self.sizes, self.rngs, strict=True)
        ]
        for i in range(max(map(len, orders))):
            yield self._step(
                [order[i] if i < len(order) else order[0][:0] for order in orders]
            )

    def _step(self, chosen: Sequence[Tensor]) -> Step:
        s = self.s
        size = min(s.batch_size, max(self.sizes))
        rows = torch.zeros(len(chosen), size, dtype=torch.int64)
        weight = torch.zeros(len(chosen), size)
        noise = torch.zeros(len(chosen), size, s.d_z)
        masks = []
        for lane, index in enumerate(chosen):
            n = len(index)
            kept = net.dropout_masks(n, self.rois, s, self.mask_rngs[lane])
            below = {k: v.new_ones(size - n, *v.shape[1:]) for k, v in kept.items()}
            masks.append({k: torch.cat([v, below[k]]) for k, v in kept.items()})
            rows[lane, :n] = index + sum(self.sizes[:lane])
            weight[lane, :n] = 1.0
            noise[lane, :n] = normal(n, s.d_z, rng=self.rngs[lane])
        together = {k: torch.stack([m[k] for m in masks]) for k in masks[0]}
        there = self.device
        return Step(rows.to(there), weight.to(there), noise.to(there), together)


def advance(batches: LaneBatches) -> Callable[[Lanes, Step, Tensor], tuple[Lanes]]:
    """Return the function that takes all lanes one step further.

    Its arguments are the lanes, the step's data and the KL weight; it returns the lanes in a tuple.
    """
    bank = batches.bank
    s = batches.s

    def step(lanes: Lanes, given: Step, beta: Tensor) -> tuple[Lanes]:
        batch = {k: v[given.rows] for k, v in bank.items()}
        batch["weight"] = given.weight
        params = {k: v.detach().requires_grad_() for k, v in lanes.params.items()}
        elbo = torch.func.vmap(partial(negative_elbo, s=s, beta=beta))
        loss = elbo(params, batch, given.noise, given.masks)
        gradients = torch.autograd.grad(
            loss.sum(), list(params.values()), materialize_grads=True
        )
        gradient = dict(zip(params, gradients, strict=True))
        active = given.weight.sum(1) > 0
        with torch.no_grad():
            return (adam_step(lanes, gradient, active, s),)

    return step


def train(sites: Sequence[Params], s: VAESettings, rngs: Sequence[RNG]) -> list[Params]:
    """Maximise the supervised ELBO of every site with Adam.

    Parameters
    ----------
    sites : sequence of dict
        What `network.prepare` gives, ``target`` (n, p): standardised coordinates, ``y`` (n,).

    Returns
    -------
    list of dict
        The parameters of every site's network.
    """
    batches = LaneBatches(sites, s, rngs)
    device = batches.device
    starts = [start(site, s, rng) for site, rng in zip(sites, rngs, strict=True)]
    params = {k: v.to(device) for k, v in stacked(starts).items()}
    lanes = Lanes(params, torch.func.vmap(Adam.start)(params))
    step: Callable[..., tuple[Lanes]] = advance(batches)
    if device.type == "cuda":
        step = Graphed(step, carried=1)
    for epoch in range(s.epochs):
        beta = torch.tensor(kl_weight(epoch, s), device=device)
        for given in batches.epoch():
            (lanes,) = step(lanes, given, beta)
    return [
        {k: v[i].clone() for k, v in lanes.params.items()} for i in range(len(sites))
    ]
