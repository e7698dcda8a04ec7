"""Classifiers by name. To add one, write its file here or register it as ``fcforge.models``."""

from fcforge.core.registry import Registry, registered
from fcforge.models.base import Model, Output
from fcforge.nn.tensors import Inputs, Params

MODELS: Registry[type[Model]] = registered(__name__, Model)

__all__ = ["MODELS", "Inputs", "Model", "Output", "Params"]
