"""The scikit-learn face: ``ForgeClassifier().fit(X, y, site=hospital)``.

>>> from sklearn.pipeline import make_pipeline
>>> from nilearn.connectome import ConnectivityMeasure
>>> make_pipeline(  # doctest: +SKIP
...     ConnectivityMeasure(kind="correlation", vectorize=True), ForgeClassifier()
... ).fit(time_series, diagnosis)
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.model_selection import StratifiedShuffleSplit

from fcforge.core.errors import ConfigError
from fcforge.core.target import Target
from fcforge.estimator import people
from fcforge.estimator.inputs import InputError, as_input_error
from fcforge.estimator.learning import Learns, as_labels
from fcforge.evaluation.attribution import slope_at
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.evaluation.explanation import Explanation, explain_model
from fcforge.imaging.atlas import Atlas
from fcforge_consortium.base_model.quality import probability


class ForgeClassifier(ClassifierMixin, Learns):
    """A continual learner of FC with the methods of scikit-learn.

    `fit` learns from scratch, `partial_fit` goes on; both learn the sites of the given subjects
    one after another, and what the model still knows of the earlier ones is up to the method. No
    site is kept unless the method says so (``fcforge list methods``).

    Settings of the parts can be set one by one as ``method__penalty``, ``model__hidden``,
    ``generator__rank`` or ``training__weight_decay``, in a search over parameters too.

    Parameters
    ----------
    method : str
        Continual-learning method. The default, "analytic", is ridge on the whole matrix
        logarithm of FC with a start's penalty of 1 per feature (`docs/estimator.md` says who it
        was chosen on); ``model__features="centred", method__penalty="gcv"`` is ridge on plain
        edges, the default before version 0.2.
    model : str or None
        Classifier; None takes the one the method works on, or the paper's gcn.
    generator : str or None
        Generator of synthetic subjects, for methods that replay them.
    epochs, batch_size : int
    lr : float or None
        None: the model's own.
    seed : int
        All randomness; results are bitwise repeatable, but for forge_release with a start,
        whose noise is secret.
    method_params, model_params, generator_params, training : dict or None
        Further settings of each (`training` as in `fcforge.core.spec.Training`).
    features : {"fc", "any"}
        "any": columns are arbitrary numbers (selected edges, say), only for edge models
        (linear, mlp); nothing is known about ROIs, so such a model cannot be saved.
    edges : {"nilearn", "upper"}
        Order of vectorised edges: lower triangle row by row, as nilearn's ConnectivityMeasure
        (its diagonal is recognised), or upper triangle row by row, as ``np.triu_indices``.
    kind : {"auto", "fc", "timeseries"}
        What matrices are; "auto" looks at symmetry and diagonal.
    held_out : int
        Synthetic held-out subjects per site, by which a saved model knows strange scans.
    calibrate : {"none", "inner_val"}
        How the temperature of probabilities is found.
    val_fraction : float
        Share of a site's subjects for inner validation, where that is used.
    start : str, path or Exchange, optional
        Public start: what is known of public people, which every site adds its own to.
        "abide-aal" or "abide-cc200" (fetched once, `fcforge consortium base-model --public`), a file of
        `fcforge consortium base-model`, or what `make_public` returned. The default method adds exact sums,
        which must not leave a hospital; ``forge_release`` adds noise (`method_params`: mechanism,
        epsilon, delta). `covariates` of the subjects are given wherever the start removes some.
        Scans of the public people themselves are refused by `fit`, and named when asked about.
    positive : optional
        Which of the two classes of y is the patients, e.g. ``"ASD"``. Of 0 and 1 it is 1, of
        words that say it (ASD and TC) the patients'; of others the second in sorted order, but
        then `save` is refused until it is said.

    Attributes
    ----------
    classes_ : ndarray of shape (2,) or (K,)
        With more than two, which not every method learns, nothing can be explained.
    model_ : Model
        All that was learnt: a chain, or releases around a start.
    receipts_ : tuple of Receipt
        Who was learned. They stay at home; `save` keeps them beside the file.
    sites_ : tuple of str
    n_rois_ : int
    mean_fc_ : ndarray of shape (R, R)
        Mean FC of the people learned from; not part of a saved file, nor are the hashes of scans by
        which one person at two sites is found.
    n_features_in_ : int
    """

    # -- learning --------------------------------------------------------------------------------
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        site: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Learn one more site, or several.

        Parameters
        ----------
        X, y, site, covariates
            As in `fit`; sites are new each time, by default site-1, site-2, ...
        classes : sequence, optional
            All classes, where the first site may lack one; by default those of `y`.
        """
        first = not hasattr(self, "model_")
        return self._learn(X, y, site, covariates, first=first, classes=classes)

    def _learn(
        self,
        X: Any,
        y: Any,
        site: Any,
        covariates: Any,
        *,
        first: bool,
        classes: Any = None,
    ) -> Self:
        numbers, labels = self._checked(X, y, first)
        words = self._words if not first else self._named(labels, classes)
        known = people.some_classes(labels, np.unique(words))
        target = Target(classes=tuple(map(str, words)))
        code = people.coded(labels, words)
        self._learn_all(numbers, code, target, site, covariates, first=first)
        self.classes_ = known
        self._words = words
        called = np.unique(self.predict(X, covariates)).tolist()
        if len(called) == 1 and len(np.unique(labels)) > 1:
            what = f"ForgeClassifier({self.method!r}) calls all {len(labels)} people it has just"
            why = f"learned {called[0]!r}: it has found nothing that tells them apart;"
            do = "give it more people, weaken its penalty, train longer, or choose another model."
            warnings.warn(f"{what} {why} {do}", stacklevel=3)
        return self

    def _named(self, labels: np.ndarray, classes: Any) -> np.ndarray:
        """All classes as a model has them: controls first, or in the order of a start."""
        if self._from_start:
            with as_input_error():
                target = self._opened_start().target
            if target.kind == "number":
                what = f"the start is about {target}, which is no class."
                raise InputError(what, do="Use ForgeRegressor.")
            if target.kind == "more classes":
                return as_labels(target)
        people.refuse_missing([] if classes is None else classes)
        known = np.unique(labels if classes is None else np.asarray(classes))
        if len(people.some_classes(labels, known)) > 2:
            if self.positive is not None:
                what = "positive= is for two classes; the target is more classes."
                raise InputError(what, do="Leave it out.")
            return known
        if self._from_start:
            people.require_stated(known, self.positive)
        patient = people.positive_class(known, self.positive)
        return known if patient == known[1] else known[::-1]

    def _take(self, target: Target) -> None:
        if target.kind == "number":
            what = f"the file is about {target}, which is no class."
            raise ConfigError(what, do="Use ForgeRegressor.load.")
        self.target_ = target
        self._words = as_labels(target)
        self.classes_ = np.unique(self._words)
        if target.kind == "two classes" and self.positive is None:
            self.positive = self._words[1].item()

    # -- using what was learnt ------------------------------------------------------------------
    def decision_function(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Calibrated log odds of ``classes_[1]``, (n,); arguments as in `fit`.

        Of more than two classes the logarithm of the probability of each, (n, K).
        """
        odds = self._asked(X, covariates)
        if odds.ndim == 2:
            return odds[:, np.argsort(self._words)]
        return odds if self._words[1] == self.classes_[1] else -odds

    def predict_proba(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Calibrated probabilities of `classes_`, (n, K); arguments of `decision_function`."""
        odds = self.decision_function(X, covariates)
        if odds.ndim == 2:
            return np.exp(odds)
        p = probability(odds)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any, covariates: Any = None) -> np.ndarray:
        """The likeliest class of each subject, (n,); arguments of `decision_function`."""
        odds = self.decision_function(X, covariates)
        place = odds.argmax(1) if odds.ndim == 2 else (odds > 0).astype(int)
        return self.classes_[place]

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
        if self.target_.kind != "two classes":
            what = (
                f"explanations are for two classes, and this is about {self.target_}."
            )
            raise InputError(what, do="Compare two of the classes.")
        if self.features == "any":
            what = "columns are arbitrary numbers (features='any'), not edges between ROIs."
            raise InputError(what, do="Set features='fc'.")
        columns = people.columns_of(covariates, len(fc))
        against = None
        if hasattr(self, "mean_fc_"):
            against = (self.mean_fc_, "the mean of the people it learned from")
        with as_input_error():
            found = explain_model(
                self.model_, fc, columns, atlas=atlas, reference=against
            )
        return replace(found, positive=str(self._words[1]))


def edge_stability(
    model: ForgeClassifier,
    X: Any,
    y: Any,
    site: Any = None,
    *,
    draws: int = 20,
    seed: int = 0,
) -> EdgeStability:
    """How far trainings on other people agree about each edge.

    Clones of `model` learn random halves of the people, in complementary pairs, each half with
    its share of both classes; what is compared is the weight of each edge at the mean scan.

    Parameters
    ----------
    model : ForgeClassifier
        Fitted or not; it is left as it is.
    X, y, site
        As in `ForgeClassifier.fit`, for instance the people it learned from.
    draws : int
        Trainings; two for each random division in halves.
    seed : int
    """
    labels = np.asarray(y)
    halves = StratifiedShuffleSplit(
        max(1, draws // 2), test_size=0.5, random_state=seed
    )
    weights = []
    for pair in halves.split(np.zeros(len(labels)), labels):
        for half in pair:
            here = site if np.ndim(site) == 0 else np.asarray(site)[half]
            part = X[half] if hasattr(X, "shape") else [X[i] for i in half]
            fitted = clone(model).fit(part, labels[half], here)
            scored, _ = fitted.model_.attribution({})
            weights.append(slope_at(scored, fitted.mean_fc_))
    return EdgeStability.of(np.stack(weights))
