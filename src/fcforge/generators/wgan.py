"""Conditional Wasserstein GAN with gradient penalty: the base class of both GANs.

A lane is one network among several that train in parallel; here a pair of networks (generator and
critic) for each site. Their parameters are stacked along a first dimension and their losses summed, so
that every lane gets its own gradient. It also draws its own random numbers, as if it were alone.

Shapes: n subjects of a batch. A subject is a matrix or vector in the space of the critic; (...) stands
for its dimensions.
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

# (parameters, subjects, diagnoses) -> scores; with noise for subjects, also the generator network
Score = Callable[[Params, Tensor, Tensor], Tensor]

PENALTY = 10.0  # weight of the gradient penalty, as in Gulrajani et al.


def gradient_penalty(
    score: Score, params: Params, real: Tensor, fake: Tensor, y: Tensor, t: Tensor
) -> Tensor:
    """Return the penalty of a critic's gradient between real and generated subjects.

    It is (|gradient of the score| - 1)^2 at the points t real + (1 - t) fake.

    Parameters
    ----------
    score : callable
        The critic.
    params : dict of Tensor
        Its parameters.
    real, fake : Tensor of shape (lanes, n, ...)
        Real and generated subjects.
    y : Tensor of shape (lanes, n)
        Diagnoses.
    t : Tensor of shape (lanes, n)
        Positions between them, in [0, 1].

    Returns
    -------
    Tensor of shape (lanes, n)

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
    """Return the critic's loss: gradient penalty minus (mean real score - mean generated score).

    Parameters
    ----------
    score, params, real, fake, y, t
        As for `gradient_penalty`.

    Returns
    -------
    Tensor of shape (lanes,)
    """
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
    """Conditional Wasserstein GAN with gradient penalty.

    A subclass provides the two networks and the space in which they work (FC, or a function of it).

    A subclass must set `state_type` (a NamedTuple with the field ``network``), `betas` and
    `networks`, and implement `start` and `draw`; it may override `to_space` and `regulariser`.

    Parameters
    ----------
    steps : int
        Number of training steps of the generator network.
    n_critic : int
        Number of training steps of the critic before each of them.
    batch_size : int
    lr : float
        Learning rate of Adam.
    noise : int
        Size of the noise vector that enters the generator network.

    Attributes
    ----------
    betas : tuple of float
        Decay rates of Adam's moments.
    networks : tuple of callable
        Functions of one lane: the generator network maps (parameters, noise (n, noise), diagnoses) to
        subjects (n, ...), the critic maps (parameters, subjects, diagnoses) to scores (n,).
    """

    betas: ClassVar[tuple[float, float]]
    networks: ClassVar[tuple[Score, Score]]
    steps: int = 300
    n_critic: int = 5
    batch_size: int = 16
    lr: float = 1e-4
    noise: int = 100

    def to_space(self, fc: Tensor) -> tuple[Tensor, Params]:
        """Map FC (n, R, R) to the critic's space; here the identity.

        Returns
        -------
        subjects : Tensor of shape (n, ...)
        inverse : dict of Tensor
            Fields of `state_type` that invert the map.
        """
        return fc, {}

    @abstractmethod
    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Draw the parameters of generator network and critic for one site's subjects."""

    def regulariser(self, fake: Tensor, real: Tensor, y: Tensor) -> Tensor | float:
        """Return a further term of the generator's loss; here 0.

        Parameters
        ----------
        fake, real : Tensor of shape (lanes, n, ...)
            Generated and real subjects.
        y : Tensor of shape (lanes, n)
            Diagnoses: entry i belongs to both the real and the generated subject i.

        Returns
        -------
        Tensor of shape (lanes,), or float
        """
        return 0.0

    def learn_lanes(self, batches: Sequence[FCBatch], rngs: RNGs) -> list[Any]:
        """Train the networks of all sites adversarially in the same steps."""
        mapped = [self.to_space(batch.fc) for batch in batches]
        starts = list(map(self.start, batches, rngs))
        y = [batch.y for batch in batches]
        draw = partial(self.drawn, [x for x, _ in mapped], y, rngs)
        # Of each site a pair of networks; stacked, a pair with a first dimension of lanes.
        generator, critic = (
            trainable(stacked(lanes), y[0].device)
            for lanes in zip(*starts, strict=True)
        )
        self._train(generator, critic, draw)
        states = []
        for lane, (_, inverse) in enumerate(mapped):
            network = frozen({k: v[lane] for k, v in generator.items()})
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
            Their diagnoses.
        rngs : sequence of torch.Generator
            Each lane's source of random numbers.
        between : bool
            Whether positions for `gradient_penalty` are drawn, too; else the last entry of the result
            is a placeholder.

        Returns
        -------
        list of Tensor
            Subjects (lanes, n, ...), diagnoses (lanes, n), noise (lanes, n, noise) and positions
            (lanes, n).
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
        self, generator: Params, critic: Params, draw: Callable[[bool], list[Tensor]]
    ) -> None:
        """Train the networks of all lanes in place.

        Parameters
        ----------
        generator, critic : dict of Tensor
            Parameters, stacked over lanes.
        draw : callable
            Returns a batch; `drawn` with all arguments but `between` given.
        """
        generate, score = map(torch.func.vmap, self.networks)
        settings: Any = {"lr": self.lr, "betas": self.betas}
        generator_adam = torch.optim.Adam(generator.values(), **settings)
        critic_adam = torch.optim.Adam(critic.values(), **settings)
        for _ in range(self.steps):
            for _ in range(self.n_critic):
                real, y, noise, t = draw(True)
                fake = generate(generator, noise, y).detach()
                loss = critic_loss(score, critic, real, fake, y, t)
                descend(critic_adam, loss.sum())
            real, y, noise, _ = draw(False)
            fake = generate(generator, noise, y)
            fake_score = score(critic, fake, y).mean(-1)
            loss = -fake_score + self.regulariser(fake, real, y)
            descend(generator_adam, loss.sum())

    def generate(self, network: Params, y: Tensor, rng: RNG) -> Tensor:
        """Generate subjects (n, ...) of diagnoses y (n,) in the critic's space.

        Parameters
        ----------
        network : dict of Tensor
            Parameters of one lane's generator network.
        y : Tensor of shape (n,)
        rng : torch.Generator
        """
        noise = normal(len(y), self.noise, rng=rng, to=y.device)
        return self.networks[0](network, noise, y)
