"""Keys of runs: a hash of the settings that differ from their defaults.

A field that is added with a default renames no stored run. A default that changes renames all
runs that rely on it, because its class raises `defaults_version` (`fcforge.core.identity`).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fcforge.base_model.model import BaseModelSettings
from fcforge.core.component import Component
from fcforge.core.identity import digest, identity, settings_identity
from fcforge.core.names import look_up
from fcforge.core.registry import source_files
from fcforge.core.settings import field_types
from fcforge.core.spec import BaseModelSpec, LearnerSpec, RunSpec
from fcforge.experiments.config_code import import_parts, registries
from fcforge.experiments.pipelines import PIPELINE, Pipeline

# Settings of a run that have their own entry in its identity, or that change no number:
# `own_threshold` adds further runs and leaves this one as it is.
APART = ("dataset", "data_sha256", "learner", "base_model", "own_threshold")


def run_key(spec: RunSpec) -> str:
    """Return the key of a run, which names the folder of its last node.

    Titles do not enter it, nor does the path of a dataset whose content is known.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    return digest(run_identity(spec))


def run_identity(spec: RunSpec) -> dict[str, Any]:
    """Return everything on which the numbers of a run depend, as JSON; its hash is the key."""
    settings = identity(spec)
    for name in APART:
        settings.pop(name, None)
    parts = {
        "data": spec.data_sha256 or _component(spec.dataset),
        "learner": learner_identity(spec.learner),
    }
    if spec.base_model is not None:
        parts["base_model"] = base_model_identity(spec.base_model)
    return {**settings, **parts}


def base_model_identity(spec: BaseModelSpec) -> dict[str, Any]:
    """Return what the base model of a run depends on: public data and default settings."""
    data = spec.sha256 or _component(spec.dataset)
    return {"data": data, "settings": identity(BaseModelSettings())}


def _component(component: Component) -> dict[str, Any]:
    """Return a component's name and settings as one dictionary."""
    return {"name": component.name, **component.params}


@lru_cache(maxsize=4096)
def learner_identity(learner: LearnerSpec) -> Mapping[str, Any]:
    """Return what a learner depends on: its parts by name, with settings that differ from defaults.

    Its training settings and its use of the base model are settings of the run.
    """
    if learner.method.name == PIPELINE:
        params = dict(learner.method.params)
        params.pop("folder", None)  # the module's content is hashed instead
        return {"pipeline": settings_identity(Pipeline, params, "learner")}
    import_parts(learner)
    known = registries()
    method = _part("method", learner.method, known["method"])
    model = learner.model
    model_settings = field_types(look_up("model", model.name, known["model"]))
    features = known["method"][learner.method.name].features
    if features and "features" in model_settings:
        # as `build_learner` does: the method chooses, unless the config does
        model = replace(model, params={"features": features, **model.params})
    parts = {"method": method, "model": _part("model", model, known["model"])}
    if learner.generator is not None:
        generator = learner.generator
        parts["generator"] = _part("generator", generator, known["generator"])
    return parts


def _part(
    kind: str, component: Component, registry: Mapping[str, type[Any]]
) -> dict[str, Any]:
    """Return what a method, model or generator depends on: its name and the settings that are no defaults.

    Parameters
    ----------
    kind : {"method", "model", "generator"}
        Kind of the component, for error messages.
    component : Component
    registry : mapping of str to type
        Classes of this kind by name.
    """
    cls = look_up(kind, component.name, registry)
    where = f"{kind} '{component.name}'"
    differing = settings_identity(cls, component.params, where)
    # a class keeps its first name in keys, so that a new name renames no stored run
    name = vars(cls).get("former_name", component.name)
    part = {"name": name, **differing}
    if ":" in component.name:  # other code is another learner
        part["name"] = component.name
        digests = [
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in source_files(component.name)
        ]
        part["source_sha256"] = digests[0] if digests else ""
        if digests[1:]:  # the object, or a base of it, is defined in another file
            part["further_sha256"] = digests[1:]
    return part


def keys_of_specs(stored: Mapping[str, RunSpec]) -> Callable[[RunSpec], str]:
    """Return a function that finds the keys of stored nodes by their specs.

    Folders of earlier versions were named by other keys. Their nodes state their specs.

    Parameters
    ----------
    stored : mapping of key to RunSpec
    """
    keys = {_without_labels(spec): key for key, spec in stored.items()}

    def key_of(spec: RunSpec) -> str:
        """Return the key of the stored node that ends with a spec, or a key that no node has."""
        plain = _without_labels(spec)
        return keys.get(plain) or f"missing-{digest(plain.to_json())}"

    return key_of


def _without_labels(spec: RunSpec) -> RunSpec:
    """Return a run without what changes no number, that is, titles and paths of files."""
    learner = spec.learner
    method = learner.method
    if "folder" in method.params:
        kept = {name: v for name, v in method.params.items() if name != "folder"}
        method = replace(method, params=kept)
    learner = replace(learner, method=method, title="", training={}, base_model=True)
    dataset = Component("") if spec.data_sha256 else spec.dataset
    base_model = spec.base_model
    if base_model is not None and base_model.sha256:
        base_model = replace(base_model, dataset=Component(""))
    return replace(
        spec,
        learner=learner,
        dataset=dataset,
        base_model=base_model,
        own_threshold=False,
    )
