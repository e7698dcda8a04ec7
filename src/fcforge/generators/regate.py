"""ReGATE: the regression graph auto-encoder of Liu et al. (2021), adapted to FC.

Structure from the public code (read for facts; generators.md 1.1), equations re-implemented. Ours:
FC enters as FCM-VAE's intensity exp(standardised Fisher z) instead of fibre counts; edges instead
of the full N x N vector; the dense N^2 x N^2 output layer (181 M weights at N = 116) becomes one
scale and one bias per edge, as in the same group's GATE; neighbours are found in 1 - mean FC; z | y
is sampled, not its mean taken; the factor weights and the offset are trained (in the public code
they are not registered and stay at their start).
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
    mask : Tensor of shape (R, R)
        Neighbours of every ROI.
    centre, unit : Tensor, scalar
        Mean and spread of the Fisher-z edges.
    y_mean, y_sd : Tensor, scalar
        Mean and spread of the diagnosis.
    active_units : Tensor, scalar
        Latent units whose mean moves over subjects.
    """

    network: Params
    mask: Tensor
    centre: Tensor
    unit: Tensor
    y_mean: Tensor
    y_sd: Tensor
    active_units: Tensor


def neighbour_mask(fc: Tensor, k: int) -> Tensor:
    """1 where ROI j is ROI i itself or among its `k` nearest in 1 - mean FC, (R, R)."""
    distance = 1.0 - fc.mean(0)
    distance.fill_diagonal_(-1.0)
    nearest = distance.topk(min(k + 1, fc.shape[-1]), largest=False).indices
    return torch.zeros_like(distance).scatter_(1, nearest, 1.0)


def encode(p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """ReLU layer, then mean and log variance of q(z | x)."""
    h = torch.relu(affine(p, "encoder", x))
    log_var = affine(p, "log_var", h)
    return affine(p, "mu", h), log_var.clamp(-8.0, 4.0)


def log_rate(p: Params, z: Tensor, mask: Tensor) -> Tensor:
    """eta_e = s_e (a_e + sum_r w_r u_ru u_rv) + b_e, u_r = sigmoid((M * W_r) sigmoid(V_r z))."""
    hidden = torch.sigmoid(affine(p, "geometry", z)).unflatten(-1, (-1, mask.shape[0]))
    kernel = p["neighbours"] * mask  # (r, R, R)
    u = torch.sigmoid(
        torch.einsum("nrj,rij->nri", hidden, kernel) + p["neighbours_bias"]
    )
    gram = torch.einsum("nri,r,nrj->nij", u, p["factor"], u)
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
    """Poisson graph auto-encoder with a linear trait head; z | y by Bayes' rule.

    Parameters
    ----------
    d_z : int or None
        Latent size; None takes the number of ROIs, as the public code.
    rank, hidden, neighbours
        Factors, encoder width, neighbours of the geometry mask.
    weight : float
        Of reconstruction + KL against the trait loss.
    epochs, batch_size, lr
        Adam.
    project : {"none", "clip"}
        Samples are not positive semidefinite by construction. "clip" raises their eigenvalues and
        restores the unit diagonal.
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
        """Minimise weight (Poisson NLL + KL) + squared trait error."""
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
        # The trait is standardised, so its noise in Bayes' rule is the public code's std(y) = 1.
        network = frozen(p) | {"log_sigma_y": torch.zeros((), device=x.device)}
        return ReGATEState(network, mask, centre, unit, y_mean, y_sd, active)

    def _train(self, x: Tensor, trait: Tensor, mask: Tensor, rng: RNG) -> Params:
        p = trainable(self._init(mask.shape[0], rng), x.device)
        optimiser = torch.optim.Adam(p.values(), lr=self.lr)
        rng = device_rng(rng, x.device)
        for _ in range(self.epochs):
            order = torch.randperm(len(x), generator=rng, device=rng.device)
            for index in order.split(self.batch_size):
                descend(optimiser, self._loss(p, x[index], trait[index], mask, rng))
        return p

    def _init(self, rois: int, rng: RNG) -> Params:
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
        mu, log_var = encode(p, x)
        z = mu + (0.5 * log_var).exp() * normal(*mu.shape, rng=rng)
        eta = log_rate(p, z, mask).clamp(-10.0, 10.0)
        poisson = (eta.exp() - x * eta).sum()
        predicted = affine(p, "head", mu)[:, 0]
        trait_error = (predicted - trait).square().sum()
        return self.weight * (poisson + kl_per_unit(mu, log_var).sum()) + trait_error

    def draw(self, model: ReGATEState, y: Tensor, rng: RNG) -> Tensor:
        """Draw z | y, compute the log-rate and map it back to correlations."""
        p = model.network
        noise = normal(len(y), p["head.weight"].shape[1], rng=rng, to=y.device)
        trait = (y.to(noise.dtype) - model.y_mean) / model.y_sd
        eta = log_rate(p, latent_given_y(p, trait, noise, 0.0), model.mask)
        z = model.unit * eta.clamp(-10.0, 10.0) + model.centre
        fc = from_edges(torch.tanh(z))
        return clip_to_correlation(fc) if self.project == "clip" else fc
