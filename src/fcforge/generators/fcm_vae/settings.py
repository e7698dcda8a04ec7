"""FCM-VAE's settings and presets: a careful model, the paper as printed, the authors' code.

docs/generators.md gives the reason for each point in which the careful model (the default) differs
from the paper.
"""

from dataclasses import dataclass
from typing import Any, Literal

from fcforge.core.constants import TAU
from fcforge.core.errors import ConfigError
from fcforge.core.settings import (
    Checked,
    Count,
    NotNegative,
    Positive,
    ShareBelowOne,
    Size,
)

PAPER: dict[str, Any] = {
    "form": "paper",
    "d_model": 256,
    "d_ff": 512,
    "heads": 4,
    "d_z": 116,
    "dropout": 0.1,
    "batch_size": 8,
    "lr": 1e-3,
    "clip": 0.0,
    "sigma_y_floor": 1e-2,
    "beta": 2.0,
    "warmup": 0,
    "free_bits": 0.0,
}


@dataclass(frozen=True)
class VAESettings(Checked):
    """All choices of FCM-VAE (sizes the paper does not give are those of the authors' code).

    Attributes
    ----------
    form : {"careful", "paper", "authors"}
        Coordinates, likelihood, decoder and sampling (docs/generators.md has the table).
        "careful": Gaussian on off-log coordinates, whose every value is a valid matrix, with a
        baseline per class and residual noise. "paper": Poisson on exp(standardised Fisher z), gated
        by the adjacency, z | y by Bayes' rule. "authors": that as their code has it.
    d_model, d_ff, heads, layers, dropout, d_z, rank, k_pe, tau
        Sizes. The paper's d_h = (116 + k + 1) / H is not an integer, so features are first
        mapped to `d_model`, as the authors do.
    epochs, batch_size, lr, clip
        Adam; `clip` is the gradient norm bound (0: none).
    node_feature, lae, sge
        Ablation switches: FC rows as node features, local adjacency bias, spectral bias.
    sigma_y_floor
        Lower bound of the noise of the diagnosis given z.
    beta, warmup, free_bits
        KL weight, epochs over which it grows from 0, nats per unit that cost nothing.
    """

    presets = {
        "careful": {},
        "paper": PAPER,
        "authors": {**PAPER, "form": "authors", "sigma_y_floor": 1e-4},
    }
    form: Literal["careful", "paper", "authors"] = "careful"
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
    sigma_y_floor: NotNegative = 0.1
    beta: NotNegative = 1.0
    warmup: Count = 20
    free_bits: NotNegative = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.heads:
            raise ConfigError(
                f"d_model = {self.d_model} cannot be shared among {self.heads} heads.",
                where=self.where(),
                do="Use a multiple of heads.",
            )

    @property
    def careful(self) -> bool:
        """Whether this is the form that works, not one that was published."""
        return self.form == "careful"

    @property
    def authors(self) -> bool:
        """Whether the authors' code is followed where it differs from the paper."""
        return self.form == "authors"
