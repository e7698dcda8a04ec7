"""Datasets, models, generators and methods that a config can name, with one-line descriptions."""

import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from fcforge.core.component import Component
from fcforge.core.errors import FCForgeError
from fcforge.core.names import look_up
from fcforge.core.settings import build
from fcforge.core.spec import LearnerSpec, Training

SIZES = ("n_rois", "n_outputs")  # settings of a model that the data decide

# Package that holds the registry of each kind.
PACKAGES = {
    "datasets": "data.datasets",
    "models": "models",
    "generators": "generators",
    "methods": "methods",
}


def catalogue(kind: str) -> dict[str, str]:
    """Return everything of a kind that a config can name, with its description.

    Models that belong to one method (PDGNN's) are left out. Only the package of that kind is
    imported, so that datasets can be listed where torch is not installed.

    Parameters
    ----------
    kind : {"datasets", "models", "generators", "methods"}

    Returns
    -------
    dict of str to str
        Descriptions by name.
    """
    package = import_module(f"fcforge.{look_up('kind', kind, PACKAGES)}")
    return {
        name: _description(member)
        for name, member in getattr(package, kind.upper()).items()
        if not getattr(member, "belongs_to", "")
    }


def _description(member: Any) -> str:
    """Return a one-line description: `about` of a dataset's entry, else the first line of a class's docstring.

    For a method it also says what is kept between sites.

    Parameters
    ----------
    member : class or Dataset
        Value of a registry.
    """
    lines = (inspect.getdoc(member) or "").splitlines()
    first = getattr(member, "about", None) or lines[0]
    return f"{first} (keeps {member.keeps})" if hasattr(member, "keeps") else first


def settings_of(kind: str, component: Component) -> dict[str, Any]:
    """Return all settings of a component: those that the config gives, and the defaults of the others.

    Sizes that the data decide (`SIZES`) are left out.

    Where defaults are unknown, only the given settings are returned. This is so for datasets, for
    estimators, for classes named by ``"module:object"``, and where torch is not installed.

    Parameters
    ----------
    kind : {"datasets", "models", "generators", "methods"}
    component : Component
    """
    given = dict(component.params)
    member = _registered(kind, component)
    if not (isinstance(member, type) and is_dataclass(member)):
        return given
    try:
        instance = build(kind.removesuffix("s"), component, {component.name: member})
    except FCForgeError:  # settings of another version, from its run folder
        return given
    defaults = {field.name: getattr(instance, field.name) for field in fields(instance)}
    return {
        name: given.get(name, value)
        for name, value in {**given, **defaults}.items()
        if name not in SIZES
    }


def learning_rate(learner: LearnerSpec, training: Training) -> float | None:
    """Return the learning rate of a learner's network: of the training settings, else its model's default.

    None if it is unknown.
    """
    if training.lr is not None:
        return training.lr
    return getattr(_registered("models", learner.model), "lr", None)


def trains_network(learner: LearnerSpec) -> bool:
    """Return whether a learner is trained by gradient descent; True if it is unknown."""
    return bool(getattr(_registered("methods", learner.method), "fits", True))


def _registered(kind: str, component: Component) -> Any:
    """Return the class of a component; None if it is not registered on this machine."""
    try:
        package = import_module(f"fcforge.{PACKAGES[kind]}")
    except ImportError:
        return None
    return getattr(package, kind.upper()).get(component.name)
