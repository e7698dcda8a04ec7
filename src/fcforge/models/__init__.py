"""Classifiers by name. To add one, write its file here or register it as ``fcforge.models``.

A config may also name ``"module:object"``: a subclass of `Model` or of ``torch.nn.Module``.
"""

from fcforge.core.component import Component
from fcforge.core.registry import Registry, registered
from fcforge.core.settings import build, make
from fcforge.models.base import Model, Output
from fcforge.models.torch_module import TorchModule, module_class
from fcforge.nn.tensors import Inputs, Params

MODELS: Registry[type[Model]] = registered(__name__, Model, module_class)

__all__ = ["MODELS", "Inputs", "Model", "Output", "Params", "make_model"]


def make_model(component: Component, n_rois: int, n_outputs: int) -> Model:
    """Build the model that a config names.

    Parameters
    ----------
    component : Component
        A registered name with settings. In Python also the name "torch_module" with a
        ``torch.nn.Module`` as its setting `module`, see `TorchModule`.
    n_rois, n_outputs : int
        Number of ROIs and of logits.

    Returns
    -------
    Model
        Its parameters are drawn later, by `Model.init`.

    Raises
    ------
    ConfigError
        If the name or a setting is unknown, or a value is out of bounds.
    """
    size = {"n_rois": n_rois, "n_outputs": n_outputs}
    if component.name == TorchModule.name and "module" in component.params:
        where = f"model '{type(component.params['module']).__name__}'"
        return make(TorchModule, component.params, where, **size)
    return build("model", component, MODELS, **size)
