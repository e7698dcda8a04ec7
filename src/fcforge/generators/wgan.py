"""Conditional Wasserstein GAN with gradient penalty: the loop both GANs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators.checks import device_rng
from fcforge.generators.layers import Params, trainable

Make = Callable[[Params, Tensor, Tensor], Tensor]
Score = Callable[[Params, Tensor, Tensor], Tensor]
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]


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
    score: Score, params: Params, real: Tensor, fake: Tensor, y: Tensor, rng: torch.Generator
) -> Tensor:
    """E (|grad f(x_t)| - 1)^2 on straight lines between real and generated subjects.

    References
    ----------
    Gulrajani et al., Improved training of Wasserstein GANs, 2017.
    """
    shape = (real.shape[0],) + (1,) * (real.dim() - 1)
    t = torch.rand(shape, generator=rng, device=rng.device)
    between = (t * real + (1 - t) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(score(params, between, y).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1.0).square().mean()


def train_wgan(
    real: Tensor,
    y: Tensor,
    make: Make,
    score: Score,
    start: tuple[Params, Params],
    schedule: Schedule,
    rng: torch.Generator,
    regulariser: Penalty | None = None,
) -> tuple[Params, Tensor]:
    """Train generator `make` against critic `score`.

    Parameters
    ----------
    real : Tensor of shape (n, ...)
        Training subjects in the space the critic sees.
    y : Tensor of shape (n,)
    make : callable
        (params, noise, labels) to generated subjects in that space.
    score : callable
        (params, subjects, labels) to critic values (n,).
    start : pair of dict
        Fresh parameters of generator and critic.
    regulariser : callable, optional
        (generated, real, labels) to a term of the generator's loss; subject i of both has
        label i.

    Returns
    -------
    params : dict of Tensor
        The generator's, detached.
    distance : Tensor of shape (steps,)
        Critic's estimate of the Wasserstein distance.
    """
    gen, critic = (trainable(p, real.device) for p in start)
    kwargs = {"lr": schedule.lr, "betas": schedule.betas}
    gen_opt = torch.optim.Adam(list(gen.values()), **kwargs)  # type: ignore[arg-type]
    critic_opt = torch.optim.Adam(list(critic.values()), **kwargs)  # type: ignore[arg-type]
    rng = device_rng(rng, real.device)
    size = min(schedule.batch_size, len(y))
    distance = torch.zeros(schedule.steps, device=real.device)

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        index = torch.randint(len(y), (size,), generator=rng, device=rng.device)
        noise = torch.randn(size, schedule.noise, generator=rng, device=rng.device)
        return real[index], y[index], noise

    for step in range(schedule.steps):
        for _ in range(schedule.n_critic):
            x, labels, noise = draw()
            fake = make(gen, noise, labels).detach()
            gap = score(critic, x, labels).mean() - score(critic, fake, labels).mean()
            rough = gradient_penalty(score, critic, x, fake, labels, rng)
            critic_opt.zero_grad()
            (schedule.penalty * rough - gap).backward()
            critic_opt.step()
            distance[step] = gap.detach()
        x, labels, noise = draw()
        fake = make(gen, noise, labels)
        loss = -score(critic, fake, labels).mean()
        if regulariser is not None:
            loss = loss + regulariser(fake, x, labels)
        gen_opt.zero_grad()
        loss.backward()
        gen_opt.step()
    return {k: v.detach() for k, v in gen.items()}, distance
