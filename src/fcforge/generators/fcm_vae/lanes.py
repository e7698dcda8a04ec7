"""FCM-VAE of several sites trained side by side, each as if it were alone.

The networks are stacked and their losses summed (`torch.func.vmap`); on a GPU a step is captured
once and replayed: twenty networks take the time of one. A lane takes as many steps per epoch as
its own subjects ask for; in the others it rests. Batches and noise come from the lane's own
generator on the CPU, so that they are those of the same site alone; dropout is drawn where the
networks are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.settings import VAESettings
from fcforge.generators.fcm_vae.training import CURVE, as_curve, kl_weight, negative_elbo, start
from fcforge.generators.layers import Params, device_rng, normal
from fcforge.speed import Graphed

BETAS, EPS = (0.9, 0.999), 1e-8  # torch.optim.Adam's
Shapes = Mapping[str, torch.Size]


class Lanes(NamedTuple):
    """All networks: parameters and Adam's moments (lanes, p), steps taken, this epoch's curve."""

    params: Tensor
    first: Tensor
    second: Tensor
    taken: Tensor
    curve: Tensor


class Step(NamedTuple):
    """One step's subjects (lanes, b) by row of the bank, what they weigh, noise and dropout."""

    rows: Tensor
    weight: Tensor
    noise: Tensor
    masks: Params


def adam(lanes: Lanes, gradient: Tensor, active: Tensor, lr: float) -> Lanes:
    """One step of the lanes that are `active` (lanes,); the others stay as they are."""
    on = active[:, None].to(gradient.dtype)
    taken = lanes.taken + on
    first = lanes.first + on * (1 - BETAS[0]) * (gradient - lanes.first)
    second = lanes.second + on * (1 - BETAS[1]) * (gradient.square() - lanes.second)
    bias, square_bias = (1 - beta ** taken.clamp_min(1.0) for beta in BETAS)
    move = first / bias / ((second / square_bias).sqrt() + EPS)
    return Lanes(lanes.params - on * lr * move, first, second, taken, lanes.curve)


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
        together = {k: torch.stack([m[k] for m in masks]) for k in masks[0]}
        there = self.device
        return Step(rows.to(there), weight.to(there), noise.to(there), together)


def _filled(x: Tensor, size: int) -> Tensor:
    """`x` (n, ...) with ones below, (size, ...)."""
    return torch.cat([x, x.new_ones(size - len(x), *x.shape[1:])])


def advance(batches: LaneBatches, shapes: Shapes) -> Callable[[Lanes, Step, Tensor], tuple[Lanes]]:
    """Function that takes all lanes one step further: (lanes, step, KL weight) to (lanes,)."""
    bank, s = batches.bank, batches.s
    sizes = torch.tensor(batches.sizes, device=batches.device)

    def step(lanes: Lanes, given: Step, beta: Tensor) -> tuple[Lanes]:
        batch = {k: v[given.rows] for k, v in bank.items()} | {"weight": given.weight}
        params = lanes.params.detach().requires_grad_()
        elbo = torch.func.vmap(partial(negative_elbo, s=s, beta=beta))
        loss, parts = elbo(_named(params, shapes), batch, given.noise, given.masks)
        (gradient,) = torch.autograd.grad(loss.sum(), params)
        n = given.weight.sum(1)
        with torch.no_grad():
            after = adam(lanes, clip_lanes(gradient, s.clip), n > 0, s.lr)
            return (after._replace(curve=lanes.curve + parts * (n / sizes)[:, None]),)

    return step


def train_together(
    sites: Sequence[Params], s: VAESettings, rngs: Sequence[torch.Generator]
) -> list[tuple[Params, Params]]:
    """What `training.train` gives for every site, to float tolerance."""
    starts = [start(site, s, rng) for site, rng in zip(sites, rngs, strict=True)]
    shapes = {k: v.shape for k, v in starts[0].items()}
    batches = LaneBatches(sites, s, rngs)
    device, n = batches.device, len(sites)
    params = torch.stack([torch.cat([v.flatten() for v in p.values()]) for p in starts]).to(device)
    zero = torch.zeros(n, len(CURVE), device=device)
    lanes = Lanes(
        params, torch.zeros_like(params), torch.zeros_like(params), zero[:, :1].clone(), zero
    )
    step: Callable[..., tuple[Lanes]] = advance(batches, shapes)
    if device.type == "cuda":
        step = Graphed(step, carried=1)
    curves = []
    for epoch in range(s.epochs):
        beta = torch.tensor(kl_weight(epoch, s), device=device)
        lanes = lanes._replace(curve=zero)
        for given in batches.epoch():
            (lanes,) = step(lanes, given, beta)
        curves.append(lanes.curve.clone())
    trained = [_named(row, shapes) for row in lanes.params.clone()]
    return list(zip(trained, map(as_curve, torch.stack(curves, 1)), strict=True))


def _named(flat: Tensor, shapes: Shapes) -> Params:
    """Parameters by name of rows (..., p) that hold them one after another."""
    parts = flat.split([prod(shape) for shape in shapes.values()], dim=-1)
    named = zip(shapes.items(), parts, strict=True)
    return {k: v.unflatten(-1, shape) if shape else v[..., 0] for (k, shape), v in named}
