"""A network's score and its gradient by each edge, for explanations.

`fcforge.evaluation.explanation` turns them into importances of edges by integrated gradients: the
mean of the gradients at points between a reference and a subject. Shapes: m matrices, R ROIs,
E = R (R - 1) / 2 edges.
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
# number of points between reference and subject: for a score that is smooth in FC (linear in the
# matrix logarithm), and for one with kinks (a network, a probability)
SMOOTH = 16
KINKED = 64


@dataclass(frozen=True)
class Scorer:
    """A score that is explained, and how many gradients its explanation needs.

    Attributes
    ----------
    margin : callable
        The score, such as the log odds of patient: a differentiable function of FC (m, R, R), float64,
        with values (m,).
    steps : int
        Number of points between reference and subject at which gradients are computed; 1 for a
        score that is linear in Fisher z.
    kept : callable or None
        For a model with a threshold of edges: a function of correlations (m, E) that returns which
        of them are edges of the model's graph.
    """

    margin: Score
    steps: int = SMOOTH
    kept: Callable[[np.ndarray], np.ndarray] | None = None

    @classmethod
    def of(cls, model: Model, margin: Score, *, plain: bool = True) -> "Scorer":
        """Return the scorer of a model.

        Parameters
        ----------
        model : Model
        margin : callable
            Takes FC (m, R, R) of m subjects and returns the model's scores (m,).
        plain : bool
            Whether the score is a difference of the model's logits, not a nonlinear function of them
            such as a probability.

        Returns
        -------
        Scorer
            With the number of integration steps that the model needs, and the edges of its graph if it has
            one.
        """
        if isinstance(model, Linear):
            # features "z" and "centred" are linear in Fisher z, the others in the matrix logarithm
            linear_in_z = plain and model.features in ("z", "centred")
            return cls(margin, 1 if linear_in_z else SMOOTH if plain else KINKED)
        # a `TorchModule` says by `inputs` whether it gets a graph; models without the field may have one
        uses_graph = getattr(model, "inputs", "dense") in ("dense", "sparse")
        tau = getattr(model, "tau", None) if uses_graph else None
        if tau is None:  # no threshold, no graph
            return cls(margin, KINKED)
        absolute = getattr(model, "edges", "positive") == "absolute"
        return cls(margin, KINKED, lambda r: (abs(r) if absolute else r) >= tau)

    def score(self, fc: np.ndarray) -> np.ndarray:
        """Return the scores (m,) of FC (m, R, R), computed one by one to save memory."""
        scans = torch.from_numpy(fc).double()
        with torch.no_grad(), one_thread():
            return np.array([float(self.margin(scan[None])) for scan in scans])

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Return the gradients (m, E) of the score by Fisher-z edges, at the edges z (m, E).

        They are zero for edges that the score does not depend on.
        """
        edges_z = torch.from_numpy(z).requires_grad_()
        with torch.enable_grad(), one_thread():
            scores = self.margin(from_edges(torch.tanh(edges_z)))
            if scores.requires_grad:
                # a matrix's score depends on its own edges only: one call for all gradients
                scores.sum().backward()
        if edges_z.grad is None:
            return np.zeros_like(z)
        # eigenvectors of a graph with equal eigenvalues have no gradient
        return torch.nan_to_num(edges_z.grad, nan=0.0, posinf=0.0, neginf=0.0).numpy()
