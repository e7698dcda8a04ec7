"""A public template: mean and main axes of FC, from people who are outside the study.

Differentially private learners may look at their own subjects only through noise. What they use
besides (centre, axes, spreads) comes from here: an open dataset, never a hospital's own data.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fcforge.errors import DataError
from fcforge.graphs import EDGE_SCALE, centre_edges, edges, fisher_z, log_matrix
from fcforge.writing import whole_file


def principal_frame(x: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean (p,), axes (k, p), spread along them (k,), spread per coordinate outside them (p,)."""
    mean = x.mean(0)
    residual = (x - mean).double()
    values, vectors = torch.linalg.eigh(residual @ residual.mT)
    k = min(rank, len(x) - 1)
    length = values[-k:].flip(0).clamp_min(1e-12).sqrt()
    axes = (vectors[:, -k:].flip(1).mT @ residual) / length[:, None]
    outside = residual - (residual @ axes.mT) @ axes
    freedom = max(len(x) - 1, 1)
    own = (outside.square().sum(0) / max(freedom - k, 1)).sqrt()
    return mean.float(), axes.float(), (length / freedom**0.5).float(), own.float()


def public_template(
    fc: Tensor, rank: int = 64, shrink: float = 0.02
) -> dict[str, np.ndarray]:
    """Arrays of a template from public FC (n, R, R): Fisher-z edges and off-log coordinates."""
    if len(fc) < 8:
        raise DataError(f"{len(fc)} public subjects are too few for a template.")
    mean, axes, spread, _ = principal_frame(
        centre_edges(fisher_z(edges(fc)) / EDGE_SCALE), rank
    )
    logs = log_matrix(fc, shrink)
    log_mean, log_axes, log_spread, log_own = principal_frame(edges(logs), rank)
    arrays = {
        "edge_mean": mean,
        "edge_axes": axes,
        "edge_spread": spread,
        "log_mean": log_mean,
        "log_axes": log_axes,
        "log_spread": log_spread,
        "log_diagonal": log_own,
        "log_start": logs.diagonal(dim1=-2, dim2=-1).mean(0),
    }
    return {name: value.numpy().astype(np.float32) for name, value in arrays.items()}


def write_template(path: str | Path, fc: Tensor, rank: int = 64) -> None:
    """Write the template of public FC to an .npz file, whole or not at all."""
    with whole_file(path) as part, part.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **public_template(fc, rank))
