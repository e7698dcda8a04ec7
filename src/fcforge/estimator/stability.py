"""Agreement of trainings on different people about the edges that an estimator uses."""

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from fcforge.estimator.classifier import ForgeClassifier
from fcforge.estimator.inputs import InputError
from fcforge.estimator.regressor import ForgeRegressor
from fcforge.evaluation.attribution import slope_at
from fcforge.evaluation.edge_stability import EdgeStability


def edge_stability(
    model: ForgeClassifier | ForgeRegressor,
    X: Any,
    y: Any,
    site: Any = None,
    *,
    draws: int = 20,
    seed: int = 0,
    n_jobs: int | None = None,
    target: Any = None,
) -> EdgeStability:
    """Measure how far trainings on different people agree about each edge.

    Clones of `model` learn random halves of the people, in complementary pairs; with classes each
    half has its share of each. The weights of each edge at the mean scan are compared.

    Parameters
    ----------
    model : ForgeClassifier or ForgeRegressor
        Fitted or not; it is not changed.
    X, y, site
        As in `fit`, for example the people it learned from.
    draws : int
        Number of trainings, two for each random division in halves.
    seed : int
    n_jobs : int, optional
        Processes that share the trainings, as in joblib. Results do not depend on it.
    target : optional
        Class whose edges are compared, as in `ForgeClassifier.explain`; required for more than two
        classes.
    """
    if model.features == "any":
        raise InputError("stability is of edges.", do='Leave features="any" out.')
    values = np.asarray(y)
    divide = StratifiedShuffleSplit
    if isinstance(model, ForgeRegressor):
        divide = ShuffleSplit
    pairs = divide(max(1, draws // 2), test_size=0.5, random_state=seed)
    tasks = []
    for pair in pairs.split(np.zeros(len(values)), values):
        for half in pair:
            # None, or one name for all people, has no dimension
            sites_of_half = site if np.ndim(site) == 0 else np.asarray(site)[half]
            part = X[half] if hasattr(X, "shape") else [X[i] for i in half]
            tasks.append(
                delayed(_edge_weights)(model, part, values[half], sites_of_half, target)
            )
    return EdgeStability.of(np.stack(Parallel(n_jobs=n_jobs)(tasks)))


def _edge_weights(
    model: ForgeClassifier | ForgeRegressor, X: Any, y: Any, site: Any, target: Any
) -> np.ndarray:
    """Train a clone of `model` and return the gradient (E,) of its score by each edge.

    The gradient is taken at the mean scan.
    """
    fitted = clone(model).fit(X, y, site)
    scored, _ = fitted._explained(fitted._output_of(target)).attribution({})
    return slope_at(scored, fitted.mean_fc_)
