"""The network of the last site as a frozen teacher while the next site is learned."""

from dataclasses import dataclass

from fcforge.methods.base import Lane, Method, Model, Params, SiteView
from fcforge.methods.shared.anchor import named, part, without

TEACHER = ("teacher_params", "teacher_stats")  # parts of a state, at a site's training


# -- the network of the last site as a frozen teacher, while the next site is learned --------------
@dataclass(frozen=True)
class Taught(Method):
    """A method whose last network teaches the next (LwF, UGCL).

    The teacher is the lane's own network when a site begins: nothing extra travels between sites.
    """

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """The network so far becomes the teacher."""
        return with_teacher(lane) if site.position > 0 else lane

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Drop the teacher: only the latest network is kept, and that is the lane's own."""
        return without(super().end_site(model, lane, site), *TEACHER)


def with_teacher(lane: Lane) -> Lane:
    """Lane that holds its present network as the teacher."""
    params, stats = TEACHER
    return lane.holding(named(params, lane.params) | named(stats, lane.stats))


def teacher(lane: Lane) -> tuple[Params, Params] | None:
    """Parameters and statistics of the teacher; None at the first site."""
    params, stats = (part(lane.state, name) for name in TEACHER)
    return (params, stats) if params else None
