"""Dark experience replay: the stored logits of real subjects are distilled.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge.core.randomness import fold
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import Lane, Replay, is_used, label_loss
from fcforge.methods.shared.rehearsal import LossAndTerms, TwoBatches
from fcforge.replay.memory import uniform_slots


@limits(alpha=at_least(0))
@dataclass(frozen=True)
class DER(TwoBatches):
    r"""Dark experience replay: stored logits of real subjects are distilled.

    .. math:: L = CE(B_c) + \alpha \, \mathrm{mean}_{B_m} (z - u)^2 \;(+\, \beta \, CE(B_m'))

    Buzzega et al. 2020. :math:`B_c` is the current batch, :math:`B_m` one from the memory; z are
    present logits and u those stored at the end of the subject's site, in evaluation mode. (The
    library Mammoth stores training-mode logits of the step at which the subject entered.) The
    present network has dropout on, so even an unchanged network has a distance above zero.

    Parameters
    ----------
    alpha : float
        Weight of the logits; 0.1 .. 1 in Mammoth (domain-IL 0.5 and 1). The mean is also over
        the two logits, as in Mammoth, Avalanche and the authors' FORGE code; the equations have
        their sum.
    """

    alpha: float = 0.5

    name = "der"
    factors: ClassVar[tuple[str, ...]] = ("alpha",)
    title = "DER"
    source = "Buzzega et al. 2020 (NeurIPS); Mammoth der"
    terms = "alpha"

    def combine(self, current: Tensor, logits: Tensor, replay: Replay) -> LossAndTerms:
        """Add the mean squared distance of the logits to the stored ones."""
        past = self.alpha * (logits - replay.logits).square().mean()
        return current + past, {"current": current, "logits": past}


@limits(beta=at_least(0))
@dataclass(frozen=True)
class DERPP(DER):
    """Dark experience replay with labels, on an independent second draw.

    Buzzega et al. 2020, as Mammoth's ``derpp``; Avalanche uses one draw for both terms.

    Parameters
    ----------
    beta : float
        Weight of the labels; 0.5 or 1 in Mammoth.
    """

    beta: float = 0.5

    name = "derpp"
    factors: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    title = "DER++"
    source = "Buzzega et al. 2020 (NeurIPS); Mammoth derpp"
    terms = "alpha beta"

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Draw slots for the labels (as ER would), then for the logits.

        A term without weight has no draw.
        """
        keys = []
        if is_used(self.beta):
            keys.append(key)
        if is_used(self.alpha):
            keys.append(fold(key, 1))
        rows = lane.state.memory.rows
        slots = torch.cat([uniform_slots(rows, k, self.replay)[0] for k in keys])
        weight = torch.full(slots.shape, 1.0 / slots.shape[0], device=slots.device)
        return slots, weight

    def combine(self, current: Tensor, logits: Tensor, replay: Replay) -> LossAndTerms:
        """Add the cross-entropy of the first draw and the distance of the logits of the second."""
        n = self.replay  # size of each draw; `draw` puts that of the labels first
        terms = {}
        if is_used(self.beta):
            terms["replay"] = self.beta * label_loss(logits[:n], replay.y[:n])
        if is_used(self.alpha):
            distance = (logits[-n:] - replay.logits[-n:]).square().mean()
            terms["logits"] = self.alpha * distance
        total = current + torch.stack(list(terms.values())).sum()
        return total, {"current": current, **terms}
