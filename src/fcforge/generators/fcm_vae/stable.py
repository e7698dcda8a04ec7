"""FCM-VAE, variant `stable`: Gaussian on off-log coordinates, with a baseline per class.

Off-log coordinates are the off-diagonal entries of the matrix logarithm of FC
(`fcforge.generators.coordinates`), so every sample is a valid correlation matrix. docs/generators.md
gives the reason for each difference from the paper. Methods that replace one of `VAE` have its arguments.

Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, K classes, d_z latent units, k factors of a covariance.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.base import N_CLASSES, RNG, normal
from fcforge.generators.coordinates import from_off_log
from fcforge.generators.fcm_vae.base import VAE, Frame, TrainedSite, active_units
from fcforge.generators.gaussian import (
    class_means,
    residual_factors,
    residual_noise,
    within_class_variance,
)
from fcforge.generators.matching import (
    TOLERANCE,
    decode,
    matched_scale,
    matching_y,
    off_log,
    target_means,
)
from fcforge.graphs import edges
from fcforge.nn.tensors import Inputs, Params

SHRINK = 0.02  # shrinkage of FC towards the identity before the logarithm


class Latent(NamedTuple):
    """Distribution of z given the diagnosis: normal, with a mean per class and one covariance.

    Attributes
    ----------
    mean : Tensor of shape (K, d_z)
    factors : Tensor of shape (k, d_z)
        F of the covariance F'F + diag(spread^2).
    spread : Tensor of shape (d_z,)
    """

    mean: Tensor
    factors: Tensor
    spread: Tensor

    def draw(self, y: Tensor, rng: RNG) -> Tensor:
        """Draw z (n, d_z) for diagnoses y (n,)."""
        mean = self.mean[y]
        shared = normal(len(y), len(self.factors), rng=rng, to=y.device)
        independent = normal(*mean.shape, rng=rng, to=y.device)
        return mean + shared @ self.factors + self.spread * independent


class StableVAEState(NamedTuple):
    """Fitted generator.

    Attributes
    ----------
    network : dict of Tensor
        Trained parameters; the baselines of edges are refitted after training.
    frame : Frame
        Standardisation of the coordinates.
    latent : Latent
        Distribution of z given the diagnosis.
    residual_factors : Tensor of shape (k, E), float16
    residual_diagonal : Tensor of shape (E,)
        Covariance of the coordinates' part that z does not explain, from `gaussian.residual_factors`.
    class_fc : Tensor of shape (K, R, R)
        Mean FC of every class; samples are shifted so that they have these means.
    scale : Tensor, scalar
        Factor of the deviation of samples from their class baseline, from `matching.matched_scale`.
    active_units : Tensor, scalar
        Number of latent units that are used (`fcm_vae.base.active_units`).
    latent_share : Tensor, scalar
        Share of the coordinates' variance that z carries.
    history : Tensor of shape (epochs, 3)
        `fcm_vae.training.Terms` of every epoch.
    """

    network: Params
    frame: Frame
    latent: Latent
    residual_factors: Tensor
    residual_diagonal: Tensor
    class_fc: Tensor
    scale: Tensor
    active_units: Tensor
    latent_share: Tensor
    history: Tensor


@dataclass(frozen=True)
class StableVAE(VAE):
    """FCM-VAE whose latent variables do not collapse to the prior; the default variant.

    Parameters
    ----------
    **settings
        Those of `fcforge.generators.fcm_vae.base.VAE`, with defaults of its own.
    """

    name = "fcm_vae"  # the class that configs find; its `variants` lead to the others
    variant = "stable"
    state_type = StableVAEState

    d_model: int = 48
    d_ff: int = 96
    heads: int = 2
    dropout: float = 0.0
    d_z: int = 32
    batch_size: int = 32
    lr: float = 3e-3
    clip: float = 10.0
    sigma_y_floor: float = 0.1
    beta: float = 1.0
    warmup: int = 20
    free_bits: float = 0.05

    def degrees(self, graph: Tensor) -> Tensor:
        """Return the degree of every ROI (n, R, 1) as a share of all ROIs.

        A number of neighbours would dominate the first layer.
        """
        return graph.sum(-1, keepdim=True) / graph.shape[-1]

    def init_decoder(self, rng: RNG, rois: int) -> Params:
        """Draw the decoder; its factors have a random offset.

        The decoder is quadratic in the factors. Without the offset its gradient at z = 0 would be 0.
        """
        p = self.init_dense(rng, "factors", self.d_z, rois * self.rank)
        # The offsets u0 have the SD rank^(-1/4), so that a sum of `rank` products of two has SD 1. The
        # weights are small beside them: z starts as a small deviation.
        p["factors.weight"] *= 0.2
        p["factors.bias"] = (
            torch.randn(rois * self.rank, generator=rng) * self.rank**-0.25
        )
        # Factors raise and lower FC in turn.
        signs = torch.tensor([1.0, -1.0]).repeat(self.rank)
        n_edges = rois * (rois - 1) // 2
        return p | {
            "alpha": signs[: self.rank].contiguous(),
            "baseline": torch.zeros(N_CLASSES, n_edges),
            "log_noise": torch.zeros(n_edges),
        }

    def initial_params(self, site: Inputs, rng: RNG) -> Params:
        """Draw the parameters before the first step.

        Baselines and noise of the edges start at their maximum-likelihood estimates without z.
        """
        p = super().initial_params(site, rng)
        target = site["target"].cpu()
        y = site["y"].cpu()
        p["baseline"] = class_means(target, y)
        p["log_noise"] = within_class_variance(target, y).clamp_min(1e-4).log()
        return p

    def centred(self, p: Params, omega: Tensor) -> Tensor:
        """Subtract from the interactions omega (n, E) their value at z = 0, the baseline's part."""
        u0 = p["factors.bias"].view(-1, self.rank)
        return omega - edges((u0 * p["alpha"]) @ u0.T)

    def coordinates(self, fc: Tensor) -> tuple[Tensor, Tensor]:
        """Return off-log coordinates (n, E) and the mean diagonal (R,) of the logarithm of FC."""
        return off_log(fc, SHRINK)

    def to_fc(self, x: Tensor, start: Tensor) -> Tensor:
        """Return the correlation matrices (n, R, R) with off-log coordinates x (n, E)."""
        return from_off_log(x, start=start, tol=TOLERANCE)[0]

    def decode(self, p: Params, z: Tensor, batch: Inputs) -> Tensor:
        """Return the standardised coordinates (n, E): class baseline plus interactions of z."""
        rois = batch["features"].shape[1]
        return p["baseline"][batch["y"]] + self.interaction(p, z, rois)

    def reconstruction_nll(
        self, p: Params, target: Tensor, predicted: Tensor
    ) -> Tensor:
        """Return the Gaussian negative log-likelihood (n,) with a learned variance per edge."""
        log_noise = p["log_noise"]
        error = (target - predicted).square() * (-log_noise).exp()
        return 0.5 * (error + log_noise).sum(-1)

    def finish(self, site: TrainedSite, rng: RNG) -> StableVAEState:
        """Make the fitted state: distribution of z, baselines and residual noise of the network.

        The scale is found last, by drawing from the otherwise complete state.
        """
        y, target = site.batch.y, site.data["target"]
        mu, log_var = self.encode_all(site.network, site.data)
        latent = aggregate_posterior(mu, log_var, y)
        network, share = self.refit_baseline(site.network, latent, target, y, rng)
        factors, diagonal = residual_factors(target - self.interactions(network, mu), y)
        model = StableVAEState(
            network=network,
            frame=site.frame,
            latent=latent,
            residual_factors=factors.half(),  # nearly all of the state
            residual_diagonal=diagonal,
            class_fc=target_means(site.batch, SHRINK),
            scale=target.new_ones(()),
            active_units=active_units(mu),
            latent_share=share,
            history=site.history,
        )
        labels = matching_y(site.batch)

        def draw(scale: Tensor) -> Tensor:
            """Draw FC of the diagnoses `labels` with this scale of deviations."""
            return self.draw(model._replace(scale=scale), labels, rng)

        return model._replace(scale=matched_scale(draw, site.batch, SHRINK))

    def refit_baseline(
        self, p: Params, latent: Latent, target: Tensor, y: Tensor, rng: RNG
    ) -> tuple[Params, Tensor]:
        """Set the baselines of edges so that the class means of samples are exact.

        The baseline of class y is its mean minus the expected interactions E[omega(z) | y], estimated
        from 512 draws of z.

        Parameters
        ----------
        p : dict of Tensor
            Trained parameters.
        latent : Latent
        target : Tensor of shape (n, E)
            Standardised coordinates of the training subjects.
        y : Tensor of shape (n,)
            Their diagnoses.
        rng : torch.Generator

        Returns
        -------
        network : dict of Tensor
            The parameters with new baselines.
        share : Tensor, scalar
            Share of the coordinates' variance that z carries.
        """
        baseline = class_means(target, y)
        variances = []
        for label in range(N_CLASSES):
            z = latent.draw(torch.full((512,), label), rng)
            omega = self.interactions(p, z)
            baseline[label] -= omega.mean(0)
            variances.append(omega.var(0).mean())
            del omega  # frees memory before the next of its size
        total = target.var(0).mean().clamp_min(1e-12)
        return {**p, "baseline": baseline}, torch.stack(variances).mean() / total

    def draw(self, model: StableVAEState, y: Tensor, rng: RNG) -> Tensor:
        """Draw FC (n, R, R) for diagnoses y (n,), with the class means of the site.

        Coordinates are the class baseline, the interactions of a drawn z, and residual noise.
        """
        x = self.interactions(model.network, model.latent.draw(y, rng))
        noise = residual_noise(
            model.residual_factors, model.residual_diagonal, len(y), rng
        )
        x += noise
        x *= model.scale
        x += model.network["baseline"][y]
        x *= model.frame.unit
        x += model.frame.centre
        return decode(x, y, model.frame.start, model.class_fc)


def aggregate_posterior(mu: Tensor, log_var: Tensor, y: Tensor) -> Latent:
    """Fit the distribution of z given y to the encoder's results for the training subjects.

    Its covariance is that of the means mu within classes plus the encoder's own variance, averaged
    over subjects.

    Parameters
    ----------
    mu, log_var : Tensor of shape (n, d_z)
        Means and log variances of q(z | FC).
    y : Tensor of shape (n,)
        Diagnoses.
    """
    factors, diagonal = residual_factors(mu, y)
    spread = log_var.exp().mean(0).sqrt()
    return Latent(
        class_means(mu, y), factors, (diagonal.square() + spread.square()).sqrt()
    )
