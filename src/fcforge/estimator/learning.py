"""What an estimator learns from the subjects of a call, and the file that it is saved to.

One site after another: as steps of a chain, or as releases around a public start.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.names import check_names
from fcforge.core.options import Kind
from fcforge.core.settings import make
from fcforge.core.spec import Conditions, LearnerSpec, Training
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.matrices import Layout, Order
from fcforge.estimator import people as people_module
from fcforge.estimator.inputs import InputError, ReadsFC, as_input_error
from fcforge.estimator.people import require_stated
from fcforge.methods import METHODS
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.chains.settings import ChainSettings, settings_for
from fcforge_consortium.estimator import add_site
from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.ledger.ledger import Ledger, default_ledger
from fcforge_consortium.operations.published import BASE_MODELS, published_base_model
from fcforge_consortium.options import TrustRequest
from fcforge_consortium.records import archive
from fcforge_consortium.records.exchange import Exchange, open_exchange, packed
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust

RELEASES = "forge_release"
# of method forge_release, here
SETTINGS = ("mechanism", "epsilon", "delta", "accept_labels")
# settings of a part are in this parameter of the estimator
HELD_IN = {
    "method": "method_params",
    "model": "model_params",
    "generator": "generator_params",
    "training": "training",
}
SAME = ("seed", "held_out", "calibrate", "val_fraction")  # of a chain, as named there
OWN = ("epochs", "batch_size", "lr")  # of Training: parameters of the estimator itself
WITH_NOISE = 'Use method="forge_release", method_params={"epsilon": 1.0}'
IN_MEMORY = Path("(in memory)")


class Fitted(ReadsFC):
    """What `fit` sets."""

    model_: Any  # Model of fcforge_consortium
    target_: Target
    receipts_: tuple[LedgerEntry, ...]
    classes_: np.ndarray
    sites_: tuple[str, ...]
    n_rois_: int
    _layout: Layout | None
    _words: np.ndarray  # classes in the order of the model, controls first
    mean_fc_: np.ndarray
    _n_seen: int = 0
    _scan_sites: Mapping[str, str] = {}


@dataclass(repr=False, eq=False)
class Learns(Fitted, ABC):
    """Learns one site after another: as steps of a chain, or as releases around a start.

    `ForgeClassifier` explains the parameters.
    """

    method: str = "analytic"
    model: str | None = None
    generator: str | None = None
    epochs: int = Training.epochs
    batch_size: int = Training.batch_size
    lr: float | None = None
    seed: int = 0
    method_params: Mapping[str, Any] | None = None
    model_params: Mapping[str, Any] | None = None
    generator_params: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    features: Literal["fc", "any"] = "fc"
    edges: Order = "nilearn"
    kind: Kind = "auto"
    held_out: int = 0
    calibrate: Literal["none", "inner_val"] = "none"
    val_fraction: float = Conditions.val_fraction
    start: Any = None
    positive: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = self.features == "fc"
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings of the parts by ``part__name``, which `fit` checks."""
        nested = [key for key in params if "__" in key]
        inner = {
            key: params.pop(key) for key in nested if key.split("__")[0] in HELD_IN
        }
        super().set_params(**params)
        for key, value in inner.items():
            part, _, name = key.partition("__")
            held = getattr(self, HELD_IN[part]) or {}
            setattr(self, HELD_IN[part], {**held, name: value})
        return self

    def fit(self, X: Any, y: Any, site: Any = None, covariates: Any = None) -> Self:
        """Learn from scratch, one site after another.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y : array of shape (n,)
            Of a classifier any two classes, see `positive`, or more; of a regressor numbers.
        site : array of shape (n,), str or int, optional
            Site of each subject, or one for all; None is one site, "site-1". Names are texts or
            whole numbers (1, 1.0 and "1" are one site); an empty or missing one is refused. The
            names decide the randomness together with `seed`.
        covariates : mapping or data frame of columns of shape (n,), optional
            What the start removes (``forge_release``).
        """
        return self._learn(X, y, site, covariates, first=True)

    @abstractmethod
    def _learn(
        self, X: Any, y: Any, site: Any, covariates: Any, *, first: bool
    ) -> Self:
        """Learn the subjects of a call, after all that was learned before unless `first`."""

    def _checked(self, X: Any, y: Any, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """X and y of a call, nobody's y missing."""
        if y is None:
            what = "requires y to be passed, but the target y is None."
            raise InputError(f"{type(self).__name__} {what}")
        people_module.refuse_missing(y)
        return self._validate(X, y, reset=first)

    def _learn_all(
        self,
        X: np.ndarray,
        code: np.ndarray,
        target: Target,
        site: Any,
        covariates: Any,
        *,
        first: bool,
    ) -> None:
        """Learn the subjects of a call, site by site; they are known by their scans."""
        before = 0 if first else len(self.sites_)
        names = people_module.site_names(site, len(X), f"site-{before + 1}")
        with as_input_error():
            named = [site_name(name) for name in names]
        fc, layout = self._as_fc(X, None if first else self._layout)
        columns = people_module.columns_of(covariates, len(X))
        subjects = Cohort(
            name="estimator",
            fc=fc,
            y=code,
            site=as_text(named),
            subject_id=people_module.scan_hashes(fc),
            covariates=columns,
            target=target,
        )
        scans = {} if first else self._scan_sites
        if self.features == "fc":
            scans = people_module.told_apart(subjects, scans, site is not None)
        with as_input_error():
            self._learn_sites(subjects, first)
        self.target_ = target
        self.sites_ = tuple(self.model_.sites)
        self.n_rois_ = fc.shape[1]
        self._scan_sites = scans
        self._layout = layout
        seen = 0 if first else self._n_seen
        total = seen * self.mean_fc_ if seen else 0.0
        self._n_seen = seen + len(fc)
        self.mean_fc_ = (fc.sum(0, dtype=np.float64) + total) / self._n_seen

    def _scans(self, X: Any) -> np.ndarray:
        """FC (n, R, R) of new scans, with the model's ROIs."""
        check_is_fitted(self, "model_")
        numbers, _ = self._validate(X, reset=False)
        fc, _ = self._as_fc(numbers, self._layout)
        if fc.shape[1] != self.n_rois_:
            raise InputError(f"X has {fc.shape[1]} ROIs, the model {self.n_rois_}.")
        return fc

    def _asked(self, X: Any, covariates: Any) -> np.ndarray:
        """Calibrated scores of new scans; a warning where public people are among them."""
        fc = self._scans(X)
        columns = people_module.columns_of(covariates, len(fc))
        with as_input_error():
            found = self.model_.calibrated(fc, columns)
        if self._from_start:
            # subjects of nowhere, called by their rows of X, whose diagnoses are not known
            rows = as_text([f"X[{i}]" for i in range(len(fc))])
            unknown = np.zeros(len(fc), dtype=np.int64)
            who = Cohort("estimator", fc, unknown, rows, rows, covariates=columns)
            for sentence in self.model_.familiar(who):
                warnings.warn(sentence, stacklevel=3)
        return found

    def _learn_sites(self, subjects: Cohort, first: bool) -> None:
        """Add one site after another to what is held, or to nothing where it is `first`.

        The estimator is left as it was unless all of them could be learned.
        """
        model: Any = self._begin(subjects) if first else self.model_
        private = Ledger(IN_MEMORY, () if first else self.receipts_)
        given = self._around_start(model) if self._from_start else {}
        for name in subjects.site_names:
            mine = subjects.select_sites([name])
            model, receipt = add_site(model, mine, given, private)
            private.lines.append(receipt)
        self.model_ = model
        self.receipts_ = private.receipts

    def _begin(self, subjects: Cohort) -> Any:
        """What the first site is learned from: a public start, or an empty chain."""
        if self._from_start:
            return self._opened_start()
        target = subjects.target
        two = target.kind == "two classes"
        for name in ("held_out", "calibrate") if not two else ():
            value = getattr(self, name)
            if value != getattr(Learns, name):
                what = f"{name}={value!r} is for two classes"
                do = "Leave it out."
                raise ConfigError(f"{what}; the target is {target.kind}.", do=do)
        settings = self._chain(subjects.n_rois)
        settings.build(target)  # by name where the target cannot be learned
        first = subjects.site_names[0]
        return empty_chain(settings, target, first).model

    @property
    def _from_start(self) -> bool:
        """Whether sites are added to a public start, or else to a chain."""
        return self.start is not None or self.method == RELEASES

    def _chain(self, n_rois: int) -> ChainSettings:
        """Settings of the chain that the estimator begins."""
        known = METHODS.get(self.method)
        model = self.model or next(iter(known.models if known else ()), "gcn")
        if self.features == "any" and model not in ("linear", "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        names = {"method": self.method, "model": model, "generator": self.generator}
        parts: dict[str, Any] = {}
        for part, name in names.items():
            given = dict(getattr(self, HELD_IN[part]) or {})
            if part == "model" and self.features == "any":
                given = {"features": "z", **given}
            if name:
                parts[part] = Component(name, given)
            elif given:
                what = f"{HELD_IN[part]} is given, but no {part}."
                raise ConfigError(what, do=f"Name it, {part}=..., or leave them out.")
        own = {name: getattr(self, name) for name in OWN}
        training = make(Training, {**own, **(self.training or {})}, "training")
        same = {name: getattr(self, name) for name in SAME}
        return settings_for(LearnerSpec(**parts), n_rois, training=training, **same)

    def _opened_start(self) -> Any:
        """The public start that sites are added to."""
        if self.features != "fc":
            what = "releases are made from FC only."
            raise ConfigError(what, do="Set features='fc'.")
        if isinstance(self.start, Exchange):
            return self.start.model
        if isinstance(self.start, (str, Path)):
            place = self.start
            if str(place) in BASE_MODELS:
                place = published_base_model(str(place), warnings.warn)
            elif not Path(place).exists():
                what = f"start='{place}' is neither a file nor a public start."
                raise ConfigError(what, do=f"Known: {', '.join(BASE_MODELS)}.")
            return open_exchange(place).model
        do = "Give start= a name, a file of `fcforge consortium base-model`, or what `make_public` returned."
        raise ConfigError("method 'forge_release' needs a public start.", do=do)

    def _around_start(self, model: Any) -> dict[str, Any]:
        """How sites are added to a start: exact by "analytic", with noise by "forge_release"."""
        for part in ("model", "generator", "training"):
            if getattr(self, HELD_IN[part]):
                what = f"{HELD_IN[part]} has no effect beside a start."
                raise ConfigError(what, do="Leave it out.")
        given = dict(self.method_params or {})
        if self.method == RELEASES:
            check_names("setting", given, SETTINGS)
            return given
        if self.method != Learns.method:
            what = f"method '{self.method}' does not go on from a start."
            raise ConfigError(what, do="Leave start= out, or the method.")
        if not model.exchange.root.policy.exact_allowed:
            what = f"the start takes no exact sums, which method '{self.method}' adds."
            do = f"{WITH_NOISE}, or a start made with `--exact`."
            raise ConfigError(what, where="start=", do=do)
        place = f"method '{self.method}' beside start="
        check_names("setting", given, ["accept_labels"], where=place)
        return {"mechanism": "none", **given}

    def save(
        self,
        path: str | Path,
        *,
        key: Any = None,
        allow_real_subjects: bool = False,
        register: str | Path | None = None,
    ) -> str:
        """Write what was learnt as an exchange file (no pickle); returns the exchange's id.

        Parameters
        ----------
        path : path
        key : private key, optional
            Signs what is new (`fcforge_consortium.records.keys.read_private`).
        allow_real_subjects : bool
            A method that keeps real subjects is refused without it; it is recorded.
        register : path, optional
            Private record that stays at home and proves, for an audit, who was learned; by
            default the one beside `path`.
        """
        check_is_fitted(self, "model_")
        if self.features == "any":
            what = "only models of FC can be handed over."
            raise ConfigError(what, do="Set features='fc'.")
        if self.target_.kind == "two classes":
            require_stated(self.classes_, self.positive)
        out = Path(path)
        archive.require_place(out)
        made = self.model_.on_record(key, allow_real_subjects=allow_real_subjects)
        self._write(packed(made, out), out, Path(register or default_ledger(out)))
        self.model_ = made.model
        return made.id

    def _write(self, data: bytes, out: Path, register: Path) -> None:
        """What leaves, after what stays: receipts that the private record does not have yet."""
        with Ledger.open(register) as private:
            known = {receipt.commitment for receipt in private.receipts}
            new = [r for r in self.receipts_ if r.commitment not in known]
            for receipt in new[:-1]:
                private.append(receipt)
            if new:
                private.publish(new[-1], {out: data})
            else:
                archive.write(data, out)

    @classmethod
    def load(
        cls, path: str | Path, *, trust: Sequence[str | Path] = (), **params: Any
    ) -> Self:
        """Estimator of an exchange file, ready to predict or to learn the next site.

        Parameters
        ----------
        path : path
        trust : sequence of paths
            Public keys of hospitals that must have signed.
        **params
            How X is read: `edges`, `kind`.
        """
        asked = TrustRequest(trust=[Path(key) for key in trust])
        found = open_exchange(path, Trust.asked(asked))
        model: Any = found.model
        made = cls(**model.parameters(), **params)
        made.model_ = model
        made.receipts_ = ()
        made.n_rois_ = found.model.n_rois
        made.sites_ = tuple(found.model.sites)
        made._layout = None
        made._take(found.model.target)
        return made

    @abstractmethod
    def _take(self, target: Target) -> None:
        """Speak of the target of a file that was loaded; `ConfigError` where it cannot."""


def as_label(word: str) -> Any:
    """A class as y has it: a number where its word is one, 0 and 1 for control and patient."""
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
    """Classes of a model as y has them, in its order; each by the first of its words."""
    first_words = [name.split("/")[0] for name in target.classes]
    return np.array([as_label(word) for word in first_words])
