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

from fcforge.core.settings import above, at_least, limits
from fcforge.generators.base import (
    RNG,
    FCBatch,
    Generator,
    GeneratorState,
    Params,
    RNGs,
    frozen,
    network,
    normal,
    stacked,
    step,
    trainable,
)

Score = Callable[[Params, Tensor, Tensor], Tensor]

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


@limits(
    steps=at_least(1),
    n_critic=at_least(1),
    batch_size=at_least(1),
    lr=above(0),
    noise=at_least(1),
)
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
    # of one lane: noise (n, noise) and diagnoses to subjects in the critic's space; subjects and
    # diagnoses to the critic's values (n,)
    networks: ClassVar[tuple[Score, Score]]
    steps: int = 300
    n_critic: int = 5
    batch_size: int = 16
    lr: float = 1e-4
    noise: int = 100

    def see(self, fc: Tensor) -> tuple[Tensor, Params]:
        """Subjects in the space the critic sees, and what leads back from it; FC as it is."""
        return fc, {}

    @abstractmethod
    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Fresh generator and critic of one site."""

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
        draw = partial(self.drawn, [x for x, _ in seen], y, rngs)
        gen, critic = (
            trainable(stacked(lanes), y[0].device)
            for lanes in zip(*starts, strict=True)
        )
        self._train(gen, critic, draw)
        states = []
        for lane, (_, back) in enumerate(seen):
            own = {k: v[lane] for k, v in gen.items()}
            states.append({**frozen(own), **back})
        return states

    def drawn(
        self, real: Sequence[Tensor], y: Sequence[Tensor], rngs: RNGs, between: bool
    ) -> list[Tensor]:
        """Subjects, diagnoses, noise and (where asked) the place between them, of every lane."""
        device = real[0].device
        size = min(self.batch_size, *map(len, y))
        lanes = []
        for subjects, labels, rng in zip(real, y, rngs, strict=True):
            index = torch.randint(len(labels), (size,), generator=rng).to(device)
            noise = normal(size, self.noise, rng=rng, to=device)
            t = torch.rand(size, generator=rng).to(device) if between else noise[:, 0]
            lanes.append((subjects[index], labels[index], noise, t))
        return [torch.stack(part) for part in zip(*lanes, strict=True)]

    def _train(
        self, gen: Params, critic: Params, draw: Callable[[bool], list[Tensor]]
    ) -> None:
        """Train stacked networks in place."""
        make, score = map(torch.func.vmap, self.networks)
        gen_opt = torch.optim.Adam(gen.values(), lr=self.lr, betas=self.betas)
        critic_opt = torch.optim.Adam(critic.values(), lr=self.lr, betas=self.betas)
        for _ in range(self.steps):
            for _ in range(self.n_critic):
                x, y, noise, t = draw(True)
                fake = make(gen, noise, y).detach()
                loss = critic_loss(score, critic, x, fake, y, t)
                step(critic_opt, loss.sum())
            x, y, noise, _ = draw(False)
            fake = make(gen, noise, y)
            fooled = score(critic, fake, y).mean(-1)
            loss = -fooled + self.regulariser(fake, x, y)
            step(gen_opt, loss.sum())

    def generate(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Subjects of a fitted generator in the critic's space."""
        noise = normal(len(y), self.noise, rng=rng, to=y.device)
        return self.networks[0](network(state), noise, y)
