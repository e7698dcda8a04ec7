"""Capsules: the sealed state that travels from one hospital to the next."""

from fcforge.capsule.chain import ChainSettings, settings_for
from fcforge.capsule.contents import Capsule
from fcforge.capsule.learning import LearnOptions, learn, learn_next
from fcforge.capsule.prediction import predict
from fcforge.capsule.sealing import Check, Trust, open_capsule, seal, verify, with_audit

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
