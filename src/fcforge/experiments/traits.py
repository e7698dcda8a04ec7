"""Traits of learners that decide the prefix tree; a run folder keeps them for reports."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fcforge.core.spec import LearnerSpec
from fcforge.experiments.pipelines import PIPELINE, pipeline_of


@dataclass(frozen=True)
class Traits:
    """Dependence of a learner's model on its sites.

    Attributes
    ----------
    depends_on, keeps : str
        As of `fcforge.methods.Method`.
    grows : bool
        Whether it continues from the state after the previous site; else it is trained on all
        sites so far at every site.
    """

    depends_on: str
    keeps: str
    grows: bool = False


TRAITS = {  # of an estimator, by its `keeps`; it is made afresh every time
    "cumulative": Traits("set", "real subjects"),
    "independent": Traits("site", "nothing"),
    "partial_fit": Traits("order", "fitted estimator"),
}


def traits_of(
    learner: LearnerSpec, known: Mapping[str, Traits] | None = None
) -> Traits:
    """Return the traits of a learner: those `known` of its method, or those of the method's class."""
    pipeline = pipeline_of(learner)
    if pipeline is not None:
        return TRAITS[pipeline.keeps]
    name = learner.method.name
    if known and name in known:
        return known[name]
    from fcforge.methods import METHODS

    method = METHODS[name]
    return Traits(method.depends_on, method.keeps, not method.from_scratch)


def stored_traits(learners: Iterable[LearnerSpec]) -> dict[str, Any]:
    """Return the traits of the learners' methods by name, as a run folder keeps them."""
    registered = [learner for learner in learners if learner.method.name != PIPELINE]
    return {learner.method.name: asdict(traits_of(learner)) for learner in registered}


def read_traits(stored: Mapping[str, Any]) -> dict[str, Traits]:
    """Return the traits that `stored_traits` has written."""
    return {name: Traits(**values) for name, values in stored.items()}
