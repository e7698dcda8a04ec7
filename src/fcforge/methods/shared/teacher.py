"""The network of the last site as a frozen teacher while the next site is learned.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fcforge.methods.base import Lane, Method, Model, PublicView, SiteView
from fcforge.replay.state import ABSENT, Absent, Network


class Teacher(NamedTuple):
    """State of a method with a teacher: the teacher network during a site, nothing between sites."""

    teacher: Network | Absent = ABSENT


@dataclass(frozen=True)
class Taught(Method):
    """A method whose last network teaches the next (LwF, UGCL).

    The teacher is the lane's own network when a site begins: nothing extra travels between sites.
    """

    State: ClassVar[type] = Teacher

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane without a teacher."""
        return lane._replace(state=Teacher())

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Make the network so far the teacher, from the second site on."""
        return with_teacher(lane) if site.position > 0 else lane

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Drop the teacher; the next one is the network that the lane has now."""
        return super().end_site(model, lane, site).with_state(teacher=ABSENT)


def with_teacher(lane: Lane) -> Lane:
    """Return the lane with its present network as the teacher."""
    return lane.with_state(teacher=Network(lane.params, lane.stats))
