"""fcforge: hospitals learn one fMRI diagnosis model, one site after another.

What most people need is here, and is imported when it is asked for: reports and ``--help`` need no
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fcforge.core.version import __version__

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier
    from fcforge.estimator.regressor import ForgeRegressor
    from fcforge.estimator.transformers import (
        ConfoundRemover,
        MatrixLog,
        SiteHarmoniser,
        TangentSpace,
    )
    from fcforge.experiments.networks import TrainedNetwork, load_network
    from fcforge.generators.standalone import FCMVAE, FCGenerator
    from fcforge.imaging.atlas import load_atlas
    from fcforge.models.torch_module import TorchModule
    from fcforge.python_api import run
    from fcforge.replay.hcts import HCTS

__all__ = [
    "FCMVAE",
    "HCTS",
    "ConfoundRemover",
    "FCGenerator",
    "ForgeClassifier",
    "ForgeRegressor",
    "MatrixLog",
    "SiteHarmoniser",
    "TangentSpace",
    "TorchModule",
    "TrainedNetwork",
    "__version__",
    "load_atlas",
    "load_network",
    "run",
]
# exported names that are not defined in fcforge.estimator
_HOMES = {
    "FCGenerator": "fcforge.generators.standalone",
    "FCMVAE": "fcforge.generators.standalone",
    "HCTS": "fcforge.replay.hcts",
    "TorchModule": "fcforge.models.torch_module",
    "TrainedNetwork": "fcforge.experiments.networks",
    "load_atlas": "fcforge.imaging.atlas",
    "load_network": "fcforge.experiments.networks",
    "run": "fcforge.python_api",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module 'fcforge' has no attribute '{name}'")
    return getattr(import_module(_HOMES.get(name, "fcforge.estimator")), name)


def __dir__() -> list[str]:
    """Return the names of the package's members, whether they are imported yet or not."""
    return sorted({*globals(), *__all__})
