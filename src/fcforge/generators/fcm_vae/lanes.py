"""FCM-VAE of several sites trained side by side, each as if it were alone.

The networks are stacked and their losses summed (`torch.func.vmap`): a GPU trains twenty in the
time of one. A lane takes as many steps per epoch as its own subjects ask for; in the others it
rests. Batches and noise come from the lane's own generator on the CPU, so that they are those of
the same site alone; dropout is drawn where the networks are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

from fcforge.generators.checks import device_rng
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.generators.fcm_vae.training import CURVE, as_curve, kl_weight, negative_elbo, start
from fcforge.generators.layers import Params, normal

Step = tuple[Params, Tensor, Params]  # batch with weights, noise, dropout masks


class LaneAdam:
    """Adam of stacked parameters (lanes, p), one step count per lane; resting lanes stay."""

    def __init__(self, params: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999)):
        self.params, self.lr, self.betas = params, lr, betas
        self.first, self.second = torch.zeros(2, *params.shape, device=params.device)
        self.taken = torch.zeros(len(params), 1, device=params.device)

    @torch.no_grad()
    def step(self, gradient: Tensor, active: Tensor) -> None:
        """One step of the lanes that are `active` (lanes,)."""
        on = active[:, None].to(gradient.dtype)
        self.taken += on
        self.first += on * (1 - self.betas[0]) * (gradient - self.first)
        self.second += on * (1 - self.betas[1]) * (gradient.square() - self.second)
        steps = self.taken.clamp_min(1.0)
        first, second = (1 - beta**steps for beta in self.betas)
        self.params -= on * self.lr / first * self.first / ((self.second / second).sqrt() + 1e-8)


def clip_lanes(gradient: Tensor, bound: float) -> Tensor:
    """Gradients (lanes, p), each shortened to norm `bound` as torch does; 0 leaves them."""
    if not bound:
        return gradient
    return gradient * (bound / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)


class LaneBatches:
    """Batches of all lanes, filled up to one size; what only fills up weighs nothing."""

    def __init__(
        self, sites: Sequence[Params], s: VAESettings, rngs: Sequence[torch.Generator]
    ) -> None:
        self.s, self.rngs, self.sizes = s, rngs, [len(site["y"]) for site in sites]
        self.device, self.rois = sites[0]["y"].device, sites[0]["features"].shape[1]
        self.mask_rngs = [device_rng(rng, self.device) for rng in rngs]
        self.bank = {k: torch.cat([site[k] for site in sites]) for k in sites[0]}

    def epoch(self) -> Iterator[Step]:
        """Every lane's subjects once, in its own order; a lane that is through rests."""
        orders = [
            torch.randperm(n, generator=rng).split(self.s.batch_size)
            for n, rng in zip(self.sizes, self.rngs, strict=True)
        ]
        for i in range(max(map(len, orders))):
            yield self._step([order[i] if i < len(order) else order[0][:0] for order in orders])

    def _step(self, chosen: Sequence[Tensor]) -> Step:
        size, s = min(self.s.batch_size, max(self.sizes)), self.s
        rows = torch.zeros(len(chosen), size, dtype=torch.int64)
        weight, noise = torch.zeros(len(chosen), size), torch.zeros(len(chosen), size, s.d_z)
        masks = []
        for lane, index in enumerate(chosen):
            n = len(index)
            kept = net.dropout_masks(n, self.rois, s, self.mask_rngs[lane])
            masks.append({k: _filled(v, size) for k, v in kept.items()})
            rows[lane, :n] = index + sum(self.sizes[:lane])
            weight[lane, :n] = 1.0
            noise[lane, :n] = normal(n, s.d_z, rng=self.rngs[lane])
        rows = rows.to(self.device)
        batch = {k: v[rows] for k, v in self.bank.items()} | {"weight": weight.to(self.device)}
        return batch, noise.to(self.device), _stacked(masks)


def _stacked(masks: Sequence[Params]) -> Params:
    return {k: torch.stack([m[k] for m in masks]) for k in masks[0]}


def _filled(x: Tensor, size: int) -> Tensor:
    """`x` (n, ...) with ones below, (size, ...)."""
    return torch.cat([x, x.new_ones(size - len(x), *x.shape[1:])])


def train_together(
    sites: Sequence[Params], s: VAESettings, rngs: Sequence[torch.Generator]
) -> list[tuple[Params, Params]]:
    """What `training.train` gives for every site, to float tolerance."""
    starts = [start(site, s, rng) for site, rng in zip(sites, rngs, strict=True)]
    shapes = {k: v.shape for k, v in starts[0].items()}
    batches = LaneBatches(sites, s, rngs)
    rows = torch.stack([torch.cat([v.flatten() for v in p.values()]) for p in starts])
    flat = rows.to(batches.device).requires_grad_()
    optimiser = LaneAdam(flat, s.lr)
    sizes = torch.tensor(batches.sizes, device=batches.device)
    curve = torch.zeros(len(sites), s.epochs, len(CURVE), device=batches.device)
    for epoch in range(s.epochs):
        elbo = torch.func.vmap(partial(negative_elbo, s=s, beta=kl_weight(epoch, s)))
        for batch, noise, masks in batches.epoch():
            loss, parts = elbo(_named(flat, shapes), batch, noise, masks)
            (gradient,) = torch.autograd.grad(loss.sum(), flat)
            n = batch["weight"].sum(1)
            optimiser.step(clip_lanes(gradient, s.clip), n > 0)
            curve[:, epoch] += parts * (n / sizes)[:, None]
    trained = [_named(row, shapes) for row in flat.detach()]
    return list(zip(trained, map(as_curve, curve), strict=True))


def _named(flat: Tensor, shapes: Mapping[str, torch.Size]) -> Params:
    """Parameters by name of rows (..., p) that hold them one after another."""
    parts = flat.split([prod(shape) for shape in shapes.values()], dim=-1)
    named = zip(shapes.items(), parts, strict=True)
    return {k: v.unflatten(-1, shape) if shape else v[..., 0] for (k, shape), v in named}
