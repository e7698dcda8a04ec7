r"""Attribution of each scan's score to edges, by integrated gradients.

An attribution shows what *this model* used. It is not a proof that an edge has to do with the
illness. `fcforge.evaluation.edge_stability` measures whether models of other people use the same
edges.

With :math:`z = \mathrm{artanh}(C)` of a scan's FC and :math:`z'` of a reference scan, edge e
contributes to the score f

.. math:: c_e = (z_e - z'_e) \int_0^1 \frac{\partial f}{\partial z_e}
          \big(z' + a (z - z')\big) \, da, \qquad \sum_e c_e = f(z) - f(z').

Where f is linear in z this is :math:`w_e (z_e - z'_e)`, and one gradient is exact. Elsewhere
(matrix-log features, networks) the integral is Gauss-Legendre quadrature. A graph model looks only
at edges above a threshold, so its score jumps where an edge crosses it on the way: such a jump
belongs to the edge that crosses, and is shared by those that cross within the same of many steps.

Contributions are for the patients' class, whatever the two classes are called: positive ones
speak for it.

Shapes: n scans, R ROIs, E = R (R - 1) / 2 edges, m points at which the score is computed at once.

References
----------
Sundararajan, Taly, Yan (2017), Axiomatic attribution for deep networks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.features import log_features, one_blas_thread
from fcforge.core.constants import LOG_SCALE
from fcforge.data.edges import fc_from_upper, upper_from_fc
from fcforge.data.scan_checks import fisher_z

SAME = 1e-9  # eigenvalues nearer than this count as one


class Attribution(NamedTuple):
    """Contribution of each edge to the scores of n scans; E = R (R - 1) / 2 edges, row by row.

    Attributes
    ----------
    contribution : ndarray of shape (n, E)
    slope : ndarray of shape (n, E)
        Mean gradient between reference and scan: positive where a stronger edge raises the score.
    score : ndarray of shape (n,)
    base : float
        Score of the reference.
    """

    contribution: Array
    slope: Array
    score: Array
    base: float


class ScoredModel(Protocol):
    """A score that can be taken apart; a network's is `fcforge.models.attribution.Scorer`."""

    @property
    def steps(self) -> int:
        """Number of gradients between reference and scan; 1 where the score is linear in Fisher z."""

    @property
    def kept(self) -> Callable[[Array], Array] | None:
        """Function from edges (m, E) to whether the model sees them; None without a threshold."""

    def score(self, fc: Array) -> Array:
        """Return log odds (n,) of scans (n, R, R)."""

    def slopes(self, z: Array) -> Array:
        """Return gradients (m, E) at Fisher-z edges (m, E)."""


def slope_at(model: ScoredModel, fc: Array) -> Array:
    """Return the gradient (E,) by each Fisher-z edge at one scan (R, R): a linear model's weights."""
    return model.slopes(fisher_z(fc[None]))[0]


def attribute(model: ScoredModel, fc: Array, reference: Array) -> Attribution:
    """Return the contribution of every edge to the scores of n scans.

    Parameters
    ----------
    model : ScoredModel
    fc : ndarray of shape (n, R, R)
        Scans of R ROIs.
    reference : ndarray of shape (R, R)
        Scan that they are compared with.
    """
    reference_z = fisher_z(reference[None])[0]
    difference = fisher_z(fc) - reference_z
    slope = np.zeros_like(difference)
    jumps = np.zeros_like(difference)
    # Gauss-Legendre points between -1 (the reference) and 1 (the scan), and their weights, of sum 2
    nodes, weight = np.polynomial.legendre.leggauss(model.steps)
    for scan, scan_difference in enumerate(difference):
        if model.kept is None:
            points = reference_z + (nodes[:, None] + 1) / 2 * scan_difference
            slope[scan] = weight / 2 @ model.slopes(points)
        else:
            slope[scan], jumps[scan] = _with_jumps(
                model, model.kept, reference_z, scan_difference
            )
    base = float(model.score(reference[None])[0])
    return Attribution(difference * slope + jumps, slope, model.score(fc), base)


def _with_jumps(
    model: ScoredModel,
    visible_edges: Callable[[Array], Array],
    reference_z: Array,
    difference: Array,
) -> tuple[Array, Array]:
    """Attribute the score of one scan by a model that sees only edges above a threshold.

    Parameters
    ----------
    model : ScoredModel
    visible_edges : callable
        Takes edges (m, E) and returns which of them the model sees, (m, E) bool.
    reference_z : ndarray of shape (E,)
        Fisher z of the reference scan.
    difference : ndarray of shape (E,)
        Fisher z of the scan minus that of the reference.

    Returns
    -------
    slope : ndarray of shape (E,)
        Mean gradient on the straight line from the reference to the scan.
    jump : ndarray of shape (E,)
        Changes of the score by edges that cross the threshold on this line.
    """
    share = np.linspace(0, 1, model.steps + 1)[:, None]
    points = reference_z + share * difference
    slopes = model.slopes((points[1:] + points[:-1]) / 2)
    r = np.tanh(points)
    jumps = np.diff(model.score(fc_from_upper(r))) - slopes @ difference / model.steps
    # edges that appear or vanish within each step share its jump
    crossing = np.diff(visible_edges(r).astype(np.int8), axis=0) != 0
    share_of_jump = jumps / crossing.sum(1).clip(min=1)
    return slopes.mean(0), share_of_jump @ crossing


@dataclass(frozen=True)
class LogHead:
    r"""Log odds that are linear in the matrix logarithm of FC, as those of a base model are.

    With :math:`C` = FC, :math:`M = (1 - a) C + a I = V \,\mathrm{diag}(v)\, V^\top` and the weights
    as a symmetric matrix :math:`W`, the score is :math:`\langle W, \log M\rangle + b` and

    .. math:: \frac{\partial}{\partial M} = V \big( (V^\top W V) \circ L \big) V^\top, \quad
        L_{ij} = \frac{\log v_i - \log v_j}{v_i - v_j}, \quad L_{ii} = 1 / v_i

    (Daleckii and Krein), which holds for repeated eigenvalues, too.

    Attributes
    ----------
    weight : ndarray of shape (R (R + 1) / 2,)
        Weights of `log_features`.
    bias : float
        b.
    shrink : float
        a.
    """

    steps: ClassVar[int] = 16
    kept: ClassVar[None] = None
    weight: Array
    bias: float
    shrink: float

    def score(self, fc: Array) -> Array:
        """Return log odds (n,) of scans (n, R, R)."""
        return log_features(fc, self.shrink) @ self.weight + self.bias

    def slopes(self, z: Array) -> Array:
        """Return gradients (m, E) at Fisher-z edges (m, E)."""
        r = np.tanh(z)
        fc = fc_from_upper(r)
        shrunk = (1 - self.shrink) * fc + self.shrink * np.eye(fc.shape[-1])
        with one_blas_thread():
            value, vector = np.linalg.eigh(shrunk)
            turned = np.swapaxes(vector, -1, -2)
            inside = turned @ self._weights(fc.shape[-1]) @ vector
            gradient = vector @ (inside * _log_slopes(value)) @ turned
        # an edge stands twice in the matrix; its Fisher z changes it by 1 - r^2
        return 2 * (1 - self.shrink) * upper_from_fc(gradient) * (1 - r**2)

    def _weights(self, n_rois: int) -> Array:
        """Return the weights as a symmetric matrix: its product with the logarithm is the score."""
        # `log_features` divides everything by LOG_SCALE and the diagonal by the root of 2; in the product an
        # edge counts twice
        n_edges = n_rois * (n_rois - 1) // 2
        edge_weights = fc_from_upper(self.weight[None, :n_edges] / 2, 0.0)[0]
        return (edge_weights + np.diag(self.weight[n_edges:] / 2**0.5)) / LOG_SCALE


def _log_slopes(value: Array) -> Array:
    """Return divided differences (n, R, R) of the logarithm at eigenvalues (n, R), all positive."""
    log = np.log(value)
    gap = value[..., :, None] - value[..., None, :]
    same = np.abs(gap) < SAME
    log_gap = log[..., :, None] - log[..., None, :]
    slope = log_gap / np.where(same, 1.0, gap)
    return np.where(same, 1 / value[..., :, None], slope)
