"""Whether synthetic FC matrices are valid and their moments and graphs look like real ones.

Pure functions of FC (n, R, R) and diagnoses (n,). Nothing here trains a classifier.
"""

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from fcforge.generators.corr_gauss import within_class_variance
from fcforge.graphs import edges
from fcforge.types import FCBatch

# Real FC is often stored as float16, whose rounding moves eigenvalues of 0 this far.
PSD_TOLERANCE = 5e-3


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson correlation of two vectors; NaN when one is constant."""
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 else float("nan")


def validity(fc: Tensor) -> dict[str, float]:
    """Share of positive semidefinite matrices and the smallest eigenvalues."""
    smallest = torch.linalg.eigvalsh(fc.double())[:, 0]
    return {
        "psd_share": float((smallest >= -PSD_TOLERANCE).double().mean()),
        "min_eigenvalue": float(smallest.median()),
    }


def class_difference(batch: FCBatch) -> Tensor | None:
    """Mean edges of patients minus controls (p,), None when a class is missing."""
    e = edges(batch.fc)
    if not bool((batch.y == 0).any() and (batch.y == 1).any()):
        return None
    return e[batch.y == 1].mean(0) - e[batch.y == 0].mean(0)


def moments(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> dict[str, float]:
    """Edge means and within-class variances against the subjects the generator learnt from.

    ``edge_mean_r_test`` is against held-out subjects: the real/real row tells how much of its
    distance from 1 is the sampling error of small groups.
    """
    real, held, fake = edges(train.fc), edges(test.fc), edges(synthetic.fc)
    var_real = within_class_variance(real, train.y)
    var_fake = within_class_variance(fake, synthetic.y)
    centred = fake - fake.mean(1, keepdim=True)
    unit = centred / centred.norm(dim=1, keepdim=True).clamp_min(1e-12)
    n = len(synthetic)
    return {
        "edge_mean_r": correlation(fake.mean(0), real.mean(0)),
        "edge_mean_r_test": correlation(fake.mean(0), held.mean(0)),
        "edge_mean_mae": float((fake.mean(0) - real.mean(0)).abs().mean()),
        "variance_ratio": float(var_fake.mean() / var_real.mean()),
        "sd_ratio": float(var_fake.sqrt().mean() / var_real.sqrt().mean()),
        "variance_r": correlation(var_fake, var_real),
        "pairwise_r": float((unit.sum(0).square().sum() - n) / max(n * (n - 1), 1)),
    }


def class_effect(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> dict[str, float]:
    """Correlation of the class difference with the held-out and the training one; norm ratio."""
    fake, held, real = (class_difference(b) for b in (synthetic, test, train))
    if fake is None or held is None or real is None:
        return dict.fromkeys(
            ("class_difference_r", "class_difference_r_train", "class_difference_norm"),
            float("nan"),
        )
    return {
        "class_difference_r": correlation(fake, held),
        "class_difference_r_train": correlation(fake, real),
        "class_difference_norm": float(fake.norm() / real.norm()),
    }


def spectrum(fc: Tensor) -> Tensor:
    """Mean sorted eigenvalues (R,), largest first."""
    return torch.linalg.eigvalsh(fc.double()).mean(0).flip(0)


def matched_density(fc: Tensor, density: float = 0.15) -> Tensor:
    """Keep the strongest `density` of every subject's edges; weights (n, R, R), rest 0."""
    e = edges(fc)
    keep = max(1, round(density * e.shape[1]))
    limit = e.topk(keep, dim=1).values[:, -1]
    graph = fc * (fc >= limit[:, None, None])
    return graph * (1.0 - torch.eye(fc.shape[-1], device=fc.device))


def topology(fc: Tensor, density: float = 0.15) -> dict[str, Tensor]:
    """Four measures per subject (n,) of the graph at matched density.

    ``strength`` mean edge weight; ``clustering`` mean share of closed triangles; ``efficiency``
    mean inverse shortest path of the 0/1 graph (Latora & Marchiori 2001); ``modularity`` Q of
    Newman's leading-eigenvector bisection (2006).
    """
    weighted = matched_density(fc, density)
    a = (weighted != 0).to(torch.float32)
    degree = a.sum(-1)
    triangles = (a @ a * a).sum(-1)
    possible = (degree * (degree - 1)).clamp_min(1.0)
    return {
        "strength": weighted.sum((-1, -2)) / a.sum((-1, -2)).clamp_min(1.0),
        "clustering": (triangles / possible).mean(-1),
        "efficiency": _efficiency(a),
        "modularity": _bisection_modularity(a, degree),
    }


def _efficiency(a: Tensor) -> Tensor:
    """Mean 1/d over pairs, by growing paths one edge at a time; unreachable pairs count 0."""
    rois = a.shape[-1]
    reached = torch.eye(rois, device=a.device).expand_as(a).clone()
    total = torch.zeros(a.shape[0], device=a.device)
    for length in range(1, rois):
        grown = ((reached + reached @ a) > 0).to(a.dtype)
        new = (grown - reached).sum((-1, -2))
        if not bool((new > 0).any()):
            break
        total += new / length
        reached = grown
    return total / (rois * (rois - 1))


def _bisection_modularity(a: Tensor, degree: Tensor) -> Tensor:
    edges2 = degree.sum(-1).clamp_min(1.0)
    b = a - degree[:, :, None] * degree[:, None, :] / edges2[:, None, None]
    # Collapsed generators give near-copies of one sparse graph with hundreds of equal eigenvalues,
    # on which float32 eigh may not converge; a ramp far below any gap of interest separates them.
    ramp = torch.linspace(0.0, 1e-6, a.shape[-1], dtype=torch.float64, device=a.device).diag()
    leading = torch.linalg.eigh(b.double() + ramp).eigenvectors[..., -1]
    side = torch.where(leading < 0, -1.0, 1.0).to(b.dtype)
    return torch.einsum("ni,nij,nj->n", side, b, side) / (2 * edges2)


def shape_of_graphs(reference: Tensor, fc: Tensor) -> dict[str, float]:
    """Spectrum distance and topology distances of two sets of FC matrices."""
    out = {"spectrum_distance": float((spectrum(fc) - spectrum(reference)).abs().mean())}
    real, fake = topology(reference), topology(fc)
    for name in real:
        a, b = real[name].cpu().numpy(), fake[name].cpu().numpy()
        out[f"topology_{name}"] = float(ks_2samp(a, b, method="asymp").statistic)
    return out
