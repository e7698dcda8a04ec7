"""Capsules: the sealed state that travels from one hospital to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcforge.capsule.contents import Capsule, ChainSettings, settings_for
    from fcforge.capsule.learning import LearnOptions, learn, learn_next
    from fcforge.capsule.opening import Check, Trust, open_capsule, verify
    from fcforge.capsule.prediction import predict
    from fcforge.capsule.sealing import seal, with_audit

_HOME = {
    "Capsule": "contents",
    "ChainSettings": "contents",
    "settings_for": "contents",
    "LearnOptions": "learning",
    "learn": "learning",
    "learn_next": "learning",
    "predict": "prediction",
    "Check": "opening",
    "Trust": "opening",
    "open_capsule": "opening",
    "seal": "sealing",
    "verify": "opening",
    "with_audit": "sealing",
}

__all__ = [
    "Capsule",
    "ChainSettings",
    "Check",
    "LearnOptions",
    "Trust",
    "learn",
    "learn_next",
    "open_capsule",
    "predict",
    "seal",
    "settings_for",
    "verify",
    "with_audit",
]


def __getattr__(name: str) -> Any:
    """Import torch only when something is used: the command line lists its commands at once."""
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'fcforge.capsule' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fcforge.capsule.{_HOME[name]}"), name)
