"""BrainNetGAN: a Wasserstein GAN with BrainNetCNN's cross-shaped kernels.

Our reconstruction (generators.md 1.2): no code is public and only the abstract was readable. The
critic's sizes are those of a public WGAN with the same layers; the generator, the conditioning
on the diagnosis, the edge baseline and the schedule are ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.core.settings import at_least, limits
from fcforge.generators.base import (
    N_CLASSES,
    RNG,
    FCBatch,
    GeneratorState,
    Params,
    linear,
    linear_init,
)
from fcforge.generators.wgan import WGAN
from fcforge.graphs import edges, fisher_z, from_edges


def cross_init(
    p: Params, name: str, c_in: int, c_out: int, rois: int, rng: RNG
) -> None:
    """Put the row and column kernels of an edge-to-edge layer, each (c_out, c_in * R)."""
    linear_init(p, f"{name}.row", c_in * rois, c_out, rng)
    linear_init(p, f"{name}.col", c_in * rois, c_out, rng)


def cross(p: Params, name: str, x: Tensor) -> Tensor:
    """Edge-to-edge (Kawahara et al. 2017): out_ij = row kernel at i + column kernel at j.

    (n, c_in, R, R) to (n, c_out, R, R).
    """
    by_row = x.transpose(1, 2).flatten(2)
    row = linear(p, f"{name}.row", by_row).transpose(1, 2)
    by_column = x.permute(0, 3, 1, 2).flatten(2)
    col = linear(p, f"{name}.col", by_column).transpose(1, 2)
    return row[:, :, :, None] + col[:, :, None, :]


def _leaky(x: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x, 0.33)


def _onehot(y: Tensor) -> Tensor:
    return torch.eye(N_CLASSES, device=y.device)[y]


def critic(p: Params, x: Tensor, y: Tensor) -> Tensor:
    """Two edge-to-edge layers, edge-to-node, node-to-graph, two linear; diagnosis at the end."""
    x = _leaky(cross(p, "e2e1", x[:, None]))
    x = _leaky(cross(p, "e2e2", x))
    by_node = x.transpose(1, 2).flatten(2)
    nodes = _leaky(linear(p, "e2n", by_node)[..., 0])
    graph = _leaky(linear(p, "n2g", nodes))
    labelled = torch.cat([graph, _onehot(y)], -1)
    h = _leaky(linear(p, "fc1", labelled))
    return linear(p, "fc2", h)[:, 0]


def generate(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Noise and diagnosis to node features, to edges, through one edge-to-edge layer, tanh."""
    h = linear(p, "nodes", torch.cat([noise, _onehot(y)], -1)).unflatten(-1, (8, -1))
    x = _leaky(h[:, :, :, None] + h[:, :, None, :])
    x = _leaky(cross(p, "e2e", x))
    x = torch.einsum("ncij,c->nij", x, p["mix.weight"][0])
    baseline = from_edges(p["baseline"], diagonal=0.0)
    fc = torch.tanh(0.5 * (x + x.mT) + baseline)
    eye = torch.eye(fc.shape[-1], device=fc.device)
    return fc * (1.0 - eye) + eye


@limits(width=at_least(1))
@dataclass(frozen=True)
class BrainNetGAN(WGAN):
    """Conditional WGAN-GP on FC matrices.

    Parameters
    ----------
    steps, n_critic, batch_size, lr, noise
        As in `WGAN`; 3,000 steps are Gulrajani's order of size, the default is what two CPU
        cores do in minutes.
    width : int
        Channels of the critic's first layer (the second has twice as many).
    """

    name = "brainnetgan"
    betas = (0.0, 0.9)
    networks = (generate, critic)
    width: int = 8

    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Edge baselines start at the mean FC."""
        rois = batch.n_rois
        gen: Params = {}
        linear_init(gen, "nodes", self.noise + N_CLASSES, 8 * rois, rng)
        cross_init(gen, "e2e", 8, 16, rois, rng)
        linear_init(gen, "mix", 16, 1, rng)
        gen["baseline"] = fisher_z(edges(batch.fc)).mean(0).cpu()
        cri: Params = {}
        cross_init(cri, "e2e1", 1, self.width, rois, rng)
        cross_init(cri, "e2e2", self.width, 2 * self.width, rois, rng)
        linear_init(cri, "e2n", 2 * self.width * rois, 1, rng)
        linear_init(cri, "n2g", rois, 256, rng)
        linear_init(cri, "fc1", 256 + N_CLASSES, 128, rng)
        linear_init(cri, "fc2", 128, 1, rng)
        return gen, cri

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Generate; samples are not positive semidefinite by construction."""
        return from_edges(edges(self.generate(state, y, rng)))
