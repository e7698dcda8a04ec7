"""References: fine-tuned from site to site, begun anew at each, majority class, everybody at once.

Cumulative and joint training keep everybody and train from scratch on the union: upper references,
not methods a consortium could use, as they keep real subjects.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge.methods.base import (
    EVERY,
    Declared,
    DependsOn,
    Inputs,
    Lane,
    Method,
    Model,
    SiteView,
)
from fcforge.replay.memory import ROWS


@dataclass(frozen=True)
class Finetune(Method):
    """Base of the paper: L = CE(current batch), continuing from the last site's parameters."""

    name = "finetune"
    learns = EVERY
    title = "Fine-tuning (Base)"
    source = "FORGE paper, Base"


@dataclass(frozen=True)
class Independent(Method):
    """Each site alone: what a hospital reaches without the consortium. Read its diagonal only."""

    name = "independent"
    learns = EVERY
    title = "Independent"
    source = "reference: single-site training"
    depends_on = "site"


@dataclass(frozen=True)
class Majority(Method):
    """Constant prediction, the floor for accuracy: class frequencies of the subjects so far."""

    name = "majority"
    title = "Majority class"
    source = "reference: floor"
    keeps = "statistics"
    depends_on = "set"
    fits = False
    from_public = ""

    def start(self, model: Model, lane: Lane) -> Lane:
        """Nobody seen yet."""
        return lane.holding({"count": torch.zeros(model.n_outputs, device=lane.device)})

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Count the members of each class."""
        seen = torch.bincount(site.y, minlength=model.n_outputs).to(lane.state["count"])
        return lane.holding({"count": lane.state["count"] + seen})

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """log(count + 1/2), the same for everybody."""
        n = next(iter(inputs.values())).shape[0]
        return torch.log(lane.state["count"] + 0.5).expand(n, -1)


@dataclass(frozen=True)
class Cumulative(Method):
    """After each site, train a fresh network on all sites so far."""

    name = "cumulative"
    learns = EVERY
    title = "Cumulative"
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


@dataclass(frozen=True)
class Joint(Cumulative):
    """One network trained once on the union of all sites; every stage shows that network."""

    name = "joint"
    title = "Joint"
    depends_on = "all"
