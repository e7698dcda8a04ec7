"""Parameters of the estimator, and the settings of its parts (``method__penalty``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from fcforge.capsule.chain import ChainSettings, settings_for
from fcforge.capsule.contents import Capsule
from fcforge.components import check_names
from fcforge.consortium import Consortium, Home
from fcforge.consortium.learning import Budget
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import Layout, ReadsFC, as_input_error
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.settings import make
from fcforge.types import Component, Conditions, LearnerSpec, Training

RELEASES = "forge_release"
# settings of a part are in this parameter of the estimator
HELD_IN = {part: f"{part}_params" for part in ("method", "model", "generator")}
HELD_IN |= {"training": "training"}
SETTINGS = {**asdict(Budget()), "accept_labels": False}  # of method forge_release, here
TABLES: Mapping[str, Any] = {
    "method": METHODS,
    "model": MODELS,
    "generator": GENERATORS,
}
SAME = ("seed", "held_out", "calibrate", "val_fraction")  # of a chain, as named there
OWN = ("epochs", "batch_size", "lr")  # of Training: parameters of the estimator itself


class Fitted(ReadsFC):
    """What `fit` sets."""

    capsule_: Capsule | Consortium
    home_: Home
    classes_: np.ndarray
    sites_: tuple[str, ...]
    n_rois_: int
    _layout: Layout | None
    _second_is_patient: bool
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
        inner = {
            k: v
            for k, v in params.items()
            if k.partition("__")[0] in HELD_IN and "__" in k
        }
        super().set_params(**{k: v for k, v in params.items() if k not in inner})
        for key, value in inner.items():
            part, _, name = key.partition("__")
            with as_input_error():
                check_names(f"{part} setting", [name], self._defaults(part))
            setattr(self, HELD_IN[part], {**self._given(HELD_IN[part]), name: value})
        return self

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
        cls = Training if part == "training" else TABLES[part].get(name)
        known = [f for f in fields(cls) if f.name not in OWN] if cls is not None else []
        made = {
            f.name: f.default_factory for f in known if f.default_factory is not MISSING
        }
        found = {f.name: f.default for f in known if f.default is not MISSING}
        return found | {name: make() for name, make in made.items()}

    def _given(self, held: str) -> dict[str, Any]:
        """Settings in a parameter; what is not a mapping is refused when it is used, not here."""
        value = getattr(self, held)
        return dict(value) if isinstance(value, Mapping) else {}

    def _chain(self, n_rois: int, classes: np.ndarray) -> ChainSettings:
        """Settings of the chain that the estimator begins; `classes` are control and patient."""
        model = self._model_name()
        if self.features == "any" and model not in ("linear", "mlp"):
            raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
        own = {name: getattr(self, name) for name in OWN}
        training = make(Training, {**own, **(self.training or {})}, "training")
        names = {"method": self.method, "model": model, "generator": self.generator}
        given = {part: dict(getattr(self, HELD_IN[part]) or {}) for part in names}
        parts: Any = {
            part: Component(name, given[part]) for part, name in names.items() if name
        }
        same = {name: getattr(self, name) for name in SAME}
        said = {"training": training, "classes": tuple(classes.tolist()), **same}
        return settings_for(LearnerSpec(**parts), n_rois, **said)


def from_settings(settings: ChainSettings) -> dict[str, Any]:
    """Parameters of the estimator that continues a chain: the inverse of `Parameters._chain`."""
    learner, training = settings.learner, asdict(settings.training)
    parts = {
        "method": learner.method,
        "model": learner.model,
        "generator": learner.generator,
    }
    found: dict[str, Any] = {name: training.pop(name) for name in OWN}
    for name, part in parts.items():
        found[name] = part.name if part else None
        found[HELD_IN[name]] = dict(part.params) if part else None
    found |= {name: getattr(settings, name) for name in SAME}
    return found | {"training": training, "positive": settings.classes[1]}
