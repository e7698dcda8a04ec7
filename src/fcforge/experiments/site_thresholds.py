r"""Each hospital's own threshold in a run, fitted on scores of its training people.

Every run is trained five times more, each time without one fold of every site's training
people. The model that has not seen them scores them, after every site of the order; over the folds
every training person has such a score, also at sites that were not learned yet. Stage by stage and
site by site, penalised logistic regression of the diagnoses on these log odds z gives

.. math:: \operatorname{logit} P(\text{patient}) = a + b\,z,

which is applied to the scores of the site's test people. Nothing of a test split is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fcforge.base_model.calibration import LARGEST, fit_line
from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.splits import stratified_folds

OWN_FOLDS = 5  # of the training people
OWN = ", own threshold"  # end of the row's title


def fold_of_each(y: np.ndarray, *names: str | int) -> np.ndarray:
    """Return the fold of every subject (n,), stratified by diagnosis; decided by the names alone."""
    return stratified_folds(y, OWN_FOLDS, numpy_rng(0, "own threshold", *names))


def without_fold(site: Site, fold: int, seed: int) -> Site:
    """Return the site without a fold of its training subjects, who replace the tested ones."""
    both = {"train": site.train, "val": site.val}
    folds = []
    for name, batch in both.items():
        folds.append(fold_of_each(batch.y.numpy(), seed, site.name, name))
    sizes = [len(batch) for batch in both.values()]
    part = np.repeat(list(both), sizes)
    part[np.concatenate(folds) == fold] = "test"
    everybody = FCBatch.concat(list(both.values()))
    ids = np.array(site.subject_ids["train"] + site.subject_ids["val"], dtype=object)
    columns = {}
    for name, values in site.covariates.get("train", {}).items():
        of_val = site.covariates["val"][name]
        columns[name] = np.concatenate([values, of_val])
    batches: dict[str, Any] = {}
    subject_ids = {}
    covariates = {}
    for name in ("train", "val", "test"):
        rows = np.flatnonzero(part == name)
        batches[name] = everybody.select(rows)
        subject_ids[name] = tuple(ids[rows])
        covariates[name] = {c: values[rows] for c, values in columns.items()}
    return replace(site, **batches, subject_ids=subject_ids, covariates=covariates)


def log_odds(p: np.ndarray) -> np.ndarray:
    """Return the logit of probabilities, clipped to finite values."""
    with np.errstate(divide="ignore"):
        z = np.log(p) - np.log1p(-np.asarray(p, dtype=float))
    return np.clip(z, -LARGEST, LARGEST)


def with_own_thresholds(
    result: RunResult,
    folds: Sequence[Mapping[str, np.ndarray]],
    labels: Mapping[str, Sequence[Sequence[int]]],
) -> RunResult:
    """Return the run with every site's scores moved by its own intercept and slope.

    Parameters
    ----------
    result : RunResult
    folds : sequence of mapping of site to ndarray of shape (n_stages, n_held_out)
        Scores of those left out, fold by fold.
    labels : mapping of site to the diagnoses of those left out, fold by fold
    """
    scores = {}
    for site, scores_of_site in result.scores.items():
        parts = [np.asarray(fold, dtype=float) for fold in labels[site]]
        y = np.concatenate(parts)
        moved = np.empty_like(scores_of_site)
        for stage in range(len(scores_of_site)):
            p = np.concatenate([fold[site][stage] for fold in folds])
            intercept, slope = fit_line(log_odds(p), y)
            z = intercept + slope * log_odds(scores_of_site[stage])
            moved[stage] = 1 / (1 + np.exp(-z))
        scores[site] = moved
    learner = result.spec.learner
    titled = replace(learner, title=learner.title + OWN)
    return replace(result, spec=replace(result.spec, learner=titled), scores=scores)
