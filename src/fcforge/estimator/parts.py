"""Parameters of the estimator, and the settings of the chain that it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fcforge.errors import ConfigError
from fcforge.estimator.inputs import Layout, ReadsFC
from fcforge.exchange.chains.chain_settings import ChainSettings, settings_for
from fcforge.exchange.home.private_record import Receipt
from fcforge.methods import METHODS
from fcforge.privacy.noise import DELTA, EPSILON
from fcforge.settings import make
from fcforge.types import Component, Conditions, LearnerSpec, Target, Training

RELEASES = "forge_release"
# of method forge_release, here
SETTINGS = {
    "mechanism": "gaussian",
    "epsilon": EPSILON,
    "delta": DELTA,
    "accept_labels": False,
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

    def _chain(self, n_rois: int) -> ChainSettings:
        """Settings of the chain that the estimator begins."""
        model = self._model_name()
        if self.features == "any" and model not in ("linear", "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        names = {"method": self.method, "model": model, "generator": self.generator}
        parts: dict[str, Any] = {}
        for part, name in names.items():
            if name:
                given = dict(getattr(self, f"{part}_params") or {})
                if part == "model" and self.features == "any":
                    given = {"features": "z", **given}
                parts[part] = Component(name, given)
        own = {name: getattr(self, name) for name in OWN}
        training = make(Training, {**own, **(self.training or {})}, "training")
        same = {name: getattr(self, name) for name in SAME}
        return settings_for(LearnerSpec(**parts), n_rois, training=training, **same)
