"""Training from scratch on the union of several sites: cumulative and joint training."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge.methods.base import (
    EVERY,
    Declared,
    DependsOn,
    Lane,
    Method,
    Model,
    SiteView,
)
from fcforge.replay.memory import ROWS


@dataclass(frozen=True)
class OnUnion(Method):
    """A method that trains an untrained network on the subjects of all sites so far.

    An upper reference: it keeps the real subjects of every site, which a consortium could not.
    """

    learns = EVERY
    source = "upper reference"
    keeps = "real subjects"
    depends_on: ClassVar[DependsOn] = "set"
    from_scratch = True
    row_keys = (ROWS,)
    transient = ("fresh.",)

    def start(self, model: Model, lane: Lane) -> Lane:
        """Remember the untrained network, to start from it again at every site."""
        state = {f"fresh.{k}": v for k, v in {**lane.params, **lane.stats}.items()}
        state[ROWS] = torch.empty(0, dtype=torch.int64, device=lane.device)
        return lane._replace(state=state)

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """The untrained network, and everybody so far."""
        found = super().declares(model, lane, sites)
        return {**found, ROWS: Declared((None,), torch.int64, low=0)}

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Start from the untrained network."""
        return lane._replace(
            params={k: lane.state[f"fresh.{k}"] for k in lane.params},
            stats={k: lane.state[f"fresh.{k}"] for k in lane.stats},
        )

    def rows(self, lane: Lane, site: SiteView) -> Tensor:
        """Everybody so far."""
        return torch.cat([lane.state[ROWS], site.rows])

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Keep the site's subjects."""
        return lane.holding({ROWS: self.rows(lane, site)})
