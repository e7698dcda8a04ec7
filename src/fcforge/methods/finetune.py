"""Fine-tuning: learn each site on top of the last, keep nothing. The floor for forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fcforge.methods.base import Method


@dataclass(frozen=True)
class Finetune(Method):
    """Base of the paper: L = CE(current batch), continuing from the last site's parameters."""

    name: ClassVar[str] = "finetune"
    title: ClassVar[str] = "Fine-tuning (Base)"
    source: ClassVar[str] = "FORGE paper, Base"
