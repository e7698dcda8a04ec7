"""FCM-VAE, variant `authors`: the paper's model where the authors' public code differs from it."""

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
        """Return a + I."""
        return looped

    def positions(self, graph: Tensor) -> Tensor:
        """Return eigenvectors 1 to k, sign of the column sum; no component is skipped."""
        vectors = torch.linalg.eigh(laplacian(graph)).eigenvectors
        vectors = vectors[..., 1 : self.k_pe + 1]
        vectors = vectors * torch.where(vectors.sum(-2, keepdim=True) < 0, -1.0, 1.0)
        return F.pad(vectors, (0, self.k_pe - vectors.shape[-1]))

    def node_rows(self, fc: Tensor) -> Tensor:
        """Return FC rows with a diagonal of 0."""
        return without_diagonal(fc)

    def init_block(self, rng: RNG, name: str) -> Params:
        """Draw one block; both attention biases start with a factor of 0.

        The spectral map starts as `xavier_uniform_` on a (heads, k, d_head) tensor, which takes
        d_head for a kernel's size: the bound is sqrt(6 / (d_head (k + heads))).
        """
        p = super().init_block(rng, name)
        d_head = self.d_model // self.heads
        ratio = math.sqrt(6 * self.k_pe / (d_head * (self.k_pe + self.heads)))
        p[f"{name}.spectral.weight"] *= ratio
        gains = {
            f"{name}.gain_{bias}": torch.zeros(self.heads) for bias in ("lae", "sge")
        }
        return p | gains

    def gain(self, p: Params, name: str) -> Tensor:
        """Return the learned factor of an attention bias per head, (H, 1, 1)."""
        return p[name].view(-1, 1, 1)

    def dropout_places(self, n: int, rois: int) -> dict[str, tuple[int, ...]]:
        """Return shapes of attention weights, hidden layer and feed-forward output."""
        return {
            "attention": (n, self.heads, rois, rois),
            "hidden": (n, rois, self.d_ff),
            "ff2": (n, rois, self.d_model),
        }

    def init_readout(self, rng: RNG) -> Params:
        """Draw the readout and its norm."""
        return layers.init_norm("readout.norm", self.d_model) | super().init_readout(
            rng
        )

    def read_out(self, p: Params, h: Tensor) -> Tensor:
        """Apply layer norm, a linear map and ELU."""
        return F.elu(super().read_out(p, layers.layer_norm(p, "readout.norm", h)))

    def bounded(self, log_var: Tensor) -> Tensor:
        """Return the log variance as it is."""
        return log_var

    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw a linear map to the factors; the gate's factor starts at 8."""
        p = self.init_dense(rng, "factors", self.d_z, rois * self.rank)
        return p | self.init_weights(rng, rois) | {"gate_scale": torch.tensor(8.0)}

    def factors(self, p: Params, z: Tensor) -> Tensor:
        """Return U(z) with rows of length 1, which bounds the effect of z."""
        u = layers.affine(p, "factors", z).unflatten(-1, (-1, self.rank))
        return F.normalize(u, dim=-1).flatten(-2)

    def gate_scale(self, p: Params) -> Tensor:
        """Return the learned factor of the adjacency in the gate."""
        return p["gate_scale"]

    def label_input(self, mu: Tensor, z: Tensor) -> Tensor:
        """Return the mean of z: the head of the diagnosis then costs no KL divergence."""
        return mu

    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the Poisson term as a mean over edges."""
        return self.poisson(target, predicted).mean(-1)
