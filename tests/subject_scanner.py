"""Looks for real subjects in a method's state, in any form and any layout."""

import torch

from fcforge import graphs
from fcforge.methods import Lane
from fcforge.models.edge import edge_features
from fcforge.replay.state import named


def features(model, fc: torch.Tensor) -> list[torch.Tensor]:
    """All forms in which a subject could be kept, each (n, d)."""
    forms = [fc, graphs.edges(fc), graphs.fisher_z(graphs.edges(fc)), edge_features(fc)]
    forms += list(model.prepare(fc).values())
    return [f.reshape(len(fc), -1) for f in forms]


def closest(values: torch.Tensor, subject: torch.Tensor) -> float:
    """Highest |correlation| of any stretch of `values` with a subject's features (n, d)."""
    flat, d = values.double().reshape(-1), subject.shape[1]
    if flat.numel() < d:
        return 0.0
    windows = flat.unfold(0, d, 1)

    def unit(x):
        x = x - x.mean(1, keepdim=True)
        return x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)

    return float((unit(windows) @ unit(subject.double()).T).abs().max())


def kept_subjects(model, lane: Lane, fc: torch.Tensor) -> list[str]:
    """Names of state tensors that hold a subject of `fc`, in any form and any layout."""
    found = []
    state = lane.state if isinstance(lane.state, dict) else named(lane.state)
    for name, value in state.items():
        forms = (value, value.mT) if value.dim() == 2 else (value,)
        if value.is_floating_point() and any(
            closest(v, f) > 0.999 for v in forms for f in features(model, fc)
        ):
            found.append(name)
    return found
