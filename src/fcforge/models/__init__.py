"""Classifiers. `MODELS` is the table of them, `make_model` builds one from its settings."""

from __future__ import annotations

from dataclasses import fields

from fcforge.errors import ConfigError, unknown_name
from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.models.edge import MLP, Linear
from fcforge.models.gae import GAE
from fcforge.models.gat import GAT
from fcforge.models.gcn import GCN
from fcforge.models.graph_transformer import GraphTransformer
from fcforge.models.sage import SAGE
from fcforge.models.tem import TEM
from fcforge.types import Component

MODELS: dict[str, type[Model]] = {
    "gcn": GCN,
    "gat": GAT,
    "sage": SAGE,
    "graph_transformer": GraphTransformer,
    "gae": GAE,
    "linear": Linear,
    "mlp": MLP,
    "tem": TEM,
}


def make_model(component: Component, n_rois: int) -> Model:
    """Build the model a component names, for `n_rois` ROIs.

    Raises
    ------
    ConfigError
        When the name or a parameter is unknown (the nearest known one is named) or a value
        cannot be used.
    """
    if component.name not in MODELS:
        raise unknown_name("model", component.name, MODELS)
    model = MODELS[component.name]
    known = [f.name for f in fields(model) if f.name != "n_rois"]
    for parameter in component.params:
        if parameter not in known:
            raise unknown_name(f"parameter of model '{component.name}'", parameter, known)
    try:
        return model(n_rois=n_rois, **component.params)
    except TypeError as error:  # a value of a type that cannot be compared or multiplied
        raise ConfigError(
            f"settings {dict(component.params)} cannot be used ({error}).",
            where=f"model '{component.name}'",
            do="Give numbers for numbers and names for names.",
        ) from error


__all__ = ["MODELS", "Inputs", "Model", "Output", "Params", "make_model"]
