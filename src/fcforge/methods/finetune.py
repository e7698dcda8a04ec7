"""A network without memory: fine-tuned from site to site, or begun anew at each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fcforge.methods.base import Method


@dataclass(frozen=True)
class Finetune(Method):
    """Base of the paper: L = CE(current batch), continuing from the last site's parameters."""

    name: ClassVar[str] = "finetune"
    title: ClassVar[str] = "Fine-tuning (Base)"
    source: ClassVar[str] = "FORGE paper, Base"


@dataclass(frozen=True)
class Independent(Method):
    """Each site alone: what a hospital reaches without the consortium. Read its diagonal only."""

    name: ClassVar[str] = "independent"
    title: ClassVar[str] = "Independent"
    source: ClassVar[str] = "reference: single-site training"
    depends_on: ClassVar[Literal["order", "set", "site", "all"]] = "site"
