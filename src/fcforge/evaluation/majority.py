"""Reference learners that know class frequencies (or the mean of a number) and no scan."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.result import RunResult, RunResults
from fcforge.core.spec import LearnerSpec
from fcforge.core.target import Kind
from fcforge.evaluation.resampling import pair_of


class Wording(NamedTuple):
    """Terms of tables, pages and sentences for one kind of target.

    Attributes
    ----------
    metric, average : str
        The primary metric, and its average along the way.
    all_sites, own : str
        Titles of the two references of `majority_result`.
    naive : str
        Description, for a sentence, of predicting without scans.
    """

    metric: str
    average: str
    all_sites: str
    own: str
    naive: str


_OF_CLASSES = Wording(
    "accuracy",
    "AAA",
    "majority class",
    "majority class of each site",
    "always naming each site's commonest class",
)
WORDS: dict[Kind, Wording] = {
    "two classes": _OF_CLASSES,
    "more classes": _OF_CLASSES,
    "number": Wording(
        "R²",
        "R²",
        "mean of all sites",
        "mean of each site",
        "always saying each site's mean",
    ),
}


def majority_result(result: RunResult, *, per_site: bool = False) -> RunResult:
    """Return the result of predicting the commonest class of the sites learned so far.

    P(patient) of everybody is the share of patients in the training parts seen so far, each
    site weighted by its number of test subjects (proportional to its training subjects, as all
    sites are split alike). Before learning it is 0.5. With more than two classes the shares of
    all classes are predicted. With a numeric target the mean is predicted, and the untrained
    model's number before learning.

    Parameters
    ----------
    result : RunResult
        A run of any learner: its seed, order, splits and test subjects are used, its scores not.
    per_site : bool
        Use the share of each site's own training part, at every stage. This reference forgets
        nothing; it is what a hospital knows by itself.

    Returns
    -------
    RunResult
        The same run with the scores of the reference.
    """
    order = result.spec.order
    n = np.array([len(result.y[s]) for s in order], dtype=float)
    means = {s: np.asarray(mean, dtype=float) for s, mean in result.train_mean.items()}
    weighted = [k * means[s] for k, s in zip(n, order, strict=True)]
    prior = (np.cumsum(weighted, 0).T / np.cumsum(n)).T  # (T,) or (T, K)
    scores = {}
    for site in result.sites:
        prediction = np.stack([means[site]] * len(order)) if per_site else prior
        scores[site] = np.repeat(prediction[:, None], len(result.y[site]), axis=1)
    before = dict(result.initial)
    if result.kind != "number":
        even = 1 / max(2, prior[0].size)  # two classes have one number, P(patient)
        before = {s: np.full(p.shape, even) for s, p in before.items()}
    title = WORDS[result.kind].own if per_site else WORDS[result.kind].all_sites
    model = Component("own" if per_site else "none")
    learner = LearnerSpec(Component("majority"), model, title=title)
    return replace(
        result,
        spec=replace(result.spec, learner=learner),
        scores=scores,
        initial=before,
        memory_bytes=np.full(len(order), 16),  # two counts
        seconds=np.zeros(len(order)),
    )


def with_majority(results: RunResults, *, per_site: bool = False) -> list[RunResult]:
    """Return `results` with the majority reference, unless a majority learner is among them.

    It is computed once for every (seed, order) that was run. With `per_site` the commonest class of each
    site by itself is added too.

    Parameters
    ----------
    results : sequence of RunResult
        Runs on one dataset.
    per_site : bool
        Whether to add the second reference.
    """
    if not results:
        raise DataError(
            "there is no finished run to summarise.", do="Run `fcforge run` first."
        )
    # models of the majority learners among the results: "own" is each site's own class
    present = {r.spec.learner.model.name for r in results if is_majority(r)}
    run_of_pair: dict[tuple, RunResult] = {}
    for r in results:
        if not is_majority(r):
            run_of_pair.setdefault(pair_of(r), r)
    extended = list(results)
    if per_site and "own" not in present:
        extended = [
            majority_result(r, per_site=True) for r in run_of_pair.values()
        ] + extended
    if not present:
        extended = [majority_result(r) for r in run_of_pair.values()] + extended
    return extended


def is_majority(result: RunResult) -> bool:
    """Return whether a run is a majority reference."""
    return result.spec.learner.method.name == "majority"
