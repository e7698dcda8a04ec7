"""Classifiers. `MODELS` is the table of them, `make_model` builds one from its settings."""

from __future__ import annotations

from fcforge.components import build
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
    """Build the model a component names, for `n_rois` ROIs; see `fcforge.components.build`."""
    return build("model", component, MODELS, n_rois=n_rois)


__all__ = ["MODELS", "Inputs", "Model", "Output", "Params", "make_model"]
