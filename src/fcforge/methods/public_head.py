"""The public head alone: what everybody begins with. Its row says what the hospitals added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fcforge.methods.base import Lane, Method
from fcforge.methods.shared.public import head_params, no_step, require_log_features
from fcforge.models.base import Model
from fcforge.replay.bank import PublicView


@dataclass(frozen=True)
class PublicHead(Method):
    """Ridge on the public people; no site changes it."""

    name: ClassVar[str] = "public_head"
    title: ClassVar[str] = "Public head alone"
    source: ClassVar[str] = "reference: what a start is worth by itself"
    depends_on: ClassVar[Literal["order", "set", "site", "all"]] = "set"
    fits: ClassVar[bool] = False
    from_public: ClassVar[str] = "head"
    needs_start: ClassVar[bool] = True
    models: ClassVar[tuple[str, ...]] = ("linear",)

    def check_model(self, model: Model) -> None:
        """A start speaks about the whole matrix logarithm."""
        require_log_features(self.where(), model)

    def learn_public(
        self, model: Model, lane: Lane, public: PublicView, rng: torch.Generator
    ) -> Lane:
        """Take the head of the start."""
        device = lane.params["head.0.weight"].device
        return lane._replace(params=head_params(public.start, no_step(public.start, device)))
