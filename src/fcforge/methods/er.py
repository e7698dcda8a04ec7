r"""Experience replay: every step also trains on remembered subjects.

.. math:: L = \frac{CE(B_c) + \lambda \, CE(B_m)}{1 + \lambda}
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fcforge.methods.base import Replay, cross_entropy
from fcforge.methods.shared.rehearsal import TwoBatches
from fcforge.settings import NotNegative


@dataclass(frozen=True)
class ER(TwoBatches):
    """Experience replay of real subjects: one mean over the current and a remembered batch.

    Chaudhry et al. 2019, as Mammoth's ``er``.

    Parameters
    ----------
    strength : float
        lambda; 1 gives current and remembered subjects equal weight.
    weighting : {"mean", "sum"}
        As above, or ``CE(B_c) + lambda CE(B_m)``.
    """

    strength: NotNegative = 1.0
    weighting: Literal["mean", "sum"] = "mean"

    name = "er"
    title = "ER"
    source = "Chaudhry et al. 2019 (arXiv 1902.10486); Mammoth er"

    @property
    def draws(self) -> int:
        """One draw, unless it would count for nothing."""
        return int(self.strength > 0)

    def combine(self, current: Tensor, z: Tensor, replay: Replay) -> Tensor:
        """Cross-entropy on current and remembered subjects."""
        loss = current + self.strength * cross_entropy(z, replay.y, replay.weight)
        return loss / (1.0 + self.strength) if self.weighting == "mean" else loss
