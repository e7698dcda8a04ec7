"""What a plan and a report must know of a learner; a run folder keeps it, so they need no torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fcforge.runner.pipelines import PIPELINE, pipeline_of
from fcforge.types import LearnerSpec


@dataclass(frozen=True)
class Traits:
    """How the model of a learner depends on its sites.

    Attributes
    ----------
    depends_on, keeps : str
        As of `fcforge.methods.Method`.
    from_scratch : bool
        Whether it trains on all sites so far at every site.
    grows : bool
        Whether it goes on from the state after the site before.
    """

    depends_on: str
    keeps: str
    from_scratch: bool = False
    grows: bool = False


def traits_of(
    learner: LearnerSpec, known: Mapping[str, Traits] | None = None
) -> Traits:
    """Traits of a learner, from those `known` of methods by name, or from the method itself."""
    pipeline = pipeline_of(learner)
    if pipeline is not None:  # made afresh every time
        return Traits(pipeline.depends_on, pipeline.kept)
    name = learner.method.name
    if known and name in known:
        return known[name]
    from fcforge.methods import METHODS

    method = METHODS[name]
    fresh = method.from_scratch
    return Traits(method.depends_on, method.keeps, fresh, grows=not fresh)


def stored_traits(learners: tuple[LearnerSpec, ...]) -> dict[str, Any]:
    """Traits of the learners' methods by name, as a run folder keeps them."""
    own = [learner for learner in learners if learner.method.name != PIPELINE]
    return {learner.method.name: asdict(traits_of(learner)) for learner in own}


def read_traits(stored: Mapping[str, Any]) -> dict[str, Traits]:
    """Inverse of `stored_traits`."""
    return {name: Traits(**said) for name, said in stored.items()}
