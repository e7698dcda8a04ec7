"""Settings of the parts (``method__penalty``, ``model__hidden``), as they travel in a capsule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.capsule.chain import ChainSettings, settings_for
from fcforge.components import check_names
from fcforge.consortium.learning import Budget
from fcforge.errors import ConfigError
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from fcforge.settings import make
from fcforge.types import Component, LearnerSpec, Training

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier

RELEASES = "forge_release"
# settings of a part are in this parameter of the estimator
HELD_IN = {
    "method": "method_params",
    "model": "model_params",
    "generator": "generator_params",
    "training": "training",
}
SETTINGS = {**asdict(Budget()), "accept_labels": False}  # of method forge_release, here
TABLES: Mapping[str, Any] = {"method": METHODS, "model": MODELS, "generator": GENERATORS}
SAME = ("seed", "held_out", "calibrate", "val_fraction", "harmonise")  # of a chain, as named there
OWN = ("epochs", "batch_size", "lr")  # of Training: parameters of the estimator itself


def model_name(estimator: ForgeClassifier) -> str:
    """The model that is named, or the one the method works on, or the paper's gcn."""
    if estimator.model is not None:
        return estimator.model
    known = METHODS.get(estimator.method) if isinstance(estimator.method, str) else None
    return next(iter(known.models if known else ()), "gcn")


def defaults_of(estimator: ForgeClassifier, part: str) -> dict[str, Any]:
    """Every setting that a part has, with its default; nothing for an unknown part."""
    name = model_name(estimator) if part == "model" else getattr(estimator, part)
    if str(name) == RELEASES:
        return dict(SETTINGS)
    cls = Training if part == "training" else TABLES[part].get(str(name))
    known = [f for f in fields(cls) if f.name not in OWN] if cls is not None else []
    found = {f.name: f.default for f in known if f.default is not MISSING}
    return found | {f.name: f.default_factory() for f in known if f.default_factory is not MISSING}


def nested(estimator: ForgeClassifier) -> dict[str, Any]:
    """``{"method__penalty": value}`` of every setting of every part."""
    return {
        f"{part}__{name}": value
        for part, held in HELD_IN.items()
        for name, value in (defaults_of(estimator, part) | _given(estimator, held)).items()
    }


def _given(estimator: ForgeClassifier, held: str) -> dict[str, Any]:
    """Settings in a parameter; whatever is not a mapping is refused when it is used, not here."""
    value = getattr(estimator, held)
    return dict(value) if isinstance(value, Mapping) else {}


def set_nested(estimator: ForgeClassifier, given: Mapping[str, Any]) -> None:
    """Set ``part__name`` settings; an unknown one raises `ConfigError` naming the nearest."""
    for key, value in given.items():
        part, _, name = key.partition("__")
        check_names(f"{part} setting", [name], defaults_of(estimator, part))
        held = HELD_IN[part]
        setattr(estimator, held, {**_given(estimator, held), name: value})


def to_settings(estimator: ForgeClassifier, n_rois: int, classes: np.ndarray) -> ChainSettings:
    """Settings of the chain that an estimator begins; `classes` are control and patient."""
    model = model_name(estimator)
    if estimator.features == "any" and model not in ("linear", "mlp"):
        raise ConfigError(f"model '{model}' needs FC.", do="Choose linear or mlp.")
    if estimator.features == "any" and estimator.harmonise != "none":
        do = "Use SiteHarmoniser before the classifier."
        raise ConfigError("only FC is harmonised while it is learned.", do=do)
    own = {name: getattr(estimator, name) for name in OWN}
    training = make(Training, {**own, **(estimator.training or {})}, "training")
    names = {"method": estimator.method, "model": model, "generator": estimator.generator}
    parts: dict[str, Any] = {
        part: Component(name, dict(getattr(estimator, HELD_IN[part]) or {}))
        for part, name in names.items()
        if name
    }
    same = {name: getattr(estimator, name) for name in SAME}
    said = {"training": training, "classes": tuple(classes.tolist()), **same}
    return settings_for(LearnerSpec(**parts), n_rois, **said)


def from_settings(settings: ChainSettings) -> dict[str, Any]:
    """Parameters of the estimator that continues a chain: the inverse of `to_settings`."""
    learner, training = settings.learner, asdict(settings.training)
    parts = {"method": learner.method, "model": learner.model, "generator": learner.generator}
    found: dict[str, Any] = {name: training.pop(name) for name in OWN}
    for name, part in parts.items():
        found[name] = part.name if part else None
        found[HELD_IN[name]] = dict(part.params) if part else None
    found |= {name: getattr(settings, name) for name in SAME}
    return found | {"training": training, "positive": settings.classes[1]}
