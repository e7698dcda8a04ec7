"""FCM-VAE, variant `paper`: the equations as printed.

The decoder predicts the log-rate of a Poisson likelihood for exp(standardised Fisher z). A gate lowers
the rate where the adjacency A has no edge. z given the diagnosis y is drawn by Bayes' rule. Sizes that
the paper does not give are those of the authors' code. Methods that replace one of `VAE` have its
arguments.

Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, K classes, d_z latent units.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.generators.base import RNG, normal
from fcforge.generators.coordinates import clip_to_correlation
from fcforge.generators.fcm_vae.base import VAE, Frame, TrainedSite, active_units
from fcforge.generators.gaussian import class_means
from fcforge.generators.latent import latent_given_y
from fcforge.graphs import adjacency, binary, edges, fisher_z, from_edges
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Params

OPEN = 1e-2  # the paper's epsilon: factor by which the gate lowers the rate without an edge
RATE_BOUND = 10.0  # bounds of the log-rate in the authors' code


class PaperVAEState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
        Trained parameters.
    frame : Frame
        Standardisation of the coordinates.
    gate : Tensor of shape (K, E)
        Mean adjacency of every class, by edge. The adjacency of a subject would identify it.
    active_units : Tensor, scalar
        Number of latent units that are used (`fcm_vae.base.active_units`).
    history : Tensor of shape (epochs, 3)
        `fcm_vae.training.Terms` of every epoch.
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
        Samples need not be positive semidefinite. "clip" raises their eigenvalues to at least 0.001
        and restores the unit diagonal.
    **settings
        Those of `fcforge.generators.fcm_vae.base.VAE`.
    """

    variant = "paper"
    defaults_version = 2
    state_type = PaperVAEState

    project: Literal["none", "clip"] = "none"

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the encoder's inputs (`VAE.prepare`) and ``gate`` (n, E), the adjacency by edge."""
        gate = edges(binary(adjacency(fc, self.tau)))
        return {**super().prepare(fc), "gate": gate}

    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw the decoder: its map g from z to the factors has one hidden layer, to be nonlinear."""
        p = self.init_dense(rng, "factors_hidden", self.d_z, self.d_ff)
        p |= self.init_dense(rng, "factors", self.d_ff, rois * self.rank)
        return p | self.init_weights(rng, rois)

    def init_weights(self, rng: RNG, rois: int) -> Params:
        """Draw the weights of the factors; the baselines of edges start at 0."""
        alpha = 0.05 * torch.randn(self.rank, generator=rng)
        return {"alpha": alpha, "baseline": torch.zeros(1, rois * (rois - 1) // 2)}

    def factors(self, p: Params, z: Tensor) -> Tensor:
        """Return the factors U(z) (n, R * rank) by one hidden layer; the paper leaves its form open."""
        return layers.affine(
            p, "factors", F.gelu(layers.affine(p, "factors_hidden", z))
        )

    def gate_scale(self, p: Params) -> Tensor | float:
        """Return the factor of the adjacency in the gate; here 1."""
        return 1.0

    def gate_log(self, p: Params, adj_edges: Tensor) -> Tensor:
        """Return the gate's addition to the log-rate, log sigmoid(scale A + logit epsilon).

        This is the paper's equation gating.

        Parameters
        ----------
        p : dict of Tensor
        adj_edges : Tensor of shape (n, E)
            Adjacency A by edge.

        Returns
        -------
        Tensor of shape (n, E)
        """
        logit = math.log(OPEN / (1.0 - OPEN))
        return F.logsigmoid(self.gate_scale(p) * adj_edges + logit)

    def coordinates(self, fc: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Fisher-z edges (n, E), and zeros (R,), because decoding needs no start."""
        return fisher_z(edges(fc)), fc.new_zeros(fc.shape[-1])

    def to_fc(self, x: Tensor, start: Tensor) -> Tensor:
        """Return FC (n, R, R) as tanh of edges x (n, E); it need not be positive semidefinite."""
        return from_edges(torch.tanh(x))

    def decode(self, p: Params, z: Tensor, batch: Inputs) -> Tensor:
        """Return the log-rate (n, E): the sum of baseline, interactions of z and gate."""
        omega = self.interaction(p, z, batch["features"].shape[1])
        return p["baseline"] + omega + self.gate_log(p, batch["gate"])

    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the Poisson term lambda - x log lambda of each subject (n,), summed over edges.

        lambda is the rate and x = exp(target). This is a quasi-likelihood, since x is not a count.
        """
        return self.poisson(target, predicted).sum(-1)

    @staticmethod
    def poisson(target: Tensor, log_rate: Tensor) -> Tensor:
        """Return the Poisson term of every edge; arguments and result have the shape (n, E)."""
        eta = log_rate.clamp(-RATE_BOUND, RATE_BOUND)
        return eta.exp() - target.clamp(-8.0, 8.0).exp() * eta

    def finish(self, site: TrainedSite, rng: RNG) -> PaperVAEState:
        """Make the fitted state, which holds the mean adjacency of every class."""
        mu, _ = self.encode_all(site.network, site.data)
        gate = class_means(site.data["gate"], site.batch.y)
        used = active_units(mu)
        return PaperVAEState(site.network, site.frame, gate, used, site.history)

    def draw(self, model: PaperVAEState, y: Tensor, rng: RNG) -> Tensor:
        """Draw z given y (n,) and return the FC (n, R, R) of the rate, without a Poisson draw."""
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
