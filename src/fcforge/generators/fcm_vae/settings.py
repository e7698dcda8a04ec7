"""FCM-VAE's settings and presets: a careful model, the paper as printed, the authors' code.

Every field is one switch; docs/generators.md gives the reason for each value in which the
careful model (the defaults) differs from the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fcforge.errors import ConfigError
from fcforge.settings import (
    Checked,
    Count,
    Fraction,
    NotNegative,
    Positive,
    Share,
    ShareBelowOne,
    Size,
)
from fcforge.types import TAU

PAPER: dict[str, Any] = {
    "d_model": 256,
    "d_ff": 512,
    "heads": 4,
    "d_z": 116,
    "dropout": 0.1,
    "batch_size": 8,
    "lr": 1e-3,
    "clip": 0.0,
    "odd_decoder": False,
    "coordinates": "fisher",
    "likelihood": "poisson",
    "edge_start": "zero",
    "gate": "class",
    "sigma_y_floor": 1e-2,
    "class_baseline": False,
    "beta": 2.0,
    "warmup": 0,
    "free_bits": 0.0,
    "sampling": "bayes",
    "residual_noise": False,
    "variance_match": False,
    "mean_match": False,
    "degree_share": False,
    "hidden_factors": True,
}
AUTHORS: dict[str, Any] = {
    **PAPER,
    "hidden_factors": False,
    "xavier_spectral": True,
    "learnt_bias_gain": True,
    "self_loop": True,
    "skip_components": False,
    "rich_readout": True,
    "unit_factors": True,
    "summed": False,
    "gate_scale": 8.0,
    "gate_learnt": True,
    "head_on_z": False,
    "zero_diagonal": True,
    "bound_log_var": False,
    "dropout_at": "inside",
    "attention_bias": False,
    "drawn_biases": True,
    "sigma_y_floor": 1e-4,
}


@dataclass(frozen=True)
class VAESettings(Checked):
    """All choices of FCM-VAE (sizes the paper does not give are those of the authors' code).

    Attributes
    ----------
    d_model, d_ff, heads, layers, dropout, d_z, rank, k_pe, tau
        Sizes. The paper's d_h = (116 + k + 1) / H is not an integer, so features are first
        mapped to `d_model`, as the authors do.
    epochs, batch_size, lr, clip
        Adam; `clip` is the gradient norm bound (0: none).
    node_feature, lae, sge
        Ablation switches: FC rows as node features, local adjacency bias, spectral bias.
    zero_diagonal
        Node features have 0 for a ROI with itself (authors) or the FC's own 1.
    degree_share
        The degree among the node features as a share of all ROIs, or as it is.
    dropout_at
        Dropout of the two branches' outputs ("branches"), or of attention weights and of the
        hidden layer and the output of the feed-forward part ("inside", authors).
    attention_bias
        Biases of queries, keys, values and of the attention's output.
    drawn_biases
        Biases start as torch.nn.Linear draws them (authors), or at 0.
    xavier_spectral
        W^phi of the spectral bias starts as torch.nn.init.xavier_uniform_ draws all heads' as one
        tensor (authors: 3.65 times narrower at their sizes), or as any other linear map.
    bound_log_var
        Log variances of q(z | FC) are kept in [-8, 4].
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
    hidden_factors
        U(z) by one hidden layer of `d_ff` units and GELU (the paper's nonlinear g_r, whose form it
        does not give), or linear in z (authors).
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
        Head of the diagnosis reads the sample z (paper) or the mean (authors).
    sigma_y_floor
        Lower bound of the noise of the diagnosis given z.
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
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "careful": {},
        "paper": PAPER,
        "authors": AUTHORS,
    }
    d_model: Size = 48
    d_ff: Size = 96
    heads: Size = 2
    layers: Size = 2
    dropout: ShareBelowOne = 0.0
    d_z: Size = 32
    rank: Size = 16
    k_pe: Size = 16
    tau: float = TAU
    epochs: Size = 100
    batch_size: Size = 32
    lr: Positive = 3e-3
    clip: NotNegative = 10.0
    node_feature: bool = True
    lae: bool = True
    sge: bool = True
    zero_diagonal: bool = False
    degree_share: bool = True
    dropout_at: Literal["branches", "inside"] = "branches"
    attention_bias: bool = True
    drawn_biases: bool = False
    xavier_spectral: bool = False
    bound_log_var: bool = True
    learnt_bias_gain: bool = False
    self_loop: bool = False
    skip_components: bool = True
    rich_readout: bool = False
    unit_factors: bool = False
    hidden_factors: bool = False
    odd_decoder: bool = True
    coordinates: Literal["fisher", "off_log"] = "off_log"
    likelihood: Literal["poisson", "gaussian"] = "gaussian"
    summed: bool = True
    edge_start: Literal["zero", "mle"] = "mle"
    gate: Literal["class", "none"] = "none"
    gate_scale: float = 1.0
    gate_learnt: bool = False
    epsilon: Fraction = 1e-2
    head_on_z: bool = True
    sigma_y_floor: NotNegative = 0.1
    class_baseline: bool = True
    beta: NotNegative = 1.0
    warmup: Count = 20
    free_bits: NotNegative = 0.05
    sampling: Literal["bayes", "aggregate"] = "aggregate"
    residual_noise: bool = True
    covariance_shrink: Share = 0.1
    variance_match: bool = True
    mean_match: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.heads:
            raise ConfigError(
                f"d_model = {self.d_model} cannot be shared among {self.heads} heads.",
                where=self.where(),
                do="Use a multiple of heads.",
            )
