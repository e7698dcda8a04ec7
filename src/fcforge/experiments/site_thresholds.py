r"""Each site's own threshold in a run, fitted on scores of its training subjects.

Every run is trained five times more, each time without one fold of every site's training subjects. After every
site of the order (a stage) the model scores the subjects that it has not seen. Over the five folds every
training subject gets such a score, also at sites that were not learned yet. For each stage and each site,
penalised logistic regression of the diagnoses on the log odds z of these scores gives

.. math:: \operatorname{logit} P(\text{patient}) = a + b\,z,

which is applied to the scores of the site's test subjects. The fit uses nothing of a test split.
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

OWN_FOLDS = 5  # number of folds of the training subjects
OWN = ", own threshold"  # end of the titles of rows with own thresholds


def fold_of_each(y: np.ndarray, *names: str | int) -> np.ndarray:
    """Return the fold of every subject, stratified by diagnosis.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Diagnoses.
    *names : str or int
        Names from which the seed of the folds is derived.

    Returns
    -------
    ndarray of shape (n,)
        Folds, counted from 0.
    """
    return stratified_folds(y, OWN_FOLDS, numpy_rng(0, "own threshold", *names))


def without_fold(site: Site, fold: int, seed: int) -> Site:
    """Return a site with one fold of its training subjects as test subjects.

    The real test subjects are left out.

    Parameters
    ----------
    site : Site
    fold : int
        Number of the fold, counted from 0.
    seed : int
        Seed of the run.
    """
    # the folds of training and validation part are drawn apart, so that each keeps its share of both
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
    """Return a run whose scores are corrected by each site's own intercept and slope.

    Parameters
    ----------
    result : RunResult
        The run, trained on all training subjects.
    folds : sequence of mapping of site to ndarray of shape (n_stages, n_held_out)
        For each fold the scores of the subjects left out.
    labels : mapping of site to sequence of sequence of int
        For each fold the diagnoses of the subjects left out.
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
