"""Training of FCM-VAE: one network per site, on a CPU site by site, on a GPU all sites together.

A lane is one network among several that train in parallel; here each lane is the network of one site.
On a GPU the parameters of all lanes are stacked along a first dimension and their losses summed
(`torch.func.vmap`), and one training step is recorded as a CUDA graph: twenty networks take the time
of one. Every lane is trained as if it were alone. It takes as many steps per epoch as its own subjects
need and is left unchanged in the other steps. Its batches and noise come from a random number
generator of its own on the CPU; dropout is drawn on the device of the networks.

Shapes: b subjects of a batch, d_z latent units.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.generators.base import RNG, device_rng, normal
from fcforge.generators.progress import report
from fcforge.nn.adam import Adam, FusedAdam
from fcforge.nn.cuda_graphs import Graphed
from fcforge.nn.tensors import Inputs, Params, moved, stacked


class Terms(NamedTuple):
    """Terms of the negative evidence lower bound (ELBO), means over subjects.

    Attributes
    ----------
    reconstruction, label : Tensor, scalar
        Negative log-likelihood of edges and of the diagnosis.
    kl : Tensor, scalar
        KL divergence of q(z | FC) from the prior.
    """

    reconstruction: Tensor
    label: Tensor
    kl: Tensor


TERMS = Terms._fields  # their names


class Trainable(Protocol):
    """Everything that `train` needs of `fcforge.generators.fcm_vae.base.VAE`, which imports this module."""

    @property
    def epochs(self) -> int:
        """Number of passes over a site's subjects."""
        ...

    @property
    def batch_size(self) -> int:
        """Largest number of subjects in a step."""
        ...

    @property
    def d_z(self) -> int:
        """Dimension of the latent space."""
        ...

    @property
    def lr(self) -> float:
        """Step size of Adam."""
        ...

    @property
    def clip(self) -> float:
        """Largest norm of a gradient; 0 does not clip."""
        ...

    def initial_params(self, site: Inputs, rng: RNG) -> Params:
        """Draw the parameters before the first step for a site's subjects (`VAE.prepare_site`)."""
        ...

    def dropout_masks(self, n: int, rois: int, rng: RNG) -> Params:
        """Draw the activations that dropout keeps for n subjects, by place in the network."""
        ...

    def kl_weight(self, epoch: int) -> float:
        """Return the weight of the KL term in an epoch, counted from 0."""
        ...

    def negative_elbo(
        self,
        p: Params,
        batch: Inputs,
        noise: Tensor,
        masks: Params,
        beta: float | Tensor,
    ) -> tuple[Tensor, Terms]:
        """Return the loss of a batch, minus the supervised ELBO, and its terms.

        The arguments are described in `fcforge.generators.fcm_vae.base.VAE.negative_elbo`.
        """
        ...


class Lanes(NamedTuple):
    """State of training of all lanes; the first dimension of every tensor is the lane.

    Attributes
    ----------
    params : dict of Tensor
    optimiser : Adam
        State of the optimiser.
    terms : Tensor of shape (lanes, 3)
        `Terms` of the present epoch, summed over the subjects so far.
    """

    params: Params
    optimiser: Adam
    terms: Tensor


class StepData(NamedTuple):
    """Data of one training step of all lanes.

    Attributes
    ----------
    rows : Tensor of shape (lanes, b)
        Subjects of the batch, as row numbers of `LaneBatches.bank`.
    weight : Tensor of shape (lanes, b)
        1 for subjects, 0 for entries that only fill the batch.
    noise : Tensor of shape (lanes, b, d_z)
        Standard normal numbers for the draws of z.
    masks : dict of Tensor
        Activations that dropout keeps.
    """

    rows: Tensor
    weight: Tensor
    noise: Tensor
    masks: Params


class LaneBatches:
    """Batches of all lanes, filled up to one size.

    Parameters
    ----------
    vae : Trainable
    sites : sequence of dict
        Tensors of every lane's subjects, from `fcforge.generators.fcm_vae.base.VAE.prepare_site`.
    rngs : sequence of torch.Generator
        Source of random numbers of every lane.

    Attributes
    ----------
    bank : dict of Tensor
        Tensors of the subjects of all lanes, one lane after the other along the first dimension.
    """

    def __init__(
        self, vae: Trainable, sites: Sequence[Inputs], rngs: Sequence[RNG]
    ) -> None:
        self.vae = vae
        self.rngs = rngs
        self.sizes = [len(site["y"]) for site in sites]
        self.device = sites[0]["y"].device
        self.rois = sites[0]["features"].shape[1]
        self.mask_rngs = [device_rng(rng, self.device) for rng in rngs]
        self.bank = sites[0]
        if len(sites) > 1:
            self.bank = {k: torch.cat([site[k] for site in sites]) for k in sites[0]}

    def epoch(self) -> Iterator[StepData]:
        """Yield the steps of one epoch, in which every lane sees each of its subjects once.

        A lane with fewer subjects than others gets empty batches in the last steps.
        """
        orders = [
            torch.randperm(n, generator=rng).split(self.vae.batch_size)
            for n, rng in zip(self.sizes, self.rngs, strict=True)
        ]
        for i in range(max(map(len, orders))):
            yield self._step(
                [order[i] if i < len(order) else order[0][:0] for order in orders]
            )

    def _step(self, chosen: Sequence[Tensor]) -> StepData:
        """Return the data of one step.

        Parameters
        ----------
        chosen : sequence of Tensor, each of shape (b,) or shorter
            For every lane the subjects to train, numbered within the lane.
        """
        vae = self.vae
        size = min(vae.batch_size, max(self.sizes))
        rows = torch.zeros(len(chosen), size, dtype=torch.int64)
        weight = torch.zeros(len(chosen), size)
        noise = torch.zeros(len(chosen), size, vae.d_z)
        masks = []
        for lane, index in enumerate(chosen):
            n = len(index)
            # Random numbers are drawn for the real subjects alone, as if the lane were alone.
            drawn = vae.dropout_masks(n, self.rois, self.mask_rngs[lane])
            filler = {k: v.new_ones(size - n, *v.shape[1:]) for k, v in drawn.items()}
            masks.append({k: torch.cat([v, filler[k]]) for k, v in drawn.items()})
            # From numbers within the lane to rows of the bank.
            rows[lane, :n] = index + sum(self.sizes[:lane])
            weight[lane, :n] = 1.0
            noise[lane, :n] = normal(n, vae.d_z, rng=self.rngs[lane])
        step = StepData(rows, weight, noise, stacked(masks))
        return pytree.tree_map(lambda x: x.to(self.device), step)


def adam_step(vae: Trainable, lanes: Lanes, gradient: Params, active: Tensor) -> Lanes:
    """Take one step of Adam in some lanes and leave the others unchanged.

    Parameters
    ----------
    vae : Trainable
    lanes : Lanes
    gradient : dict of Tensor
        Gradients of the parameters of all lanes.
    active : Tensor of shape (lanes,), bool
        Lanes that take the step.
    """
    clip = vae.clip or math.inf

    def step(params: Params, optimiser: Adam, gradient: Params) -> tuple[Params, Adam]:
        """Take the step of one lane."""
        return optimiser.step(params, gradient, lr=vae.lr, clip=clip)

    def pick(new: Tensor, old: Tensor) -> Tensor:
        """Return new values in the active lanes and old ones in the others."""
        return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)

    old = lanes.params, lanes.optimiser
    new = torch.func.vmap(step)(*old, gradient)
    params, optimiser = pytree.tree_map(pick, new, old)
    return lanes._replace(params=params, optimiser=optimiser)


def make_step(
    batches: LaneBatches,
) -> Callable[[Lanes, StepData, Tensor], tuple[Lanes]]:
    """Return the function that takes one training step in all lanes.

    Its arguments are the lanes, the step's data and the KL weight. It returns the new lanes in a tuple,
    the form that `Graphed` needs.
    """
    bank = batches.bank
    vae = batches.vae

    def step(lanes: Lanes, data: StepData, beta: Tensor) -> tuple[Lanes]:
        """Take one training step in all lanes."""
        batch = {k: v[data.rows] for k, v in bank.items()}
        batch["weight"] = data.weight
        params = {k: v.detach().requires_grad_() for k, v in lanes.params.items()}
        elbo = torch.func.vmap(partial(vae.negative_elbo, beta=beta))
        loss, terms = elbo(params, batch, data.noise, data.masks)
        gradients = torch.autograd.grad(
            loss.sum(), list(params.values()), materialize_grads=True
        )
        gradient = dict(zip(params, gradients, strict=True))
        subjects = data.weight.sum(1)
        with torch.no_grad():
            total = lanes.terms + torch.stack(terms, 1) * subjects[:, None]
            lanes = adam_step(vae, lanes._replace(terms=total), gradient, subjects > 0)
        return (lanes,)

    return step


def train(
    vae: Trainable, sites: Sequence[Inputs], rngs: Sequence[RNG]
) -> tuple[list[Params], list[Tensor]]:
    """Maximise the supervised ELBO of every site with Adam.

    A GPU trains all sites together (`train_lanes`), a CPU one after another (`train_alone`).

    Parameters
    ----------
    vae : Trainable
    sites : sequence of dict
        Tensors of every site's subjects, from `fcforge.generators.fcm_vae.base.VAE.prepare_site`.
    rngs : sequence of torch.Generator
        Source of random numbers of every site.

    Returns
    -------
    networks : list of dict
        Trained parameters of every site's network.
    histories : list of Tensor of shape (epochs, 3)
        Mean `Terms` of every site and epoch, on the CPU.
    """
    if sites[0]["y"].device.type == "cuda":
        return train_lanes(vae, sites, rngs)
    fitted = [train_alone(vae, *one) for one in zip(sites, rngs, strict=True)]
    networks, histories = map(list, zip(*fitted, strict=True))
    return networks, histories


def train_alone(vae: Trainable, site: Inputs, rng: RNG) -> tuple[Params, Tensor]:
    """Maximise the supervised ELBO of one site on the CPU.

    Batches and noise are those of `train_lanes`. There is no dimension of lanes, and a fused Adam
    changes the parameters in place, so results differ from those of `train_lanes` in the last digits.

    Parameters
    ----------
    vae : Trainable
    site : dict of Tensor
        From `fcforge.generators.fcm_vae.base.VAE.prepare_site`.
    rng : torch.Generator

    Returns
    -------
    network : dict of Tensor
        Trained parameters.
    history : Tensor of shape (epochs, 3)
        Mean `Terms` of every epoch.
    """
    n, rois, _ = site["features"].shape
    params = vae.initial_params(site, rng)
    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    adam = FusedAdam(leaves, vae.lr, vae.clip)
    history = []
    for epoch in range(vae.epochs):
        beta = vae.kl_weight(epoch)
        total = torch.zeros(len(TERMS))
        for rows in torch.randperm(n, generator=rng).split(vae.batch_size):
            size = len(rows)
            masks = vae.dropout_masks(size, rois, rng)
            noise = normal(size, vae.d_z, rng=rng)
            batch = {k: v[rows] for k, v in site.items()}
            batch["weight"] = noise.new_ones(size)
            loss, terms = vae.negative_elbo(leaves, batch, noise, masks, beta)
            adam.step(loss)
            total += torch.stack([term.detach() for term in terms]) * size
        history.append(total / n)
        mean = history[-1].tolist()
        report(epoch + 1, vae.epochs, dict(zip(TERMS, mean, strict=True)))
    return {k: v.detach() for k, v in leaves.items()}, torch.stack(history)


def train_lanes(
    vae: Trainable, sites: Sequence[Inputs], rngs: Sequence[RNG]
) -> tuple[list[Params], list[Tensor]]:
    """Maximise the supervised ELBO of all sites in the same steps.

    Arguments and results are those of `train`.
    """
    batches = LaneBatches(vae, sites, rngs)
    device = batches.device
    starts = [
        vae.initial_params(site, rng) for site, rng in zip(sites, rngs, strict=True)
    ]
    params = moved(stacked(starts), device)
    zeros = torch.zeros(len(sites), len(TERMS), device=device)
    lanes = Lanes(params, torch.func.vmap(Adam.start)(params), zeros)
    step: Callable[..., tuple[Lanes]] = make_step(batches)
    if device.type == "cuda":
        step = Graphed(step, carried=1)  # its first argument, lanes, is what it returns
    sizes = torch.tensor(batches.sizes, device=device)[:, None]
    history = []
    for epoch in range(vae.epochs):
        beta = torch.tensor(vae.kl_weight(epoch), device=device)
        lanes = lanes._replace(terms=zeros)
        for data in batches.epoch():
            (lanes,) = step(lanes, data, beta)
        history.append((lanes.terms / sizes).cpu())
        mean = history[-1].mean(0).tolist()
        report(epoch + 1, vae.epochs, dict(zip(TERMS, mean, strict=True)))
    networks = [
        {k: v[i].clone() for k, v in lanes.params.items()} for i in range(len(sites))
    ]
    return networks, list(torch.stack(history, 1).unbind())
