"""ReGATE: the regression graph auto-encoder of Liu et al. (2021), adapted to FC.

The structure is that of the public code, the equations are implemented anew. The differences are:

- The input of an edge is exp(standardised Fisher z), as in FCM-VAE, instead of a count of fibres.
- Each edge enters once, instead of the full R x R matrix.
- The dense output layer of R^2 x R^2 weights (181 million for 116 ROIs) becomes one scale and one bias
  per edge, as in GATE by the same group.
- The neighbours of a ROI are those with the highest mean FC.
- z given the trait is sampled; the public code takes its mean.
- Weights of the factors and the offset are trained. The public code does not register them as
  parameters, so they stay at their initial values.

Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, d_z latent units. The trait is the diagnosis as a number.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import above, at_least, limits
from fcforge.generators.base import (
    RNG,
    FCBatch,
    Generator,
    descend,
    device_rng,
    frozen,
    normal,
    trainable,
)
from fcforge.generators.coordinates import clip_to_correlation
from fcforge.generators.latent import kl_per_unit, latent_given_y
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.nn.layers import affine, init_linear
from fcforge.nn.tensors import Params


class ReGATEState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
        Trained parameters.
    mask : Tensor of shape (R, R)
        1 where two ROIs are neighbours (`neighbour_mask`).
    centre, unit : Tensor, scalar
        Mean and standard deviation of all Fisher-z edges.
    y_mean, y_sd : Tensor, scalar
        Mean and standard deviation of the diagnosis.
    active_units : Tensor, scalar
        Number of latent units whose mean varies over subjects.
    """

    network: Params
    mask: Tensor
    centre: Tensor
    unit: Tensor
    y_mean: Tensor
    y_sd: Tensor
    active_units: Tensor


def neighbour_mask(fc: Tensor, k: int) -> Tensor:
    """Return a matrix (R, R) of 1 where ROI j is a neighbour of ROI i, else 0.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
    k : int
        Number of neighbours: the ROIs with the highest mean FC. A ROI is its own neighbour in addition.
    """
    distance = 1.0 - fc.mean(0)
    distance.fill_diagonal_(-1.0)
    nearest = distance.topk(min(k + 1, fc.shape[-1]), largest=False).indices
    return torch.zeros_like(distance).scatter_(1, nearest, 1.0)


def encode(p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and log variance, each (n, d_z), of the normal distribution q(z | x).

    Parameters
    ----------
    p : dict of Tensor
        Parameters of the network.
    x : Tensor of shape (n, E)
        exp(standardised Fisher z) of every edge.
    """
    h = torch.relu(affine(p, "encoder", x))
    log_var = affine(p, "log_var", h)
    return affine(p, "mu", h), log_var.clamp(-8.0, 4.0)


def log_rate(p: Params, z: Tensor, mask: Tensor) -> Tensor:
    """Return the decoder's logarithm of the Poisson rate of every edge.

    For an edge e of ROIs u and v it is s_e (a_e + sum_r w_r x_ru x_rv) + b_e, where the sum is over
    factors r and x_r = sigmoid((M * W_r) sigmoid(V_r z)).

    Parameters
    ----------
    p : dict of Tensor
        ``geometry`` V, ``neighbours`` W (rank, R, R), ``factor`` w, ``offset`` a, ``edge_scale`` s and
        ``edge_bias`` b.
    z : Tensor of shape (n, d_z)
    mask : Tensor of shape (R, R)
        M, from `neighbour_mask`.

    Returns
    -------
    Tensor of shape (n, E)
    """
    hidden = torch.sigmoid(affine(p, "geometry", z)).unflatten(-1, (-1, mask.shape[0]))
    kernel = p["neighbours"] * mask  # (rank, R, R)
    x = torch.sigmoid(
        torch.einsum("nrj,rij->nri", hidden, kernel) + p["neighbours_bias"]
    )
    gram = torch.einsum("nri,r,nrj->nij", x, p["factor"], x)
    return p["edge_scale"] * (p["offset"] + edges(gram)) + p["edge_bias"]


@limits(
    d_z=at_least(1),
    rank=at_least(1),
    hidden=at_least(1),
    neighbours=at_least(1),
    weight=above(0),
    epochs=at_least(1),
    batch_size=at_least(1),
    lr=above(0),
)
@dataclass(frozen=True)
class ReGATE(Generator):
    """Graph auto-encoder with a Poisson likelihood and a linear head that predicts the trait.

    Latent variables z of a given diagnosis are drawn by Bayes' rule.

    Parameters
    ----------
    d_z : int or None
        Number of latent units; None takes the number of ROIs, as the public code does.
    rank : int
        Number of the decoder's factors.
    hidden : int
        Width of the encoder's hidden layer.
    neighbours : int
        Number of neighbours of a ROI (`neighbour_mask`).
    weight : float
        Weight of reconstruction and KL divergence; the squared error of the trait has the weight 1.
    epochs, batch_size : int
    lr : float
        Learning rate of Adam.
    project : {"none", "clip"}
        Samples need not be positive semidefinite. "clip" raises their eigenvalues to at least 0.001
        and restores the unit diagonal.
    """

    name = "regate"
    state_type = ReGATEState
    d_z: int | None = None
    rank: int = 5
    hidden: int = 256
    neighbours: int = 32
    weight: float = 0.01
    epochs: int = 200
    batch_size: int = 16
    lr: float = 1e-3
    project: Literal["none", "clip"] = "none"

    def learn(self, batch: FCBatch, rng: RNG) -> ReGATEState:
        """Train the network on one site's subjects."""
        z = fisher_z(edges(batch.fc))
        y = batch.y.to(z.dtype)
        centre = z.mean()
        unit = z.std().clamp_min(1e-6)
        mask = neighbour_mask(batch.fc, self.neighbours)
        y_mean = y.mean()
        y_sd = y.std(correction=0).clamp_min(0.1)
        x = ((z - centre) / unit).clamp(-8.0, 8.0).exp()
        p = self._train(x, (y - y_mean) / y_sd, mask, rng)
        with torch.no_grad():
            active = (encode(p, x)[0].var(0) > 0.01).sum()
        # s of `latent_given_y`: the trait is standardised, so the public code's std(y) is 1.
        network = frozen(p) | {"log_sigma_y": torch.zeros((), device=x.device)}
        return ReGATEState(network, mask, centre, unit, y_mean, y_sd, active)

    def _train(self, x: Tensor, trait: Tensor, mask: Tensor, rng: RNG) -> Params:
        """Return the parameters that minimise `_loss`, whose arguments are those of a batch.

        Parameters
        ----------
        x, trait, mask
            As in `_loss`, of all subjects.
        rng : torch.Generator
            Source of the first parameters, the batches and the noise.
        """
        p = trainable(self._init(mask.shape[0], rng), x.device)
        optimiser = torch.optim.Adam(p.values(), lr=self.lr)
        rng = device_rng(rng, x.device)
        for _ in range(self.epochs):
            order = torch.randperm(len(x), generator=rng, device=rng.device)
            for index in order.split(self.batch_size):
                descend(optimiser, self._loss(p, x[index], trait[index], mask, rng))
        return p

    def _init(self, rois: int, rng: RNG) -> Params:
        """Draw the parameters of an untrained network for `rois` ROIs."""
        p: Params = {}
        d_z = self.d_z or rois
        n_edges = rois * (rois - 1) // 2
        p |= init_linear(rng, "encoder", n_edges, self.hidden, bias="zero")
        p |= init_linear(rng, "mu", self.hidden, d_z, bias="zero")
        p |= init_linear(rng, "log_var", self.hidden, d_z, bias="zero")
        p |= init_linear(rng, "geometry", d_z, self.rank * rois, bias="zero")
        p["neighbours"] = torch.randn(self.rank, rois, rois, generator=rng) / rois**0.5
        p["neighbours_bias"] = torch.zeros(self.rank, rois)
        p["factor"] = torch.randn(self.rank, generator=rng)
        p["offset"] = torch.zeros(n_edges)
        p["edge_bias"] = torch.zeros(n_edges)
        p["edge_scale"] = torch.ones(n_edges)
        p |= init_linear(rng, "head", d_z, 1, bias="zero")
        return p

    def _loss(
        self, p: Params, x: Tensor, trait: Tensor, mask: Tensor, rng: RNG
    ) -> Tensor:
        """Return the loss of a batch: weight * (Poisson term + KL) + squared error of the trait.

        Parameters
        ----------
        p : dict of Tensor
        x : Tensor of shape (n, E)
            exp(standardised Fisher z) of every edge.
        trait : Tensor of shape (n,)
            Standardised diagnoses.
        mask : Tensor of shape (R, R)
            From `neighbour_mask`.
        rng : torch.Generator

        Returns
        -------
        Tensor, scalar
            Sum over subjects.
        """
        mu, log_var = encode(p, x)
        z = mu + (0.5 * log_var).exp() * normal(*mu.shape, rng=rng)
        eta = log_rate(p, z, mask).clamp(-10.0, 10.0)
        poisson = (eta.exp() - x * eta).sum()
        predicted = affine(p, "head", mu)[:, 0]
        trait_error = (predicted - trait).square().sum()
        return self.weight * (poisson + kl_per_unit(mu, log_var).sum()) + trait_error

    def draw(self, model: ReGATEState, y: Tensor, rng: RNG) -> Tensor:
        """Draw z for diagnoses y (n,) and map its log-rate back to FC (n, R, R)."""
        p = model.network
        noise = normal(len(y), p["head.weight"].shape[1], rng=rng, to=y.device)
        trait = (y.to(noise.dtype) - model.y_mean) / model.y_sd
        # s is fixed at 1 (see `learn`), so it needs no lower bound.
        latent = latent_given_y(p, trait, noise, floor=0.0)
        eta = log_rate(p, latent, model.mask)
        z = model.unit * eta.clamp(-10.0, 10.0) + model.centre
        fc = from_edges(torch.tanh(z))
        return clip_to_correlation(fc) if self.project == "clip" else fc
