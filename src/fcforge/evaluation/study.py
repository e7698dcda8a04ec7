"""Tables of learners by columns, the form in which analyses of a stored run are shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.majority import with_majority
from fcforge.evaluation.tables import by_learner


@dataclass(frozen=True)
class Study:
    """Learners by columns, each cell a mean with its interval."""

    title: str
    rows: Mapping[str, Mapping[str, Estimate]]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that at least one row has, in order of first appearance."""
        return list(dict.fromkeys(chain.from_iterable(self.rows.values())))


def finite_runs(results: RunResults) -> dict[str, list[RunResult]]:
    """Return the runs of each learner by its title, with the majority-class reference added.

    Diverged runs (scores that are not finite) are left out, and so are learners without others.
    """
    by_title = {}
    for learner, runs in by_learner(with_majority(results)).items():
        finite_results = [run for run in runs if finite(run)]
        if finite_results:
            by_title[learner] = finite_results
    return by_title
