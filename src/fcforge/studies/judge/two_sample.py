"""Whether two sets of subjects can be told apart, and whether one covers the other."""

import numpy as np
import torch
from torch import Tensor

from fcforge.graphs import edges, fisher_z
from fcforge.metrics import cell_values


def embed(reference: Tensor, fc: Tensor, dimensions: int = 50) -> tuple[Tensor, Tensor]:
    """Both sets of FC in at most `dimensions` principal axes of their union (Fisher z).

    In the 6,670 raw dimensions neighbour-based measures mislead (generators.md 3.2). The union
    treats both sets alike; axes of one set would favour it.
    """
    a, b = fisher_z(edges(reference)).double(), fisher_z(edges(fc)).double()
    both = torch.cat([a, b])
    both = both - both.mean(0)
    values, vectors = torch.linalg.eigh(both @ both.T)
    k = min(dimensions, both.shape[0] - 1)
    scores = vectors[:, -k:] * values[-k:].clamp_min(0.0).sqrt()
    return scores[: len(a)], scores[len(a) :]


def mmd(
    a: Tensor, b: Tensor, rng: np.random.Generator, permutations: int = 200
) -> dict[str, float]:
    """Unbiased squared maximum mean discrepancy with an RBF of median width; permutation p.

    References
    ----------
    Gretton et al., A kernel two-sample test, JMLR 2012.
    """
    both = torch.cat([a, b])
    squared = torch.cdist(both, both).square()
    width = squared[squared > 0].median() if bool((squared > 0).any()) else squared.new_ones(())
    kernel = torch.exp(-squared / width).cpu().numpy()
    np.fill_diagonal(kernel, 0.0)
    n, m = len(a), len(b)

    def statistic(order: np.ndarray) -> float:
        side = np.zeros(n + m)
        side[order[:n]] = 1.0
        left, right = kernel @ side, kernel @ (1 - side)
        within_a, within_b = side @ left, (1 - side) @ right
        inside = within_a / (n * (n - 1)) + within_b / (m * (m - 1))
        return float(inside - 2 * (side @ right) / (n * m))

    seen = statistic(np.arange(n + m))
    null = [statistic(rng.permutation(n + m)) for _ in range(permutations)]
    return {"mmd2": float(seen), "mmd_p": (1 + sum(x >= seen for x in null)) / (1 + permutations)}


def ridge_scores(x: Tensor, target: Tensor, query: Tensor, per_subject: float) -> Tensor:
    """Ridge regression on standardised features, in its dual form; scores of `query` (m,).

    Parameters
    ----------
    x : Tensor of shape (n, p)
    target : Tensor of shape (n,)
        0 / 1.
    query : Tensor of shape (m, p)
    per_subject : float
        Penalty divided by n, so that a larger training set is not regularised less.
    """
    mean, sd = x.mean(0), x.std(0).clamp_min(1e-6)
    a, b = (x - mean) / sd, (query - mean) / sd
    t = 2.0 * target.to(x.dtype) - 1.0
    eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
    w = torch.linalg.solve(a @ a.T + per_subject * len(x) * eye, t - t.mean())
    return b @ (a.T @ w) + t.mean()


def classifier_test(a: Tensor, b: Tensor, rng: np.random.Generator, folds: int = 5) -> float:
    """C2ST: cross-validated AUROC of a ridge classifier between two sets; 0.5 is best.

    References
    ----------
    Lopez-Paz & Oquab, Revisiting classifier two-sample tests, 2017.
    """
    x = torch.cat([a, b])
    # Squares let a linear rule see differences in spread.
    x = torch.cat([x, x.square()], 1)
    y = np.r_[np.zeros(len(a), dtype=int), np.ones(len(b), dtype=int)]
    fold = np.empty(len(y), dtype=int)
    for label in (0, 1):
        members = rng.permutation(np.flatnonzero(y == label))
        fold[members] = np.arange(len(members)) % folds
    values = []
    for f in range(folds):
        inside, outside = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        target = torch.from_numpy(y[inside]).to(x.device)
        score = ridge_scores(x[inside], target, x[outside], 1.0).cpu().numpy()
        values.append(float(cell_values(score, y[outside], "auroc")))
    return float(np.nanmean(values))


def coverage(real: Tensor, fake: Tensor, k: int = 5) -> dict[str, float]:
    """Precision, recall (Kynkaanniemi 2019), density and coverage (Naeem 2020)."""
    k = min(k, len(real) - 1, len(fake) - 1)
    radius_real = torch.cdist(real, real).kthvalue(k + 1, dim=1).values
    radius_fake = torch.cdist(fake, fake).kthvalue(k + 1, dim=1).values
    d = torch.cdist(real, fake)
    inside = d <= radius_real[:, None]
    return {
        "precision": float(inside.any(0).double().mean()),
        "recall": float((d <= radius_fake[None]).any(1).double().mean()),
        "density": float(inside.double().sum(0).mean() / k),
        "coverage": float(inside.any(1).double().mean()),
    }
