"""Training from scratch on the union of several sites: cumulative and joint training.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from fcforge.methods.base import (
    EVERY_TARGET,
    DependsOn,
    Lane,
    Method,
    Model,
    PublicView,
    SiteView,
)
from fcforge.replay.state import RECOMPUTABLE, Network, Rows


class UnionState(NamedTuple):
    """State of training on a union.

    Attributes
    ----------
    rows : Tensor of shape (n,), int64
        Bank rows (numbers in the bank) of all training subjects so far.
    fresh : Network
        The untrained network.
    """

    rows: Rows
    fresh: Annotated[Network, RECOMPUTABLE]


@dataclass(frozen=True)
class OnUnion(Method):
    """A method that trains an untrained network on the subjects of all sites so far.

    An upper reference: it keeps the real subjects of every site, which a consortium could not.
    """

    learns = EVERY_TARGET
    source = "upper reference"
    keeps = "real subjects"
    depends_on: ClassVar[DependsOn] = "set"
    from_scratch = True
    State = UnionState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Remember the untrained network, from which every site starts again."""
        no_rows = torch.empty(0, dtype=torch.int64, device=lane.device)
        fresh = Network(lane.params, lane.stats)
        return lane._replace(state=UnionState(no_rows, fresh))

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Start from the untrained network."""
        params, stats = lane.state.fresh
        return lane._replace(params=params, stats=stats)

    def rows(self, lane: Lane, site: SiteView) -> Tensor:
        """Return the rows of all subjects so far."""
        return torch.cat([lane.state.rows, site.rows])

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Remember the site's training subjects."""
        return lane.with_state(rows=self.rows(lane, site))
