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
        self,
        X: Any,
        covariates: Any = None,
        *,
        reference: np.ndarray | None = None,
        atlas: Atlas | None = None,
        stability: Stability | None = None,
    ) -> Explanation:
        """Which edges, ROIs and networks moved each scan's decision value.

        Exact for models that are linear in Fisher z, integrated gradients for all others. They
        are for the patients' class (`positive`), whichever is first in sorted order: `base` plus
        the contributions are its log odds.

        Parameters
        ----------
        X, covariates
            As in `decision_function`.
        reference : ndarray of shape (R, R) or (n, R, R), optional
            Scan to compare with; by default the mean of the people it learned from (of a loaded
            file: of its synthetic or public people).
        atlas : Atlas, optional
            Names, networks and places of the ROIs; AAL is known by its names.
        stability : Stability, optional
            Of `edge_stability`; says which edges are stable.
        """
        fc = self._scans(X)
        self._require_edges(stability)
        columns = columns_of(covariates, len(fc))
        given = _given(reference, self.n_rois_)
        against = self._reference()
        if given is not None:
            against = (given, "the reference that was given")
        with as_input_error():
            self.model_.calibrated(fc, columns)  # says which covariate is missing
            found = explain_model(
                self.model_, fc, columns, atlas=atlas, reference=against
            )
        return replace(found, stability=stability, positive=str(self._words[1]))

    def _reference(self) -> tuple[np.ndarray, str]:
        """The scan (R, R) that others are held against, and who it is."""
        if hasattr(self, "mean_fc_"):
            return self.mean_fc_, "the mean of the people it learned from"
        return self.model_.reference()

    def _require_edges(self, stability: Stability | None) -> None:
        """Refuse a model without edges, and the stability of another model."""
        if self.target_.kind != "two classes":
            what = (
                f"explanations are for two classes, and this is about {self.target_}."
            )
            raise InputError(what, do="Compare two of the classes.")
        if self.features == "any":
            what = "columns are arbitrary numbers (features='any'), not edges between ROIs."
            raise InputError(what, do="Set features='fc'.")
        n_edges = self.n_rois_ * (self.n_rois_ - 1) // 2
        if stability is not None and len(stability.weight) != n_edges:
            what = f"the stability is of {len(stability.weight)} edges, the model has {n_edges}."
            raise InputError(
                what, do="Measure it with edge_stability on scans of the same ROIs."
            )


def _given(reference: np.ndarray | None, n_rois: int) -> np.ndarray | None:
    """The reference as one FC matrix; several are averaged."""
    if reference is None:
        return None
    found = np.asarray(reference, dtype=float)
    found = found.mean(0) if found.ndim == 3 else found
    square = found.shape == (n_rois, n_rois)
    if not square or not (np.abs(found) <= 1.0 + 1e-6).all():
        what = f"the reference has the shape {np.shape(reference)}, or is not a correlation matrix."
        do = f"Give FC of shape ({n_rois}, {n_rois}), or (n, {n_rois}, {n_rois}) to average."
        raise InputError(what, do=do)
    return found


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
