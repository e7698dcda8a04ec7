"""Parameters of the estimator, and the settings of its parts (``method__penalty``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from fcforge.errors import ConfigError, check_names
from fcforge.estimator.inputs import Layout, ReadsFC, as_input_error
from fcforge.exchange.chains.chain_settings import ChainSettings, settings_for
from fcforge.exchange.home.private_record import Receipt
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.privacy.noise import DELTA, EPSILON
from fcforge.settings import make
from fcforge.types import Component, Conditions, LearnerSpec, Target, Training

RELEASES = "forge_release"
# settings of a part are in this parameter of the estimator
HELD_IN = {
    "method": "method_params",
    "model": "model_params",
    "generator": "generator_params",
    "training": "training",
}
# of method forge_release, here
SETTINGS = {
    "mechanism": "gaussian",
    "epsilon": EPSILON,
    "delta": DELTA,
    "accept_labels": False,
}
TABLES: Mapping[str, Any] = {
    "method": METHODS,
    "model": MODELS,
    "generator": GENERATORS,
}
SAME = ("seed", "held_out", "calibrate", "val_fraction")  # of a chain, as named there
OWN = ("epochs", "batch_size", "lr")  # of Training: parameters of the estimator itself


class Fitted(ReadsFC):
    """What `fit` sets."""

    model_: Any  # Model of fcforge.exchange
    target_: Target
    receipts_: tuple[Receipt, ...]
    classes_: np.ndarray
    sites_: tuple[str, ...]
    n_rois_: int
    _layout: Layout | None
    _words: np.ndarray  # classes in the order of the model, controls first
    mean_fc_: np.ndarray
    _n_seen: int = 0
    _scan_sites: Mapping[str, str] = {}


@dataclass(repr=False, eq=False)
class Parameters(Fitted):
    """Parameters of `ForgeClassifier`, which explains them."""

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
    edges: Literal["nilearn", "upper"] = "nilearn"
    kind: Literal["auto", "fc", "timeseries"] = "auto"
    held_out: int = 0
    calibrate: Literal["none", "inner_val", "synthetic"] = "none"
    val_fraction: float = Conditions.val_fraction
    start: Any = None
    positive: Any = None
    site_order: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    verbose: bool = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; `deep` adds every setting of the parts (``method__penalty``)."""
        found: dict[str, Any] = super().get_params(deep=False)
        for part, held in HELD_IN.items() if deep else ():
            known = self._defaults(part) | self._given(held)
            found |= {f"{part}__{name}": value for name, value in known.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings of the parts by ``part__name``."""
        outer: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for key, value in params.items():
            of_part = "__" in key and key.partition("__")[0] in HELD_IN
            (inner if of_part else outer)[key] = value
        super().set_params(**outer)
        for key, value in inner.items():
            part, _, name = key.partition("__")
            with as_input_error():
                check_names(f"{part} setting", [name], self._defaults(part))
            held_in = HELD_IN[part]
            changed = {**self._given(held_in), name: value}
            setattr(self, held_in, changed)
        return self

    @property
    def _from_start(self) -> bool:
        """Whether sites are added to a public start, or else to a chain."""
        return self.start is not None or self.method == RELEASES

    def _model_name(self) -> str:
        """The model that is named, or the one the method works on, or the paper's gcn."""
        if self.model is not None:
            return self.model
        known = METHODS.get(self.method) if isinstance(self.method, str) else None
        return next(iter(known.models if known else ()), "gcn")

    def _defaults(self, part: str) -> dict[str, Any]:
        """Every setting that a part has, with its default; nothing for an unknown part."""
        name = str(self._model_name() if part == "model" else getattr(self, part))
        if name == RELEASES:
            return dict(SETTINGS)
        kind = Training if part == "training" else TABLES[part].get(name)
        found = {}
        for field in fields(kind) if kind is not None else ():
            if field.name in OWN:
                continue
            if field.default_factory is not MISSING:
                found[field.name] = field.default_factory()
            elif field.default is not MISSING:
                found[field.name] = field.default
        if part == "model" and "features" in found:
            found["features"] = self._edge_features() or found["features"]
        return found

    def _edge_features(self) -> str:
        """Features of an edge model unless it is told: the method's; any numbers as they are."""
        known = METHODS.get(self.method) if isinstance(self.method, str) else None
        of_method = known.features if known else ""
        return "z" if self.features == "any" else of_method

    def _given(self, held: str) -> dict[str, Any]:
        """Settings in a parameter; what is not a mapping is refused when it is used, not here."""
        value = getattr(self, held)
        return dict(value) if isinstance(value, Mapping) else {}

    def _chain(self, n_rois: int) -> ChainSettings:
        """Settings of the chain that the estimator begins."""
        model = self._model_name()
        if self.features == "any" and model not in ("linear", "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        names = {"method": self.method, "model": model, "generator": self.generator}
        parts: dict[str, Any] = {}
        for part, name in names.items():
            if name:
                given = dict(getattr(self, HELD_IN[part]) or {})
                if part == "model" and self.features == "any":
                    given = {"features": self._edge_features(), **given}
                parts[part] = Component(name, given)
        own = {name: getattr(self, name) for name in OWN}
        training = make(Training, {**own, **(self.training or {})}, "training")
        same = {name: getattr(self, name) for name in SAME}
        return settings_for(LearnerSpec(**parts), n_rois, training=training, **same)
