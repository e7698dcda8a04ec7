"""GR-SPD-GAN: a conditional Wasserstein GAN on symmetric positive definite matrices.

Our reconstruction (generators.md 1.3): no code is public. From the abstracts: a conditional WGAN
whose samples live on the SPD manifold, with population-graph regularisers. All sizes are ours.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import FRACTION, at_least, limits
from fcforge.generators.base import N_CLASSES, RNG, FCBatch
from fcforge.generators.coordinates import just_valid, shrink_to_identity
from fcforge.generators.wgan import WGAN
from fcforge.graphs import log_matrix, symmetric_eigen
from fcforge.nn.layers import affine, init_linear, init_norm, layer_norm
from fcforge.nn.tensors import Params

_SQRT2 = 2.0**0.5


class GRSPDGANState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
        Parameters of the generator network.
    root : Tensor of shape (R, R)
        Square root of the log-Euclidean mean.
    centre : Tensor of shape (R(R+1)/2,)
    unit : Tensor, scalar
        Mean and spread of the tangent vectors.
    """

    network: Params
    root: Tensor
    centre: Tensor
    unit: Tensor


def to_vector(sym: Tensor) -> Tensor:
    """Symmetric (n, R, R) to (n, R(R+1)/2), off-diagonal times sqrt 2: keeps the norm."""
    rois = sym.shape[-1]
    rows, cols = torch.triu_indices(rois, rois, device=sym.device)
    return sym[..., rows, cols] * torch.where(rows == cols, 1.0, _SQRT2)


def from_vector(vector: Tensor, rois: int) -> Tensor:
    """Inverse of `to_vector`."""
    rows, cols = torch.triu_indices(rois, rois, device=vector.device)
    value = vector / torch.where(rows == cols, 1.0, _SQRT2)
    out = vector.new_zeros(vector.shape[0], rois, rois)
    out[:, rows, cols] = value
    out[:, cols, rows] = value
    return out


def graph_penalty(fake: Tensor, real: Tensor, y: Tensor, k: int) -> Tensor:
    """Sum W_ij |v_i - v_j|^2 / sum W over the population graph of the real batch.

    W_ij = [y_i = y_j] exp(-d_ij^2 / 2 h^2) on the `k` nearest real neighbours, h the median
    distance; generated subject i takes the place of real subject i. Subjects (..., n, p): one
    value per lane.
    """
    d = torch.cdist(real, real)
    of_others = torch.where(d > 0, d, torch.nan)
    apart = of_others.flatten(-2).nanmedian(-1).values
    median = torch.where(apart.isfinite(), apart, 1.0)
    h = median.clamp_min(1e-6)[..., None, None]
    nearest = min(k + 1, d.shape[-1])
    near = d <= d.kthvalue(nearest, dim=-1, keepdim=True).values
    alike = y[..., :, None] == y[..., None, :]
    kernel = (-(d**2) / (2 * h**2)).exp()
    weight = kernel * near * alike
    weight = weight * (1.0 - torch.eye(d.shape[-1], device=d.device))
    products = fake @ fake.mT
    squares = products.diagonal(dim1=-2, dim2=-1)
    gaps = squares[..., :, None] + squares[..., None, :] - 2.0 * products
    total = weight.sum((-1, -2)).clamp_min(1e-6)
    return (weight * gaps).sum((-1, -2)) / total / fake.shape[-1]


def perceptron(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Three hidden layers on noise (n, k) and diagnoses, with layer norms where `p` has them.

    Makes standardised tangent vectors at the mean; the critic has the same form.
    """
    x = torch.cat([noise, p["label.weight"][y]], -1)
    for i in range(3):
        x = affine(p, f"l{i}", x)
        x = layer_norm(p, f"n{i}", x) if f"n{i}.weight" in p else x
        x = torch.nn.functional.leaky_relu(x, 0.2)
    return affine(p, "out", x)


def critic(p: Params, x: Tensor, y: Tensor) -> Tensor:
    """Score of standardised tangent vectors (n,)."""
    return perceptron(p, x, y)[:, 0]


def _mlp_init(sizes: list[int], normalised: bool, rng: RNG) -> Params:
    p: Params = {"label.weight": torch.randn(N_CLASSES, 16, generator=rng)}
    sizes = [sizes[0] + 16, *sizes[1:]]
    for i, (a, b) in enumerate(pairwise(sizes[:-1])):
        p |= init_linear(rng, f"l{i}", a, b, gain=1.7, bias="zero")
        if normalised:
            p |= init_norm(f"n{i}", b)
    p |= init_linear(rng, "out", sizes[-2], sizes[-1], bias="zero")
    return p


def tangent_space(fc: Tensor, alpha: float) -> tuple[Tensor, Params]:
    """Standardised tangent vectors (n, R(R+1)/2) at the log-Euclidean mean, and the way back."""
    spd = shrink_to_identity(fc, alpha)
    values, vectors = symmetric_eigen(log_matrix(fc, alpha).mean(0))
    root = (vectors * (0.5 * values).exp()) @ vectors.T
    inverse = (vectors * (-0.5 * values).exp()) @ vectors.T
    whitened = inverse @ spd @ inverse
    tangent = to_vector(log_matrix(0.5 * (whitened + whitened.mT), 0.0))
    centre = tangent.mean(0)
    unit = tangent.std().clamp_min(1e-6)
    return (tangent - centre) / unit, {"root": root, "centre": centre, "unit": unit}


@limits(
    alpha=FRACTION,
    width=at_least(4),
    graph_weight=at_least(0),
    neighbours=at_least(1),
    steps=at_least(1),
    batch_size=at_least(1),
    noise=at_least(1),
)
@dataclass(frozen=True)
class GRSPDGAN(WGAN):
    """WGAN-GP in the tangent space at the log-Euclidean mean M, C = M^1/2 exp(S) M^1/2.

    With the log-Euclidean metric at M the paper's regularisers on the manifold and on its
    tangent space are the same term; `graph_weight` is their sum.

    Parameters
    ----------
    alpha : float
        Shrinkage to the identity before the logarithm.
    width : int
        Widest hidden layer; the other two are a half and a quarter.
    graph_weight, neighbours
        Population-graph regulariser.
    steps, n_critic, batch_size, lr, noise
        As in `WGAN`.
    """

    name = "gr_spd_gan"
    state_type = GRSPDGANState
    betas = (0.5, 0.9)
    networks = (perceptron, critic)
    alpha: float = 0.05
    width: int = 256
    graph_weight: float = 0.2
    neighbours: int = 10
    steps: int = 600
    batch_size: int = 32
    noise: int = 128

    def to_space(self, fc: Tensor) -> tuple[Tensor, Params]:
        """Standardised tangent vectors."""
        return tangent_space(fc, self.alpha)

    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Two multi-layer perceptrons, mirror images of each other."""
        w = self.width
        size = batch.n_rois * (batch.n_rois + 1) // 2
        gen = _mlp_init([self.noise, w // 4, w // 2, w, size], True, rng)
        return gen, _mlp_init([size, w, w // 2, w // 4, 1], False, rng)

    def regulariser(self, fake: Tensor, real: Tensor, y: Tensor) -> Tensor:
        """Neighbours in the population stay near each other."""
        return self.graph_weight * graph_penalty(fake, real, y, self.neighbours)

    def draw(self, model: GRSPDGANState, y: Tensor, rng: RNG) -> Tensor:
        """Apply the exponential map at M, then scale to unit diagonal: always positive definite."""
        v = self.generate(model.network, y, rng)
        if not len(y):
            return model.root.new_zeros(0, *model.root.shape)
        tangent = from_vector(model.centre + model.unit * v, model.root.shape[0])
        spd = model.root @ torch.linalg.matrix_exp(tangent) @ model.root
        return just_valid(spd)
