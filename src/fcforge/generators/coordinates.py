"""Coordinates of correlation matrices in which a Gaussian or a network may work freely.

Two charts are used. *Fisher z* takes every edge alone; a sum of edges need not be positive
semidefinite afterwards. *Off-log* takes the off-diagonal part of the matrix logarithm
(`fcforge.graphs.log_edges`); every point of R^{R(R-1)/2} is exactly one positive definite
correlation matrix (Archakov & Hansen 2021), and the chart does not depend on the order of the ROIs
(Thanwerdas 2024).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from fcforge.graphs import edges, from_edges, n_rois_of, symmetric_eigen
from fcforge.nn.resources import one_thread

# (node, weight) of 4-point rules on [0, 1], the half with s <= 1/2: Gauss-Legendre's, and the
# coarser Gauss-Lobatto's, whose first node needs no matrix product.
GAUSS = (
    (0.06943184420297371, 0.17392742256872693),
    (0.33000947820757187, 0.32607257743127307),
)
LOBATTO = ((0.0, 1 / 12), (0.5 - 0.5 / 5**0.5, 5 / 12))
# Matrices worked on at once: on a CPU so many of 116 ROIs, on a GPU of any size.
AT_ONCE = 64
ON_GPU = 1024
SITE_AT_ONCE = 512  # where no matrix waits for another: a whole site of 116 ROIs
MOST_STEPS = 30  # of Newton's method


def few(of_116: int, rois: int) -> int:
    """Return the number of matrices of `rois` ROIs that take as long as `of_116` of 116 ROIs."""
    return max(1, of_116 * 116**3 // rois**3)


def in_parts(function: Callable[[Tensor], Tensor], given: Tensor, rois: int) -> Tensor:
    """Apply `function` to `given` (n, ...), subjects of many ROIs few at a time.

    Its result for one subject must not depend on the others.
    """
    parts = given.split(few(SITE_AT_ONCE, rois))
    first = function(parts[0])
    if len(parts) == 1:
        return first
    out = first.new_empty(len(given), *first.shape[1:])
    pieces = out.split(len(parts[0]))
    pieces[0].copy_(first)
    for piece, part in zip(pieces[1:], parts[1:], strict=True):
        piece.copy_(function(part))
    return out


def shrink_to_identity(fc: Tensor, amount: float) -> Tensor:
    """Return (1 - a) C + a I, which lifts the eigenvalues of rank-deficient scans and flat ROIs."""
    eye = torch.eye(fc.shape[-1], dtype=fc.dtype, device=fc.device)
    return (1.0 - amount) * fc + amount * eye


def unit_diagonal(matrix: Tensor) -> Tensor:
    """Scale positive definite S to the correlation matrix D^{-1/2} S D^{-1/2}, exactly symmetric."""
    scale = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(1e-12).rsqrt()
    out = matrix * scale[..., :, None] * scale[..., None, :]
    out = 0.5 * (out + out.mT)
    out.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return out.clamp(-1.0, 1.0)


def clip_to_correlation(matrix: Tensor, floor: float = 1e-3) -> Tensor:
    """Return a correlation matrix near `matrix`: eigenvalues of at least `floor`, unit diagonal.

    Parameters
    ----------
    matrix : Tensor of shape (n, R, R)
        Symmetric.
    floor : float
    """
    values, vectors = symmetric_eigen(matrix)
    clipped = (vectors * values.clamp_min(floor)[..., None, :]) @ vectors.mT
    return unit_diagonal(clipped)


def _slope(values: Tensor, vectors: Tensor, coarse: bool) -> Tensor:
    """Return H_ij = d exp(L)_ii / d L_jj of L with this eigendecomposition, (n, R, R).

    H = int_0^1 exp(s L) * exp((1 - s) L) ds elementwise (Duhamel), by Gauss-Legendre: a few
    matrix products instead of the R^4 of the Daleckii-Krein sum.
    """
    total = torch.zeros_like(vectors)
    for node, weight in LOBATTO if coarse else GAUSS:
        if node == 0.0:  # exp(0 L) is the identity
            diag = (vectors.square() @ values.exp()[..., None])[..., 0]
            total.diagonal(dim1=-2, dim2=-1).add_(2.0 * weight * diag)
            continue
        near = _matrix_exp(values, vectors, node)
        far = _matrix_exp(values, vectors, 1.0 - node)
        total += 2.0 * weight * near * far
    return total


def from_off_log(
    coordinates: Tensor,
    *,
    start: Tensor | None = None,
    tol: float = 1e-5,
    near: float = 0.0,
    flat: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the correlation matrices with given off-log coordinates.

    Finds the diagonal x with diag exp(S + diag x) = 1, the minimum of the strictly convex
    tr exp(S + diag x) - sum x. A CPU takes Newton's method on log diag exp from
    eigendecompositions: few steps, and numbers that do not change with the machine. Any other
    device takes Archakov & Hansen's fixed point x <- x - log diag exp(S + diag x) by matrix
    products alone, to 1e-4 or better: many steps, each for all matrices at once.

    Parameters
    ----------
    coordinates : Tensor of shape (n, R(R-1)/2)
    start : Tensor of shape (R,) or (n, R), optional
        First guess of x, e.g. the training subjects' mean diagonal of log C.
    tol : float
        Largest allowed deviation of log diag from 0 before the exact rescaling to unit diagonal.
    near : float
        Deviation from which a CPU's last step is taken to first order, without another
        eigendecomposition; it leaves an error of about 0.008 near^2 in a correlation.
    flat : bool
        Keep the edges alone: half the memory.

    Returns
    -------
    fc : Tensor of shape (n, R, R), or (n, R(R-1)/2) if `flat`
        Positive definite, exact unit diagonal.
    diagonal : Tensor of shape (n, R)
        x, a good start for nearby coordinates.

    References
    ----------
    Archakov & Hansen, A new parametrization of correlation matrices, Econometrica 2021.
    """
    rois = n_rois_of(coordinates.shape[-1])
    diagonal = coordinates.new_zeros((len(coordinates), rois))
    if start is not None:
        diagonal += start
    if coordinates.device.type == "cpu":
        return _in_threads(coordinates, diagonal, tol, near, flat), diagonal
    parts = zip(coordinates.split(ON_GPU), diagonal.split(ON_GPU), strict=True)
    fc = torch.cat([fixed_point(c, x, min(tol, 1e-4)) for c, x in parts])
    return edges(fc) if flat else fc, diagonal


def _in_threads(
    coordinates: Tensor, x: Tensor, tol: float, near: float, flat: bool
) -> Tensor:
    """Return correlation matrices by `newton`; `x` (n, R) is improved in place.

    LAPACK works through a batch one matrix at a time, so threads share chunks of it.
    """
    n, rois = x.shape
    workers = torch.get_num_threads()
    size = max(1, min(few(AT_ONCE, rois), -(-n // workers)))
    kept = coordinates.shape if flat else (n, rois, rois)
    fc = coordinates.new_empty(kept)

    def fill(part: Tensor, x: Tensor, into: Tensor) -> None:
        found = newton(part, x, tol, near)
        into.copy_(edges(found) if flat else found)

    pieces = [whole.split(size) for whole in (coordinates, x, fc)]
    with one_thread(), ThreadPoolExecutor(min(workers, len(pieces[0]))) as pool:
        list(pool.map(fill, *pieces))
    return fc


def fixed_point(coordinates: Tensor, x: Tensor, tol: float) -> Tensor:
    """Run Archakov & Hansen's iteration on one chunk; `x` (n, R) is improved in place.

    With B = exp(L / 2), exp(L) = B B' is positive definite in spite of rounding.
    """
    log_matrix = from_edges(coordinates, diagonal=0.0)
    for _ in range(200):
        log_matrix.diagonal(dim1=-2, dim2=-1).copy_(x)
        root = torch.linalg.matrix_exp(0.5 * log_matrix)
        gap = root.square().sum(-1).log()
        if not bool((gap.abs() > tol).any()):
            break
        x -= gap
    return just_valid(root @ root.mT)


def newton(coordinates: Tensor, x: Tensor, tol: float, near: float = 0.0) -> Tensor:
    """Run Newton's method of `from_off_log` on one chunk; `x` (n, R) is improved in place.

    Every matrix keeps the Jacobian of its first and third step: the steps between are cheap and
    nearly as good. With `near` there are few steps, each with a coarser Jacobian of its own.
    """
    log_matrix = from_edges(coordinates, diagonal=0.0)
    out = torch.empty_like(log_matrix)
    todo = torch.arange(len(x))
    factors = torch.empty(0), torch.empty(0)
    for step in range(MOST_STEPS):
        values, vectors, diag = _eigen(log_matrix[todo], x[todo])
        gap = diag.log().abs().amax(-1)
        left = (gap > tol) & (step < MOST_STEPS - 1)
        out[todo[~left]] = _matrix_exp(values[~left], vectors[~left])
        todo = todo[left]
        if not len(todo):
            break
        values = values[left]
        vectors = vectors[left]
        if near or step % 2 == 0:
            factors = torch.linalg.lu_factor(_slope(values, vectors, near > 0))
        else:
            factors = factors[0][left], factors[1][left]
        move = _newton_step(factors, diag[left])
        x[todo] -= move
        close = gap[left] <= near
        out[todo[close]] = _nearby_exp(values[close], vectors[close], -move[close])
        todo = todo[~close]
    return just_valid(out)


def _eigen(log_matrix: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return eigenvalues and -vectors of matrices with the diagonals x (n, R), and diag exp."""
    log_matrix.diagonal(dim1=-2, dim2=-1).copy_(x)
    values, vectors = torch.linalg.eigh(log_matrix)
    return values, vectors, (vectors.square() @ values.exp()[..., None])[..., 0]


def _newton_step(factors: tuple[Tensor, Tensor], diag: Tensor) -> Tensor:
    """Return the move that takes `diag` (n, R) to 1, at most 2 in log units to stay in exp's range."""
    right = (diag * diag.log())[..., None]
    return torch.linalg.lu_solve(*factors, right)[..., 0].clamp(-2.0, 2.0)


def _matrix_exp(values: Tensor, vectors: Tensor, s: float = 1.0) -> Tensor:
    """Return exp(s L) of L with this eigendecomposition."""
    return (vectors * (s * values).exp()[..., None, :]) @ vectors.mT


def _nearby_exp(values: Tensor, vectors: Tensor, move: Tensor) -> Tensor:
    """Return exp(L + diag move) of L with this eigendecomposition, for a small move.

    Its eighth root to first order, exp(L/8) + int_0^1 exp(s L/8) (move / 8) exp((1 - s) L/8) ds
    (Simpson's rule), squared three times. The last product is B B': positive definite always.
    """
    root = (values / 8.0).exp()
    middle = (values / 16.0).exp()
    slope = root[..., :, None] + root[..., None, :]
    slope += 4.0 * middle[..., :, None] * middle[..., None, :]
    eighth = slope * ((vectors.mT * move[..., None, :] / 48.0) @ vectors)
    eighth.diagonal(dim1=-2, dim2=-1).add_(root)
    quarter = eighth @ eighth
    half = vectors @ (quarter @ quarter)
    return half @ half.mT


def just_valid(matrix: Tensor) -> Tensor:
    """Scale to unit diagonal and shrink by 2e-5, which keeps it positive definite after rounding."""
    out = shrink_to_identity(unit_diagonal(matrix), 2e-5)
    out.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return out
