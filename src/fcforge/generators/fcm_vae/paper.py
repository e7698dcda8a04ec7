"""FCM-VAE, variant `paper`: the equations as printed.

Poisson likelihood on exp(standardised Fisher z), gated by the adjacency; z | y by Bayes' rule.
Sizes that the paper does not give are those of the authors' code.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.generators.base import RNG, FCBatch, normal
from fcforge.generators.coordinates import clip_to_correlation
from fcforge.generators.fcm_vae.base import VAE, Frame, active_units
from fcforge.generators.gaussian import class_means
from fcforge.generators.latent import latent_given_y
from fcforge.graphs import adjacency, binary, edges, fisher_z, from_edges
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Params

OPEN = 1e-2  # share of the rate that the gate lets through without an edge
RATE_BOUND = 10.0  # bounds of the log-rate in the authors' code


class PaperVAEState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
    frame : Frame
        Standardisation of the coordinates.
    gate : Tensor of shape (K, p)
        Mean adjacency of every class; a subject's own would identify the subject.
    active_units : Tensor, scalar
    history : Tensor of shape (epochs, 3)
        `fcm_vae.base.Terms` of every epoch.
    """

    network: Params
    frame: Frame
    gate: Tensor
    active_units: Tensor
    history: Tensor


@dataclass(frozen=True)
class PaperVAE(VAE):
    """FCM-VAE as the paper prints it.

    Parameters
    ----------
    project : {"none", "clip"}
        Samples are not positive semidefinite by construction. "clip" raises their eigenvalues and
        restores the unit diagonal.
    **settings
        Those of `VAE`.
    """

    variant = "paper"
    defaults_version = 2
    state_type = PaperVAEState

    project: Literal["none", "clip"] = "none"

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the encoder's inputs and ``gate`` (n, p), the edges of A."""
        gate = edges(binary(adjacency(fc, self.tau)))
        return {**super().prepare(fc), "gate": gate}

    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw the factors' map with one hidden layer: the paper's g_r is nonlinear."""
        p = self.init_dense(rng, "factors_hidden", self.d_z, self.d_ff)
        p |= self.init_dense(rng, "factors", self.d_ff, rois * self.rank)
        return p | self.init_weights(rng, rois)

    def init_weights(self, rng: RNG, rois: int) -> Params:
        """Draw the weights of the factors; edge baselines start at 0."""
        alpha = 0.05 * torch.randn(self.rank, generator=rng)
        return {"alpha": alpha, "baseline": torch.zeros(1, rois * (rois - 1) // 2)}

    def factors(self, p: Params, z: Tensor) -> Tensor:
        """Return U(z) of one hidden layer; the paper does not give its form."""
        return layers.affine(
            p, "factors", F.gelu(layers.affine(p, "factors_hidden", z))
        )

    def gate_scale(self, p: Params) -> Tensor | float:
        """Return the factor of the adjacency in the gate."""
        return 1.0

    def gate_log(self, p: Params, adj_edges: Tensor) -> Tensor:
        """Return log sigmoid(scale A + logit epsilon), the log-rate's offset (eq. gating)."""
        logit = math.log(OPEN / (1.0 - OPEN))
        return F.logsigmoid(self.gate_scale(p) * adj_edges + logit)

    def coordinates(self, fc: Tensor) -> tuple[Tensor, Tensor]:
        """Return Fisher-z edges."""
        return fisher_z(edges(fc)), fc.new_zeros(fc.shape[-1])

    def to_fc(self, x: Tensor, start: Tensor) -> Tensor:
        """Return tanh of the edges; not positive semidefinite by construction."""
        return from_edges(torch.tanh(x))

    def decode(self, p: Params, z: Tensor, batch: Inputs) -> Tensor:
        """Return the log-rate: baseline, interactions of z and the gate."""
        omega = self.interaction(p, z, batch["features"].shape[1])
        return p["baseline"] + omega + self.gate_log(p, batch["gate"])

    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the Poisson term lambda - x log lambda on x = exp(target), summed over edges.

        It is a quasi-likelihood, since x is not a count.
        """
        return self.poisson(target, predicted).sum(-1)

    @staticmethod
    def poisson(target: Tensor, log_rate: Tensor) -> Tensor:
        """Return the Poisson term of every edge (n, p)."""
        eta = log_rate.clamp(-RATE_BOUND, RATE_BOUND)
        return eta.exp() - target.clamp(-8.0, 8.0).exp() * eta

    def finish(
        self,
        batch: FCBatch,
        frame: Frame,
        site: Inputs,
        network: Params,
        history: Tensor,
        rng: RNG,
    ) -> PaperVAEState:
        """Return the state with the mean adjacency of every class."""
        mu, _ = self.encode_all(network, site)
        gate = class_means(site["gate"], batch.y)
        return PaperVAEState(network, frame, gate, active_units(mu), history)

    def draw(self, model: PaperVAEState, y: Tensor, rng: RNG) -> Tensor:
        """Draw z | y by Bayes' rule and return FC of the rate, without a Poisson draw."""
        p = model.network
        noise = normal(len(y), self.d_z, rng=rng, to=y.device)
        z = latent_given_y(p, y.to(noise.dtype), noise, self.sigma_y_floor)
        x = self.interactions(p, z)
        x += p["baseline"]
        x += self.gate_log(p, model.gate[y])
        x = x.clamp(-RATE_BOUND, RATE_BOUND)
        x *= model.frame.unit
        x += model.frame.centre
        fc = self.to_fc(x, model.frame.start)
        return clip_to_correlation(fc) if self.project == "clip" else fc
