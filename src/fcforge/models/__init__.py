"""Classifiers. `MODELS` is the table of them."""

from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.models.edge import MLP, TEM, Linear
from fcforge.models.graph import GAE, GAT, GCN, SAGE, GraphTransformer

CLASSES = (GCN, GAT, SAGE, GraphTransformer, GAE, Linear, MLP, TEM)
MODELS: dict[str, type[Model]] = {cls.name: cls for cls in CLASSES}

__all__ = ["MODELS", "Inputs", "Model", "Output", "Params"]
