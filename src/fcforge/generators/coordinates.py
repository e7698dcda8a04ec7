"""Off-log coordinates: unconstrained numbers for correlation matrices, and the way back.

A generator that adds noise to the edges of a correlation matrix C, or to their *Fisher z*, may leave
the set of positive definite matrices. *Off-log* coordinates are the off-diagonal entries of the matrix
logarithm of C (`fcforge.graphs.log_edges`): every vector of them belongs to exactly one positive
definite correlation matrix (Archakov & Hansen 2021). They do not depend on the order of the ROIs
(Thanwerdas 2024).

Shapes: n matrices or subjects, R ROIs, E = R(R-1)/2 edges.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from fcforge.graphs import edges, from_edges, n_rois_of, symmetric_eigen
from fcforge.nn.resources import one_thread

# (node s, weight) of 4-point quadrature rules on [0, 1], the half with s <= 1/2: Gauss-Legendre's, and
# the coarser Gauss-Lobatto's, whose first node needs no matrix product.
GAUSS = (
    (0.06943184420297371, 0.17392742256872693),
    (0.33000947820757187, 0.32607257743127307),
)
LOBATTO = ((0.0, 1 / 12), (0.5 - 0.5 / 5**0.5, 5 / 12))
# Number of matrices in one chunk
AT_ONCE = 64  # for each thread of a CPU, if they have 116 ROIs
ON_GPU = 1024  # whatever their number of ROIs
SITE_AT_ONCE = 512  # of functions that bound memory alone: a whole site of 116 ROIs
MOST_STEPS = 30  # of Newton's method


def number_at_once(of_116: int, rois: int) -> int:
    """Return how many matrices of `rois` ROIs take as long as `of_116` matrices of 116 ROIs.

    The cost of a matrix grows with the cube of its ROIs.
    """
    return max(1, of_116 * 116**3 // rois**3)


def in_parts(function: Callable[[Tensor], Tensor], given: Tensor, rois: int) -> Tensor:
    """Apply a function to chunks of subjects that are small enough for the memory.

    Parameters
    ----------
    function : callable
        Maps (b, ...) to (b, ...); the result for one subject must not depend on the others.
    given : Tensor of shape (n, ...)
        A row for each subject, or just their numbers.
    rois : int
        Number of ROIs, from which the size of chunks follows.

    Returns
    -------
    Tensor of shape (n, ...)
        The same as ``function(given)``.
    """
    parts = given.split(number_at_once(SITE_AT_ONCE, rois))
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
    """Return (1 - a) C + a I for FC matrices C (n, R, R) and an amount a in [0, 1].

    This raises the eigenvalues of short scans and of ROIs without signal above 0.
    """
    eye = torch.eye(fc.shape[-1], dtype=fc.dtype, device=fc.device)
    return (1.0 - amount) * fc + amount * eye


def unit_diagonal(matrix: Tensor) -> Tensor:
    """Scale positive definite matrices (n, R, R) to exactly symmetric correlation matrices.

    S becomes D^{-1/2} S D^{-1/2} with D the diagonal of S.
    """
    scale = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(1e-12).rsqrt()
    out = matrix * scale[..., :, None] * scale[..., None, :]
    out = 0.5 * (out + out.mT)
    out.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return out.clamp(-1.0, 1.0)


def clip_to_correlation(matrix: Tensor, floor: float = 1e-3) -> Tensor:
    """Return positive definite correlation matrices near given symmetric ones.

    Parameters
    ----------
    matrix : Tensor of shape (n, R, R)
        Symmetric.
    floor : float
        Eigenvalues below it are raised to it, before the diagonal is scaled to 1.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    values, vectors = symmetric_eigen(matrix)
    clipped = (vectors * values.clamp_min(floor)[..., None, :]) @ vectors.mT
    return unit_diagonal(clipped)


def _slope(values: Tensor, vectors: Tensor, coarse: bool) -> Tensor:
    """Return the derivatives H_ij = d exp(L)_ii / d L_jj of the diagonal of a matrix exponential.

    H = int_0^1 exp(s L) * exp((1 - s) L) ds, elementwise (Duhamel's formula). The integral is taken by
    quadrature: a few matrix products instead of the R^4 operations of the Daleckii-Krein sum.

    Parameters
    ----------
    values : Tensor of shape (n, R)
        Eigenvalues of L.
    vectors : Tensor of shape (n, R, R)
        Eigenvectors of L, in columns.
    coarse : bool
        Whether to use the coarser, cheaper rule.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    total = torch.zeros_like(vectors)
    # The integrand is the same at s and 1 - s: each node of the half interval counts twice.
    for node, weight in LOBATTO if coarse else GAUSS:
        # At s = 0 one factor is the identity, so only the diagonal of exp(L) remains.
        if node == 0.0:
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

    The coordinates are the off-diagonal part S of a matrix logarithm. Its diagonal x is unknown and
    follows from diag exp(S + diag x) = 1: it minimises the strictly convex tr exp(S + diag x) - sum x.
    The method depends on the device:

    - A CPU takes Newton's method on log diag exp from eigendecompositions: few steps, and numbers
      that do not change with the machine.
    - Any other device takes Archakov & Hansen's fixed point x <- x - log diag exp(S + diag x) by
      matrix products alone, to 1e-4 or better: many steps, each for all matrices at once.

    Parameters
    ----------
    coordinates : Tensor of shape (n, E)
        S, by edge.
    start : Tensor of shape (R,) or (n, R), optional
        First guess of x, e.g. the training subjects' mean diagonal of log C.
    tol : float
        Largest allowed absolute value of log diag exp(S + diag x). The rest is removed by scaling to
        unit diagonal.
    near : float
        On a CPU: when the largest absolute value of log diag exp(S + diag x) is at most this, the last
        step is taken to first order, without another eigendecomposition. This leaves an error of about
        0.008 near^2 in a correlation. 0 takes no such step.
    flat : bool
        Whether to return edges alone, which takes half the memory.

    Returns
    -------
    fc : Tensor of shape (n, R, R), or (n, E) if `flat`
        Positive definite with a diagonal of exactly 1.
    diagonal : Tensor of shape (n, R)
        x, a good start for similar coordinates.

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
    """Run `newton` in several threads, which share the matrices in chunks.

    LAPACK works through a batch one matrix at a time, so more threads are faster.

    Parameters
    ----------
    coordinates : Tensor of shape (n, E)
    x : Tensor of shape (n, R)
        First guess of the diagonals, improved in place.
    tol, near, flat
        As in `from_off_log`.

    Returns
    -------
    Tensor of shape (n, R, R), or (n, E) if `flat`
        Correlation matrices.
    """
    n, rois = x.shape
    workers = torch.get_num_threads()
    size = max(1, min(number_at_once(AT_ONCE, rois), -(-n // workers)))
    shape = coordinates.shape if flat else (n, rois, rois)
    fc = coordinates.new_empty(shape)

    def fill(part: Tensor, x: Tensor, result: Tensor) -> None:
        """Write the matrices of one chunk into `result`."""
        matrices = newton(part, x, tol, near)
        result.copy_(edges(matrices) if flat else matrices)

    pieces = [whole.split(size) for whole in (coordinates, x, fc)]
    with one_thread(), ThreadPoolExecutor(min(workers, len(pieces[0]))) as pool:
        list(pool.map(fill, *pieces))
    return fc


def fixed_point(coordinates: Tensor, x: Tensor, tol: float) -> Tensor:
    """Return correlation matrices by Archakov & Hansen's fixed-point iteration.

    L is the matrix logarithm: `coordinates` off its diagonal, x on it. In at most 200 steps, x is
    changed until exp(L) has a unit diagonal; `just_valid` then makes the diagonal exactly 1, also
    where the steps did not suffice. exp(L) is computed as B B' with B = exp(L / 2), because B B' stays
    positive definite in spite of rounding.

    Parameters
    ----------
    coordinates : Tensor of shape (n, E)
    x : Tensor of shape (n, R)
        First guess of the diagonals, improved in place.
    tol : float
        Largest logarithm of a diagonal entry of exp(L), in absolute value, at which it stops.

    Returns
    -------
    Tensor of shape (n, R, R)
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
    """Return correlation matrices by the Newton's method of `from_off_log`.

    Every second step uses the Jacobian of the step before: it is cheap and nearly as good. With `near`
    there are few steps, each with a coarser Jacobian of its own.

    Parameters
    ----------
    coordinates : Tensor of shape (n, E)
    x : Tensor of shape (n, R)
        First guess of the diagonals, improved in place.
    tol, near : float
        As in `from_off_log`.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    log_matrix = from_edges(coordinates, diagonal=0.0)
    out = torch.empty_like(log_matrix)
    todo = torch.arange(len(x))  # matrices that have not converged
    factors = torch.empty(0), torch.empty(0)  # LU decomposition; the first step sets it
    for step in range(MOST_STEPS):
        values, vectors, diag = _eigen(log_matrix[todo], x[todo])
        gap = diag.log().abs().amax(-1)
        # The last step accepts what is left.
        goes_on = (gap > tol) & (step < MOST_STEPS - 1)
        out[todo[~goes_on]] = _matrix_exp(values[~goes_on], vectors[~goes_on])
        todo = todo[goes_on]
        if not len(todo):
            break
        values = values[goes_on]
        vectors = vectors[goes_on]
        if near or step % 2 == 0:
            factors = torch.linalg.lu_factor(_slope(values, vectors, near > 0))
        else:
            factors = factors[0][goes_on], factors[1][goes_on]
        move = _newton_step(factors, diag[goes_on])
        x[todo] -= move
        close = gap[goes_on] <= near  # never, if near is 0
        out[todo[close]] = _nearby_exp(values[close], vectors[close], -move[close])
        todo = todo[~close]
    return just_valid(out)


def _eigen(log_matrix: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose symmetric matrices L (n, R, R) after setting their diagonals to x (n, R).

    Returns
    -------
    values : Tensor of shape (n, R)
        Eigenvalues.
    vectors : Tensor of shape (n, R, R)
        Eigenvectors, in columns.
    diag : Tensor of shape (n, R)
        Diagonal of exp(L).
    """
    log_matrix.diagonal(dim1=-2, dim2=-1).copy_(x)
    values, vectors = torch.linalg.eigh(log_matrix)
    return values, vectors, (vectors.square() @ values.exp()[..., None])[..., 0]


def _newton_step(factors: tuple[Tensor, Tensor], diag: Tensor) -> Tensor:
    """Return how far each diagonal entry of L is too large, by one step of Newton's method.

    The derivative of log diag exp(L) is H / diag exp(L), with H from `_slope`. So the step m solves
    H m = diag exp(L) * log diag exp(L).

    Parameters
    ----------
    factors : tuple of Tensor
        LU decomposition of the derivatives (`_slope`).
    diag : Tensor of shape (n, R)
        Diagonal of exp(L), which should be 1.

    Returns
    -------
    Tensor of shape (n, R)
        Bounded by 2, so that exp does not overflow.
    """
    residual = (diag * diag.log())[..., None]
    return torch.linalg.lu_solve(*factors, residual)[..., 0].clamp(-2.0, 2.0)


def _matrix_exp(values: Tensor, vectors: Tensor, s: float = 1.0) -> Tensor:
    """Return exp(s L) from the eigenvalues (n, R) and eigenvectors (n, R, R) of L."""
    return (vectors * (s * values).exp()[..., None, :]) @ vectors.mT


def _nearby_exp(values: Tensor, vectors: Tensor, move: Tensor) -> Tensor:
    """Return exp(L + diag move) for a small change of the diagonal, without another decomposition.

    Its eighth root is taken to first order, exp(L/8) + int_0^1 exp(s L/8) (move / 8) exp((1 - s) L/8) ds
    (Simpson's rule), and squared three times. The last product is B B', always positive definite.

    Parameters
    ----------
    values : Tensor of shape (n, R)
        Eigenvalues of L.
    vectors : Tensor of shape (n, R, R)
        Eigenvectors of L, in columns.
    move : Tensor of shape (n, R)
        Change of the diagonal of L.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    # In the basis of the eigenvectors the integral is elementwise. Simpson's rule takes s = 0, 1/2 and 1
    # with the weights 1, 4 and 1, over 6; with the 8 below `move` this makes 48.
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
    """Scale matrices (n, R, R) to unit diagonal and keep them positive definite in spite of rounding.

    To this end they are shrunk towards the identity by 2e-5.
    """
    out = shrink_to_identity(unit_diagonal(matrix), 2e-5)
    out.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return out
