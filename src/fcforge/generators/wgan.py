"""Conditional Wasserstein GAN with gradient penalty: the loop both GANs share.

Several sites train side by side as lanes: their networks are stacked, their losses summed, so
every lane gets its own gradient and draws its own random numbers, as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators.checks import device_rng
from fcforge.generators.layers import Params, trainable

Make = Callable[[Params, Tensor, Tensor], Tensor]
Score = Callable[[Params, Tensor, Tensor], Tensor]
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]
Draw = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Schedule:
    """Steps of the generator, critic steps per each, batch size, rate, betas, penalty weight."""

    steps: int
    n_critic: int
    batch_size: int
    lr: float
    betas: tuple[float, float]
    penalty: float
    noise: int


def gradient_penalty(
    score: Score, params: Params, real: Tensor, fake: Tensor, y: Tensor, t: Tensor
) -> Tensor:
    """(|grad f(x_t)| - 1)^2 at x_t = t real + (1 - t) fake, with the shape of `t` and `y`.

    References
    ----------
    Gulrajani et al., Improved training of Wasserstein GANs, 2017.
    """
    inner = real.dim() - t.dim()
    t = t.reshape(t.shape + (1,) * inner)
    between = (t * real + (1 - t) * fake).detach().requires_grad_()
    (slope,) = torch.autograd.grad(score(params, between, y).sum(), between, create_graph=True)
    return (slope.flatten(-inner).norm(dim=-1) - 1.0).square()


def train_wgan_lanes(
    real: Sequence[Tensor],
    y: Sequence[Tensor],
    make: Make,
    score: Score,
    start: Sequence[tuple[Params, Params]],
    schedule: Schedule,
    rngs: Sequence[torch.Generator],
    regulariser: Penalty | None = None,
) -> list[tuple[Params, Tensor]]:
    """Train one generator per lane, all in the same steps.

    Parameters
    ----------
    real : sequence of Tensor of shape (n_i, ...)
        Training subjects of every lane in the space the critic sees.
    y : sequence of Tensor of shape (n_i,)
    make : callable
        (params, noise, labels) to generated subjects in that space, of one lane.
    score : callable
        (params, subjects, labels) to critic values (n,), of one lane.
    start : sequence of pairs of dict
        Fresh parameters of generator and critic.
    rngs : sequence of torch.Generator
        One per lane; a lane's numbers do not depend on its company.
    regulariser : callable, optional
        (generated, real, labels), with the lanes in front where there are several, to a term
        of the generator's loss per lane; subject i of both has label i.

    Returns
    -------
    list of (params, distance)
        Generator's parameters, detached, and the critic's estimate of the Wasserstein
        distance (steps,).
    """
    n, device = len(real), real[0].device
    lift = (lambda f: f) if n == 1 else torch.func.vmap
    make, score = lift(make), lift(score)
    gen, critic = (trainable(_stack([s[i] for s in start]), device) for i in (0, 1))
    kwargs = {"lr": schedule.lr, "betas": schedule.betas}
    gen_opt = torch.optim.Adam(list(gen.values()), **kwargs)  # type: ignore[arg-type]
    critic_opt = torch.optim.Adam(list(critic.values()), **kwargs)  # type: ignore[arg-type]
    rngs = [device_rng(rng, device) if n == 1 else rng for rng in rngs]
    draw = _drawer(real, y, schedule, rngs)
    distance = torch.zeros(schedule.steps, *(() if n == 1 else (n,)), device=device)
    for step in range(schedule.steps):
        for _ in range(schedule.n_critic):
            x, labels, noise, t = draw(True)
            fake = make(gen, noise, labels).detach()
            gap = score(critic, x, labels).mean(-1) - score(critic, fake, labels).mean(-1)
            rough = gradient_penalty(score, critic, x, fake, labels, t).mean(-1)
            critic_opt.zero_grad()
            (schedule.penalty * rough - gap).sum().backward()
            critic_opt.step()
            distance[step] = gap.detach()
        x, labels, noise, _ = draw(False)
        fake = make(gen, noise, labels)
        loss = -score(critic, fake, labels).mean(-1)
        if regulariser is not None:
            loss = loss + regulariser(fake, x, labels)
        gen_opt.zero_grad()
        loss.sum().backward()
        gen_opt.step()
    trained = {k: v.detach() for k, v in gen.items()}
    if n == 1:
        return [(trained, distance)]
    return [({k: v[i] for k, v in trained.items()}, distance[:, i]) for i in range(n)]


def _stack(params: Sequence[Params]) -> Params:
    """Parameters of all lanes along a first dimension; one lane stays as it is."""
    if len(params) == 1:
        return params[0]
    return {k: torch.stack([p[k] for p in params]) for k in params[0]}


def _drawer(
    real: Sequence[Tensor], y: Sequence[Tensor], schedule: Schedule, rngs: Sequence[torch.Generator]
) -> Callable[[bool], Draw]:
    """Function that draws subjects, labels, noise and (where asked) the place between them."""
    size = min(schedule.batch_size, min(len(labels) for labels in y))
    bank, bank_y, device = torch.cat(list(real)), torch.cat(list(y)), real[0].device
    starts = [sum(len(labels) for labels in y[:i]) for i in range(len(y))]

    def one(lane: int, between: bool) -> Draw:
        rng = rngs[lane]
        index = torch.randint(len(y[lane]), (size,), generator=rng, device=rng.device)
        noise = torch.randn(size, schedule.noise, generator=rng, device=rng.device)
        t = torch.rand(size, generator=rng, device=rng.device) if between else noise[:, 0]
        return index + starts[lane], index, noise, t

    def draw(between: bool) -> Draw:
        lanes = [one(i, between) for i in range(len(y))]
        rows, _, noise, t = (torch.stack(part).to(device) for part in zip(*lanes, strict=True))
        if len(lanes) == 1:
            rows, noise, t = rows[0], noise[0], t[0]
        return bank[rows], bank_y[rows], noise, t

    return draw
