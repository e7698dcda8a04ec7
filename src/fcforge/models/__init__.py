"""Classifiers by name. To add one, write its file here or register it as ``fcforge.models``.

A config may also name ``"module:object"``: a subclass of `Model` or of ``torch.nn.Module``.
"""

from fcforge.core.registry import Registry, registered
from fcforge.models.base import Model, Output
from fcforge.models.torch_module import module_class
from fcforge.nn.tensors import Inputs, Params

MODELS: Registry[type[Model]] = registered(__name__, Model, module_class)

__all__ = ["MODELS", "Inputs", "Model", "Output", "Params"]
