"""Classifiers. `MODELS` is the table of them."""

from fcforge.models.base import Model, Output
from fcforge.models.edge import MLP, TEM, Linear
from fcforge.models.graph import GAE, GAT, GCN, SAGE, GraphTransformer
from fcforge.nn.tensors import Inputs, Params

CLASSES = (GCN, GAT, SAGE, GraphTransformer, GAE, Linear, MLP, TEM)
MODELS: dict[str, type[Model]] = {cls.name: cls for cls in CLASSES}

__all__ = ["MODELS", "Inputs", "Model", "Output", "Params"]
