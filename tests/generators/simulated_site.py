"""Simulated sites for generator and judge tests."""

import torch

from fcforge.core.subjects import FCBatch


def simulate(n: int, rois: int = 12, seed: int = 0, effect: float = 0.8) -> FCBatch:
    """Correlations of low-rank series; patients have extra coupling among the first ROIs."""
    rng = torch.Generator().manual_seed(seed)
    mix = torch.randn(rois, 4, generator=torch.Generator().manual_seed(99))
    y = torch.arange(n) % 2
    fcs = []
    for label in y.tolist():
        own = mix + 0.3 * torch.randn(rois, 4, generator=rng)
        series = torch.randn(80, 4, generator=rng) @ own.T
        series = series + 1.5 * torch.randn(80, rois, generator=rng)
        series[:, : rois // 3] += label * effect * torch.randn(80, 1, generator=rng)
        fcs.append(torch.corrcoef(series.T))
    fc = torch.stack(fcs).float()
    fc = 0.5 * (fc + fc.mT)
    fc.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return FCBatch(fc, y)
