"""Conditional Wasserstein GAN with gradient penalty: the base class of both GANs.

Several sites train side by side as lanes: their networks are stacked, their losses summed, so
every lane gets its own gradient and draws its own random numbers, as if it were alone.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fcforge.core.settings import above, at_least, limits
from fcforge.generators.base import (
    RNG,
    FCBatch,
    Generator,
    RNGs,
    descend,
    frozen,
    normal,
    trainable,
)
from fcforge.nn.tensors import Params, stacked

Score = Callable[[Params, Tensor, Tensor], Tensor]

PENALTY = 10.0  # weight of the gradient penalty, as Gulrajani et al.


def gradient_penalty(
    score: Score, params: Params, real: Tensor, fake: Tensor, y: Tensor, t: Tensor
) -> Tensor:
    """Return (|grad f(x_t)| - 1)^2 at x_t = t real + (1 - t) fake, shaped like `t` and `y`.

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
    """Return the penalty minus the distance E f(real) - E f(fake), one value per lane."""
    real_score = score(params, real, y).mean(-1)
    gap = real_score - score(params, fake, y).mean(-1)
    penalty = gradient_penalty(score, params, real, fake, y, t).mean(-1)
    return PENALTY * penalty - gap


@limits(
    steps=at_least(1),
    n_critic=at_least(1),
    batch_size=at_least(1),
    lr=above(0),
    noise=at_least(1),
)
@dataclass(frozen=True)
class WGAN(Generator):
    """Conditional WGAN-GP; a subclass provides the two networks and the space they work in.

    A subclass must set `state_type` (a NamedTuple with the field ``network``), `betas` and
    `networks`, and implement `start` and `draw`; it may override `to_space` and `regulariser`.

    Parameters
    ----------
    steps : int
        Steps of the generator.
    n_critic : int
        Steps of the critic before each of them.
    batch_size : int
    lr : float
        Adam's learning rate.
    noise : int
        Size of z.
    """

    betas: ClassVar[tuple[float, float]]
    # functions of one lane's parameters: the generator maps noise (n, noise) and diagnoses to
    # subjects in the critic's space, the critic maps subjects and diagnoses to values (n,)
    networks: ClassVar[tuple[Score, Score]]
    steps: int = 300
    n_critic: int = 5
    batch_size: int = 16
    lr: float = 1e-4
    noise: int = 100

    def to_space(self, fc: Tensor) -> tuple[Tensor, Params]:
        """Map FC to the critic's space; here the identity.

        Returns
        -------
        subjects : Tensor
        inverse : dict of Tensor
            Fields of `state_type` that invert the map.
        """
        return fc, {}

    @abstractmethod
    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Draw the parameters of generator and critic for one site."""

    def regulariser(self, fake: Tensor, real: Tensor, y: Tensor) -> Tensor | float:
        """Return a term of the generator's loss per lane; subject i of both sets has diagnosis y_i."""
        return 0.0

    def learn_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[Any]:
        """Train the networks of all sites adversarially in the same steps."""
        mapped = [self.to_space(batch.fc) for batch in batches]
        starts = list(map(self.start, batches, rngs))
        y = [batch.y for batch in batches]
        draw = partial(self.drawn, [x for x, _ in mapped], y, rngs)
        gen, critic = (
            trainable(stacked(lanes), y[0].device)
            for lanes in zip(*starts, strict=True)
        )
        self._train(gen, critic, draw)
        states = []
        for lane, (_, inverse) in enumerate(mapped):
            network = frozen({k: v[lane] for k, v in gen.items()})
            states.append(self.state_type(network=network, **inverse))
        return states

    def drawn(
        self, real: Sequence[Tensor], y: Sequence[Tensor], rngs: RNGs, between: bool
    ) -> list[Tensor]:
        """Draw a batch of every lane.

        Parameters
        ----------
        real : sequence of Tensor
            Each lane's subjects in the critic's space.
        y : sequence of Tensor
        rngs : sequence of torch.Generator
        between : bool
            Whether positions between real and generated subjects are drawn, too.

        Returns
        -------
        list of Tensor
            Subjects, diagnoses, noise and positions (lanes, n, ...).
        """
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
        """Train the stacked networks in place; `draw` returns a batch (`drawn`)."""
        make, score = map(torch.func.vmap, self.networks)
        gen_opt = torch.optim.Adam(gen.values(), lr=self.lr, betas=self.betas)
        critic_opt = torch.optim.Adam(critic.values(), lr=self.lr, betas=self.betas)
        for _ in range(self.steps):
            for _ in range(self.n_critic):
                x, y, noise, t = draw(True)
                fake = make(gen, noise, y).detach()
                loss = critic_loss(score, critic, x, fake, y, t)
                descend(critic_opt, loss.sum())
            x, y, noise, _ = draw(False)
            fake = make(gen, noise, y)
            fooled = score(critic, fake, y).mean(-1)
            loss = -fooled + self.regulariser(fake, x, y)
            descend(gen_opt, loss.sum())

    def generate(self, network: Params, y: Tensor, rng: RNG) -> Tensor:
        """Generate subjects of diagnoses y (n,) in the critic's space."""
        noise = normal(len(y), self.noise, rng=rng, to=y.device)
        return self.networks[0](network, noise, y)
