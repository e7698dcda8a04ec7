"""Classifier with the interface of scikit-learn: ``ForgeClassifier().fit(X, y, site=hospital)``.

>>> from sklearn.pipeline import make_pipeline
>>> from nilearn.connectome import ConnectivityMeasure
>>> make_pipeline(  # doctest: +SKIP
...     ConnectivityMeasure(kind="correlation", vectorize=True), ForgeClassifier()
... ).fit(time_series, diagnosis)

Shapes: n subjects, R ROIs, E = R (R - 1) / 2 edges, K classes.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin

from fcforge.core.target import Target
from fcforge.data.checks import MIN_PER_CLASS
from fcforge.data.cohort import Cohort
from fcforge.data.label_codes import are_numbers
from fcforge.data.site_checks import SWAPPED, check_labels, contrast, labels_swapped
from fcforge.estimator import people
from fcforge.estimator.continual import LEARN_ANEW, ContinualEstimator
from fcforge.estimator.inputs import InputError, as_input_error
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.evaluation.explanation import ColumnExplanation, Explanation
from fcforge.evaluation.temperature import probability
from fcforge.imaging.atlas import Atlas


@dataclass(repr=False, eq=False)
class ForgeClassifier(ClassifierMixin, ContinualEstimator):
    """FORGE as a classifier of FC with the interface of scikit-learn.

    `fit` learns from scratch, `partial_fit` continues. Both learn the sites of the given subjects
    one after another. With the defaults this is FORGE on a linear model of the matrix logarithm: a
    generator makes synthetic subjects of every site, HCTS chooses which of them are replayed while
    the next site is learned, and the model is distilled from its earlier answers. No real subject
    is kept. ``ForgeClassifier(model="gcn")`` is the paper's system, ``generator="corr_gauss"`` a
    generator that fits in a second, and ``ForgeClassifier("ridge")`` ridge regression in closed
    form.

    Settings of the parts can be set one by one as ``method__memory``, ``model__hidden``,
    ``generator__latent`` or ``training__weight_decay``, in a search over parameters too.

    Parameters
    ----------
    method : str, Method or None
        Continual-learning method: a name of ``fcforge list methods``, ``"module:Class"``, which
        imports code, or an object such as ``EWC(strength=10.0)``, whose settings
        `method_params` changes. "ridge" is the closed form "analytic". None is FORGE, or ridge
        with ``features="any"``.
    model : str, torch.nn.Module, TorchModule or None
        Classifier: a name of ``fcforge list models``, or ``"module:Class"``, which imports code.
        None is the linear model of the matrix logarithm. A module of PyTorch or PyTorch
        Geometric is trained as it is; `fcforge.TorchModule` says what its ``forward`` gets, and
        ``model__inputs``, ``model__readout`` and ``model__tau`` set it.
    generator : str or None
        Generator of synthetic subjects (``fcforge list generators``). None is "fcm_vae", the
        paper's, for methods that replay synthetic subjects, and no generator for other methods.
        "corr_gauss" fits several times faster; it is also what None means for three or more
        classes, because FCM-VAE generates two. With ``features="any"`` None is "edge_gauss", a
        Gaussian of every column.
    epochs : int or None
        None: 40 for the linear model of FC, 100 for other models.
    batch_size : int
    lr : float or None
        Learning rate. None: 3e-4 for the linear model of FC, the model's own for other models.
    seed : int or None
        Another name of `random_state`.
    method_params, model_params, generator_params, training : dict or None
        Further settings of each (`training` as in `fcforge.core.spec.Training`).
    features : {"fc", "any"}
        "any": columns are arbitrary numbers (selected edges, for example), for the models linear
        and mlp. Standardise them: numbers beyond 24.8 in size are cut, with a warning.
        Generators of correlation matrices are refused then.
    edges : {"nilearn", "upper"}
        Order of vectorised edges: lower triangle row by row, as nilearn's ConnectivityMeasure
        (its diagonal is recognised), or upper triangle row by row, as ``np.triu_indices``.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        Content of X; "auto" looks at symmetry and diagonal of matrices, and takes rows of edges
        for correlations. "fisher_z" holds for matrices and rows; correlations are refused then.
    calibrate : {"none", "inner_val"}
        Source of the temperature of probabilities.
    val_fraction : float
        Share of a site's subjects for inner validation, where that is used.
    positive : optional
        Which of two classes of y means patient, for example ``"ASD"``. The default is 1 of 0 and 1,
        the patients' word of known words (ASD and TC), else the second class in sorted order.
    random_state : int, RandomState or None
        Source of all randomness. With an int, 0 by default, results are bitwise repeatable. None
        draws a seed in every `fit`.
    site_order : sequence of site names, optional
        Order in which the sites of a call are learned; by default that of their first subjects.
    allow_unlike_sites : bool
        Whether a site whose FC looks as if its ROIs were in another order is only a warning.
    verbose : int
        1 prints a line per site, 2 also the progress of generator and network.
    n_jobs : int or None
        Threads that compute scores of new scans, as in joblib. Results do not depend on it.
        Training uses one thread, so that it is bitwise repeatable.
    class_weight : "balanced", mapping of class to weight, or None
        Weights of the classes, which multiply `sample_weight`. "balanced" gives the classes of
        every site equal weight and keeps the site's total.
    allow_unlike_codes : bool
        Whether sites whose codes of the classes differ (0 and 1 at one, 1 and 2 at another) are only a
        warning. True says that every code is a class of its own.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    coef_, intercept_ : ndarray of shape (1 or K, n_features) and (1 or K,)
        Weights and intercepts, if the model is linear, of its features (with ``features="any"`` of
        the columns of X).
    model_ : TrainedModel
        The trained model and the subjects that the method remembers.
    sites_ : tuple of str
        Sites that were learned.
    n_rois_ : int
    mean_fc_ : ndarray of shape (n_rois, n_rois)
        Mean FC of the people learned from. A saved file holds it from ten people on. Hashes of
        scans, by which one person at two sites is found, are never stored.
    n_features_in_ : int
    """

    class_weight: Any = None
    allow_unlike_codes: bool = False

    # -- learning --------------------------------------------------------------------------------
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        site: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn one more site, several, or further subjects of a known site.

        Parameters changed by `set_params` since the last call take effect where they concern
        training or generator; a changed method, model, seed, `positive` or `edges` is refused.

        Parameters
        ----------
        X, y, site, covariates, sample_weight
            As in `fit`. Without a name a site is new: site-1, site-2, ... A named site may
            return with further subjects.
        classes : sequence, optional
            All classes, where the first site may lack one; by default those of `y`. Sites with 0 and 1
            and with 0 and 2, or with 2 and 3, are then no contradiction.

        Returns
        -------
        self
        """
        first = not hasattr(self, "model_")
        return self._learn(
            X, y, site, covariates, sample_weight, first=first, classes=classes
        )

    def _learn(
        self,
        X: Any,
        y: Any,
        site: Any,
        covariates: Any,
        sample_weight: Any,
        *,
        first: bool,
        classes: Any = None,
    ) -> Self:
        """Learn the subjects of one call; arguments are those of `ContinualEstimator._learn`.

        `classes` are as in `partial_fit`.
        """
        if y is not None:
            people.refuse_missing(y)
            people.refuse_mixed_types(y)
        numbers, labels = self._checked(X, y, first)
        people.refuse_missing([] if classes is None else classes)
        counts = self._people_counted(labels, site, sample_weight, first)
        self._check_coding(labels, classes, counts, first)
        # `ordered` has the classes in the order of the model (controls first), `known` sorted
        ordered = self._ordered_classes(labels, classes) if first else self._labels
        known = people.require_classes(labels, np.unique(ordered))
        if self.positive is not None and len(known) == 2:
            patient = people.positive_class(known, self.positive)
            if patient != ordered[1]:
                what = f"positive changed after the first site: {patient!r}, was {ordered[1]!r}."
                raise InputError(what, do=LEARN_ANEW)
        target = self._target(ordered) if first else self.target_
        code = people.coded(labels, ordered)
        self._learn_coded(
            numbers,
            code,
            target,
            site,
            covariates,
            sample_weight,
            first=first,
            class_weight=people.weights_of_classes(self.class_weight, ordered),
        )
        self.classes_ = known
        self._labels = ordered
        self._people_of_class = counts
        self._warn_if_constant(X, labels, covariates, first)
        return self

    def _people_counted(
        self, labels: np.ndarray, site: Any, sample_weight: Any, first: bool
    ) -> dict[str, dict[Any, int]]:
        """Return the number of people of each class at each site, in this call and before.

        People of weight zero are not counted.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Classes of the people of the call, as in `y`.
        site, sample_weight
            As in `partial_fit`.
        first : bool
            Whether this is the first call.
        """
        names = self._site_names(site, len(labels), first)
        weighted = people.weighted(sample_weight, self.class_weight, labels)
        before = {} if first else self._people_of_class
        counts = {name: dict(of_site) for name, of_site in before.items()}
        for name, label in zip(
            names[weighted].tolist(), labels[weighted].tolist(), strict=True
        ):
            of_site = counts.setdefault(name, {})
            of_site[label] = of_site.get(label, 0) + 1
        return counts

    def _check_coding(
        self,
        labels: np.ndarray,
        classes: Any,
        counts: Mapping[str, Mapping[Any, int]],
        first: bool,
    ) -> None:
        """Raise `InputError` for unknown classes, or if sites have other codes for their classes.

        Where the codes of sites are only doubtful, warn.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Classes of the people of the call, as in `y`.
        classes
            As in `partial_fit`.
        counts : mapping of str to mapping
            Number of people of each class at each site, with those of the call.
        first : bool
            Whether this is the first call.
        """
        known = {} if first else self._people_of_class
        assumed = {} if first else self._assumed_people()
        stated = classes if first else self._labels.tolist()
        known_classes = [] if stated is None else np.asarray(stated).tolist()
        controls = min(known_classes, default=None)
        listed = self.features == "any" or {*labels.tolist()} <= {*known_classes}
        people_of_code = {**assumed, **counts}
        if not self.allow_unlike_codes:
            people.require_one_coding(people_of_code, controls, listed=listed)
        if not first:
            people.require_classes(labels, np.unique(self._labels))
        before = {**assumed, **known}
        people.warn_of_coding(people_of_code, before, controls, listed=listed)

    def _assumed_people(self) -> dict[str, dict[Any, int]]:
        """Return numbers of people of the sites whose numbers a file of an earlier version lacks.

        Such a site is taken to have every class. If there are more than two this is a warning, because
        the codes of later sites cannot be compared with its.
        """
        known = self._people_of_class
        labels = self._labels.tolist()
        unknown = [name for name in self.sites_ if name not in known]
        if unknown and not known and len(labels) > 2 and are_numbers(labels):
            message = "It is not known which classes each earlier site has"
            hint = "Check that their codes mean the same at the new site."
            warnings.warn(f"{message}. {hint}", stacklevel=5)
        return {name: dict.fromkeys(labels, MIN_PER_CLASS) for name in unknown}

    def _target(self, classes: np.ndarray) -> Target:
        """Return the target for classes in the order of the model's outputs."""
        return Target(classes=tuple(map(str, classes)))

    def _warn_if_constant(
        self, X: Any, labels: np.ndarray, covariates: Any, first: bool
    ) -> None:
        """Warn if all people of the first call, or of one with several classes, get one class.

        Parameters
        ----------
        X, covariates
            Of the call, as in `fit`.
        labels : ndarray of shape (n,)
            Classes of the people of the call, as in `y`.
        first : bool
            Whether this is the first call.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # learning these people has warned of them
            predicted = np.unique(self.predict(X, covariates)).tolist()
        learned = np.unique(labels).tolist()
        # people of a later site with a single class may all be given that class rightly
        if len(predicted) > 1 or (len(learned) < 2 and not first):
            return
        if len(learned) < 2:
            message = (
                f"all {len(labels)} people learned so far are of class {learned[0]!r}."
            )
            hint = "Check y, or learn a site with other classes before you predict."
            warnings.warn(f"{message} {hint}", stacklevel=4)
            return
        name = f"{type(self).__name__}({self._method_name()!r})"
        message = f"{name} predicts a single class, {predicted[0]!r}, for all {len(labels)} people"
        hint = "Give it more people, weaken its penalty, train longer, or choose another model."
        warnings.warn(f"{message} that it has just learned. {hint}", stacklevel=4)

    def _ordered_classes(self, labels: np.ndarray, classes: Any) -> np.ndarray:
        """Return all classes in the order of the model's outputs: controls first.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Labels of the first call.
        classes : sequence or None
            All classes, if the user states them.
        """
        people.refuse_missing([] if classes is None else classes)
        known = np.unique(labels if classes is None else np.asarray(classes))
        if len(people.require_classes(labels, known)) > 2:
            if self.positive is not None:
                message = "positive= is for two classes; the target is more classes."
                raise InputError(message, do="Leave it out.")
            return known
        patient = people.positive_class(known, self.positive)
        return known if patient == known[1] else known[::-1]

    def _check_diagnoses(
        self, subjects: Cohort, model: Any, stacklevel: int = 5
    ) -> None:
        """Warn of sites whose diagnoses a model of earlier sites finds swapped; only of two classes."""
        if subjects.target.kind != "two classes":
            return
        with as_input_error():
            odds = model.calibrated(subjects.fc, subjects.covariates)
        for name in subjects.site_names:
            members = subjects.site == name
            result = contrast(odds[members], subjects.y[members] == 1)
            if result.p < SWAPPED:  # NaN fails
                n = int(members.sum())
                message = labels_swapped(subjects.target, 0, 1, result, n)
                warnings.warn(
                    f"site '{name}': {message} {check_labels(subjects.target)}",
                    stacklevel=stacklevel,
                )

    # -- predictions ----------------------------------------------------------------------------
    def decision_function(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return calibrated log odds of ``classes_[1]``, (n,), or log probabilities (n, K).

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        odds = self._scores(X, covariates)  # in the order of the model, `_labels`
        if odds.ndim == 2:
            return odds[:, np.argsort(self._labels)]
        return odds if self._labels[1] == self.classes_[1] else -odds

    def predict_proba(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return calibrated probabilities of `classes_`, (n, K).

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        odds = self.decision_function(X, covariates)
        if odds.ndim == 2:
            return np.exp(odds)
        p = probability(odds)
        return np.stack([1.0 - p, p], axis=1)

    def predict_log_proba(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return the logarithms of `predict_proba`, (n, K), without underflow.

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        odds = self.decision_function(X, covariates)
        if odds.ndim == 2:
            return odds
        return -np.logaddexp(0.0, np.stack([odds, -odds], axis=1))

    def predict(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return the likeliest class of each subject, (n,).

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        odds = self.decision_function(X, covariates)
        index = odds.argmax(1) if odds.ndim == 2 else (odds > 0).astype(int)
        return self.classes_[index]

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model: (1, n_features) for two classes, else (K, n_features)."""
        return self._by_class(self._linear_weights()[0])

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of a linear model: (1,) for two classes, else (K,)."""
        return self._by_class(self._linear_weights()[1])

    def _by_class(self, values: np.ndarray) -> np.ndarray:
        """Return values (K, ...) of the model's K outputs in the order of `classes_`.

        For two classes it is the difference of the second and the first, shape (1, ...).
        """
        ordered = values[np.argsort(self._labels)]
        return ordered[1:] - ordered[:1] if len(ordered) == 2 else ordered

    def explain(
        self,
        X: Any,
        covariates: Any = None,
        *,
        atlas: Atlas | None = None,
        target: Any = None,
        reference: np.ndarray | None = None,
        stability: EdgeStability | None = None,
    ) -> Explanation | ColumnExplanation:
        """Return the contribution of every edge to each scan's decision value.

        Scans are compared with the mean of the people that were learned, or with `reference`.
        Contributions are exact for models that are linear in Fisher z, and integrated gradients
        for all others. They speak for the patients' class (`positive`), whichever is first in
        sorted order: `base` plus the contributions are its log odds.

        Parameters
        ----------
        X, covariates
            As in `fit`.
        atlas : Atlas, optional
            Names, networks and places of the ROIs; AAL is known by its names.
        target : optional
            Class to explain, by its log odds against all others; required for more than two
            classes.
        reference : ndarray of shape (R, R) or (n, R, R), optional
            FC of one scan, or of several whose mean is taken.
        stability : EdgeStability, optional
            Result of `edge_stability`, which tables then show.

        Returns
        -------
        Explanation, or ColumnExplanation with ``features="any"``
        """
        output = self._output_of(target)
        positive = str(self._labels.tolist()[output])
        return self._explain(
            X,
            covariates,
            output,
            positive,
            atlas=atlas,
            reference=reference,
            stability=stability,
        )

    def _output_of(self, target: Any) -> int:
        """Return the output of the class whose log odds are explained; by default the patients'."""
        classes = self._labels.tolist()
        if target is None and len(classes) > 2:
            what = "which of the classes to explain is not stated."
            raise InputError(what, do=f"Give target=, one of {classes}.")
        if target is not None and target not in classes:
            raise InputError(f"target={target!r} is none of {classes}.")
        return 1 if target is None else classes.index(target)

    # -- files -----------------------------------------------------------------------------------
    @classmethod
    def _file_kind(cls) -> Literal["ForgeClassifier", "ForgeRegressor"]:
        return "ForgeClassifier"

    def _stored_labels(self) -> list[Any]:
        return [label.item() for label in np.array(self._labels)]

    def _restore_labels(self, labels: Sequence[Any]) -> None:
        self._labels = np.array(labels)
        self.classes_ = np.unique(self._labels)

    def _stored_people(self) -> dict[str, list[int]]:
        labels = self._stored_labels()
        return {
            site: [people.get(label, 0) for label in labels]
            for site, people in self._people_of_class.items()
        }

    def _restore_people(self, people: Mapping[str, Sequence[int]]) -> None:
        labels = self._labels.tolist()
        self._people_of_class = {
            site: {label: n for label, n in zip(labels, counts, strict=True) if n}
            for site, counts in people.items()
        }
        self._sites_of_class = {
            k: frozenset(site for site, counts in people.items() if counts[k])
            for k in range(len(labels))
            if any(counts[k] for counts in people.values())
        }
