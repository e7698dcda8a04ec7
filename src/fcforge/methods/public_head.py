"""The public head alone: what everybody begins with. Its row says what the hospitals added."""

from dataclasses import dataclass

import torch

from fcforge.methods.base import Lane, Method, Model, PublicView
from fcforge.methods.shared.public import head_params, no_step, require_log_features


@dataclass(frozen=True)
class PublicHead(Method):
    """Ridge on the public people; no site changes it."""

    name = "public_head"
    title = "Public head alone"
    source = "reference: what a start is worth by itself"
    depends_on = "set"
    fits = False
    from_public = "head"
    needs_start = True
    models = ("linear",)

    def check_model(self, model: Model) -> None:
        """A start speaks about the whole matrix logarithm."""
        require_log_features(self.where(), model)

    def learn_public(
        self, model: Model, lane: Lane, public: PublicView, rng: torch.Generator
    ) -> Lane:
        """Take the head of the start."""
        device = lane.params["head.0.weight"].device
        return lane._replace(params=head_params(public.start, no_step(public.start, device)))
