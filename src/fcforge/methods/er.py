"""Experience replay of real subjects."""

from dataclasses import dataclass

from torch import Tensor

from fcforge.core.settings import at_least, limits
from fcforge.methods.base import Replay, label_loss
from fcforge.methods.shared.rehearsal import LossAndTerms, TwoBatches


@limits(strength=at_least(0))
@dataclass(frozen=True)
class ER(TwoBatches):
    r"""Experience replay of real subjects: one mean over the current and a remembered batch.

    .. math:: L = (CE(B_c) + \lambda \, CE(B_m)) / (1 + \lambda)

    with the current batch :math:`B_c` and a batch :math:`B_m` from the memory. Chaudhry et al. 2019,
    as ``er`` of the library Mammoth.

    Parameters
    ----------
    strength : float
        lambda; 1 gives current and remembered subjects equal weight.
    """

    strength: float = 1.0

    name = "er"
    factors = ("strength",)
    title = "ER"
    source = "Chaudhry et al. 2019 (arXiv 1902.10486); Mammoth er"
    terms = "strength"

    def combine(self, current: Tensor, logits: Tensor, replay: Replay) -> LossAndTerms:
        """Return the weighted mean of both cross-entropies."""
        past = self.strength * label_loss(logits, replay.y, replay.weight)
        whole = 1.0 + self.strength
        terms = {"current": current / whole, "replay": past / whole}
        return (current + past) / whole, terms
