"""FCM-VAE's settings and presets: a careful model, the paper as printed, the authors' code.

docs/generators.md gives the reason for each point in which the careful model (the default) differs
from the paper.
"""

from dataclasses import dataclass
from typing import Any, Literal

from fcforge.core.constants import TAU
from fcforge.core.errors import ConfigError
from fcforge.core.settings import SHARE_BELOW_ONE, Checked, above, at_least, limits

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


@limits(
    d_model=at_least(1),
    d_ff=at_least(1),
    heads=at_least(1),
    layers=at_least(1),
    dropout=SHARE_BELOW_ONE,
    d_z=at_least(1),
    rank=at_least(1),
    k_pe=at_least(1),
    epochs=at_least(1),
    batch_size=at_least(1),
    lr=above(0),
    clip=at_least(0),
    sigma_y_floor=at_least(0),
    beta=at_least(0),
    warmup=at_least(0),
    free_bits=at_least(0),
)
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
    d_model: int = 48
    d_ff: int = 96
    heads: int = 2
    layers: int = 2
    dropout: float = 0.0
    d_z: int = 32
    rank: int = 16
    k_pe: int = 16
    tau: float = TAU
    epochs: int = 100
    batch_size: int = 32
    lr: float = 3e-3
    clip: float = 10.0
    node_feature: bool = True
    lae: bool = True
    sge: bool = True
    sigma_y_floor: float = 0.1
    beta: float = 1.0
    warmup: int = 20
    free_bits: float = 0.05

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
