"""Classifiers. `MODELS` is the table of them, `make_model` builds one from its settings."""

from fcforge.components import build
from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.models.convolutions import GAE, GAT, GCN, SAGE
from fcforge.models.edge import MLP, TEM, Linear
from fcforge.models.message_passing import GraphTransformer
from fcforge.types import Component

CLASSES = (GCN, GAT, SAGE, GraphTransformer, GAE, Linear, MLP, TEM)
MODELS: dict[str, type[Model]] = {cls.name: cls for cls in CLASSES}


def make_model(component: Component, n_rois: int, n_outputs: int = 2) -> Model:
    """Build the model a component names, for `n_rois` ROIs; see `fcforge.components.build`."""
    return build("model", component, MODELS, n_rois=n_rois, n_outputs=n_outputs)


__all__ = ["MODELS", "Inputs", "Model", "Output", "Params", "make_model"]
