"""Fine-tuning from site to site."""

from dataclasses import dataclass

from fcforge.methods.base import EVERY_TARGET, Method


@dataclass(frozen=True)
class Finetune(Method):
    """Fine-tuning: cross-entropy of the current batch, starting from the last site's network."""

    name = "finetune"
    learns = EVERY_TARGET
    title = "Fine-tuning (Base)"
    source = "FORGE paper, Base"
