"""fcforge: hospitals learn one fMRI diagnosis model, one site after another."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    """`fcforge.run`, found when it is asked for: reports and `--help` need no torch."""
    if name == "run":
        return import_module("fcforge.studies.run").run
    raise AttributeError(f"module 'fcforge' has no attribute '{name}'")
