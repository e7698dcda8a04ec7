"""BrainNetGAN: a Wasserstein GAN with BrainNetCNN's cross-shaped kernels.

Our reconstruction (generators.md 1.2): no code is public and only the abstract was readable. The
critic's sizes are those of a public WGAN with the same layers; the generator, the conditioning
on the diagnosis, the edge baseline and the schedule are ours.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import at_least, limits
from fcforge.generators.base import N_CLASSES, RNG, FCBatch
from fcforge.generators.coordinates import clip_to_correlation
from fcforge.generators.wgan import WGAN
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.nn.edge_to_edge import edge_to_edge, init_edge_to_edge
from fcforge.nn.layers import affine, init_linear
from fcforge.nn.tensors import Params


class BrainNetGANState(NamedTuple):
    """Parameters of the generator network."""

    network: Params


def _leaky(x: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x, 0.33)


def _onehot(y: Tensor) -> Tensor:
    return torch.eye(N_CLASSES, device=y.device)[y]


def critic(p: Params, x: Tensor, y: Tensor) -> Tensor:
    """Score subjects: two edge-to-edge layers, edge-to-node, node-to-graph, two linear ones.

    The diagnosis enters after the node-to-graph layer.
    """
    x = _leaky(edge_to_edge(p, "e2e1", x[:, None]))
    x = _leaky(edge_to_edge(p, "e2e2", x))
    by_node = x.transpose(1, 2).flatten(2)
    nodes = _leaky(affine(p, "e2n", by_node)[..., 0])
    graph = _leaky(affine(p, "n2g", nodes))
    labelled = torch.cat([graph, _onehot(y)], -1)
    h = _leaky(affine(p, "fc1", labelled))
    return affine(p, "fc2", h)[:, 0]


def generate(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Map noise and diagnosis to node features, then to edges by one edge-to-edge layer and tanh."""
    h = affine(p, "nodes", torch.cat([noise, _onehot(y)], -1)).unflatten(-1, (8, -1))
    x = _leaky(h[:, :, :, None] + h[:, :, None, :])
    x = _leaky(edge_to_edge(p, "e2e", x))
    x = torch.einsum("ncij,c->nij", x, p["mix.weight"][0])
    baseline = from_edges(p["baseline"], diagonal=0.0)
    fc = torch.tanh(0.5 * (x + x.mT) + baseline)
    eye = torch.eye(fc.shape[-1], device=fc.device)
    return fc * (1.0 - eye) + eye


@limits(width=at_least(1))
@dataclass(frozen=True)
class BrainNetGAN(WGAN):
    """Conditional WGAN-GP on FC matrices (Li et al. 2021).

    Parameters
    ----------
    steps, n_critic, batch_size, lr, noise
        As in `WGAN`; 3,000 steps are Gulrajani's order of size, the default is what two CPU
        cores do in minutes.
    width : int
        Channels of the critic's first layer (the second has twice as many).
    project : {"none", "clip"}
        Samples are not positive semidefinite by construction. "clip" raises their eigenvalues and
        restores the unit diagonal.
    """

    name = "brainnetgan"
    state_type = BrainNetGANState
    betas = (0.0, 0.9)
    networks = (generate, critic)
    width: int = 8
    project: Literal["none", "clip"] = "none"

    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Draw both networks; edge baselines start at the mean FC."""
        rois = batch.n_rois
        gen = init_linear(rng, "nodes", self.noise + N_CLASSES, 8 * rois, bias="zero")
        gen |= init_edge_to_edge(rng, "e2e", 8, 16, rois)
        gen |= init_linear(rng, "mix", 16, 1, bias="zero")
        gen["baseline"] = fisher_z(edges(batch.fc)).mean(0).cpu()
        cri = init_edge_to_edge(rng, "e2e1", 1, self.width, rois)
        cri |= init_edge_to_edge(rng, "e2e2", self.width, 2 * self.width, rois)
        cri |= init_linear(rng, "e2n", 2 * self.width * rois, 1, bias="zero")
        cri |= init_linear(rng, "n2g", rois, 256, bias="zero")
        cri |= init_linear(rng, "fc1", 256 + N_CLASSES, 128, bias="zero")
        cri |= init_linear(rng, "fc2", 128, 1, bias="zero")
        return gen, cri

    def draw(self, model: BrainNetGANState, y: Tensor, rng: RNG) -> Tensor:
        """Generate FC, projected if `project` asks for it."""
        fc = from_edges(edges(self.generate(model.network, y, rng)))
        return clip_to_correlation(fc) if self.project == "clip" else fc
