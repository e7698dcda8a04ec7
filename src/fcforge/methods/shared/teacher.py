"""The network of the last site as a frozen teacher, for as long as the next site is learned.

It is the lane's own network when the site begins, so nothing extra travels between sites.
"""

from dataclasses import dataclass

import torch

from fcforge.methods.base import Lane, Method, Model, Params, SiteView
from fcforge.methods.shared.penalty import named, part, without


@dataclass(frozen=True)
class Taught(Method):
    """A method whose last network teaches the next."""

    def begin_site(self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator) -> Lane:
        """The network so far becomes the teacher."""
        return with_teacher(lane) if site.position > 0 else lane

    def end_site(self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator) -> Lane:
        """Drop the teacher: only the latest network is kept, and that is the lane's own."""
        ended = super().end_site(model, lane, site, rng)
        return ended._replace(state=without(ended.state, "teacher_params", "teacher_stats"))


def with_teacher(lane: Lane) -> Lane:
    """Lane that holds its present network as the teacher."""
    frozen = named("teacher_params", lane.params) | named("teacher_stats", lane.stats)
    return lane._replace(state={**lane.state, **frozen})


def teacher(lane: Lane) -> tuple[Params, Params] | None:
    """Parameters and statistics of the teacher; None at the first site."""
    params = part(lane.state, "teacher_params")
    return (params, part(lane.state, "teacher_stats")) if params else None
