"""FCM-VAE's presets: the paper as printed, the authors' code, and a careful model.

Every field of `Settings` is one switch; docs/generators.md gives the reason for each value in
which `careful` differs, and the reference numbers (2.1 #n, 2.3.n of the notes) say where.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fcforge.components import look_up


@dataclass(frozen=True)
class Settings:
    """All choices of FCM-VAE; the defaults are the paper as printed (sizes from the code).

    Attributes
    ----------
    d_model, d_ff, heads, layers, dropout, d_z, rank, k_pe, tau
        Sizes. The paper's d_h = (116 + k + 1) / H is no integer, so features are first mapped
        to `d_model`, as the authors do.
    epochs, batch_size, lr, clip
        Adam; `clip` is the gradient norm bound (0: none).
    node_feature, lae, sge
        Ablation switches: FC rows as node features, local adjacency bias, spectral bias.
    learnt_bias_gain
        Biases times a learnt factor per head that starts at 0 (authors) or added as they are.
    self_loop
        Degree and Laplacian of A + I (authors) or A.
    skip_components
        Skip every zero eigenvalue of the Laplacian, or the first only (authors).
    rich_readout
        Readout LayerNorm, Linear, ELU (authors) or Linear.
    unit_factors
        Rows of U(z) scaled to length 1 (authors): bounds the effect of z.
    odd_decoder
        Start U(z) at a random offset so that a shift of z moves edges to first order; with the
        paper's start the decoder is an even function of z.
    coordinates
        "fisher": one standardised Fisher z per edge; "off_log": any value is a valid matrix.
    likelihood
        "poisson" on exp(coordinate) or "gaussian" on the coordinate with a variance per edge.
    summed
        Log-likelihood summed over edges (an ELBO) or averaged (authors).
    edge_start
        Edge baselines start at 0 or at their maximum-likelihood value.
    gate, gate_scale, gate_learnt, epsilon
        "class": rate times sigmoid(scale A + logit epsilon), the subject's A in training and
        the class mean in sampling; "none".
    head_on_z
        Label head reads the sample z (paper) or the mean (authors).
    sigma_y_floor
        Lower bound of the label noise.
    class_baseline
        Edge baselines per class, refitted in closed form so that class means are exact.
    beta, warmup, free_bits
        KL weight, epochs over which it grows from 0, nats per unit that cost nothing.
    sampling
        z | y by "bayes" from N(0, I) and the head, or from the class "aggregate" posterior.
    residual_noise
        Add noise with the covariance (low rank + diagonal) of the training residuals.
    covariance_shrink
        Share by which correlations of that noise are shrunk.
    variance_match
        Rescale deviations from the class mean to the training subjects' edge variance.
    mean_match
        Shift every class of a synthetic set to the training subjects' mean FC (off_log only).
    project
        "clip": eigenvalues clipped, unit diagonal (off_log needs none).
    """

    d_model: int = 256
    d_ff: int = 512
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1
    d_z: int = 116
    rank: int = 16
    k_pe: int = 16
    tau: float = 0.4
    epochs: int = 100
    batch_size: int = 8
    lr: float = 1e-3
    clip: float = 0.0
    node_feature: bool = True
    lae: bool = True
    sge: bool = True
    learnt_bias_gain: bool = False
    self_loop: bool = False
    skip_components: bool = True
    rich_readout: bool = False
    unit_factors: bool = False
    odd_decoder: bool = False
    coordinates: Literal["fisher", "off_log"] = "fisher"
    likelihood: Literal["poisson", "gaussian"] = "poisson"
    summed: bool = True
    edge_start: Literal["zero", "mle"] = "zero"
    gate: Literal["class", "none"] = "class"
    gate_scale: float = 1.0
    gate_learnt: bool = False
    epsilon: float = 1e-2
    head_on_z: bool = True
    sigma_y_floor: float = 1e-2
    class_baseline: bool = False
    beta: float = 2.0
    warmup: int = 0
    free_bits: float = 0.0
    sampling: Literal["bayes", "aggregate"] = "bayes"
    residual_noise: bool = False
    covariance_shrink: float = 0.1
    variance_match: bool = False
    mean_match: bool = False
    project: Literal["none", "clip"] = "none"


PAPER = Settings()

AUTHORS = replace(
    PAPER,
    learnt_bias_gain=True,
    self_loop=True,
    skip_components=False,
    rich_readout=True,
    unit_factors=True,
    summed=False,
    gate_scale=8.0,
    gate_learnt=True,
    head_on_z=False,
    sigma_y_floor=1e-2,
)

CAREFUL = Settings(
    d_model=48,
    d_ff=96,
    heads=2,
    d_z=32,
    dropout=0.0,
    batch_size=32,
    lr=3e-3,
    clip=10.0,
    odd_decoder=True,
    coordinates="off_log",
    likelihood="gaussian",
    edge_start="mle",
    gate="none",
    sigma_y_floor=0.1,
    class_baseline=True,
    beta=1.0,
    warmup=20,
    free_bits=0.05,
    sampling="aggregate",
    residual_noise=True,
    variance_match=True,
    mean_match=True,
)

PRESETS = {"paper": PAPER, "authors": AUTHORS, "careful": CAREFUL}


def settings_of(preset: str, changes: dict[str, object]) -> Settings:
    """The preset's settings with `changes`; `ConfigError` names the nearest preset."""
    return replace(look_up("fcm_vae preset", preset, PRESETS), **changes)  # type: ignore[arg-type]
