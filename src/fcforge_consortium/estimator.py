"""scikit-learn estimators whose model is a consortium file: a chain, or a base model.

`ConsortiumClassifier` and `ConsortiumRegressor` read X, y and sites as `fcforge.ForgeClassifier`
and `fcforge.ForgeRegressor` do. Each site they learn is a step of a chain, or with `base_model` a
contribution around a base model. `save` writes the file that ``fcforge consortium`` commands open.
`from_estimator` makes such an estimator of a fitted one of `fcforge`.
"""

import warnings
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from fcforge.core.errors import ConfigError
from fcforge.core.names import check_names
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.estimator import people as people_module
from fcforge.estimator.classifier import ForgeClassifier
from fcforge.estimator.continual import ContinualEstimator
from fcforge.estimator.inputs import InputError, as_input_error
from fcforge.estimator.parameters import CLOSED_FORM, PARTS
from fcforge.estimator.regressor import ForgeRegressor
from fcforge.evaluation.explanation import NOBODY
from fcforge_consortium.chains.chain import Chain, empty_chain
from fcforge_consortium.chains.settings import ChainSettings, settings_for
from fcforge_consortium.contributions.contribution import learn, require_new
from fcforge_consortium.contributions.model import ContributionModel
from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.ledger.ledger import Ledger, default_ledger
from fcforge_consortium.ledger.people import people_in
from fcforge_consortium.operations.published import BASE_MODELS, published_base_model
from fcforge_consortium.options import ContributeRequest, TrustRequest
from fcforge_consortium.records import archive
from fcforge_consortium.records.exchange import Exchange, open_exchange, packed
from fcforge_consortium.records.trust import Trust

CONTRIBUTIONS = "contributions"
# settings of method 'contributions' that may be set around a base model
SETTINGS = ("mechanism", "epsilon", "delta", "accept_labels")
WITH_NOISE = 'Use method="contributions", method_params={"epsilon": 1.0}'
IN_MEMORY = Path("(in memory)")
MAY_CHANGE = (
    "verbose",
    "site_order",
    "allow_unlike_sites",
    "allow_unlike_codes",
    "kind",
    "edges",
)


class FittedOnRecord(ContinualEstimator):
    """Attributes that `fit` sets beside those of `ContinualEstimator`."""

    entries_: tuple[LedgerEntry, ...] = ()
    _params_of_fit: Mapping[str, Any] = {}


@dataclass(repr=False, eq=False)
class OnRecord(FittedOnRecord):
    """Mixin: learn sites as steps of a chain, or as contributions around a base model.

    Parameters
    ----------
    held_out : int
        Synthetic held-out subjects per site, by which a chain recognises unusual scans.
    base_model : str, path or Exchange, optional
        Base model of public people, which every site adds to. "abide-aal" or "abide-cc200"
        (fetched once, `fcforge consortium base-model --public`), a file of
        `fcforge consortium base-model`, or what `make_public` returned. The default method adds
        exact sums, which must not leave a hospital. ``contributions`` adds noise
        (`method_params`: mechanism, epsilon, delta). `covariates` of the subjects are required
        wherever the base model removes some. Scans of the public people themselves are refused by
        `fit`, and named in a warning by `predict`.
    """

    held_out: int = 0
    base_model: Any = None

    def _usual_method(self) -> str:
        return CLOSED_FORM

    # -- learning ----------------------------------------------------------------------------------
    def _learn_sites(
        self, subjects: Cohort, first: bool, doubted: Set[str] = frozenset()
    ) -> Any:
        """Return the model after the sites of a call, and keep the ledger entries of their people.

        A *ledger entry* lists the people behind one record and the budget that it spends of each of them
        (`fcforge_consortium.ledger`). The entries of a call are kept only if all its sites were learned.

        Parameters
        ----------
        subjects : Cohort
            People of all sites of this call of `fit` or `partial_fit`.
        first : bool
            Whether the call learns anew, without what earlier calls have learned.
        doubted : set of str
            Not used here.

        Returns
        -------
        Chain or ContributionModel
        """
        if self._own_module is not None:
            message = f"model {type(self.model).__name__!r} is code of yours, which no file can hold."
            hint = "Name a model of `fcforge list models`."
            raise ConfigError(message, do=hint)
        if subjects.weight is not None:
            message = "records state how many people were learned, each of weight 1."
            raise ConfigError(message, do="Leave sample_weight and class_weight out.")
        if not first:
            self._require_same_params()
        model: Any = self._begin(subjects) if first else self.model_
        # a ledger in memory: `save` writes its entries to the hospital's own
        ledger = Ledger(IN_MEMORY, () if first else self.entries_)
        given = self._contribution_settings(model) if self._has_base_model else {}
        for name in self._in_order(subjects):
            people = subjects.select_sites([name])
            model, entry = add_site(model, people, given, ledger)
            ledger.lines.append(entry)  # `add_site` only reads the ledger
        self.entries_ = ledger.entries
        self._params_of_fit = self.get_params(deep=False)
        return model

    def _require_same_params(self) -> None:
        """Raise `ConfigError` if a parameter was changed after the first site."""
        for name, value in self.get_params(deep=False).items():
            before = self._params_of_fit.get(name, value)
            if name not in MAY_CHANGE and before is not value and before != value:
                message = (
                    f"{name}={value!r} was {before!r} when the first site was learned."
                )
                hint = "All hospitals of a file share its settings: set it back, or use fit."
                raise ConfigError(message, do=hint)

    def _begin(self, subjects: Cohort) -> Any:
        """Return the model before the first site: a base model, or an empty chain."""
        if self._has_base_model:
            return self._opened_base_model()
        target = subjects.target
        for name in ("held_out", "calibrate"):
            value = getattr(self, name)
            default = getattr(type(self), name)
            if target.kind != "two classes" and value != default:
                message = f"{name}={value!r} is for two classes"
                hint = "Leave it out."
                raise ConfigError(f"{message}; the target is {target.kind}.", do=hint)
        settings = self._chain_settings(subjects)
        settings.build(target)  # refuses a target that cannot be learned
        return empty_chain(settings, target, self._in_order(subjects)[0]).model

    @property
    def _has_base_model(self) -> bool:
        """Whether sites are added to a base model, or else to a chain."""
        return self.base_model is not None or self.method == CONTRIBUTIONS

    def _chain_settings(self, subjects: Cohort) -> ChainSettings:
        """Return the settings of the chain that the estimator begins."""
        site = self._site_settings(subjects.target)
        return settings_for(
            self._learner_spec(subjects.target),
            subjects.n_rois,
            training=site.training,
            seed=self._drawn_seed(),
            held_out=self.held_out,
            calibrate=self.calibrate,
            val_fraction=self.val_fraction,
        )

    def _opened_base_model(self) -> Any:
        """Return the base model that sites are added to."""
        if self.features != "fc":
            message = "contributions are made from FC only."
            raise ConfigError(message, do="Set features='fc'.")
        if isinstance(self.base_model, Exchange):
            return self.base_model.model
        if isinstance(self.base_model, (str, Path)):
            place = self.base_model
            if str(place) in BASE_MODELS:
                place = published_base_model(str(place), warnings.warn)
            elif not Path(place).exists():
                message = f"base_model='{place}' is neither a file nor a published base model."
                raise ConfigError(message, do=f"Known: {', '.join(BASE_MODELS)}.")
            return open_exchange(place).model
        hint = (
            "Give base_model= a name, a file of `fcforge consortium base-model`, or what "
            "`make_public` returned."
        )
        raise ConfigError("method 'contributions' needs a base model.", do=hint)

    def _contribution_settings(self, model: Any) -> dict[str, Any]:
        """Return the settings of a contribution: exact by default, with noise by `CONTRIBUTIONS`.

        Parameters
        ----------
        model : ContributionModel
            The base model, whose policy may refuse exact sums.

        Returns
        -------
        dict
            Options of `ContributeRequest` by name.
        """
        for part in ("model", "generator", "training"):
            if getattr(self, PARTS[part].parameter):
                message = f"{PARTS[part].parameter} has no effect beside a base model."
                raise ConfigError(message, do="Leave it out.")
        given = dict(self.method_params or {})
        if self.method == CONTRIBUTIONS:
            check_names("setting", given, SETTINGS)
            return given
        method = self._method_name()
        if method != CLOSED_FORM:
            message = f"method '{method}' does not continue from a base model."
            raise ConfigError(message, do="Leave base_model= out, or the method.")
        if not model.exchange.root.policy.exact_allowed:
            message = (
                f"the base model takes no exact sums, which method '{method}' adds."
            )
            hint = f"{WITH_NOISE}, or a base model made with `--exact`."
            raise ConfigError(message, where="base_model=", do=hint)
        place = f"method '{method}' beside base_model="
        check_names("setting", given, ["accept_labels"], where=place)
        return {"mechanism": "none", **given}

    # -- scores ------------------------------------------------------------------------------------
    def _scores_of(
        self, fc: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        return self.model_.calibrated(fc, columns)

    def _scores(self, X: Any, covariates: Any) -> np.ndarray:
        """Return calibrated scores; warn where public people of the base model are among X.

        Parameters
        ----------
        X : array
            Scans, as in `predict`.
        covariates : mapping or None
            As in `predict`.
        """
        scores = super()._scores(X, covariates)
        if self._has_base_model:
            fc = self._scans(X)
            columns = people_module.columns_of(covariates, len(fc))
            # people and sites are called by the rows of X; diagnoses are unknown and not used
            rows = as_text([f"X[{i}]" for i in range(len(fc))])
            unknown = np.zeros(len(fc), dtype=np.int64)
            cohort = Cohort("estimator", fc, unknown, rows, rows, covariates=columns)
            for sentence in self.model_.familiar(cohort):
                # at the caller of `predict`, which calls `decision_function`, which calls this
                warnings.warn(sentence, stacklevel=4)
        return scores

    def _reference(self) -> tuple[np.ndarray, str]:
        """Return the reference scan of explanations; a file without one raises `InputError`."""
        if hasattr(self, "mean_fc_"):
            return super()._reference()
        scan, description = self.model_.reference()
        if description == NOBODY:
            raise InputError(
                "the file holds no reference scan: it has neither public nor synthetic people.",
                do="Learn with held_out=64 before saving, or explain before saving.",
            )
        return scan, description

    def _explained(self, output: int) -> Any:
        """Return the model of the file; it explains the patients' class alone.

        Parameters
        ----------
        output : int
            Index of the class to explain; 1 are the patients.
        """
        if output != 1 or self.target_.kind != "two classes":
            message = (
                f"explanations are for two classes, and this is about {self.target_}."
            )
            if self.target_.kind == "two classes":
                message = (
                    "explanations of a consortium file are for the patients' class."
                )
            raise InputError(message, do="Compare two of the classes.")
        return self.model_

    def _linear_weights(self) -> tuple[np.ndarray, np.ndarray]:
        raise AttributeError("a consortium file has no coef_; use ForgeClassifier.")

    # -- files -------------------------------------------------------------------------------------
    def save(  # type: ignore[override]
        self,
        path: str | Path,
        *,
        key: Any = None,
        allow_real_subjects: bool = False,
        ledger: str | Path | None = None,
        new_ledger: bool = False,
    ) -> str:
        """Write a consortium file and return its id.

        Parameters
        ----------
        path : path
        key : private key, optional
            Signs the new records (`fcforge_consortium.records.keys.read_private`).
        allow_real_subjects : bool
            A method that keeps real subjects is refused without it; it is recorded.
        ledger : path, optional
            Ledger that stays at home and proves who was learned, for an audit; by default the
            one beside `path`.
        new_ledger : bool
            Begin the ledger. Without it a missing ledger is an error, because a new one does not
            know the budget that these people have spent before.
        """
        check_is_fitted(self, "model_")
        if self.features == "any":
            message = "only models of FC can be handed over."
            raise ConfigError(message, do="Set features='fc'.")
        if self.target_.kind == "two classes":
            people_module.require_stated(self.classes_, self.positive)
        out = Path(path)
        archive.require_place(out)
        made = self.model_.on_record(key, allow_real_subjects=allow_real_subjects)
        place = Path(ledger or default_ledger(out))
        self._write(packed(made, out), out, place, key, new_ledger)
        self.model_ = made.model
        return made.id

    def _write(
        self, data: bytes, out: Path, place: Path, key: Any, new_ledger: bool
    ) -> None:
        """Write entries that the ledger does not have yet, then the outgoing file.

        Parameters
        ----------
        data : bytes
            The outgoing file.
        out : Path
            Its path.
        place : Path
            Path of the ledger.
        key : private key or None
            Seals the ledger.
        new_ledger : bool
            Whether the ledger is begun.
        """
        sites = {entry.site for entry in self.entries_}
        owner = min(sites) if len(sites) == 1 else ""
        new = Ledger.new(owner, key) if new_ledger else None
        with Ledger.open(place, key, new=new) as ledger:
            if ledger.header.site:
                for site in sorted(sites):
                    ledger.require_site(site)
            known = {entry.commitment for entry in ledger.entries}
            added = [e for e in self.entries_ if e.commitment not in known]
            if self._has_base_model and added:
                self._require_totals(ledger)
            for entry in added[:-1]:
                ledger.append(entry)
            if added:
                ledger.publish(added[-1], {out: data})
            else:
                archive.write(data, out)

    def _require_totals(self, ledger: Ledger) -> None:
        """Raise `ConfigError` if a site's ledger has entries that its new records do not count.

        Each contribution states the budget that its people have spent in all. The estimator counted
        only its own contributions.
        """
        commitments = {entry.commitment for entry in self.entries_}
        sites = {entry.site for entry in self.entries_}
        for entry in ledger.entries:
            if entry.site in sites and entry.commitment not in commitments:
                raise ConfigError(
                    f"the ledger has the contribution {entry.number} of '{entry.site}', which "
                    "this estimator does not know: the budget that its file states would be too "
                    "small.",
                    where=ledger.path,
                    do="Contribute with `fcforge consortium contribute --ledger`, which counts "
                    "everything in the ledger.",
                )

    @classmethod
    def load(
        cls, path: str | Path, *, trust: Sequence[str | Path] = (), **params: Any
    ) -> Self:
        """Return the estimator of a consortium file, ready to predict or to learn the next site.

        Parameters
        ----------
        path : path
        trust : sequence of paths
            Public keys of hospitals that must have signed.
        **params
            How X is read: `edges`, `kind`.
        """
        request = TrustRequest(trust=[Path(key) for key in trust])
        opened = open_exchange(path, Trust.asked(request))
        model: Any = opened.model
        for sentence in model.absent():
            warnings.warn(sentence, stacklevel=2)
        made = cls(**model.parameters(), **params)
        made._take(model.target)
        made.model_ = model
        made.entries_ = ()
        made.n_rois_ = model.n_rois
        made.sites_ = tuple(model.sites)
        made._visits = made.sites_
        made._layout = None
        made._params_of_fit = made.get_params(deep=False)
        return made

    def _take(self, target: Target) -> None:
        """Set the target of a file; `ConfigError` if the estimator cannot have it."""
        raise NotImplementedError


@dataclass(repr=False, eq=False)
class ConsortiumClassifier(OnRecord, ForgeClassifier):
    """`fcforge.ForgeClassifier` whose model is a consortium file.

    The default method is ridge in closed form. All parameters and attributes are those of
    `fcforge.ForgeClassifier`, with the ones below.

    Parameters
    ----------
    held_out, base_model
        See `OnRecord`.

    Attributes
    ----------
    model_ : Chain or ContributionModel
    entries_ : tuple of LedgerEntry
        People who were learned. Entries stay at home; `save` writes them to the ledger.
    """

    def _ordered_classes(self, labels: np.ndarray, classes: Any) -> np.ndarray:
        """Return all classes in the order of the model: controls first, or as a base model has them.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Labels of the first call.
        classes : sequence or None
            All classes, if the user states them.
        """
        if self._has_base_model:
            with as_input_error():
                target = self._opened_base_model().target
            if target.kind == "number":
                message = f"the base model is about {target}, which is no class."
                raise InputError(message, do="Use ConsortiumRegressor.")
            if target.kind == "more classes":
                return as_labels(target)
            known = np.unique(labels if classes is None else np.asarray(classes))
            if len(known) == 2:
                people_module.require_stated(known, self.positive)
        return super()._ordered_classes(labels, classes)

    def _take(self, target: Target) -> None:
        """Set target and classes of a file; raise `ConfigError` for a numeric target."""
        if target.kind == "number":
            message = f"the file is about {target}, which is no class."
            raise ConfigError(message, do="Use ConsortiumRegressor.load.")
        self.target_ = target
        self._labels = as_labels(target)
        self.classes_ = np.unique(self._labels)
        if target.kind == "two classes" and self.positive is None:
            self.positive = self._labels[1].item()


@dataclass(repr=False, eq=False)
class ConsortiumRegressor(OnRecord, ForgeRegressor):
    """`fcforge.ForgeRegressor` whose model is a consortium file.

    Parameters
    ----------
    held_out, base_model
        See `OnRecord`. `limits` must be those of the base model, or None.
    """

    def _target(self, values: np.ndarray) -> Target:
        """Return the base model's target, or that of the first call."""
        if not self._has_base_model:
            return super()._target(values)
        with as_input_error():
            target = self._opened_base_model().target
        if target.classes or self.limits not in (None, target.limits):
            message = f"the base model is about {target}, not a number within limits={self.limits}."
            raise InputError(
                message, do="Give limits= as the base model has them, or none."
            )
        return target

    def _take(self, target: Target) -> None:
        """Set the target of a file; raise `ConfigError` for classes."""
        if target.classes:
            message = f"the file is about {target}, which is no number."
            raise ConfigError(message, do="Use ConsortiumClassifier.load.")
        self.target_ = target


def add_site(
    model: Any, people: Cohort, given: Mapping[str, Any], ledger: Ledger
) -> tuple[Any, LedgerEntry]:
    """Return the model after everybody of one more site, and the entry of its people.

    Parameters
    ----------
    model : ContributionModel or Chain
    people : Cohort
        People of one site.
    given : mapping
        Settings of a contribution; a chain has only those of its root.
    ledger : Ledger
        Earlier contributions of all sites; each site is charged for its own.
    """
    if not isinstance(model, ContributionModel):
        return model.with_everybody(people)
    (site,) = people.site_names
    nowhere = Path()  # options that name files are not used by `learn`
    request = ContributeRequest(site, nowhere, nowhere, state=nowhere, **given)
    require_new(model, people_in(people), ledger)
    own_entries = [entry for entry in ledger.entries if entry.site == site]
    done = learn(model, people, Ledger(ledger.path, own_entries), request, None)
    return ContributionModel(done.exchange), done.entry


def from_estimator(
    model: ForgeClassifier | ForgeRegressor,
    X: Any,
    y: Any,
    site: Any = None,
    *,
    held_out: int = 0,
) -> ConsortiumClassifier | ConsortiumRegressor:
    """Return a fitted estimator as one whose model is a chain file.

    A chain proves who was learned, which only the people's scans can show: the people are learned
    again, with the same settings and seed, and the network must come out the same bit by bit.

    Parameters
    ----------
    model : ForgeClassifier or ForgeRegressor
        Fitted, each site visited once.
    X, y, site
        All people that it learned, as in `fit`.
    held_out : int
        Synthetic held-out subjects per site; they travel with the chain.

    Returns
    -------
    ConsortiumClassifier or ConsortiumRegressor
    """
    check_is_fitted(model, "model_")
    trained = model.model_
    params = model.get_params(deep=False)
    # the seed that `fit` drew, in place of the random state it was drawn from
    params |= {"seed": trained.seed, "random_state": 0, "held_out": held_out}
    # defaults differ between the two classes, so that the parts in use are named
    params |= {part: model._part_name(part) or None for part in ("method", "model")}
    made: ConsortiumClassifier | ConsortiumRegressor
    if isinstance(model, ForgeRegressor):
        made = ConsortiumRegressor(**{**params, "limits": model.target_.limits})
    else:
        made = ConsortiumClassifier(**params)
    made.fit(X, y, site)
    chain: Chain = made.model_
    ours = chain.state.lane.named()
    theirs = trained.trained_lane.named()
    same = chain.sites == trained.visits and ours.keys() == theirs.keys()
    if not same or not all(torch.equal(ours[name], theirs[name]) for name in ours):
        raise ConfigError(
            "the people given do not make the network of the estimator.",
            do="Give all people that it learned, site by site in its order, and no others.",
        )
    return made


def as_label(word: str) -> Any:
    """Return a class as y has it: a number if its word is one, 0 and 1 for control and patient."""
    known = {"control": 0, "patient": 1}
    if word in known:
        return known[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def as_labels(target: Target) -> np.ndarray:
    """Return the classes of a model as y has them, in its order; each by the first of its words."""
    first_words = [name.split("/")[0] for name in target.classes]
    return np.array([as_label(word) for word in first_words])
