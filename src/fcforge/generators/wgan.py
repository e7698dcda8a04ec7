"""Conditional Wasserstein GAN with gradient penalty: what both GANs share.

Several sites train side by side as lanes: their networks are stacked, their losses summed, so
every lane gets its own gradient and draws its own random numbers, as if it were alone.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fcforge.generators import layers as nn
from fcforge.generators.base import FCBatch, Generator, GeneratorState, RNGs
from fcforge.generators.layers import RNG, Params
from fcforge.settings import Positive, Size

Score = Callable[[Params, Tensor, Tensor], Tensor]
Drawn = tuple[
    Tensor, Tensor, Tensor, Tensor
]  # subjects, diagnoses, noise, place between

PENALTY = 10.0  # weight of the gradient penalty, as Gulrajani et al.


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
    (slope,) = torch.autograd.grad(
        score(params, between, y).sum(), between, create_graph=True
    )
    return (slope.flatten(-inner).norm(dim=-1) - 1.0).square()


def critic_loss(
    score: Score, params: Params, real: Tensor, fake: Tensor, y: Tensor, t: Tensor
) -> Tensor:
    """Penalty minus the distance E f(real) - E f(fake); one value per lane."""
    of_real = score(params, real, y).mean(-1)
    gap = of_real - score(params, fake, y).mean(-1)
    rough = gradient_penalty(score, params, real, fake, y, t).mean(-1)
    return PENALTY * rough - gap


@dataclass(frozen=True)
class WGAN(Generator):
    """A conditional WGAN-GP; a subclass says what its two networks are and see.

    Parameters
    ----------
    steps, n_critic, batch_size, lr
        Steps of the generator, critic steps before each, subjects per step, Adam's rate.
    noise : int
        Size of z.
    """

    betas: ClassVar[tuple[float, float]]
    steps: Size = 300
    n_critic: Size = 5
    batch_size: Size = 16
    lr: Positive = 1e-4
    noise: Size = 100

    @abstractmethod
    def see(self, fc: Tensor) -> tuple[Tensor, Params]:
        """Subjects in the space the critic sees, and what leads back from it."""

    @abstractmethod
    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Fresh generator and critic of one site."""

    @staticmethod
    @abstractmethod
    def make(p: Params, noise: Tensor, y: Tensor) -> Tensor:
        """Noise (n, noise) and diagnoses to subjects in the critic's space, of one lane."""

    @staticmethod
    @abstractmethod
    def score(p: Params, x: Tensor, y: Tensor) -> Tensor:
        """The critic's value of subjects (n,), of one lane."""

    def regulariser(self, fake: Tensor, real: Tensor, y: Tensor) -> Tensor | float:
        """Term of the generator's loss per lane; subject i of both has diagnosis i."""
        return 0.0

    def learn_lanes(
        self, batches: Sequence[FCBatch], rngs: RNGs
    ) -> list[GeneratorState]:
        """Adversarial training of all sites in the same steps."""
        seen = [self.see(batch.fc) for batch in batches]
        starts = list(map(self.start, batches, rngs))
        y = [batch.y for batch in batches]
        size = min(self.batch_size, *map(len, y))
        real = [x for x, _ in seen]
        draw = partial(_drawn, real, y, size, self.noise, rngs)
        gen, critic = (
            nn.trainable(nn.stacked(lanes), y[0].device)
            for lanes in zip(*starts, strict=True)
        )
        self._train(gen, critic, draw)
        lanes = zip(nn.unstacked(gen, len(seen)), seen, strict=True)
        return [{**nn.frozen(p, "net."), **back} for p, (_, back) in lanes]

    def _train(
        self, gen: Params, critic: Params, draw: Callable[[bool], Drawn]
    ) -> None:
        """Train stacked networks in place."""
        make = torch.func.vmap(self.make)
        score = torch.func.vmap(self.score)
        gen_opt = nn.adam(gen, lr=self.lr, betas=self.betas)
        critic_opt = nn.adam(critic, lr=self.lr, betas=self.betas)
        for _ in range(self.steps):
            for _ in range(self.n_critic):
                x, y, noise, t = draw(True)
                fake = make(gen, noise, y).detach()
                loss = critic_loss(score, critic, x, fake, y, t)
                nn.step(critic_opt, loss.sum())
            x, y, noise, _ = draw(False)
            fake = make(gen, noise, y)
            fooled = score(critic, fake, y).mean(-1)
            loss = -fooled + self.regulariser(fake, x, y)
            nn.step(gen_opt, loss.sum())

    def generate(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Subjects of a fitted generator in the critic's space."""
        noise = nn.normal(len(y), self.noise, rng=rng, to=y.device)
        return self.make(nn.with_prefix(state, "net."), noise, y)


def _drawn(
    real: Sequence[Tensor],
    y: Sequence[Tensor],
    size: int,
    n_noise: int,
    rngs: RNGs,
    between: bool,
) -> Drawn:
    """Subjects, diagnoses, noise and (where asked) the place between them, of every lane."""
    device = real[0].device
    lanes = []
    for subjects, labels, rng in zip(real, y, rngs, strict=True):
        index = torch.randint(len(labels), (size,), generator=rng).to(device)
        noise = nn.normal(size, n_noise, rng=rng, to=device)
        t = nn.uniform(size, rng=rng).to(device) if between else noise[:, 0]
        lanes.append((subjects[index], labels[index], noise, t))
    x, y_, noise, t = (torch.stack(part) for part in zip(*lanes, strict=True))
    return x, y_, noise, t
