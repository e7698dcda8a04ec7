"""A network without memory: fine-tuned from site to site, or begun anew at each."""

from dataclasses import dataclass

from fcforge.methods.base import Method


@dataclass(frozen=True)
class Finetune(Method):
    """Base of the paper: L = CE(current batch), continuing from the last site's parameters."""

    name = "finetune"
    title = "Fine-tuning (Base)"
    source = "FORGE paper, Base"


@dataclass(frozen=True)
class Independent(Method):
    """Each site alone: what a hospital reaches without the consortium. Read its diagonal only."""

    name = "independent"
    title = "Independent"
    source = "reference: single-site training"
    depends_on = "site"
