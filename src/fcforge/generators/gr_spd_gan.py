"""GR-SPD-GAN: a conditional Wasserstein GAN on symmetric positive definite (SPD) matrices.

This is a reconstruction, because no code is public. The abstracts describe a conditional WGAN whose
samples are SPD matrices, with regularisers on a graph of the population. All sizes are ours.

The networks work on tangent vectors: the matrix logarithms of FC after whitening by the log-Euclidean
mean M (the exponential of the mean matrix logarithm).

Shapes: n subjects, R ROIs, T = R(R+1)/2 entries of a tangent vector.
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

EMBEDDING = 16  # numbers by which a diagnosis enters a network
_SQRT2 = 2.0**0.5


class GRSPDGANState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
        Parameters of the generator network.
    root : Tensor of shape (R, R)
        Square root of the log-Euclidean mean M.
    centre : Tensor of shape (T,)
    unit : Tensor, scalar
        Mean and standard deviation of the tangent vectors, by which they are standardised.
    """

    network: Params
    root: Tensor
    centre: Tensor
    unit: Tensor


def to_vector(sym: Tensor) -> Tensor:
    """Return the upper triangle (n, T) of symmetric matrices (n, R, R), with equal norms.

    To keep the norm, off-diagonal entries are multiplied by the square root of 2.
    """
    rois = sym.shape[-1]
    rows, cols = torch.triu_indices(rois, rois, device=sym.device)
    return sym[..., rows, cols] * torch.where(rows == cols, 1.0, _SQRT2)


def from_vector(vector: Tensor, rois: int) -> Tensor:
    """Return the symmetric matrices (n, R, R) of vectors (n, T); inverts `to_vector`."""
    rows, cols = torch.triu_indices(rois, rois, device=vector.device)
    value = vector / torch.where(rows == cols, 1.0, _SQRT2)
    out = vector.new_zeros(vector.shape[0], rois, rois)
    out[:, rows, cols] = value
    out[:, cols, rows] = value
    return out


def graph_penalty(fake: Tensor, real: Tensor, y: Tensor, k: int) -> Tensor:
    """Return how far generated subjects are apart whose real counterparts are neighbours.

    The real subjects of a batch are the nodes of a graph. Two are connected if they have the same
    diagnosis and one is among the `k` nearest of the other, with the weight
    W_ij = exp(-d_ij^2 / 2 h^2), where d_ij is their distance and h the median distance. The penalty is
    the mean, weighted by W, of the squared distances of the generated subjects i and j. A pair in which
    each is among the nearest of the other counts twice.

    Parameters
    ----------
    fake : Tensor of shape (..., n, T)
        Generated subjects; leading dimensions are lanes (networks that train in parallel).
    real : Tensor of shape (..., n, T)
        Real subjects.
    y : Tensor of shape (..., n)
        Diagnoses: entry i belongs to both the real and the generated subject i.
    k : int
        Number of neighbours.

    Returns
    -------
    Tensor of shape (...)
        Penalty of each lane, divided by T.
    """
    distances = torch.cdist(real, real)
    # Without a subject's distance 0 from itself, or from itself drawn twice into the batch.
    of_others = torch.where(distances > 0, distances, torch.nan)
    typical = of_others.flatten(-2).nanmedian(-1).values
    median = torch.where(typical.isfinite(), typical, 1.0)
    h = median.clamp_min(1e-6)[..., None, None]
    n = distances.shape[-1]
    nearest = min(k + 1, n)  # a subject is the nearest of itself
    is_near = distances <= distances.kthvalue(nearest, dim=-1, keepdim=True).values
    same_class = y[..., :, None] == y[..., None, :]
    kernel = (-(distances**2) / (2 * h**2)).exp()
    weight = kernel * is_near * same_class
    weight = weight * (1.0 - torch.eye(n, device=distances.device))
    products = fake @ fake.mT
    squares = products.diagonal(dim1=-2, dim2=-1)
    gaps = squares[..., :, None] + squares[..., None, :] - 2.0 * products  # |a - b|^2
    total = weight.sum((-1, -2)).clamp_min(1e-6)
    return (weight * gaps).sum((-1, -2)) / total / fake.shape[-1]


def perceptron(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Apply a perceptron with three hidden layers; it is the generator network.

    Parameters
    ----------
    p : dict of Tensor
        Parameters; layer norms are applied where `p` has them.
    noise : Tensor of shape (n, n_in)
        Standard normal noise. The critic calls this function, too, with tangent vectors.
    y : Tensor of shape (n,)
        Diagnoses, which are embedded and joined to the input.

    Returns
    -------
    Tensor of shape (n, n_out)
        Standardised tangent vectors, n_out = T, for the parameters of the generator.
    """
    x = torch.cat([noise, p["label.weight"][y]], -1)
    for i in range(3):
        x = affine(p, f"l{i}", x)
        x = layer_norm(p, f"n{i}", x) if f"n{i}.weight" in p else x
        x = torch.nn.functional.leaky_relu(x, 0.2)
    return affine(p, "out", x)


def critic(p: Params, x: Tensor, y: Tensor) -> Tensor:
    """Return scores (n,) of standardised tangent vectors x (n, T) with diagnoses y (n,)."""
    return perceptron(p, x, y)[:, 0]


def _mlp_init(sizes: list[int], normalised: bool, rng: RNG) -> Params:
    """Draw the parameters of a `perceptron`.

    Parameters
    ----------
    sizes : list of int
        Sizes of the input, the three hidden layers and the output.
    normalised : bool
        Whether hidden layers have a layer norm.
    rng : torch.Generator
    """
    p: Params = {"label.weight": torch.randn(N_CLASSES, EMBEDDING, generator=rng)}
    sizes = [sizes[0] + EMBEDDING, *sizes[1:]]
    for i, (n_in, n_out) in enumerate(pairwise(sizes[:-1])):
        p |= init_linear(rng, f"l{i}", n_in, n_out, gain=1.7, bias="zero")
        if normalised:
            p |= init_norm(f"n{i}", n_out)
    p |= init_linear(rng, "out", sizes[-2], sizes[-1], bias="zero")
    return p


def tangent_space(fc: Tensor, alpha: float) -> tuple[Tensor, Params]:
    """Map FC to standardised tangent vectors at the log-Euclidean mean M.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
    alpha : float
        Shrinkage towards the identity.

    Returns
    -------
    tangent : Tensor of shape (n, T)
    inverse : dict of Tensor
        The fields ``root``, ``centre`` and ``unit`` of `GRSPDGANState`, which invert the map.
    """
    spd = shrink_to_identity(fc, alpha)
    values, vectors = symmetric_eigen(log_matrix(fc, alpha).mean(0))
    root = (vectors * (0.5 * values).exp()) @ vectors.T
    inverse_root = (vectors * (-0.5 * values).exp()) @ vectors.T
    whitened = inverse_root @ spd @ inverse_root
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
    """Wasserstein GAN with gradient penalty in the tangent space of SPD matrices.

    A tangent matrix S at the log-Euclidean mean M stands for C = M^1/2 exp(S) M^1/2. With the
    log-Euclidean metric at M the published regularisers on the manifold and on its tangent space are
    the same term; `graph_weight` is the sum of their weights.

    Parameters
    ----------
    alpha : float
        Shrinkage of FC towards the identity before the logarithm.
    width : int
        Size of the widest hidden layer; the other two have a half and a quarter of it.
    graph_weight : float
        Weight of the regulariser (`graph_penalty`).
    neighbours : int
        Number of neighbours of a subject in the graph of the population.
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
        """Map FC to standardised tangent vectors (`tangent_space`)."""
        return tangent_space(fc, self.alpha)

    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Draw the parameters of generator and critic, perceptrons with mirrored sizes of layers."""
        w = self.width
        size = batch.n_rois * (batch.n_rois + 1) // 2
        generator = _mlp_init([self.noise, w // 4, w // 2, w, size], True, rng)
        return generator, _mlp_init([size, w, w // 2, w // 4, 1], False, rng)

    def regulariser(self, fake: Tensor, real: Tensor, y: Tensor) -> Tensor:
        """Return the weighted `graph_penalty`, which keeps neighbours of the population together."""
        return self.graph_weight * graph_penalty(fake, real, y, self.neighbours)

    def draw(self, model: GRSPDGANState, y: Tensor, rng: RNG) -> Tensor:
        """Draw FC (n, R, R) for diagnoses y (n,); it is always positive definite.

        Generated tangent vectors pass through the exponential map at M, then the diagonal is scaled to 1.
        """
        vectors = self.generate(model.network, y, rng)
        if not len(y):
            return model.root.new_zeros(0, *model.root.shape)
        tangent = from_vector(model.centre + model.unit * vectors, model.root.shape[0])
        spd = model.root @ torch.linalg.matrix_exp(tangent) @ model.root
        return just_valid(spd)
