r"""What a capsule's model uses: gradient times input, edge by edge and between brain systems.

With the margin :math:`m(C) = u_1(C) - u_0(C)` of a subject's FC :math:`C`, the strength of edge
(i, j) is

.. math:: s_{ij} = \operatorname{mean}_n \left| C^n_{ij} \,
          \frac{\partial m}{\partial C_{ij}}(C^n) \right|,

and its direction the sign of the mean gradient: positive edges push towards the patient class
when they get stronger. Subjects are the capsule's synthetic held-out ones: no scan is needed.
A capsule without them is shown by its gradient at zero connectivity (for linear models these are
the weights).

References
----------
Simonyan, Vedaldi, Zisserman (2014), Deep inside convolutional networks;
Shrikumar et al. (2017), gradient times input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fcforge.imaging.atlas import Atlas, aal116

if TYPE_CHECKING:
    from torch import Tensor

    from fcforge.capsule import Capsule

MOST_SUBJECTS = 64
MOST_ROIS = 500
AAL_ROIS = 116


@dataclass(frozen=True)
class Saliency:
    """What a model uses, ROIs in the order of the capsule.

    Attributes
    ----------
    fc : ndarray of shape (R, R)
        Mean FC of the subjects it was measured on (zeros without any).
    strength, direction : ndarray of shape (R, R)
        Symmetric, zero diagonal; direction is -1, 0 or 1.
    n_subjects : int
    atlas : Atlas or None
        AAL where the capsule has its 116 ROIs, else None: positions and systems are unknown.
    """

    fc: np.ndarray
    strength: np.ndarray
    direction: np.ndarray
    n_subjects: int
    atlas: Atlas | None

    @property
    def constant(self) -> bool:
        """Whether the model's answer does not depend on the scan at all."""
        return not bool(self.strength.any())


def systems_of(atlas: Atlas) -> tuple[str, ...]:
    """Brain systems in the order of their first ROI."""
    return tuple(dict.fromkeys(atlas.systems))


def between_systems(strength: np.ndarray, atlas: Atlas) -> np.ndarray:
    """Mean strength of the edges within and between systems over the mean of all edges.

    Returns
    -------
    ndarray of shape (S, S), symmetric
        1 is an average edge; NaN where a system has no edge of its own.
    """
    names = systems_of(atlas)
    member = np.array([[s == name for s in atlas.systems] for name in names], dtype=float)
    n_rois = len(strength)
    edges = member @ (1 - np.eye(n_rois)) @ member.T
    average = strength.sum() / (n_rois * (n_rois - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (member @ strength @ member.T) / edges / average


def strongest(found: Saliency, n: int) -> list[tuple[int, int, float, int]]:
    """The `n` strongest edges as (i, j, times the average edge, direction)."""
    i, j = np.triu_indices(len(found.fc), 1)
    values = found.strength[i, j]
    top = np.argsort(-values, kind="stable")[:n]
    average = values.mean() or 1.0
    return [
        (int(i[k]), int(j[k]), float(values[k] / average), int(found.direction[i[k], j[k]]))
        for k in top
        if values[k] > 0
    ]


def atlas_of_capsule(n_rois: int, roi_names: tuple[str, ...]) -> Atlas | None:
    """AAL where the capsule's ROIs have its names; 116 ROIs without names may be any atlas."""
    if n_rois != AAL_ROIS:
        return None
    atlas = aal116()
    spellings = (atlas.roi_names, atlas.abbreviations, tuple(map(str, atlas.codes)))
    return atlas if roi_names in spellings else None


def saliency_of(capsule: Capsule) -> Saliency:
    """Saliency of a capsule's model on its synthetic held-out subjects."""
    import torch

    from fcforge.runner.learners import build_learner
    from fcforge.speed import one_thread

    settings = capsule.settings
    n_rois = settings.n_rois
    fc = capsule.held_out.batch().fc
    n = len(fc)
    if n > MOST_SUBJECTS:  # evenly, so that every site is among them
        fc = fc[torch.linspace(0, n - 1, MOST_SUBJECTS).round().long()]
    with one_thread():
        learner = build_learner(settings.learner, n_rois)
        at = fc if n else torch.eye(n_rois)[None]
        gradient = _gradient(learner, capsule, at)
    symmetric = gradient + gradient.mT  # an edge is two entries
    symmetric = symmetric * (1 - torch.eye(n_rois))
    strength = ((at * symmetric).abs() if n else symmetric.abs()).mean(0)
    return Saliency(
        fc=fc.mean(0).numpy() if n else np.zeros((n_rois, n_rois), dtype=np.float32),
        strength=strength.numpy(),
        direction=symmetric.mean(0).sign().numpy().astype(np.int8),
        n_subjects=len(fc),
        atlas=atlas_of_capsule(n_rois, settings.roi_names),
    )


def _gradient(learner, capsule: Capsule, fc: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    """Derivative of the margin by each FC, (n, R, R); zero where the model does not look."""
    import torch

    x = fc.clone().requires_grad_()
    with torch.enable_grad():
        u = learner.method.logits(learner.model, capsule.lane, learner.model.prepare(x))
        if not u.requires_grad:
            return torch.zeros_like(fc)
        (found,) = torch.autograd.grad((u[:, 1] - u[:, 0]).sum(), x, allow_unused=True)
    if found is None:
        return torch.zeros_like(fc)
    # eigenvectors of a graph with equal eigenvalues have no gradient
    return torch.nan_to_num(found.detach(), nan=0.0, posinf=0.0, neginf=0.0)
