"""Graphs and features of FC matrices, by pure functions; real and synthetic subjects share them.

Shapes: n subjects, R ROIs, E = R (R - 1) / 2 edges. An edge is a pair of ROIs and its value is
their correlation; edges are listed row by row in the upper triangle.

Nothing here is learned and no number of ROIs is assumed. Diagonals carry no information (1 in a
stored correlation matrix, 0 or anything in a generated one), so every builder of a graph overwrites
them: a real and a synthetic subject with equal edges give equal graphs.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from fcforge.core.constants import LOG_SCALE, SHRINK, TAU
from fcforge.core.errors import DataError

ZERO = 1e-8  # eigenvalues below it count as 0 (computed in float64)
EDGE_SCALE = 0.2  # typical spread of a Fisher-z edge over subjects; fixed, never learnt


def _eye_of(matrices: Tensor) -> Tensor:
    """Return the identity (R, R) in the type and on the device of matrices (..., R, R)."""
    rois = matrices.shape[-1]
    return torch.eye(rois, dtype=matrices.dtype, device=matrices.device)


def without_diagonal(fc: Tensor) -> Tensor:
    """Return a copy of FC matrices (..., R, R) with zeros on the diagonal."""
    return fc * (1.0 - _eye_of(fc))


def adjacency(fc: Tensor, tau: float = TAU) -> Tensor:
    r"""Threshold FC matrices to weighted graphs.

    .. math:: A_{ij} = c_{ij} \, [c_{ij} \ge \tau], \quad A_{ii} = 0

    with :math:`c` = FC, as ``A >= tau`` in the code of FORGE's authors: anticorrelations are no
    edges.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
    tau : float
        Threshold, inclusive.

    Returns
    -------
    Tensor of shape (n, R, R), non-negative for tau > 0
    """
    strength = without_diagonal(fc)
    return strength * (strength >= tau).to(fc.dtype)


def binary(adj: Tensor) -> Tensor:
    """Return 1 where a weighted adjacency (n, R, R) has an edge, else 0."""
    return (adj != 0).to(adj.dtype)


def gcn_norm(adj: Tensor) -> Tensor:
    r"""Normalise symmetrically with self loops, as PyG's ``gcn_norm``.

    .. math:: P = D^{-1/2} (A + I) D^{-1/2}, \quad D_{ii} = 1 + \sum_j A_{ij}

    An isolated node keeps its own features (:math:`P_{ii} = 1`).

    Parameters
    ----------
    adj : Tensor of shape (n, R, R)
        Weighted adjacency, non-negative.

    Returns
    -------
    Tensor of shape (n, R, R)
        The propagation matrix P: ``P @ features`` mixes every ROI with its neighbours.

    References
    ----------
    Kipf and Welling, Semi-supervised classification with graph convolutional networks, 2017.
    """
    looped = adj + _eye_of(adj)
    tiny = torch.finfo(adj.dtype).tiny
    scale = looped.sum(-1).clamp_min(tiny).rsqrt()
    return scale[..., :, None] * looped * scale[..., None, :]


def mean_norm(adj: Tensor) -> Tensor:
    """Return the matrices (n, R, R) that average features over neighbours.

    All neighbours count alike, whatever their edge weight. Rows of isolated ROIs are 0.
    """
    connected = binary(adj)
    return connected / connected.sum(-1, keepdim=True).clamp_min(1.0)


def attention_mask(adj: Tensor) -> Tensor:
    """Return the mask (n, R, R) to add to attention scores before their softmax.

    It is 0 where a ROI may attend (to its neighbours and itself) and -inf elsewhere.
    """
    may_attend = binary(adj) + _eye_of(adj)
    return torch.where(may_attend > 0, 0.0, float("-inf")).to(adj.dtype)


def node_features(fc: Tensor) -> Tensor:
    """Return FC rows as node features, standardised per column within each graph.

    The diagonal is set to 0 first, so that real and synthetic subjects are built alike. A constant
    column (a flat ROI) becomes 0.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)

    Returns
    -------
    Tensor of shape (n, R, R)
        Row i describes ROI i; each column has mean 0 and population variance 1.
    """
    x = without_diagonal(fc)
    x = x - x.mean(-2, keepdim=True)
    spread = x.square().mean(-2, keepdim=True).sqrt()
    return x / spread.clamp_min(1e-6)


def laplacian(adj: Tensor) -> Tensor:
    """Return the normalised Laplacian I - D^-1/2 A D^-1/2 of weighted graphs (n, R, R).

    D is the diagonal matrix of degrees, the sums of a node's edge weights. Rows of isolated nodes are 0,
    also on the diagonal.
    """
    degree = adj.sum(-1)
    has_edges = (degree > 0).to(adj.dtype)
    tiny = torch.finfo(adj.dtype).tiny
    scale = has_edges * degree.clamp_min(tiny).rsqrt()
    normalised = scale[..., :, None] * adj * scale[..., None, :]
    return torch.diag_embed(has_edges) - normalised


def laplacian_coordinates(adj: Tensor, k: int) -> Tensor:
    """Return the first `k` non-trivial eigenvectors of the normalised Laplacian, one row per ROI.

    A graph of c components (isolated ROIs count) has c eigenvectors of eigenvalue 0, which only
    indicate the component; all c are skipped. Where fewer than `k` are left, the
    rest is 0. The sign of each vector is fixed: among the entries whose magnitude is within
    1e-6 of the largest, the one with the lowest ROI index is positive. (The sum of entries
    would not do: every eigenvector of a regular graph is orthogonal to 1.) Vectors of a
    repeated eigenvalue are any basis of their space.

    Parameters
    ----------
    adj : Tensor of shape (n, R, R), symmetric, non-negative
    k : int
        Number of coordinates.

    Returns
    -------
    Tensor of shape (n, R, k), dtype of `adj`

    References
    ----------
    Dwivedi and Bresson, A generalization of transformer networks to graphs, 2021.
    """
    values, vectors = symmetric_eigen(laplacian(adj.double()))  # ascending
    n, rois = values.shape
    n_components = (values < ZERO).sum(-1, keepdim=True)  # (n, 1)
    # numbers of the eigenvectors to take; those beyond the last are set to 0 below
    column = n_components + torch.arange(k, device=adj.device)  # (n, k)
    exists = (column < rois).to(vectors.dtype)
    column = column.clamp_max(rois - 1)
    selected = vectors.gather(2, column[:, None, :].expand(n, rois, k))
    return (_fix_sign(selected) * exists[:, None, :]).to(adj.dtype)


def symmetric_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose symmetric matrices, always on CPU cores.

    A GPU takes matrices of this size nearly one by one, and its basis of a repeated eigenvalue
    would not be the CPU's: models would depend on the device.

    Parameters
    ----------
    matrices : Tensor of shape (..., R, R), symmetric, on any device

    Returns
    -------
    values : Tensor of shape (..., R)
        Eigenvalues in ascending order; NaN for a matrix that holds NaN or infinity.
    vectors : Tensor of shape (..., R, R)
        Eigenvectors in the columns. Both are on the device of `matrices`.
    """
    finite = torch.isfinite(matrices).all(-1).all(-1)[..., None, None]
    # torch.linalg.eigh raises an error if one matrix of the batch is not finite
    usable = torch.where(finite, matrices, _eye_of(matrices))
    if matrices.device.type == "cpu":
        values, vectors = torch.linalg.eigh(usable)
    else:
        values, vectors = (
            part.to(matrices.device) for part in _eigh_in_threads(usable.cpu())
        )
    return torch.where(finite[..., 0], values, torch.nan), vectors


def _eigh_in_threads(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of CPU matrices (..., R, R), sixteen per task."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    with ThreadPoolExecutor(8) as pool:
        decompositions = list(pool.map(torch.linalg.eigh, flat.split(16)))
    values, vectors = (torch.cat(parts) for parts in zip(*decompositions, strict=True))
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


def _fix_sign(vectors: Tensor) -> Tensor:
    """Return vectors, the columns of (n, R, k), with the entry of largest magnitude made positive.

    Among entries whose magnitudes are within 1e-6 of each other the first decides.
    """
    magnitude = vectors.abs()
    is_largest = magnitude >= (1.0 - 1e-6) * magnitude.amax(-2, keepdim=True)
    row = is_largest.to(torch.int8).argmax(-2, keepdim=True)  # argmax: first True
    negative = vectors.gather(-2, row) < 0
    return vectors * torch.where(negative, -1.0, 1.0)


def fisher_z(fc: Tensor) -> Tensor:
    """Return the arctanh of correlations clipped to ``|r| <= 0.9999``, which stabilises variance."""
    return torch.atanh(fc.clamp(-0.9999, 0.9999))


def edges(fc: Tensor) -> Tensor:
    """Return the upper triangles (n, E) of matrices (n, R, R), row by row, without diagonal."""
    rois = fc.shape[-1]
    rows, columns = torch.triu_indices(rois, rois, 1, device=fc.device)
    # one index into flat matrices takes a tenth of the time of a row and a column index
    return fc.flatten(-2).index_select(-1, rois * rows + columns)


def n_rois_of(n_edges: int) -> int:
    """Return the number of ROIs whose upper triangle has `n_edges` entries."""
    rois = int((1 + (1 + 8 * n_edges) ** 0.5) / 2)
    if rois * (rois - 1) // 2 != n_edges:
        raise DataError(
            f"{n_edges} edges are not R (R - 1) / 2 for any number of ROIs R.",
            do="Give the upper triangle without its diagonal.",
        )
    return rois


def from_edges(upper: Tensor, diagonal: float = 1.0) -> Tensor:
    """Return the symmetric matrices (..., R, R) of upper triangles; the inverse of `edges`.

    Parameters
    ----------
    upper : Tensor of shape (..., E)
    diagonal : float
        Value on the diagonal.
    """
    rois = n_rois_of(upper.shape[-1])
    rows, columns = torch.triu_indices(rois, rois, 1, device=upper.device)
    half = upper.new_zeros(*upper.shape[:-1], rois, rois)
    half[..., rows, columns] = upper
    return half + half.transpose(-1, -2) + diagonal * _eye_of(half)


def centre_edges(x: Tensor) -> Tensor:
    r"""Remove the strength of both ROIs from edges (n, E): a fixed symmetric linear map.

    .. math:: x'_{ij} = x_{ij} - s_i - s_j + \bar s,\qquad s_i = \tfrac{1}{R}\sum_k x_{ik}

    The strength :math:`s_i` of a ROI is the mean of its edges. Global level and ROI strength carry
    motion and scanner more than diagnosis. Of the fixed maps tried on ABIDE (none, global mean, ROI
    strength, ranks) this one had the best inner validation.

    Parameters
    ----------
    x : Tensor of shape (n, E)

    Returns
    -------
    Tensor of shape (n, E)
    """
    n_rois = n_rois_of(x.shape[1])
    widths = list(range(n_rois - 1, 0, -1))
    by_roi = x.split(widths, dim=1)  # edges of ROI i with the ROIs after it
    total = x.new_zeros(x.shape[0], n_rois)
    for i, row in enumerate(by_roi):
        total[:, i] += row.sum(1)
        total[:, i + 1 :] += row
    strength = total / n_rois
    # s_i + s_j - mean(s), as a sum of one term of each ROI
    share = strength - strength.mean(1, keepdim=True) / 2
    centred = []
    for i, row in enumerate(by_roi):
        centred.append(row - share[:, i, None] - share[:, i + 1 :])
    return torch.cat(centred, dim=1)


def log_matrix(fc: Tensor, shrink: float = SHRINK) -> Tensor:
    r"""Return the matrix logarithm of the shrunk FC, :math:`\log((1 - a) C + a I)`.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
        Correlation matrices C.
    shrink : float
        Share a of the identity.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    return _SymmetricLog.apply((1 - shrink) * fc + shrink * _eye_of(fc))


class _SymmetricLog(torch.autograd.Function):
    r"""Matrix logarithm whose gradient is right for repeated eigenvalues, too (Daleckii-Krein).

    .. math:: \nabla = V \big( (V^\top G V) \circ L \big) V^\top,\quad
        L_{ij} = \frac{\log v_i - \log v_j}{v_i - v_j},\quad L_{ii} = 1 / v_i

    where V and v are eigenvectors and eigenvalues and G is the incoming gradient. Eigenvalues that differ
    by less than 1e-9 count as equal, with :math:`L_{ij} = 1 / v_i`. The gradient of eigenvectors, which
    autograd would go through, is infinite for repeated eigenvalues.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        """Return the logarithm of symmetric matrices (..., R, R); eigenvalues are at least 1e-6."""
        value, vector = symmetric_eigen(matrix)
        log = torch.log(value.clamp(min=1e-6))
        ctx.save_for_backward(value, log, vector)
        return (vector * log[..., None, :]) @ vector.transpose(-1, -2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the gradient by the matrix; `grad` need not be symmetric.

        Where `forward` raised an eigenvalue to 1e-6, its logarithm is constant and the derivative 0.
        """
        value, log, vector = ctx.saved_tensors
        difference = value[..., :, None] - value[..., None, :]
        equal = difference.abs() < 1e-9
        log_difference = log[..., :, None] - log[..., None, :]
        # L of the class's formula: first its quotients, then 1 / v_i where eigenvalues are equal
        quotient = log_difference / torch.where(equal, 1.0, difference)
        derivative = torch.where(value > 1e-6, 1 / value.clamp(min=1e-6), 0.0)
        quotient = torch.where(equal, derivative[..., :, None], quotient)
        transposed = vector.transpose(-1, -2)
        twice_symmetric = grad + grad.transpose(-1, -2)
        rotated = transposed @ twice_symmetric @ vector
        return vector @ (rotated * quotient / 2) @ transposed


def log_edges(fc: Tensor, shrink: float = SHRINK) -> Tensor:
    r"""Return the upper triangle of the matrix logarithm of the shrunk FC, (n, R, R) -> (n, E).

    .. math:: \mathrm{off}\,\log\big((1 - a) C + a I\big)

    with FC C and a = `shrink`; "off" takes the entries off the diagonal. In these coordinates of
    correlation matrices averages and straight lines are valid matrices, too. Strong shrinkage keeps the
    noisy small eigenvalues from dominating.
    """
    return edges(log_matrix(fc, shrink))


def log_features(fc: Tensor, shrink: float = SHRINK) -> Tensor:
    r"""Return the whole matrix logarithm of the shrunk FC as a vector, (n, R (R + 1) / 2).

    `shrink` is as in `log_matrix`. Edges first, then the diagonal divided by :math:`\sqrt 2`, so that
    distances are log-Euclidean distances of whole matrices (up to one factor); scaled to roughly unit
    spread.
    """
    log = log_matrix(fc, shrink) / LOG_SCALE
    diagonal = log.diagonal(dim1=-2, dim2=-1)
    return torch.cat([edges(log), diagonal / 2**0.5], dim=1)
