"""GR-SPD-GAN: a conditional Wasserstein GAN on symmetric positive definite matrices.

Our reconstruction (generators.md 1.3): no code is public. From the abstracts: a conditional WGAN
whose samples live on the SPD manifold, with population-graph regularisers. All sizes are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import N_CLASSES, check_labels, check_site, device_rng
from fcforge.generators.coordinates import matrix_log, shrink_to_identity, unit_diagonal
from fcforge.generators.layers import (
    Params,
    frozen,
    linear,
    linear_init,
    norm,
    norm_init,
    with_prefix,
)
from fcforge.generators.wgan import Schedule, train_wgan_lanes
from fcforge.graphs import symmetric_eigen
from fcforge.types import FCBatch

_SQRT2 = 2.0**0.5


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
    apart = torch.where(d > 0, d, torch.nan).flatten(-2).nanmedian(-1).values
    h = torch.where(apart.isfinite(), apart, 1.0).clamp_min(1e-6)[..., None, None]
    near = d <= d.kthvalue(min(k + 1, d.shape[-1]), dim=-1, keepdim=True).values
    weight = (-(d**2) / (2 * h**2)).exp() * near * (y[..., :, None] == y[..., None, :])
    weight = weight * (1.0 - torch.eye(d.shape[-1], device=d.device))
    products = fake @ fake.mT
    squares = products.diagonal(dim1=-2, dim2=-1)
    gaps = squares[..., :, None] + squares[..., None, :] - 2.0 * products
    total = weight.sum((-1, -2)).clamp_min(1e-6)
    return (weight * gaps).sum((-1, -2)) / total / fake.shape[-1]


def _with_label(x: Tensor, p: Params, y: Tensor) -> Tensor:
    return torch.cat([x, p["label.weight"][y]], -1)


def _mlp(p: Params, x: Tensor, layers: int, normalised: bool) -> Tensor:
    for i in range(layers):
        x = linear(p, f"l{i}", x)
        x = norm(p, f"n{i}", x) if normalised else x
        x = torch.nn.functional.leaky_relu(x, 0.2)
    return linear(p, "out", x)


def make_tangent(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Noise and label to a standardised tangent vector at the mean."""
    return _mlp(p, _with_label(noise, p, y), 3, normalised=True)


def critic(p: Params, v: Tensor, y: Tensor) -> Tensor:
    """Score of standardised tangent vectors (n,)."""
    return _mlp(p, _with_label(v, p, y), 3, normalised=False)[:, 0]


def _mlp_init(sizes: list[int], normalised: bool, rng: torch.Generator) -> Params:
    p: Params = {"label.weight": torch.randn(N_CLASSES, 16, generator=rng)}
    sizes = [sizes[0] + 16, *sizes[1:]]
    for i, (a, b) in enumerate(pairwise(sizes[:-1])):
        linear_init(p, f"l{i}", a, b, rng, gain=1.7)
        if normalised:
            norm_init(p, f"n{i}", b)
    linear_init(p, "out", sizes[-2], sizes[-1], rng)
    return p


def tangent_space(fc: Tensor, alpha: float) -> tuple[Tensor, Params]:
    """Standardised tangent vectors (n, R(R+1)/2) at the log-Euclidean mean, and the way back."""
    spd = shrink_to_identity(fc, alpha)
    values, vectors = symmetric_eigen(matrix_log(spd).mean(0))
    root = (vectors * (0.5 * values).exp()) @ vectors.T
    inverse = (vectors * (-0.5 * values).exp()) @ vectors.T
    whitened = inverse @ spd @ inverse
    tangent = to_vector(matrix_log(0.5 * (whitened + whitened.mT)))
    centre, unit = tangent.mean(0), tangent.std().clamp_min(1e-6)
    return (tangent - centre) / unit, {"root": root, "centre": centre, "unit": unit}


@dataclass(frozen=True)
class GRSPDGAN(Generator):
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
        WGAN-GP schedule.
    """

    name: ClassVar[str] = "gr_spd_gan"
    alpha: float = 0.05
    width: int = 256
    graph_weight: float = 0.2
    neighbours: int = 10
    steps: int = 600
    n_critic: int = 5
    batch_size: int = 32
    lr: float = 1e-4
    noise: int = 128

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Tangent vectors once, then adversarial training on them."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(
        self, batches: Sequence[FCBatch], rngs: Sequence[torch.Generator]
    ) -> list[GeneratorState]:
        """One generator per site, trained side by side: what a GPU is for."""
        counts = [check_site(batch, self.name) for batch in batches]
        spaces = [tangent_space(batch.fc, self.alpha) for batch in batches]
        w, size = self.width, spaces[0][0].shape[1]
        starts = [
            (
                _mlp_init([self.noise, w // 4, w // 2, w, size], True, rng),
                _mlp_init([size, w, w // 2, w // 4, 1], False, rng),
            )
            for rng in rngs
        ]
        schedule = Schedule(
            self.steps, self.n_critic, self.batch_size, self.lr, (0.5, 0.9), 10.0, self.noise
        )
        done = train_wgan_lanes(
            [v for v, _ in spaces],
            [batch.y for batch in batches],
            make_tangent,
            critic,
            starts,
            schedule,
            rngs,
            lambda fake, real, y: self.graph_weight * graph_penalty(fake, real, y, self.neighbours),
        )
        return [
            {**frozen(params, "net."), **space, "distance": distance, "counts": n}
            for (params, distance), (_, space), n in zip(done, spaces, counts, strict=True)
        ]

    @torch.no_grad()
    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """Exponential map at M, then unit diagonal: positive definite always."""
        labels = check_labels(labels, state["counts"], self.name)
        rng = device_rng(rng, labels.device)
        noise = torch.randn(len(labels), self.noise, generator=rng, device=rng.device)
        root = state["root"]
        if not len(labels):
            return FCBatch(root.new_zeros(0, *root.shape), labels)
        v = make_tangent(with_prefix(state, "net."), noise, labels)
        tangent = from_vector(state["centre"] + state["unit"] * v, root.shape[0])
        spd = root @ torch.linalg.matrix_exp(tangent) @ root
        fc = shrink_to_identity(unit_diagonal(spd), 2e-5)
        fc.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return FCBatch(fc, labels)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Critic's distance at the end."""
        return {"wasserstein": float(state["distance"][-1]), "steps": len(state["distance"])}
