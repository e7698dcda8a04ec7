"""A network's score and its gradient by each edge, for explanations.

What is made of them is in `fcforge.evaluation.explanation`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fcforge.graphs import from_edges
from fcforge.models.base import Model
from fcforge.models.edge import Linear
from fcforge.nn.resources import one_thread

Score = Callable[[Tensor], Tensor]  # FC (m, R, R), float64 -> scores (m,)
# gradients on the way: of matrix-log features; of networks
SMOOTH = 16
KINKED = 64


@dataclass(frozen=True)
class Scorer:
    """A score and how smooth it is.

    Attributes
    ----------
    margin : callable
        FC (m, R, R), float64 -> (m,), differentiable.
    steps : int
        Gradients on the way from the reference; 1 for a score that is linear in Fisher z.
    kept : callable or None
        Edges (m, E) -> whether the model sees them, where it has a threshold.
    """

    margin: Score
    steps: int = SMOOTH
    kept: Callable[[np.ndarray], np.ndarray] | None = None

    @classmethod
    def of(cls, model: Model, margin: Score, *, plain: bool = True) -> "Scorer":
        """Scorer of a model; `plain` where the score is the margin of its logits itself."""
        if isinstance(model, Linear):
            linear = plain and model.features in ("z", "centred")
            return cls(margin, 1 if linear else SMOOTH if plain else KINKED)
        sees_graph = getattr(model, "inputs", "dense") in ("dense", "sparse")
        tau = getattr(model, "tau", None) if sees_graph else None
        if tau is None:
            return cls(margin, KINKED)
        absolute = getattr(model, "edges", "positive") == "absolute"
        return cls(margin, KINKED, lambda r: (abs(r) if absolute else r) >= tau)

    def score(self, fc: np.ndarray) -> np.ndarray:
        """Scores (n,) of scans (n, R, R), one by one: memory is of one."""
        scans = torch.from_numpy(fc).double()
        with torch.no_grad(), one_thread():
            return np.array([float(self.margin(scan[None])) for scan in scans])

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Gradients (m, E) at Fisher-z edges (m, E); zero where the score does not look."""
        at = torch.from_numpy(z).requires_grad_()
        with torch.enable_grad(), one_thread():
            found = self.margin(from_edges(torch.tanh(at)))
            if found.requires_grad:
                found.sum().backward()
        if at.grad is None:
            return np.zeros_like(z)
        # eigenvectors of a graph with equal eigenvalues have no gradient
        return torch.nan_to_num(at.grad, nan=0.0, posinf=0.0, neginf=0.0).numpy()
