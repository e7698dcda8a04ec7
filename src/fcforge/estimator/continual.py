"""Base of the estimators: learning site after site, scores, explanations and files.

Shapes: n subjects, R ROIs, T volumes of a time series, K classes.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.names import check_names
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.matrices import Layout
from fcforge.data.person_checks import Group, person_faults, unlike_sites
from fcforge.data.scan_checks import MIN_ROIS, fisher_z, unlike_learned
from fcforge.data.site_checks import scan_fault, site_faults
from fcforge.estimator import people as people_module
from fcforge.estimator import storage
from fcforge.estimator.inputs import (
    COLUMN_SCALE,
    InputError,
    as_input_error,
    fc_as_numbers,
    numbers_as_fc,
)
from fcforge.estimator.parameters import LearnerParameters
from fcforge.estimator.progress import Progress
from fcforge.estimator.trained import ExplainedOutput, SiteSettings, TrainedModel
from fcforge.evaluation.attribution import attribute
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.evaluation.explanation import ColumnExplanation, Explanation, explain_model
from fcforge.imaging.atlas import Atlas
from fcforge.methods import Method
from fcforge.models.torch_module import TorchModule

LEARN_ANEW = "Learn from scratch with fit, or set it back."
# smallest number of people whose model checks the diagnoses of the next site of `fit`; with 20 one correct
# site of 152 looked swapped on ABIDE I (20 sites, 8 orders), with 50 none
FEWEST_TO_CHECK = 50
CHECK_ROW = (
    "Check the order of its ROIs; if it cannot be corrected, leave the subject out."
)
FEWEST_STORED = 10  # smallest number of people whose mean FC is stored


class Fitted(LearnerParameters):
    """Attributes that `fit` sets."""

    model_: Any
    target_: Target
    classes_: np.ndarray
    sites_: tuple[str, ...]
    n_rois_: int
    mean_fc_: np.ndarray
    _visits: tuple[str, ...] = ()
    _site_of_scan: Mapping[str, str] = {}
    _sites_of_class: Mapping[int, frozenset[str]] = {}
    _people_of_class: Mapping[str, Mapping[Any, int]] = {}  # by site and class
    _n_seen: int = 0
    _layout: Layout | None = None
    _labels: np.ndarray  # classes in the order of the model, controls first


class ContinualEstimator(Fitted, ABC):
    """Base of estimators that learn one site after another.

    `ForgeClassifier` documents the parameters.
    """

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: X may have three dimensions unless its columns are numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.features == "fc"
        return tags

    # -- learning ----------------------------------------------------------------------------------
    def fit(
        self,
        X: Any,
        y: Any,
        site: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from scratch, one site after another.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y : array of shape (n,)
            Two classes (see `positive`) or more for a classifier; numbers for a regressor.
        site : array of shape (n,), str or int, optional
            Site of each subject, or one for all; None is one site, "site-1". Names are texts or
            whole numbers (1, 1.0 and "1" are one site); an empty or missing one is refused. The
            names decide the randomness together with `random_state`. Sites are learned in the
            order of their first subjects, or in that of `site_order`.
        covariates : mapping or data frame of columns of shape (n,), optional
            Not used by this estimator; estimators with a base model may need them.
        sample_weight : array of shape (n,), optional
            Weights of the subjects, at least zero. In closed forms a weight of 2 equals the same
            subject twice. Methods that train draw a subject in proportion to its weight, into the
            batches of its site and, while it or its class is replayed, later. A subject of weight
            zero is left out.

        Returns
        -------
        self
        """
        with self._columns_kept_on_failure():
            return self._learn(X, y, site, covariates, sample_weight, first=True)

    @abstractmethod
    def _learn(
        self,
        X: Any,
        y: Any,
        site: Any,
        covariates: Any,
        sample_weight: Any,
        *,
        first: bool,
    ) -> Self:
        """Learn the subjects of one call of `fit` or `partial_fit`.

        Parameters
        ----------
        X, y, site, covariates, sample_weight
            As in `fit`.
        first : bool
            Whether to learn from scratch.
        """

    def _checked(self, X: Any, y: Any, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return X and y of a call as arrays; a missing y raises `InputError`."""
        if y is None:
            message = "requires y to be passed, but the target y is None."
            raise InputError(f"{type(self).__name__} {message}")
        people_module.refuse_missing(y)
        return self._validate(X, y, reset=first)

    @contextmanager
    def _columns_kept_on_failure(self) -> Iterator[None]:
        """Set the columns that `fit` read back if it fails: the fitted model knows the former ones."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in names if name in vars(self)}
        try:
            yield
        except BaseException:
            if hasattr(self, "model_"):
                for name in names:
                    self.__dict__.pop(name, None)
                self.__dict__.update(before)
            raise

    def _learn_coded(
        self,
        X: np.ndarray,
        code: np.ndarray,
        target: Target,
        site: Any,
        covariates: Any,
        sample_weight: Any,
        *,
        first: bool,
        class_weight: Any = None,
    ) -> None:
        """Learn the subjects of a call, whose targets are coded as the model learns them.

        The estimator is left as it was unless all of them could be learned.

        Parameters
        ----------
        X : ndarray
            As `_validate` returns it.
        code : ndarray of shape (n,)
            Number of each subject's class in the order of the model, or scaled numbers.
        target : Target
        site, covariates, sample_weight
            As in `fit`.
        first : bool
            Whether to learn from scratch.
        class_weight : "balanced", or ndarray of shape (K,), optional
            Weight of each class in the order of the model.
        """
        if not first and self._layout is not None and self._layout.order != self.edges:
            message = f"edges changed after the first site: {self.edges!r}, was {self._layout.order!r}."
            raise InputError(message, do=LEARN_ANEW)
        if first:
            self._warn_of_unused_generator()
        names = self._site_names(site, len(X), first)
        sites_before = () if first else self.sites_
        people_module.compare_site_names(names, sites_before)
        if site is not None:
            people_module.refuse_a_site_each(names, sites_before)
        fc, layout = self._as_fc(X, None if first else self._layout)
        columns = people_module.columns_of(covariates, len(X))
        weight = people_module.training_weights(
            sample_weight, class_weight, code, names
        )
        subjects = Cohort(
            name="estimator",
            fc=fc,
            y=code,
            site=as_text(names.tolist()),
            subject_id=people_module.scan_hashes(fc),
            covariates=columns,
            target=target,
            allow_unlike_sites=self.allow_unlike_sites,
            weight=weight,
        )
        row_of = {name: row for row, name in enumerate(subjects.subject_id.tolist())}
        if weight is not None and not weight.all():
            subjects = subjects.select(weight > 0)
            fc = subjects.fc
        hashes = {} if first else self._site_of_scan  # site of each scan by its hash
        sites_of_class = {} if first else self._sites_of_class
        if target.classes:
            sites_of_class = people_module.warn_of_confounding(
                subjects, sites_of_class, sites_before
            )
        doubted: Set[str] = frozenset()
        if self.features == "fc":
            hashes = people_module.require_new_people(
                subjects, hashes, named=site is not None
            )
            doubted = self._check_sites(subjects, first, row_of)
            rest = subjects.select(~np.isin(subjects.site, [*doubted]))
            if not first and len(rest):
                self._check_diagnoses(rest, self.model_)
        with as_input_error():
            model = self._learn_sites(subjects, first, doubted)
        self.model_ = model
        self.target_ = target
        self.sites_ = tuple(model.sites)
        self.n_rois_ = fc.shape[1]
        self._visits = self._visits_after(subjects, first)
        self._site_of_scan = hashes
        self._sites_of_class = sites_of_class
        self._layout = layout
        n_before = 0 if first else self._n_seen
        self.mean_fc_ = self._mean_fc(fc, X.shape[1], n_before)
        self._n_seen = n_before + len(fc)

    def _mean_fc(self, fc: np.ndarray, n_columns: int, n_before: int) -> np.ndarray:
        """Return the mean FC (R, R) of everybody learned, in this call and before.

        With ``features="any"`` it is the made-up FC of the means of the columns, which is not the mean of
        the people's made-up FC.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
            FC of the people of the call.
        n_columns : int
            Number of columns of X.
        n_before : int
            Number of people of earlier calls, whose mean is `mean_fc_`.
        """
        n_people = n_before + len(fc)
        if self.features == "fc":
            before = n_before * self.mean_fc_ if n_before else 0.0
            return (fc.sum(0, dtype=np.float64) + before) / n_people
        columns_sum = fc_as_numbers(fc, n_columns).sum(0)
        if n_before:
            mean_before = fc_as_numbers(self.mean_fc_[None], n_columns)[0]
            columns_sum += n_before * mean_before
        mean = (columns_sum / n_people)[None]
        return numbers_as_fc(mean)[0].astype(np.float64)

    def _site_names(self, site: Any, n: int, first: bool) -> np.ndarray:
        """Return the site of each of the n subjects of a call, (n,), as `people.site_names` does."""
        visits_before = 0 if first else len(self._visits)
        return people_module.site_names(site, n, f"site-{visits_before + 1}")

    def _visits_after(self, subjects: Cohort, first: bool) -> tuple[str, ...]:
        """Return all visits, those of earlier calls and those of this one."""
        before = () if first else self._visits
        return (*before, *self._in_order(subjects))

    def _in_order(self, subjects: Cohort) -> tuple[str, ...]:
        """Return the sites of a call in the order in which they are learned."""
        names = subjects.site_names
        if self.site_order is None:
            return names
        requested = people_module.site_names(
            list(self.site_order), len(self.site_order), ""
        )
        if missing := [name for name in names if name not in requested.tolist()]:
            message = f"site_order does not name site '{missing[0]}'."
            raise InputError(message, do="Name every site of the call.")
        return tuple(
            name for name in dict.fromkeys(requested.tolist()) if name in names
        )

    def _check_sites(
        self, subjects: Cohort, first: bool, row_of: Mapping[str, int]
    ) -> frozenset[str]:
        """Raise an error for sites with other ROIs, and warn of swapped diagnoses and unlike scans.

        Sites of one call are compared with each other; in later calls each is also compared with
        the mean of everybody learned before. So is each scan, in addition to those of its site.

        Parameters
        ----------
        subjects : Cohort
            Subjects of this call.
        first : bool
            Whether this is the first call.
        row_of : mapping of str to int
            Row of X of each subject.

        Returns
        -------
        frozenset of str
            Sites with a warning.
        """
        faults = [*site_faults(subjects)]
        known: Group | None = None
        if not first and self._n_seen and subjects.n_rois >= MIN_ROIS:
            # also compare each new site with the mean of everybody learned before
            severity: Literal["error", "warning"]
            severity = "warning" if self.allow_unlike_sites else "error"
            mean_edges = fisher_z(self.mean_fc_[None])[0]
            known = Group(self._n_seen * mean_edges, self._n_seen)
            for name in subjects.site_names:
                fc = subjects.fc[subjects.site == name]
                others = "the sites before it"
                if fault := scan_fault(mean_edges, fc, name, others, severity):
                    faults.append(fault)
        for fault in faults:
            # the advice is worded for a config
            advice = fault.do.replace(
                "allow_unlike_sites = true in [dataset]", "allow_unlike_sites=True"
            )
            if fault.severity == "error":
                raise InputError(fault.what, where=f"site '{fault.site}'", do=advice)
            warnings.warn(f"site '{fault.site}': {fault.what} {advice}", stacklevel=5)
        for fault in person_faults(subjects, unlike_sites(faults), known):
            place = f"X[{row_of[fault.subject]}] of site '{fault.site}'"
            warnings.warn(f"{place}: {fault.what} {CHECK_ROW}", stacklevel=5)
        return frozenset(fault.site for fault in faults)

    def _check_diagnoses(
        self, subjects: Cohort, model: Any, stacklevel: int = 5
    ) -> None:
        """Warn of sites whose diagnoses a model of earlier sites finds swapped; numbers have none.

        Parameters
        ----------
        subjects : Cohort
            Subjects of the sites.
        model : TrainedModel
        stacklevel : int
            As in `warnings.warn`.
        """

    def _learn_sites(
        self, subjects: Cohort, first: bool, doubted: Set[str] = frozenset()
    ) -> Any:
        """Return the model after the sites of a call, each learned in turn.

        Parameters
        ----------
        subjects : Cohort
            Subjects of all sites of the call.
        first : bool
            Whether to learn from scratch.
        doubted : set of str
            Sites that had a warning, so that their diagnoses are not checked again.
        """
        model: TrainedModel = (
            self._untrained(subjects.target, subjects.n_rois) if first else self.model_
        )
        if not first:
            self._require_same_learner(model)
        settings = self._site_settings(subjects.target)
        learned = np.zeros(0)  # targets of the people so far
        for name in self._in_order(subjects):
            people = subjects.select_sites([name])
            enough = len(learned) >= FEWEST_TO_CHECK and len(np.unique(learned)) > 1
            check = first and self.features == "fc" and name not in doubted
            if check and enough:
                self._check_diagnoses(people, model, stacklevel=6)
            learned = np.append(learned, people.y)
            with self._progress(name, len(people), settings) as tick:
                model = model.after(people, settings, tick=tick)
        return model

    def _untrained(self, target: Target, n_rois: int) -> TrainedModel:
        """Return the model before its first site."""
        if self.calibrate != "none" and target.kind != "two classes":
            message = f"calibrate={self.calibrate!r} is for two classes"
            raise ConfigError(
                f"{message}; the target is {target.kind}.", do="Leave it out."
            )
        spec = self._learner_spec(target)
        return TrainedModel.untrained(spec, target, n_rois, self._drawn_seed())

    def _require_same_learner(self, model: TrainedModel) -> None:
        """Raise `ConfigError` if a parameter was changed that a fitted model cannot follow."""
        spec = self._learner_spec(model.target)
        pairs = {
            "method": (spec.method, model.learner_spec.method),
            "model": (spec.model, model.learner_spec.model),
        }
        for part, (requested, fitted) in pairs.items():
            if requested != fitted:
                raise ConfigError(
                    f"{part} or its settings changed after the first site: {_shown(requested)}, was "
                    f"{_shown(fitted)}.",
                    do="Learn from scratch with fit, or set it back. Settings of training and "
                    "generator may change between sites.",
                )
        seed = self._fixed_seed()
        if seed is not None and seed != model.seed:
            message = (
                f"the seed changed after the first site: {seed}, was {model.seed}."
            )
            raise ConfigError(message, do=LEARN_ANEW)

    def _progress(self, site: str, n: int, settings: SiteSettings) -> Progress:
        """Return the progress lines of one site's training, printed as `verbose` says."""
        return Progress(site, n, settings.training.epochs, self.verbose)

    # -- scores ------------------------------------------------------------------------------------
    def _scans(self, X: Any) -> np.ndarray:
        """Return FC (n, R, R) of new scans; other ROIs than the model's raise `InputError`."""
        check_is_fitted(self, "model_")
        numbers, _ = self._validate(X, reset=False)
        fc, _ = self._as_fc(numbers, self._layout)
        if fc.shape[1] != self.n_rois_:
            raise InputError(f"X has {fc.shape[1]} ROIs, the model {self.n_rois_}.")
        self._warn_of_unlike(fc)
        return fc

    def _warn_of_unlike(self, fc: np.ndarray) -> None:
        """Warn of new scans (n, R, R) whose ROIs or hemispheres seem to be in another order."""
        if self.features != "fc" or self.allow_unlike_sites:
            return
        if not hasattr(self, "mean_fc_") or self._n_seen < FEWEST_STORED:
            return
        if fault := unlike_learned(self.mean_fc_, fc):
            hint = "Check the atlas and the order of the ROIs; scores of such scans mean nothing."
            warnings.warn(f"X: {fault} {hint}", stacklevel=6)

    def _scores(self, X: Any, covariates: Any) -> np.ndarray:
        """Return calibrated scores of new scans, in the order of the model's classes."""
        fc = self._scans(X)
        columns = people_module.columns_of(covariates, len(fc))
        with as_input_error():
            return self._scores_of(fc, columns)

    def _scores_of(
        self, fc: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return calibrated scores of FC (n, R, R), computed by `n_jobs` threads."""
        return self.model_.calibrated(fc, columns, self._threads())

    def _threads(self) -> int:
        """Return the number of threads that `n_jobs` means."""
        if self.n_jobs is not None and not isinstance(self.n_jobs, Integral):
            message = f"n_jobs={self.n_jobs!r} is not a whole number."
            raise ConfigError(message, do="Give 1 or more, or -1 for all cores.")
        return effective_n_jobs(self.n_jobs)

    def _output_of(self, target: Any) -> int:
        """Return the number of the output that explains a class, or the only one of a number.

        Parameters
        ----------
        target
            As in `ForgeClassifier.explain`; None for a number.
        """
        raise NotImplementedError

    def _explained(self, output: int) -> Any:
        """Return the model with the number of the output to explain."""
        return ExplainedOutput(self.model_, output)

    def _explain(
        self,
        X: Any,
        covariates: Any,
        output: int,
        positive: str,
        *,
        atlas: Atlas | None,
        reference: np.ndarray | None,
        stability: EdgeStability | None,
    ) -> Explanation | ColumnExplanation:
        """Return the contributions of edges, or of arbitrary columns, to one output of the model.

        Parameters
        ----------
        X, covariates, atlas, reference, stability
            As in `ForgeClassifier.explain`.
        output : int
            Number of the model's output.
        positive : str
            Name of the class that positive contributions speak for.
        """
        if self.features == "any":
            require_no_scans(atlas, reference, stability)
            return self._explain_columns(X, output, positive)
        model = self._explained(output)
        fc = self._scans(X)
        columns = people_module.columns_of(covariates, len(fc))
        n_edges = self.n_rois_ * (self.n_rois_ - 1) // 2
        if stability is not None and len(stability.weight) != n_edges:
            count = len(stability.weight)
            message = f"the stability is of {count} edges, the model has {n_edges}."
            hint = "Measure it with edge_stability on scans of the same ROIs."
            raise InputError(message, do=hint)
        compared_with = self._reference()
        if reference is not None:
            compared_with = (
                self._given_reference(reference),
                "the reference that was given",
            )
        with as_input_error():
            explanation = explain_model(
                model, fc, columns, atlas=atlas, reference=compared_with
            )
        return replace(explanation, positive=positive, stability=stability)

    def _given_reference(self, reference: Any) -> np.ndarray:
        """Return a user's reference scan (R, R), the mean if there are several.

        Raises `InputError` if the scans do not fit the model.
        """
        scans = np.asarray(reference, dtype=np.float64)
        scans = self._scans(scans[None] if scans.ndim == 2 else scans)
        return scans.mean(0, dtype=np.float64)

    def _reference(self) -> tuple[np.ndarray, str]:
        """Return the scan that explanations compare with, and a description of it."""
        if hasattr(self, "mean_fc_"):
            return self.mean_fc_, "the mean of the people it learned from"
        raise InputError(
            f"the file holds no reference scan: a mean FC is stored from {FEWEST_STORED} people on.",
            do="Explain before saving, or learn further people.",
        )

    def _explain_columns(self, X: Any, output: int, positive: str) -> ColumnExplanation:
        """Return the contributions of the columns of X to one output, with ``features="any"``.

        The p columns are the first p edges of made-up FC (`numbers_as_fc`), whose further edges are 0.

        Parameters
        ----------
        X
            As in `fit`.
        output : int
            Number of the model's output.
        positive : str
            Name of the class that positive contributions speak for.
        """
        fc = self._scans(X)
        reference, _ = self._reference()
        with as_input_error():
            scored, _ = ExplainedOutput(self.model_, output).attribution({})
            attribution = attribute(scored, fc.astype(np.float64), reference)
        p = self.n_features_in_
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(p)])
        return ColumnExplanation(
            names=tuple(map(str, names)),
            contribution=attribution.contribution[:, :p],
            slope=attribution.slope[:, :p] * COLUMN_SCALE,  # by x: Fisher z is 0.2 x
            values=fc_as_numbers(fc, p),
            reference=fc_as_numbers(reference[None], p)[0],
            score=attribution.score,
            base=np.full(len(fc), attribution.base),
            positive=positive,
            exact=scored.steps == 1,
        )

    def _linear_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (n_outputs, p) and biases (n_outputs,) of a linear model.

        p is the number of the model's features, with ``features="any"`` of the columns of X.

        Raises
        ------
        AttributeError
            If the model is not linear.
        """
        check_is_fitted(self, "model_")
        weights = self.model_.linear_weights()
        if weights is None:
            name = self._part_name("model")
            raise AttributeError(f"model '{name}' has no coef_: it is not linear.")
        weight, bias = weights
        if self.features == "any":  # made-up FC has edges beyond the columns
            weight = weight[:, : self.n_features_in_]
        return weight, bias

    # -- files -------------------------------------------------------------------------------------
    def save(self, path: str | Path, *, allow_real_subjects: bool = False) -> None:
        """Write the fitted estimator to a file of its own: safetensors and JSON, no pickle.

        The file holds the network, what the method remembers, the number of people of each class at
        each site, and the mean FC of the people, the reference of explanations, where ten or more
        were learned. It is meant for its owner. To hand a model to another hospital use
        `fcforge_consortium.estimator.from_estimator`.

        Parameters
        ----------
        path : path
            An existing file is refused.
        allow_real_subjects : bool
            Whether a method that keeps real subjects may write their FC.
        """
        check_is_fitted(self, "model_")
        out = Path(path)
        if out.exists():
            raise ConfigError("exists already.", where=out, do="Choose another name.")
        if self.model_.copies_real and not allow_real_subjects:
            raise ConfigError(
                f"method '{self._method_name()}' keeps real subjects, which the file would hold.",
                do="Choose a method that keeps none, or give allow_real_subjects=True.",
            )
        spec = self.model_.learner_spec
        for part in (spec.method, spec.model):
            if ":" in part.name or part.name == TorchModule.name:
                raise ConfigError(
                    f"{part.name!r} is code of yours, which a file cannot hold.",
                    do="Keep the estimator with joblib.dump, or register the class as an entry "
                    "point of fcforge.models (or fcforge.methods) and give its name.",
                )
        mean = None
        if self._n_seen >= FEWEST_STORED and hasattr(self, "mean_fc_"):
            mean = torch.from_numpy(np.clip(self.mean_fc_, -1, 1).astype(np.float32))
        storage.write(out, self._header(), self.model_, mean)

    def _header(self) -> storage.FileHeader:
        """Return everything that a file holds beside the arrays."""
        model: TrainedModel = self.model_
        # the seed that was used, in place of a random_state that may be a generator
        parameters = {
            **self.get_params(deep=False),
            "seed": model.seed,
            "random_state": 0,
        }
        if isinstance(
            self.method, Method
        ):  # a method of the package, given as an object
            component = model.learner_spec.method
            parameters["method"] = component.name
            parameters["method_params"] = dict(component.params)
        if "class_weight" in parameters:
            parameters["class_weight"] = _as_pairs(parameters["class_weight"])
        layout = self._layout
        return storage.FileHeader(
            version=storage.VERSION,
            estimator=self._file_kind(),
            parameters={key: _as_json(value) for key, value in parameters.items()},
            method=storage.part_header(model.learner_spec.method),
            model=storage.part_header(model.learner_spec.model),
            target=storage.target_header(self.target_),
            labels=self._stored_labels(),
            n_rois=self.n_rois_,
            seed=model.seed,
            n_features=self.n_features_in_,
            visits=list(model.visits),
            temperatures=list(model.temperatures),
            copies_real=model.copies_real,
            layout=storage.LayoutHeader(**layout._asdict()) if layout else None,
            n_seen=self._n_seen,
            feature_names=list(getattr(self, "feature_names_in_", [])),
            people=self._stored_people(),
        )

    @classmethod
    @abstractmethod
    def _file_kind(cls) -> Literal["ForgeClassifier", "ForgeRegressor"]:
        """Return the name of the class in files."""

    def _stored_labels(self) -> list[Any]:
        """Return the classes as `y` has them, in the order of the model."""
        return []

    def _stored_people(self) -> dict[str, list[int]]:
        """Return the number of people of each class, in the order of the model, by site."""
        return {}

    @classmethod
    def load(cls, path: str | Path, **params: Any) -> Self:
        """Return the estimator of a file that `save` wrote.

        Parameters
        ----------
        path : path
        **params
            Parameters to change, for example `verbose`.

        Returns
        -------
        estimator
            Ready to predict, to explain and to learn the next site.
        """
        header, model, mean = storage.read(Path(path))
        if header.estimator != cls._file_kind():
            message = f"holds a {header.estimator}, which is about {model.target}."
            hint = f"Use {header.estimator}.load."
            raise ConfigError(message, where=Path(path), do=hint)
        parameters = [field.name for field in fields(cls) if field.init]
        check_names(
            "parameter", [*header.parameters, *params], parameters, where=str(path)
        )
        stored = dict(header.parameters)
        if isinstance(stored.get("class_weight"), list):  # pairs (`_as_pairs`)
            stored["class_weight"] = dict(map(tuple, stored["class_weight"]))
        estimator = cls(**{**stored, **params})
        estimator.model_ = model
        estimator.target_ = model.target
        estimator.sites_ = model.sites
        estimator.n_rois_ = model.n_rois
        estimator.n_features_in_ = header.n_features
        if header.feature_names:
            if len(header.feature_names) != header.n_features:
                message = "its names of columns are not as many as its columns."
                raise DataError(message, where=Path(path))
            estimator.feature_names_in_ = np.array(header.feature_names, dtype=object)
        estimator._visits = model.visits
        estimator._layout = (
            Layout(**header.layout.model_dump()) if header.layout else None
        )
        estimator._n_seen = 0  # people of `mean_fc_`, which small files lack
        if mean is not None:
            estimator._n_seen = header.n_seen
            estimator.mean_fc_ = mean.double().numpy()
        estimator._restore_labels(header.labels)
        estimator._restore_people(header.people)
        return estimator

    def _restore_labels(self, labels: Sequence[Any]) -> None:
        """Set the classes of an estimator read from a file; a regressor has none.

        `labels` are the classes in the order of the model's outputs.
        """

    def _restore_people(self, people: Mapping[str, Sequence[int]]) -> None:
        """Set the numbers of people of an estimator read from a file; a regressor has none.

        `people` is as `_stored_people` returns it; empty in files of earlier versions.
        """


def require_no_scans(*given: Any) -> None:
    """Raise `InputError` if atlas, reference or stability are given for arbitrary columns."""
    if any(value is not None for value in given):
        message = (
            "columns are arbitrary numbers (features='any'), not edges of an atlas."
        )
        raise InputError(message, do="Leave atlas=, reference= and stability= out.")


def _shown(component: Component) -> str:
    """Return a component with its settings in one line."""
    settings = ", ".join(f"{k}={v!r}" for k, v in component.params.items())
    return f"{component.name}({settings})"


def _as_pairs(mapping: Any) -> Any:
    """Return a mapping as a list of pairs, because keys of a JSON object must be strings."""
    if not isinstance(mapping, Mapping):
        return mapping
    return [[_as_json(key), _as_json(value)] for key, value in mapping.items()]


def _as_json(value: Any) -> Any:
    """Convert a parameter to what JSON can hold: dicts, lists and plain numbers."""
    if isinstance(value, Mapping):
        return {str(k): _as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_as_json(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value
