"""Why the estimator said so, and whether an edge is stable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from fcforge.estimator.inputs import InputError, as_input_error
from fcforge.estimator.learning import Learns
from fcforge.estimator.people import columns_of
from fcforge.exchange.explanation import Explanation, Stability, explain_model, slope_at
from fcforge.imaging.atlas import Atlas

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier


class Explains(Learns):
    """Says which edges moved a decision."""

    def explain(
        self, X: Any, covariates: Any = None, *, atlas: Atlas | None = None
    ) -> Explanation:
        """Which edges, ROIs and networks moved each scan's decision value.

        They are compared with the mean of the people it learned from (of a loaded file: of its
        synthetic or public people). Exact for models that are linear in Fisher z, integrated
        gradients for all others. They are for the patients' class (`positive`), whichever is
        first in sorted order: `base` plus the contributions are its log odds.

        Parameters
        ----------
        X, covariates
            As in `decision_function`.
        atlas : Atlas, optional
            Names, networks and places of the ROIs; AAL is known by its names.
        """
        fc = self._scans(X)
        self._require_edges()
        columns = columns_of(covariates, len(fc))
        against = None
        if hasattr(self, "mean_fc_"):
            against = (self.mean_fc_, "the mean of the people it learned from")
        with as_input_error():
            self.model_.calibrated(fc, columns)  # says which covariate is missing
            found = explain_model(
                self.model_, fc, columns, atlas=atlas, reference=against
            )
        return replace(found, positive=str(self._words[1]))

    def _require_edges(self) -> None:
        """Refuse a model without edges."""
        if self.target_.kind != "two classes":
            what = (
                f"explanations are for two classes, and this is about {self.target_}."
            )
            raise InputError(what, do="Compare two of the classes.")
        if self.features == "any":
            what = "columns are arbitrary numbers (features='any'), not edges between ROIs."
            raise InputError(what, do="Set features='fc'.")


def edge_stability(
    model: ForgeClassifier,
    X: Any,
    y: Any,
    *,
    draws: int = 20,
    seed: int = 0,
    **fit: Any,
) -> Stability:
    """How far trainings on other people agree about each edge.

    Clones of `model` learn random halves of the people, in complementary pairs, each half with
    its share of both classes; what is compared is the weight of each edge at the mean scan.

    Parameters
    ----------
    model : ForgeClassifier
        Fitted or not; it is left as it is.
    X, y
        As in `ForgeClassifier.fit`, for instance the people it learned from.
    draws : int
        Trainings; two for each random division in halves.
    seed : int
    **fit
        Further arguments of `fit`; arrays of one entry per person are divided, too.
    """
    labels = np.asarray(y)
    halves = StratifiedShuffleSplit(
        max(1, draws // 2), test_size=0.5, random_state=seed
    )
    weights = []
    for pair in halves.split(np.zeros(len(labels)), labels):
        for half in pair:
            given = {k: _part(v, half, len(labels)) for k, v in fit.items()}
            part = X[half] if hasattr(X, "shape") else [X[i] for i in half]
            fitted = clone(model).fit(part, labels[half], **given)
            weights.append(_weights(fitted))
    return Stability.of(np.stack(weights))


def _part(value: Any, rows: np.ndarray, n: int) -> Any:
    if isinstance(value, Mapping):
        return {k: _part(v, rows, n) for k, v in value.items()}
    single = isinstance(value, str) or np.ndim(value) == 0
    if single or len(value) != n:
        return value
    return np.asarray(value)[rows]


def _weights(model: ForgeClassifier) -> np.ndarray:
    """Gradient (E,) of the patients' log odds by each edge's Fisher z at the mean scan."""
    scored = model.model_.attribution({}).scored
    return slope_at(scored, np.asarray(model.mean_fc_))
