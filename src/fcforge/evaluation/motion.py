"""`fcforge analyse motion`: how well head motion alone predicts, as a row of the results table.

Patients move more than controls in every large ABIDE site. A classifier of FC that is no better
than logistic regression on mean framewise displacement may have learned nothing but motion.

Shapes: n subjects, m subjects that are scored.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.result import RunResult
from fcforge.core.spec import LearnerSpec
from fcforge.core.subjects import Site
from fcforge.data.checks import data_warnings, require_valid, warn_in_python
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.evaluation.tables import Row, results_rows
from fcforge.experiments.collect import describe_sites, result_of
from fcforge.experiments.config import Experiment

LEARNER = LearnerSpec(Component("motion"), Component("mean_fd"), title="motion only")
COVARIATE = "mean_fd"
NO_TIME: dict[str, Any] = {"seconds": 0.0, "environment": {}}


def fit_scores(
    train: Sequence[tuple[np.ndarray, np.ndarray]], test: np.ndarray
) -> np.ndarray:
    """Return P(patient) of test subjects from logistic regression on log mean FD.

    Parameters
    ----------
    train : sequence of (fd (n,), y (n,))
        Training parts of the sites so far. Subjects without a value are left out.
    test : ndarray of shape (m,)
        FD of the test subjects; those without a value get the mean of the training subjects.

    Returns
    -------
    ndarray of shape (m,)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fd, y = (np.concatenate(part) for part in zip(*train, strict=True))
    x = _log(fd)
    has_fd = np.isfinite(x)
    if len(np.unique(y[has_fd])) < 2:
        return np.full(len(test), float(y.mean()))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e3))
    model.fit(x[has_fd, None], y[has_fd])
    log_test = _log(test)
    filled = np.where(np.isfinite(log_test), log_test, x[has_fd].mean())
    return model.predict_proba(filled[:, None])[:, 1]


def _log(fd: np.ndarray) -> np.ndarray:
    """Return the logarithm of a displacement, NaN where none is known."""
    return np.log(np.where(fd > 0, fd, np.nan))


def motion_results(experiment: Experiment, cohort: Cohort) -> list[RunResult]:
    """Return one RunResult per order and seed, with a regression on all sites so far.

    The splits are those of the experiment, so the row can stand beside its learners.

    Parameters
    ----------
    experiment : Experiment
        Orders, seeds and splits; its learners are not used.
    cohort : Cohort
        Its data, with the covariate mean_fd.
    """
    fd = np.asarray(cohort.covariates.get(COVARIATE, ()), dtype=float)
    if not np.isfinite(fd).any():
        raise DataError(
            "the dataset gives no mean FD.",
            do="Add a column mean_fd, or a file that has it: --set dataset.covariates=FILE.",
        )
    motion_only = replace(experiment, learners=(LEARNER,), own_threshold=False)
    data = {
        "sites": cohort.site_names,
        "site_facts": describe_sites(cohort, motion_only),
    }
    splits = {seed: make_sites(cohort, seed, experiment) for seed in experiment.seeds}
    # by stage: seed and sorted sites so far, whose order does not matter here
    scores: dict[Any, dict[str, np.ndarray]] = {}
    costs: dict[Any, dict[str, Any]] = {}
    results = []
    for spec in motion_only.specs(cohort.site_names, cohort.content_sha256()):
        sites = splits[spec.seed]
        lengths = range(len(spec.order) + 1)
        stages = [(spec.seed, *sorted(spec.order[:k])) for k in lengths]
        for stage in stages:
            if stage not in scores:
                seen = [str(name) for name in stage[1:]]
                scores[stage] = _scores(sites, seen)
                n = sum(len(sites[s].train) + len(sites[s].val) for s in seen)
                # one number and one diagnosis per subject
                costs[stage] = {"memory_bytes": 8 * n, **NO_TIME}
        results.append(result_of(spec, stages, scores, costs, data))
    return results


def _fd(site: Site, split: str) -> np.ndarray:
    """Return the mean framewise displacement of a site's subjects of one split, in mm."""
    return np.asarray(site.covariates[split][COVARIATE], float)


def _scores(sites: dict[str, Site], seen: Sequence[str]) -> dict[str, np.ndarray]:
    """Return P(patient) of every site's test people after the sites `seen`; 0.5 before the first."""
    train = []
    for name in seen:
        site = sites[name]
        fd = np.concatenate([_fd(site, "train"), _fd(site, "val")])
        y = site.learning(with_val=True).y.numpy()
        train.append((fd, y))
    by_site = {}
    for name, site in sites.items():
        test = _fd(site, "test")
        p = fit_scores(train, test) if train else np.full(len(test), 0.5)
        by_site[name] = p.astype(np.float32)
    return by_site


def motion_rows(
    experiment: Experiment, *, warn: Callable[[str], None] = warn_in_python
) -> list[Row]:
    """Return rows of the results table: motion alone, and the majority class.

    Parameters
    ----------
    experiment : Experiment
    warn : callable
        Called with each line of `data_warnings`, before anything is fitted; by default the lines
        become Python warnings.
    """
    cohort = load_dataset(experiment.dataset)
    require_valid(cohort)
    for line in data_warnings(cohort):
        warn(line)
    results = motion_results(experiment, cohort)
    return results_rows(results, keeps={LEARNER.title: "real subjects"})
