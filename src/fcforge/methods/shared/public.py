"""What methods around a public start share: the head of a start as a linear model's parameters."""

import torch
from torch import Tensor

from fcforge.errors import ConfigError
from fcforge.methods.shared.ridge import linear_head
from fcforge.models.base import Model, Params
from fcforge.releases import vector
from fcforge.releases.start import Start


def require_log_features(where: str, model: Model) -> None:
    """Raise `ConfigError` where a model does not read what a start speaks about."""
    if getattr(model, "features", "") != "log+diagonal":
        raise ConfigError(
            "a start speaks about the whole matrix logarithm of the FC.",
            where=where,
            do="Set model = {name = 'linear', features = 'log+diagonal'}.",
        )


def head_params(start: Start, beta: Tensor) -> Params:
    """Linear model on raw features whose two logits differ by the calibrated log odds."""
    solution = vector.on_features(start, vector.head(start, beta.cpu()))
    half = 0.5 / start.temperature
    found = linear_head(half * solution.weight, half * solution.bias)
    return {name: value.to(beta.device) for name, value in found.items()}


def no_step(start: Start, device: torch.device) -> Tensor:
    """The correction of a consortium without a release, (q + 1,)."""
    return torch.zeros(start.n_axes + 1, dtype=torch.float64, device=device)
