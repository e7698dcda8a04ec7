"""The scikit-learn face: ``ForgeClassifier().partial_fit(X, y, site="NYU")``.

>>> from sklearn.pipeline import make_pipeline
>>> from nilearn.connectome import ConnectivityMeasure
>>> make_pipeline(  # doctest: +SKIP
...     ConnectivityMeasure(kind="correlation", vectorize=True), ForgeClassifier()
... ).fit(time_series, diagnosis)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fcforge.components import check_names
from fcforge.errors import ConfigError, FCForgeError
from fcforge.estimator.inputs import (
    InputError,
    Layout,
    as_site,
    edges_as_fc,
    layout_of,
    numbers_as_fc,
    positive_class,
    require_stated,
    to_matrices,
    two_classes,
)

if TYPE_CHECKING:
    from fcforge.capsule.contents import Capsule, ChainSettings
    from fcforge.consortium import Consortium, Home

Covariates = Mapping[str, Any] | None
RELEASES = "forge_release"


class ForgeClassifier(ClassifierMixin, BaseEstimator):
    """A continual learner of FC with the methods of scikit-learn.

    `fit` learns one site from scratch; `partial_fit` learns one more site, and what the model
    still knows of the earlier ones is up to the method. No site is kept unless the method says
    so (``fcforge list methods``).

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

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    capsule_ : Capsule or Consortium
        All that was learnt.
    home_ : Home
        Of ``forge_release``: who was in each release. It stays at home.
    sites_ : tuple of str
    n_rois_ : int
    n_features_in_ : int
    """

    capsule_: Capsule | Consortium
    home_: Home
    classes_: np.ndarray

    def __init__(
        self,
        method: str = "analytic",
        model: str | None = None,
        generator: str | None = None,
        epochs: int = 100,
        batch_size: int = 32,
        lr: float | None = None,
        seed: int = 0,
        method_params: Mapping[str, Any] | None = None,
        model_params: Mapping[str, Any] | None = None,
        generator_params: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        features: Literal["fc", "any"] = "fc",
        edges: Literal["nilearn", "upper"] = "nilearn",
        kind: Literal["auto", "fc", "timeseries"] = "auto",
        held_out: int = 0,
        calibrate: Literal["none", "inner_val", "synthetic"] = "none",
        val_fraction: float = 0.2,
        start: Any = None,
        positive: Any = None,
    ) -> None:
        self.method = method
        self.model = model
        self.generator = generator
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.seed = seed
        self.method_params = method_params
        self.model_params = model_params
        self.generator_params = generator_params
        self.training = training
        self.features = features
        self.edges = edges
        self.kind = kind
        self.held_out = held_out
        self.calibrate = calibrate
        self.val_fraction = val_fraction
        self.start = start
        self.positive = positive

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = self.features == "fc"
        return tags

    # -- learning --------------------------------------------------------------------------------
    def fit(
        self, X: Any, y: Any, site: str = "site-1", covariates: Covariates = None
    ) -> ForgeClassifier:
        """Learn one site from scratch.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y : array of shape (n,)
            Any two classes; see `positive`.
        site : str
            Its name decides the randomness together with `seed`.
        covariates : mapping of name to array of shape (n,), optional
            What the start removes (``forge_release``).
        """
        return self._learn(X, y, site, None, covariates, first=True)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        site: str | None = None,
        covariates: Covariates = None,
    ) -> ForgeClassifier:
        """Learn one more site.

        Parameters
        ----------
        X, y
            As in `fit`; one hospital's subjects.
        classes : sequence of two, optional
            All classes, where the first site may lack one; by default those of `y`.
        site : str, optional
            Name of the hospital, new each time; by default site-1, site-2, ...
        covariates
            As in `fit`.
        """
        first = not hasattr(self, "capsule_")
        name = site or f"site-{1 if first else len(self.capsule_.sites) + 1}"
        return self._learn(X, y, name, classes, covariates, first=first)

    def _learn(
        self,
        X: Any,
        y: Any,
        site: str,
        classes: Sequence[Any] | None,
        covariates: Covariates,
        *,
        first: bool,
    ) -> ForgeClassifier:
        if y is None:
            raise InputError("ForgeClassifier requires y to be passed, but the target y is None.")
        fc, labels, layout = self._read(X, y, reset=first)
        known = labels if classes is None else np.asarray(classes)
        known = two_classes(labels, np.unique(known) if first else self.classes_)
        try:
            patient = positive_class(known, self.positive)
            code = (labels == patient).astype(np.int64)
            if self.method == RELEASES:
                require_stated(known, self.positive)
                self._add_release(fc, code, site, covariates, first=first)
            else:
                control = known[0] if patient == known[1] else known[1]
                self._add_link(fc, code, site, np.array([control, patient]), first=first)
        except FCForgeError as error:
            raise InputError(error.what, where=error.where, do=error.do) from error
        self.classes_, self._layout = known, layout
        self._second_is_patient = bool(patient == known[1])
        self.sites_, self.n_rois_ = self.capsule_.sites, fc.shape[1]
        return self

    def _add_link(
        self, fc: np.ndarray, code: np.ndarray, site: str, known: np.ndarray, *, first: bool
    ) -> None:
        from fcforge.capsule.learning import learn_next

        before: Any = None if first else self.capsule_
        settings = self._settings(fc.shape[1], known) if first else before.settings
        self.capsule_ = learn_next(before, settings, as_site(fc, code, site, settings))

    def _add_release(
        self, fc: np.ndarray, code: np.ndarray, site: str, covariates: Covariates, *, first: bool
    ) -> None:
        from fcforge.consortium import Home
        from fcforge.estimator.releases import add_release, begin

        if self.features != "fc":
            raise ConfigError("releases speak about FC.", do="Set features='fc'.")
        group: Any = begin(self.start) if first else self.capsule_
        home = Home() if first else self.home_
        self.capsule_, self.home_ = add_release(
            group, home, fc, code, site, covariates, self.method_params
        )

    def _settings(self, n_rois: int, classes: np.ndarray) -> ChainSettings:
        from fcforge.capsule.contents import settings_for
        from fcforge.methods import METHODS
        from fcforge.types import Component, LearnerSpec, Training

        def part(name: str, params: Mapping[str, Any] | None) -> Component:
            return Component(name, dict(params or {}))

        method = METHODS.get(self.method)
        model = self.model or next(iter(method.models if method else ()), "gcn")
        if self.features == "any" and model not in ("linear", "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        own = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        check_names("training setting", self.training or {}, [f.name for f in fields(Training)])
        training = Training(**{**own, **(self.training or {})})
        generator = part(self.generator, self.generator_params) if self.generator else None
        learner = LearnerSpec(
            part(self.method, self.method_params), part(model, self.model_params), generator
        )
        return settings_for(
            learner,
            n_rois,
            seed=self.seed,
            training=training,
            val_fraction=self.val_fraction,
            held_out=self.held_out,
            calibrate=self.calibrate,
            classes=tuple(classes.tolist()),  # control, patient
        )

    # -- reading X -------------------------------------------------------------------------------
    def _read(
        self, X: Any, y: Any = None, *, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, Layout | None]:
        """FC (n, R, R), labels and the layout of vectorised edges."""
        X = to_matrices(X, self.kind) if self.features == "fc" else X
        common = {"reset": reset, "dtype": "numeric", "allow_nd": self.features == "fc"}
        if y is None:
            X, labels = validate_data(self, X, **common), np.zeros(0)
        else:
            X, labels = validate_data(self, X, y, **common)
            check_classification_targets(labels)
            labels = column_or_1d(labels, warn=True)
        X = np.asarray(X, dtype=np.float64)
        if X.ndim > 3:
            raise InputError(f"Found array with dim {X.ndim}, expected 2 or 3.")
        if self.features == "any":
            return numbers_as_fc(X), labels, None
        if X.ndim == 3:
            return X.astype(np.float32), labels, None
        layout = layout_of(X, self.edges) if reset else self._layout
        return edges_as_fc(X, layout or layout_of(X, self.edges)), labels, layout

    # -- using what was learnt ------------------------------------------------------------------
    def decision_function(self, X: Any, covariates: Covariates = None) -> np.ndarray:
        """Calibrated log odds of ``classes_[1]``, (n,)."""
        import torch

        from fcforge.capsule.judging import scores
        from fcforge.runner.learners import build_learner
        from fcforge.speed import one_thread

        check_is_fitted(self, "capsule_")
        fc, _, _ = self._read(X, reset=False)
        if fc.shape[1] != self.n_rois_:
            raise InputError(f"X has {fc.shape[1]} ROIs, the model {self.n_rois_}.")
        if self.method == RELEASES:
            from fcforge.estimator.releases import log_odds

            return self._of_second(log_odds(self.capsule_, fc, covariates))  # type: ignore[arg-type]
        capsule: Any = self.capsule_
        learner = build_learner(capsule.settings.learner, self.n_rois_)
        x = torch.from_numpy(np.ascontiguousarray(fc))
        with one_thread():
            # one by one: a subject's score must not depend on who else is asked about
            u = torch.cat([scores(learner, capsule.lane, x[i : i + 1]) for i in range(len(x))])
        u = u.double() / capsule.temperature
        return self._of_second((u[:, 1] - u[:, 0]).numpy())

    def _of_second(self, odds: np.ndarray) -> np.ndarray:
        """Log odds of ``classes_[1]`` from those of the patients."""
        return odds if self._second_is_patient else -odds

    def predict_proba(self, X: Any, covariates: Covariates = None) -> np.ndarray:
        """Calibrated probabilities of `classes_`, (n, 2)."""
        odds = self.decision_function(X, covariates)
        p = 0.5 * (1.0 + np.tanh(0.5 * odds))
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any, covariates: Covariates = None) -> np.ndarray:
        """The likelier class of each subject, (n,)."""
        odds = self.decision_function(X, covariates)
        return self.classes_[(odds > 0).astype(int)]

    # -- capsules --------------------------------------------------------------------------------
    def to_capsule(
        self,
        path: str | Path,
        *,
        key: Any = None,
        allow_real_subjects: bool = False,
        overwrite: bool = False,
    ) -> str:
        """Seal what was learnt (no pickle); returns the capsule's id."""
        from fcforge.capsule.receipts import receipt_of, write_receipt
        from fcforge.capsule.sealing import seal

        check_is_fitted(self, "capsule_")
        if self.features == "any":
            raise ConfigError("only models of FC can be handed over.", do="Set features='fc'.")
        if self.method == RELEASES:
            return self._write_group(path, key, overwrite)
        require_stated(self.classes_, self.positive)
        allowed = {"allow_real_subjects": allow_real_subjects, "overwrite": overwrite}
        sealed: Capsule = seal(self.capsule_, path, key=key, **allowed)  # type: ignore[arg-type]
        self.capsule_ = sealed
        if sealed.receipt is not None:
            write_receipt(sealed.receipt, receipt_of(path))
        return sealed.id

    def _write_group(self, path: str | Path, key: Any, overwrite: bool) -> str:
        from fcforge.consortium import write_consortium

        if key is not None:
            raise ConfigError(
                "a release is signed when it is made.", do="Use `fcforge learn --sign`."
            )
        group: Any = self.capsule_
        write_consortium(group, path, overwrite=overwrite)
        return group.digest

    @classmethod
    def from_capsule(
        cls, path: str | Path, *, trusted: Sequence[str] = (), **params: Any
    ) -> ForgeClassifier:
        """Estimator of a capsule, ready to predict or to learn the next site.

        Parameters
        ----------
        path : path
        trusted : sequence of str
            As in `fcforge.capsule.open_capsule`.
        **params
            How X is read: `edges`, `kind`.
        """
        from fcforge.capsule.opening import open_capsule
        from fcforge.consortium.files import is_consortium

        if is_consortium(path):
            return cls._from_group(path, trusted, params)
        capsule = open_capsule(path, trusted=trusted)
        settings, learner = capsule.settings, capsule.settings.learner
        training = asdict(settings.training)
        made = cls(
            method=learner.method.name,
            model=learner.model.name,
            generator=learner.generator.name if learner.generator else None,
            method_params=dict(learner.method.params),
            model_params=dict(learner.model.params),
            generator_params=dict(learner.generator.params) if learner.generator else None,
            **{name: training.pop(name) for name in ("epochs", "batch_size", "lr")},
            training=training,
            seed=settings.seed,
            held_out=settings.held_out,
            calibrate=settings.calibrate,
            val_fraction=settings.val_fraction,
            positive=settings.classes[1],
            **params,
        )
        made.capsule_, made.sites_, made.n_rois_ = capsule, capsule.sites, settings.n_rois
        made.classes_, made._layout = np.unique(np.array(settings.classes)), None
        made._second_is_patient = bool(settings.classes[1] == made.classes_[1])
        return made

    @classmethod
    def _from_group(
        cls, path: str | Path, trusted: Sequence[str], params: Mapping[str, Any]
    ) -> ForgeClassifier:
        from fcforge.consortium import Home, read_consortium
        from fcforge.consortium.trusting import require_trusted

        group = read_consortium(path)
        require_trusted(group.records, trusted, str(path))
        made = cls(method=RELEASES, start=str(path), **params)
        made.capsule_, made.home_, made._layout = group, Home(), None
        made.sites_, made.n_rois_ = group.sites, group.start.n_rois
        made.classes_, made._second_is_patient = np.array([0, 1]), True
        return made
