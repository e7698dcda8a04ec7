"""Agreement of several trainings about the edges that a model uses (stability selection).

E is the number of edges.
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError

AGREEMENT = 0.7  # share of trainings on random halves that must agree about an edge
FALSE_EDGES = 1.0  # edges that may look stable by chance, on average


@dataclass(frozen=True)
class EdgeStability:
    r"""How often trainings on other people agree about an edge (stability selection).

    An edge is stable where at least 70 % of the trainings have it among their q strongest
    and give its weight the same sign. With :math:`q = \sqrt{(2 \cdot 0.7 - 1) E}` trainings on
    random halves find at most one edge stable by chance, on average.

    Attributes
    ----------
    same_sign : ndarray of shape (E,)
        Share of the trainings that give the edge's weight its commoner sign; E edges.
    in_top : ndarray of shape (E,)
        Share of the trainings that have the edge among their q strongest.
    weight : ndarray of shape (E,)
        Gradient of the score by the edge's Fisher z, mean over the trainings.
    n : int
        Number of trainings.

    References
    ----------
    Meinshausen and Buhlmann (2010), Stability selection.
    """

    same_sign: Array
    in_top: Array
    weight: Array
    n: int

    @classmethod
    def of(cls, weights: Array) -> "EdgeStability":
        """Measure the agreement of k trainings (at least two) about edge weights (k, E)."""
        if len(weights) < 2:
            raise DataError(
                "stability needs at least two trainings.", do="Use more seeds."
            )
        size = np.abs(weights)
        q_squared = (2 * AGREEMENT - 1) * FALSE_EDGES * size.shape[1]
        q = max(1, int(np.sqrt(q_squared)))
        limit = np.sort(size, axis=1)[:, -q, None]  # the q-th largest of each training
        positive = (weights > 0).mean(0)
        negative = (weights < 0).mean(0)
        sign = np.maximum(positive, negative)
        top = ((size >= limit) & (size > 0)).mean(0)
        return cls(sign, top, weights.mean(0), len(weights))

    @property
    def stable(self) -> Array:
        """Whether each edge is stable, (E,) bool."""
        return (self.same_sign >= AGREEMENT) & (self.in_top >= AGREEMENT)
