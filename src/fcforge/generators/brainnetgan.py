"""BrainNetGAN (Li et al. 2021): a Wasserstein GAN with BrainNetCNN's cross-shaped kernels.

This is a reconstruction: no code is public and only the abstract was readable. The critic's sizes
are those of a public WGAN with the same layers. The generator, its conditioning on the diagnosis,
the baseline of each edge and the training schedule are ours.

An edge-to-edge layer gives each edge (i, j) a weighted sum over all edges of ROI i and of ROI j, the
cross of row i and column j. Shapes: n subjects, R ROIs, E = R(R-1)/2 edges.
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
    """Apply the leaky ReLU with slope 0.33."""
    return torch.nn.functional.leaky_relu(x, 0.33)


def _onehot(y: Tensor) -> Tensor:
    """Return labels y (n,) as indicators (n, 2)."""
    return torch.eye(N_CLASSES, device=y.device)[y]


def critic(p: Params, x: Tensor, y: Tensor) -> Tensor:
    """Return the critic's scores of subjects: higher for those that look real.

    The layers are two edge-to-edge ones, edge-to-node, node-to-graph and two linear ones. The
    diagnosis enters after the node-to-graph layer.

    Parameters
    ----------
    p : dict of Tensor
        Parameters of the critic.
    x : Tensor of shape (n, R, R)
        FC.
    y : Tensor of shape (n,)
        Diagnoses.

    Returns
    -------
    Tensor of shape (n,)
    """
    x = _leaky(edge_to_edge(p, "e2e1", x[:, None]))
    x = _leaky(edge_to_edge(p, "e2e2", x))
    by_node = x.transpose(1, 2).flatten(2)  # (n, R, channels * R): all edges of a ROI
    nodes = _leaky(affine(p, "e2n", by_node)[..., 0])
    graph = _leaky(affine(p, "n2g", nodes))
    labelled = torch.cat([graph, _onehot(y)], -1)
    h = _leaky(affine(p, "fc1", labelled))
    return affine(p, "fc2", h)[:, 0]


def generate(p: Params, noise: Tensor, y: Tensor) -> Tensor:
    """Return the generator's FC matrices for noise and diagnoses.

    Noise and diagnosis are mapped linearly to 8 features of every ROI. Sums of the features of two
    ROIs pass through one edge-to-edge layer and become edges by tanh.

    Parameters
    ----------
    p : dict of Tensor
        Parameters of the generator.
    noise : Tensor of shape (n, n_noise)
        Standard normal.
    y : Tensor of shape (n,)
        Diagnoses.

    Returns
    -------
    Tensor of shape (n, R, R)
        Symmetric with unit diagonal.
    """
    # (n, 8, R)
    h = affine(p, "nodes", torch.cat([noise, _onehot(y)], -1)).unflatten(-1, (8, -1))
    x = _leaky(h[:, :, :, None] + h[:, :, None, :])  # (n, 8, R, R)
    x = _leaky(edge_to_edge(p, "e2e", x))
    x = torch.einsum("ncij,c->nij", x, p["mix.weight"][0])
    baseline = from_edges(p["baseline"], diagonal=0.0)
    fc = torch.tanh(0.5 * (x + x.mT) + baseline)
    eye = torch.eye(fc.shape[-1], device=fc.device)
    return fc * (1.0 - eye) + eye


@limits(width=at_least(1))
@dataclass(frozen=True)
class BrainNetGAN(WGAN):
    """Wasserstein GAN with gradient penalty on FC matrices, conditional on the diagnosis.

    Parameters
    ----------
    steps, n_critic, batch_size, lr, noise
        As in `WGAN`. The default number of steps takes two CPU cores some minutes; Gulrajani et
        al. (2017) use 3,000 and more.
    width : int
        Channels of the critic's first layer (the second has twice as many).
    project : {"none", "clip"}
        Samples need not be positive semidefinite. "clip" raises their eigenvalues to at least 0.001
        and restores the unit diagonal.
    """

    name = "brainnetgan"
    state_type = BrainNetGANState
    betas = (0.0, 0.9)
    networks = (generate, critic)
    width: int = 8
    project: Literal["none", "clip"] = "none"

    def start(self, batch: FCBatch, rng: RNG) -> tuple[Params, Params]:
        """Draw the parameters of both networks; edge baselines start at the mean Fisher-z edges."""
        rois = batch.n_rois
        n_in = self.noise + N_CLASSES
        generator = init_linear(rng, "nodes", n_in, 8 * rois, bias="zero")
        generator |= init_edge_to_edge(rng, "e2e", 8, 16, rois)
        generator |= init_linear(rng, "mix", 16, 1, bias="zero")
        generator["baseline"] = fisher_z(edges(batch.fc)).mean(0).cpu()
        scorer = init_edge_to_edge(rng, "e2e1", 1, self.width, rois)
        scorer |= init_edge_to_edge(rng, "e2e2", self.width, 2 * self.width, rois)
        scorer |= init_linear(rng, "e2n", 2 * self.width * rois, 1, bias="zero")
        scorer |= init_linear(rng, "n2g", rois, 256, bias="zero")
        scorer |= init_linear(rng, "fc1", 256 + N_CLASSES, 128, bias="zero")
        scorer |= init_linear(rng, "fc2", 128, 1, bias="zero")
        return generator, scorer

    def draw(self, model: BrainNetGANState, y: Tensor, rng: RNG) -> Tensor:
        """Return generated FC (n, R, R) of diagnoses y (n,), projected as `project` says."""
        # By its edges, so that both triangles are equal in the last bit.
        fc = from_edges(edges(self.generate(model.network, y, rng)))
        return clip_to_correlation(fc) if self.project == "clip" else fc
