"""The scikit-learn face: ``ForgeClassifier().fit(X, y, site=hospital)``.

>>> from sklearn.pipeline import make_pipeline
>>> from nilearn.connectome import ConnectivityMeasure
>>> make_pipeline(  # doctest: +SKIP
...     ConnectivityMeasure(kind="correlation", vectorize=True), ForgeClassifier()
... ).fit(time_series, diagnosis)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from fcforge.capsule.judging import scores
from fcforge.estimator import people
from fcforge.estimator.explaining import Explains, head_of
from fcforge.estimator.inputs import InputError, Layout, any_layout, as_input_error
from fcforge.estimator.learning import Learns, log_odds
from fcforge.estimator.parts import RELEASES
from fcforge.exchange.scan_checks import probability
from fcforge.runner.learners import build_learner
from fcforge.speed import one_thread


class ForgeClassifier(ClassifierMixin, Learns, Explains):
    """A continual learner of FC with the methods of scikit-learn.

    `fit` learns from scratch, `partial_fit` goes on; both learn the sites of the given subjects
    one after another, and what the model still knows of the earlier ones is up to the method. No
    site is kept unless the method says so (``fcforge list methods``).

    Settings of the parts can be set one by one as ``method__penalty``, ``model__hidden``,
    ``generator__rank`` or ``training__weight_decay``, in a search over parameters too.

    Parameters
    ----------
    method : str
        Continual-learning method.
    model : str or None
        Classifier; None takes the one the method works on, or the paper's gcn.
    generator : str or None
        Generator of synthetic subjects, for methods that replay them.
    epochs, batch_size : int
    lr : float or None
        None: the model's own.
    seed : int
        All randomness; results are bitwise repeatable.
    method_params, model_params, generator_params, training : dict or None
        Further settings of each (`training` as in `fcforge.types.Training`).
    features : {"fc", "any"}
        "any": columns are arbitrary numbers (selected edges, say), only for edge models
        (linear, mlp); nothing is known about ROIs, so such a model cannot become a capsule.
    edges : {"nilearn", "upper"}
        Order of vectorised edges: lower triangle row by row, as nilearn's ConnectivityMeasure
        (its diagonal is recognised), or upper triangle row by row, as ``np.triu_indices``.
    kind : {"auto", "fc", "timeseries"}
        What matrices are; "auto" looks at symmetry and diagonal.
    held_out : int
        Synthetic held-out subjects per site, for capsules that can judge themselves.
    calibrate : {"none", "inner_val", "synthetic"}
        How the temperature of probabilities is found.
    val_fraction : float
        Share of a site's subjects for inner validation, where that is used.
    start : path, PublicStart or Consortium, optional
        Public start of method ``forge_release``: every site adds a release around it
        (`method_params`: mechanism, epsilon, delta), and `covariates` of the subjects are given
        wherever the start removes some.
    positive : optional
        Which of the two classes of y is the patients, e.g. ``"ASD"``. Of 0 and 1 it is 1, of
        words that say it (ASD and TC) the patients'; of others the second in sorted order, but
        then a capsule is refused until it is said.
    site_order : sequence, optional
        Order in which the sites of `site` are learned, all of them named; by default that of
        their appearance. Sites that are not among the subjects (left out by a fold) are passed
        over.
    class_weight : dict, "balanced" or None
        What each subject of a class counts, as in scikit-learn ("balanced": over all subjects of
        a call). Only for methods that weigh exactly, i.e. "analytic".
    verbose : bool
        Show on stderr how far `fit` is, site by site, with the time that is left.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    capsule_ : Capsule or Consortium
        All that was learnt.
    home_ : Home
        Of ``forge_release``: who was in each release. It stays at home.
    sites_ : tuple of str
    n_rois_ : int
    mean_fc_ : ndarray of shape (R, R)
        Mean FC of the people learned from; not part of a capsule, nor are the hashes of scans by
        which one person at two sites is found.
    n_features_in_ : int
    coef_ : ndarray of shape (1, edges)
        Of a linear model of Fisher-z edges: weight of each column of X (of each edge in the
        order `edges`, where X holds matrices), so that `decision_function` is
        ``arctanh(X) @ coef_[0] + intercept_``; with features="any" it is
        ``X @ coef_[0] + intercept_``. Other models have no `coef_`.
    intercept_ : ndarray of shape (1,)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = self.features == "fc"
        return tags

    # -- learning --------------------------------------------------------------------------------
    def fit(
        self,
        X: Any,
        y: Any,
        site: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
    ) -> ForgeClassifier:
        """Learn from scratch, one site after another.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y : array of shape (n,)
            Any two classes; see `positive`.
        site : array of shape (n,), str or int, optional
            Site of each subject, or one for all; None is one site, "site-1". Names are texts or
            whole numbers (1, 1.0 and "1" are one site); an empty or missing one is refused. The
            names decide the randomness together with `seed`.
        covariates : mapping or data frame of columns of shape (n,), optional
            What the start removes (``forge_release``).
        sample_weight : array of shape (n,), optional
            What each subject counts, exactly; see `class_weight`.
        """
        return self._learn(X, y, None, site, covariates, sample_weight, first=True)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        site: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
    ) -> ForgeClassifier:
        """Learn one more site, or several.

        Parameters
        ----------
        X, y, site, covariates, sample_weight
            As in `fit`; sites are new each time, by default site-1, site-2, ...
        classes : sequence of two, optional
            All classes, where the first site may lack one; by default those of `y`.
        """
        first = not hasattr(self, "capsule_")
        return self._learn(X, y, classes, site, covariates, sample_weight, first=first)

    def _learn(
        self,
        X: Any,
        y: Any,
        classes: Any,
        site: Any,
        covariates: Any,
        weight: Any,
        *,
        first: bool,
    ) -> ForgeClassifier:
        if y is None:
            raise InputError(
                "ForgeClassifier requires y to be passed, but the target y is None."
            )
        X, labels = self._validate(X, y, reset=first)
        known = np.unique(labels if classes is None else np.asarray(classes))
        known = people.two_classes(labels, known if first else self.classes_)
        weight = people.weights_of(X, labels, weight, self.class_weight, self.method)
        n_sites = 0 if first else len(self.capsule_.sites)
        names = people.site_names(site, len(X), f"site-{n_sites + 1}")
        order = tuple(people.in_order(names, self.site_order))
        columns = people.columns_of(covariates, len(X))
        fc, layout = self._as_fc(X, None if first else self._layout)
        patient = people.positive_class(known, self.positive)
        code = (labels == patient).astype(np.int64)
        subjects = people.OwnPeople(fc, code, names, order, weight, columns)
        scans = {} if first else self._scan_sites
        if self.features == "fc":
            scans = people.told_apart(subjects, scans, named=site is not None)
        with as_input_error():
            self._learn_sites(subjects, known, patient, first)
        self.classes_, self._layout, self._scan_sites = known, layout, scans
        self._second_is_patient = bool(patient == known[1])
        self.sites_, self.n_rois_ = tuple(self.capsule_.sites), fc.shape[1]
        self._look_back(subjects, 0 if first else self._n_seen)
        return self

    def _look_back(self, subjects: people.OwnPeople, seen: int) -> None:
        """Mean of all that were learned; warn where those of this call are called the same."""
        fc = subjects.fc
        self._n_seen = seen + len(fc)
        total = fc.sum(0, dtype=np.float64) + (seen * self.mean_fc_ if seen else 0.0)
        self.mean_fc_ = total / self._n_seen
        called = self._odds(fc, subjects.columns, len(fc)) > 0
        if len(np.unique(subjects.code)) == 2 and len(np.unique(called)) == 1:
            named = self.classes_.tolist()[int(called[0])]
            what = f"ForgeClassifier({self.method!r}) calls all {len(fc)} people it has just"
            why = f"learned {named!r}: it has found nothing that tells them apart;"
            do = "give it more people, weaken its penalty, train longer, or choose another model."
            warnings.warn(f"{what} {why} {do}", stacklevel=4)

    # -- using what was learnt ------------------------------------------------------------------
    def decision_function(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Calibrated log odds of ``classes_[1]``, (n,); arguments as in `fit`."""
        fc = self._scans(X)
        # one by one: a subject's score must not depend on who else is asked about
        return self._odds(fc, people.columns_of(covariates, len(fc)), 1)

    def _odds(
        self, fc: np.ndarray, columns: Mapping[str, np.ndarray], size: int
    ) -> np.ndarray:
        """Log odds of ``classes_[1]`` of FC (n, R, R), so many scans at a time."""
        capsule: Any = self.capsule_
        if self.method == RELEASES:
            return self._of_second(log_odds(capsule, fc, columns))
        learner = build_learner(capsule.settings.learner, self.n_rois_)
        with one_thread():
            parts = torch.from_numpy(np.ascontiguousarray(fc)).split(size)
            u = torch.cat([scores(learner, capsule.lane, x) for x in parts])
        u = u.double() / capsule.temperature
        return self._of_second((u[:, 1] - u[:, 0]).numpy())

    def _scans(self, X: Any) -> np.ndarray:
        """FC (n, R, R) of new scans, with the model's ROIs."""
        check_is_fitted(self, "capsule_")
        numbers, _ = self._validate(X, reset=False)
        fc, _ = self._as_fc(numbers, self._layout)
        if fc.shape[1] != self.n_rois_:
            raise InputError(f"X has {fc.shape[1]} ROIs, the model {self.n_rois_}.")
        return fc

    def _of_second(self, odds: np.ndarray) -> np.ndarray:
        """Log odds of ``classes_[1]`` from those of the patients."""
        return odds if self._second_is_patient else -odds

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the columns of X, (1, edges)."""
        return self._linear()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Log odds where all edges are zero, (1,)."""
        return self._linear()[1]

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self, "capsule_")
        weight, bias = head_of(self.capsule_, in_z=self.features == "fc")
        if self.features == "any":
            layout, p = any_layout(self.n_features_in_), self.n_features_in_
        else:
            layout = self._layout or Layout(self.n_rois_, self.edges, False)
            p = len(layout.indices()[0])
        rows, cols = (index[:p] for index in layout.indices())
        return self._of_second(weight[rows, cols][None]), self._of_second(
            np.array([bias])
        )

    def predict_proba(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Calibrated probabilities of `classes_`, (n, 2); arguments of `decision_function`."""
        p = probability(self.decision_function(X, covariates))
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any, covariates: Any = None) -> np.ndarray:
        """The likelier class of each subject, (n,); arguments of `decision_function`."""
        odds = self.decision_function(X, covariates)
        return self.classes_[(odds > 0).astype(int)]
