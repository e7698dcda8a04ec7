"""Traits of learners on which the prefix tree depends; a run folder stores them for reports."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fcforge.core.spec import LearnerSpec
from fcforge.experiments.pipelines import PIPELINE, pipeline_of


@dataclass(frozen=True)
class Traits:
    """How a learner's model depends on its sites.

    Attributes
    ----------
    depends_on : {"order", "set", "site", "all"}
        What the model after some sites depends on (`fcforge.methods.Method`).
    keeps : str
        What the learner keeps of past sites (`fcforge.methods.Method`).
    grows : bool
        Whether it continues from the state after the previous site. Else it is trained at every site from
        scratch on all sites so far.
    """

    depends_on: str
    keeps: str
    grows: bool = False


TRAITS = {  # traits of a scikit-learn estimator by its setting `keeps`
    "cumulative": Traits("set", "real subjects"),
    "independent": Traits("site", "nothing"),
    "partial_fit": Traits("order", "fitted estimator"),
}


def traits_of(
    learner: LearnerSpec, known: Mapping[str, Traits] | None = None
) -> Traits:
    """Return the traits of a learner.

    Parameters
    ----------
    learner : LearnerSpec
    known : mapping of str to Traits, optional
        Traits by name of the method, which are used without importing the method.
    """
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
    """Return the traits of the learners' methods by name, as a run folder stores them."""
    registered = [learner for learner in learners if learner.method.name != PIPELINE]
    return {learner.method.name: asdict(traits_of(learner)) for learner in registered}


def read_traits(stored: Mapping[str, Any]) -> dict[str, Traits]:
    """Return the traits that `stored_traits` returned, by name of the method."""
    return {name: Traits(**values) for name, values in stored.items()}
