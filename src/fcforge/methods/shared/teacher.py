"""The network of the last site as a frozen teacher, for as long as the next site is learned.

It is the lane's own network when the site begins, so nothing extra travels between sites.
"""

from fcforge.methods.base import Lane, Params
from fcforge.methods.shared.penalty import named, part, without


def with_teacher(lane: Lane) -> Lane:
    """Lane that holds its present network as the teacher."""
    frozen = named("teacher_params", lane.params) | named("teacher_stats", lane.stats)
    return lane._replace(state={**lane.state, **frozen})


def teacher(lane: Lane) -> tuple[Params, Params] | None:
    """Parameters and statistics of the teacher; None at the first site."""
    params = part(lane.state, "teacher_params")
    return (params, part(lane.state, "teacher_stats")) if params else None


def without_teacher(lane: Lane) -> Lane:
    """Lane with its teacher dropped."""
    return lane._replace(state=without(lane.state, "teacher_params", "teacher_stats"))
