"""Capsules: the sealed state that travels from one hospital to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcforge.capsule.chain import ChainSettings, settings_for
    from fcforge.capsule.contents import Capsule
    from fcforge.capsule.learning import LearnOptions, learn, learn_next
    from fcforge.capsule.opening import Check, Trust, open_capsule, verify
    from fcforge.capsule.prediction import predict
    from fcforge.capsule.sealing import seal, with_audit

__all__ = [
    "Capsule", "ChainSettings", "Check", "LearnOptions", "Trust", "learn", "learn_next",
    "open_capsule", "predict", "seal", "settings_for", "verify", "with_audit",
]  # fmt: skip
_ROOMS = ("chain", "contents", "learning", "opening", "prediction", "sealing")


def __getattr__(name: str) -> Any:
    """Import torch only when something is used: the command line lists its commands at once."""
    import importlib

    for room in _ROOMS if name in __all__ else ():
        found = getattr(importlib.import_module(f"fcforge.capsule.{room}"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'fcforge.capsule' has no attribute '{name}'")
