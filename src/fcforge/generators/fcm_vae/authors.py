"""FCM-VAE, variant `authors`: the variant `paper` with all that differs in the authors' public code.

Each method below replaces one of `PaperVAE` or `VAE`, whose docstring has arguments and shapes.

Shapes: n subjects, R ROIs, k Laplacian coordinates.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.generators.base import RNG
from fcforge.generators.fcm_vae.paper import PaperVAE
from fcforge.graphs import laplacian, without_diagonal
from fcforge.nn import layers
from fcforge.nn.tensors import Params


@dataclass(frozen=True)
class AuthorsVAE(PaperVAE):
    """FCM-VAE as in the authors' code (github.com/4me808/FORGE)."""

    variant = "authors"
    defaults_version = 1
    dense_bias = "uniform"
    attention_bias = "none"

    def graph(self, adj: Tensor, looped: Tensor) -> Tensor:
        """Return A + I, the adjacency with self-loops."""
        return looped

    def positions(self, graph: Tensor) -> Tensor:
        """Return the Laplacian's eigenvectors 1 to k (n, R, k), counted from 0.

        Eigenvectors of eigenvalue 0, one for each component of the graph, are not skipped. The sign
        makes the sum of each vector positive.
        """
        vectors = torch.linalg.eigh(laplacian(graph)).eigenvectors
        vectors = vectors[..., 1 : self.k_pe + 1]
        vectors = vectors * torch.where(vectors.sum(-2, keepdim=True) < 0, -1.0, 1.0)
        return F.pad(vectors, (0, self.k_pe - vectors.shape[-1]))

    def node_rows(self, fc: Tensor) -> Tensor:
        """Return FC rows (n, R, R) with a diagonal of 0 as node features."""
        return without_diagonal(fc)

    def init_block(self, rng: RNG, name: str) -> Params:
        """Draw the parameters of one block; the learned factors of both attention biases start at 0.

        The authors call `xavier_uniform_` for the spectral map, a tensor (heads, k, d_head). PyTorch
        takes its last dimension for the size of a kernel: the bound is sqrt(6 / (d_head (k + heads))).
        """
        p = super().init_block(rng, name)
        d_head = self.d_model // self.heads
        # That bound over the one of `init_linear`, 1 / sqrt(k).
        ratio = math.sqrt(6 * self.k_pe / (d_head * (self.k_pe + self.heads)))
        p[f"{name}.spectral.weight"] *= ratio
        gains = {
            f"{name}.gain_{bias}": torch.zeros(self.heads) for bias in ("lae", "sge")
        }
        return p | gains

    def gain(self, p: Params, name: str) -> Tensor:
        """Return the learned factor of an attention bias for each head, (heads, 1, 1)."""
        return p[name].view(-1, 1, 1)

    def dropout_places(self, n: int, rois: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what dropout masks: attention, hidden layer, feed-forward output."""
        return {
            "attention": (n, self.heads, rois, rois),
            "hidden": (n, rois, self.d_ff),
            "ff2": (n, rois, self.d_model),
        }

    def init_readout(self, rng: RNG) -> Params:
        """Draw the readout and the layer norm before it."""
        return layers.init_norm("readout.norm", self.d_model) | super().init_readout(
            rng
        )

    def read_out(self, p: Params, h: Tensor) -> Tensor:
        """Apply layer norm, a linear map and ELU."""
        return F.elu(super().read_out(p, layers.layer_norm(p, "readout.norm", h)))

    def bounded(self, log_var: Tensor) -> Tensor:
        """Return the log variance without a bound."""
        return log_var

    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw a linear map from z to the factors; the factor of the gate starts at 8."""
        p = self.init_dense(rng, "factors", self.d_z, rois * self.rank)
        return p | self.init_weights(rng, rois) | {"gate_scale": torch.tensor(8.0)}

    def factors(self, p: Params, z: Tensor) -> Tensor:
        """Return U(z) with rows of length 1, which bounds the effect of z on an edge."""
        u = layers.affine(p, "factors", z).unflatten(-1, (-1, self.rank))
        return F.normalize(u, dim=-1).flatten(-2)

    def gate_scale(self, p: Params) -> Tensor:
        """Return the learned factor of the adjacency in the gate, a scalar."""
        return p["gate_scale"]

    def label_input(self, mu: Tensor, z: Tensor) -> Tensor:
        """Return `mu`: the head that predicts the diagnosis reads the mean of z, free of noise."""
        return mu

    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the Poisson term of each subject (n,), a mean over edges instead of a sum."""
        return self.poisson(target, predicted).mean(-1)
