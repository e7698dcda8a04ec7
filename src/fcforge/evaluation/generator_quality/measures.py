"""Measures of synthetic FC: validity, likeness to real FC, and how well the two can be separated.

Functions of FC (n, R, R), n subjects by R ROIs, and diagnoses (n,). No classifier of the diagnosis is trained.

Further letters: k dimensions, p edges, m subjects of a second set.
"""

import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path
from scipy.stats import ks_2samp
from torch import Tensor

from fcforge.core.subjects import FCBatch
from fcforge.data.splits import stratified_folds
from fcforge.evaluation.metrics import cell_values
from fcforge.generators.gaussian import within_class_variance
from fcforge.graphs import edges, fisher_z

# Real FC is often stored as float16, whose rounding moves eigenvalues of 0 this far.
PSD_TOLERANCE = 5e-3


def correlation(a: Tensor, b: Tensor) -> float:
    """Return Pearson correlation of two vectors; NaN when one is constant."""
    vectors = torch.stack([a, b]).double()
    return float(torch.corrcoef(vectors)[0, 1])


def validity(fc: Tensor) -> dict[str, float]:
    """Return the share of positive semidefinite matrices and the smallest eigenvalues."""
    smallest = torch.linalg.eigvalsh(fc.double())[:, 0]
    return {
        "psd_share": float((smallest >= -PSD_TOLERANCE).double().mean()),
        "min_eigenvalue": float(smallest.median()),
    }


def moments(train: FCBatch, synthetic: FCBatch) -> dict[str, float]:
    """Compare edge means and within-class variances with those of the generator's training subjects.

    Returns
    -------
    dict
        ``edge_mean_r``, the correlation of the mean edges; ``variance_ratio`` and ``sd_ratio``,
        synthetic over real, averaged over edges.
    """
    real = edges(train.fc)
    fake = edges(synthetic.fc)
    var_real = within_class_variance(real, train.y)
    var_fake = within_class_variance(fake, synthetic.y)
    return {
        "edge_mean_r": correlation(fake.mean(0), real.mean(0)),
        "variance_ratio": float(var_fake.mean() / var_real.mean()),
        "sd_ratio": float(var_fake.sqrt().mean() / var_real.sqrt().mean()),
    }


def class_effect(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> dict[str, float]:
    """Compare the difference between patients and controls in synthetic FC with the real one.

    Parameters
    ----------
    train, test : FCBatch
        Real subjects on which the generator was fitted, and held-out ones.
    synthetic : FCBatch

    Returns
    -------
    dict
        ``class_difference_r``, its correlation with that of held-out subjects;
        ``class_difference_norm``, its norm over that of the training subjects. NaN where a class
        is missing.
    """
    fake = class_difference(synthetic)
    size = fake.norm() / class_difference(train).norm()
    return {
        "class_difference_r": correlation(fake, class_difference(test)),
        "class_difference_norm": float(size),
    }


def class_difference(batch: FCBatch) -> Tensor:
    """Return the mean edges of patients minus controls (p,)."""
    e = edges(batch.fc)
    patients = e[batch.y == 1]
    controls = e[batch.y == 0]
    return patients.mean(0) - controls.mean(0)


def spectrum(fc: Tensor) -> Tensor:
    """Return the mean sorted eigenvalues (R,), largest first."""
    return torch.linalg.eigvalsh(fc.double()).mean(0).flip(0)


def matched_density(fc: Tensor, density: float = 0.15) -> Tensor:
    """Return graphs (n, R, R) of each subject's strongest edges; all other entries are 0.

    `density` is the share of the edges that is kept, equal for all subjects.
    """
    e = edges(fc)
    keep = max(1, round(density * e.shape[1]))
    limit = e.topk(keep, dim=1).values[:, -1]
    graph = fc * (fc >= limit[:, None, None])
    eye = torch.eye(fc.shape[-1], device=fc.device)
    return graph * (1.0 - eye)


def topology(fc: Tensor, density: float = 0.15) -> dict[str, Tensor]:
    """Return four measures per subject (n,) of the graph at matched density.

    ``strength`` mean edge weight; ``clustering`` mean share of closed triangles; ``efficiency``
    mean inverse shortest path of the 0/1 graph (Latora & Marchiori 2001); ``modularity`` Q of
    Newman's leading-eigenvector bisection (2006).
    """
    weighted = matched_density(fc, density)
    a = (weighted != 0).to(torch.float32)
    degree = a.sum(-1)
    triangles = (a @ a * a).sum(-1)
    possible = (degree * (degree - 1)).clamp_min(1.0)
    present = a.sum((-1, -2)).clamp_min(1.0)
    return {
        "strength": weighted.sum((-1, -2)) / present,
        "clustering": (triangles / possible).mean(-1),
        "efficiency": _efficiency(a),
        "modularity": _bisection_modularity(a, degree),
    }


def _efficiency(a: Tensor) -> Tensor:
    """Return the mean inverse path length (n,) over ROI pairs of 0/1 graphs; unreachable pairs count 0."""
    rois = a.shape[-1]
    graphs = a.cpu().numpy()
    steps = np.stack([shortest_path(graph, unweighted=True) for graph in graphs])
    steps[:, range(rois), range(rois)] = np.inf
    total = (1 / steps).sum((1, 2))
    return torch.from_numpy(total / (rois * (rois - 1))).to(a)


def _bisection_modularity(a: Tensor, degree: Tensor) -> Tensor:
    """Return Newman's modularity Q (n,) of 0/1 graphs, cut in two by the leading eigenvector.

    Parameters
    ----------
    a : Tensor of shape (n, R, R)
        Graphs without self-loops.
    degree : Tensor of shape (n, R)
        Number of edges of each ROI.
    """
    twice_edges = degree.sum(-1).clamp_min(1.0)
    expected = degree[:, :, None] * degree[:, None, :] / twice_edges[:, None, None]
    b = a - expected
    # Collapsed generators give near-copies of one sparse graph with hundreds of equal eigenvalues,
    # on which float32 eigh may not converge; a ramp far below any gap of interest separates them.
    ramp = torch.linspace(
        0.0, 1e-6, a.shape[-1], dtype=torch.float64, device=a.device
    ).diag()
    vectors = torch.linalg.eigh(b.double() + ramp).eigenvectors
    leading = vectors[..., -1]
    side = torch.where(leading < 0, -1.0, 1.0).to(b.dtype)
    return torch.einsum("ni,nij,nj->n", side, b, side) / (2 * twice_edges)


def shape_of_graphs(reference: Tensor, fc: Tensor) -> dict[str, float]:
    """Return distances of two sets of FC in mean spectrum and in each measure of `topology`.

    Parameters
    ----------
    reference : Tensor of shape (n, R, R)
        Real FC.
    fc : Tensor of shape (m, R, R)
        Synthetic FC.

    Returns
    -------
    dict of str to float
        ``spectrum_distance``, the mean absolute difference of eigenvalues, and ``topology_MEASURE``, the
        Kolmogorov-Smirnov distance of the subjects' values.
    """
    distance = (spectrum(fc) - spectrum(reference)).abs()
    out = {"spectrum_distance": float(distance.mean())}
    real = topology(reference)
    fake = topology(fc)
    for name in real:
        a = real[name].cpu().numpy()
        b = fake[name].cpu().numpy()
        out[f"topology_{name}"] = float(ks_2samp(a, b, method="asymp").statistic)
    return out


# -- two samples ---------------------------------------------------------------------------------
def embed(reference: Tensor, fc: Tensor, dimensions: int = 50) -> tuple[Tensor, Tensor]:
    """Return the coordinates of two sets of FC on the principal axes of their union.

    With all 6,670 edges of 116 ROIs as dimensions, measures that are based on neighbours mislead. The axes
    are those of the Fisher-z edges of both sets together, because axes of one set would favour it.

    Parameters
    ----------
    reference : Tensor of shape (n, R, R)
    fc : Tensor of shape (m, R, R)
    dimensions : int
        Largest number k of axes.

    Returns
    -------
    Tensor of shape (n, k), Tensor of shape (m, k)
    """
    a = fisher_z(edges(reference)).double()
    b = fisher_z(edges(fc)).double()
    union = torch.cat([a, b])
    union = union - union.mean(0)
    values, vectors = torch.linalg.eigh(union @ union.T)
    k = min(dimensions, union.shape[0] - 1)
    lengths = values[-k:].clamp_min(0.0).sqrt()
    scores = vectors[:, -k:] * lengths
    return scores[: len(a)], scores[len(a) :]


def mmd(
    a: Tensor, b: Tensor, rng: np.random.Generator, permutations: int = 200
) -> dict[str, float]:
    """Return the squared maximum mean discrepancy of two samples and its permutation p-value.

    It is the unbiased estimate with a Gaussian kernel whose width is the median distance.

    Parameters
    ----------
    a, b : Tensor of shape (n, p) and (m, p)
    rng : numpy Generator
    permutations : int

    Returns
    -------
    dict
        ``mmd2`` and ``mmd_p``.

    References
    ----------
    Gretton et al., A kernel two-sample test, JMLR 2012.
    """
    pooled = torch.cat([a, b])
    squared = torch.cdist(pooled, pooled).square()
    positive = squared[squared > 0]
    width = positive.median() if len(positive) else squared.new_ones(())
    kernel = torch.exp(-squared / width).cpu().numpy()
    np.fill_diagonal(kernel, 0.0)
    n = len(a)
    m = len(b)

    def statistic(order: np.ndarray) -> float:
        """Return the squared discrepancy if the first n subjects in this order are one sample."""
        side = np.zeros(n + m)
        side[order[:n]] = 1.0
        left = kernel @ side
        right = kernel @ (1 - side)
        within_a = side @ left
        within_b = (1 - side) @ right
        inside = within_a / (n * (n - 1)) + within_b / (m * (m - 1))
        return float(inside - 2 * (side @ right) / (n * m))

    seen = statistic(np.arange(n + m))
    null = [statistic(rng.permutation(n + m)) for _ in range(permutations)]
    p_value = (1 + sum(x >= seen for x in null)) / (1 + permutations)
    return {"mmd2": seen, "mmd_p": p_value}


def ridge_scores(
    x: Tensor, target: Tensor, query: Tensor, per_subject: float
) -> Tensor:
    """Return the scores (m,) of `query` by ridge regression on standardised features.

    It is solved in its dual form, as there are fewer subjects than features.

    Parameters
    ----------
    x : Tensor of shape (n, p)
        Features of n training subjects.
    target : Tensor of shape (n,)
        Their classes, 0 or 1, learned as -1 and 1.
    query : Tensor of shape (m, p)
        Features of the subjects to score.
    per_subject : float
        Penalty divided by n, so that a larger training set is not regularised less.
    """
    mean = x.mean(0)
    sd = x.std(0).clamp_min(1e-6)
    a = (x - mean) / sd
    b = (query - mean) / sd
    t = 2.0 * target.to(x.dtype) - 1.0
    eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
    penalised = a @ a.T + per_subject * len(x) * eye
    w = torch.linalg.solve(penalised, t - t.mean())
    return b @ (a.T @ w) + t.mean()


def classifier_test(
    a: Tensor, b: Tensor, rng: np.random.Generator, folds: int = 5
) -> float:
    """Return the classifier two-sample test (C2ST) of two sets of points.

    It is the cross-validated AUROC of a ridge classifier that separates them; 0.5 means that it cannot.

    Parameters
    ----------
    a, b : Tensor of shape (n, k), (m, k)
        The two sets, such as `embed` returns.
    rng : numpy Generator
        Randomness of the folds.
    folds : int

    References
    ----------
    Lopez-Paz & Oquab, Revisiting classifier two-sample tests, 2017.
    """
    x = torch.cat([a, b])
    # Squares let a linear rule see differences in spread.
    x = torch.cat([x, x.square()], 1)
    y = np.repeat([0, 1], [len(a), len(b)])
    fold = stratified_folds(y, folds, rng)
    values = []
    for f in range(folds):
        inside = np.flatnonzero(fold != f)
        outside = np.flatnonzero(fold == f)
        target = torch.from_numpy(y[inside]).to(x.device)
        score = ridge_scores(x[inside], target, x[outside], 1.0)
        auroc = cell_values(score.cpu().numpy(), y[outside], "auroc")
        values.append(float(auroc))
    return float(np.nanmean(values))


def coverage(real: Tensor, fake: Tensor, k: int = 5) -> dict[str, float]:
    """Return precision, recall (Kynkaanniemi 2019), density and coverage (Naeem 2020).

    A subject's ball reaches to its k-th neighbour in its own set. Precision is the share of synthetic
    subjects inside a real ball, recall the share of real subjects inside a synthetic one, density the mean
    number of real balls around a synthetic subject divided by k, and coverage the share of real balls with a
    synthetic subject inside.

    Parameters
    ----------
    real, fake : Tensor of shape (n, p) and (m, p)
        Real and synthetic subjects.
    k : int
        Neighbours within which two subjects count as alike.
    """
    k = min(k, len(real) - 1, len(fake) - 1)
    among_real = torch.cdist(real, real)
    among_fake = torch.cdist(fake, fake)
    # k + 1, because each subject is at distance 0 from itself
    radius_real = among_real.kthvalue(k + 1, dim=1).values
    radius_fake = among_fake.kthvalue(k + 1, dim=1).values
    d = torch.cdist(real, fake)
    inside = d <= radius_real[:, None]
    reached = d <= radius_fake[None]
    return {
        "precision": float(inside.any(0).double().mean()),
        "recall": float(reached.any(1).double().mean()),
        "density": float(inside.double().sum(0).mean() / k),
        "coverage": float(inside.any(1).double().mean()),
    }
