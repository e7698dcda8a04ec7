"""FORGE's settings in two columns: what works, and the paper."""

from __future__ import annotations

from typing import Any

LAMBDAS = {  # of the paper, chosen per dataset: replay, logits, readout
    "asd": (0.20, 0.35, 0.15),
    "bsnip": (0.25, 0.30, 0.15),
    "mdd": (0.30, 0.30, 0.20),
}
# Each difference between what works and the paper (or, where it is silent, the authors' code).
PRESETS: dict[str, tuple[Any, Any]] = {  # default, paper
    "replay": (32, 64),
    "loss_form": ("mean", "paper"),
    "sum_sites": (False, True),
    "forward": ("joint", "separate"),
    "refresh": (5, 80),
    "credit_previous": (True, False),
    "centre_reward": (True, False),
    "posterior": ("ridge", "paper"),
    "arms": ("pooled", "site"),
    "prior": (0.1, 10.0),
    "belief": (1.0, 0.0),
    "reward_scale": (0.1, 0.05),
    "zscore": (False, True),
    "temperature": (0.1, 1.0),
    "floor": (0.25, 0.0),
    "closeness": ("mean", "none"),
}


def resolve(forge: Any) -> dict[str, Any]:
    """Settings of a `Forge`: its preset's column with what was set by hand."""
    column = ("default", "paper").index(forge.preset)
    given = {key: getattr(forge, key) for key in PRESETS}
    return {k: PRESETS[k][column] if v is None else v for k, v in given.items()}
