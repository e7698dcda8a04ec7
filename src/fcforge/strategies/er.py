r"""Experience replay: every step also trains on remembered subjects.

.. math:: L = \frac{CE(B_c) + \lambda \, CE(B_m)}{1 + \lambda}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fcforge.models.base import Model, Params
from fcforge.strategies._rehearsal import FORWARDS, Rehearsal, ReplayForward, both_batches
from fcforge.strategies._settings import at_least, one_of
from fcforge.strategies.base import Batch, Lane, Replay, cross_entropy

WEIGHTINGS = ("mean", "sum")


@dataclass(frozen=True)
class ER(Rehearsal):
    """Experience replay of real subjects: one mean over the current and a remembered batch.

    Chaudhry et al. 2019, as Mammoth's ``er``.

    Parameters
    ----------
    strength : float
        lambda; 1 gives current and remembered subjects equal weight.
    weighting : {"mean", "sum"}
        As above, or ``CE(B_c) + lambda CE(B_m)``.
    forward : {"joint", "separate"}
        Whether batch norm sees both batches together.
    """

    strength: float = 1.0
    weighting: Literal["mean", "sum"] = "mean"
    forward: ReplayForward = "joint"

    name: ClassVar[str] = "er"
    title: ClassVar[str] = "ER"
    source: ClassVar[str] = "Chaudhry et al. 2019 (arXiv 1902.10486); Mammoth er"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.name, 0.0, strength=self.strength)
        one_of(self.name, "weighting", self.weighting, WEIGHTINGS)
        one_of(self.name, "forward", self.forward, FORWARDS)

    @property
    def draws(self) -> int:
        """One draw, unless it would count for nothing."""
        return int(self.strength > 0)

    def loss(
        self,
        model: Model,
        params: Params,
        lane: Lane,
        batch: Batch,
        replay: Replay | None,
        key: Tensor,
    ) -> tuple[Tensor, Params]:
        """Cross-entropy on current and remembered subjects."""
        if replay is None:
            return super().loss(model, params, lane, batch, replay, key)
        now, then = both_batches(
            model, params, lane.stats, batch.inputs, replay.inputs, key, self.forward
        )
        remembered = cross_entropy(then.logits, replay.y, replay.weight)
        loss = cross_entropy(now.logits, batch.y) + self.strength * remembered
        if self.weighting == "mean":
            loss = loss / (1.0 + self.strength)
        return loss + now.penalty, then.stats
