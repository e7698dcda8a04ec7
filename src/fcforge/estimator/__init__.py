"""Estimators with the interface of scikit-learn, each imported on first use.

ConfoundRemover and SiteHarmoniser need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fcforge.core.errors import optional

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier
    from fcforge.estimator.inputs import InputError
    from fcforge.estimator.regressor import ForgeRegressor
    from fcforge.estimator.stability import edge_stability
    from fcforge.estimator.transformers import (
        ConfoundRemover,
        MatrixLog,
        SiteHarmoniser,
        TangentSpace,
    )

__all__ = [
    "ConfoundRemover",
    "ForgeClassifier",
    "ForgeRegressor",
    "InputError",
    "MatrixLog",
    "SiteHarmoniser",
    "TangentSpace",
    "edge_stability",
]
_HOMES = {
    "ConfoundRemover": "transformers",
    "ForgeClassifier": "classifier",
    "ForgeRegressor": "regressor",
    "InputError": "inputs",
    "MatrixLog": "transformers",
    "SiteHarmoniser": "transformers",
    "TangentSpace": "transformers",
    "edge_stability": "stability",
}
_NEED_TORCH = ("ForgeClassifier", "ForgeRegressor", "edge_stability")


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fcforge.estimator' has no attribute '{name}'")
    if name in _NEED_TORCH:
        optional("torch", "train")  # before any other import
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
