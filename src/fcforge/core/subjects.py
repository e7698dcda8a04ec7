"""FC of a batch of subjects, and the three splits of a site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FCBatch:
    """Functional connectivity and labels of a batch of subjects.

    FC is the only stored form; graphs are computed from it by `fcforge.graphs`, for real and
    synthetic subjects alike.

    Parameters
    ----------
    fc : Tensor of shape (n_subjects, n_rois, n_rois), float32
        Pearson correlation matrices, symmetric, unit diagonal.
    y : Tensor of shape (n_subjects,), int64 or float32
        Classes as int64: 0 = control, 1 = patient, 2 and up further classes. A numeric target is
        float32, scaled by `Target.scaled`.
    weight : Tensor of shape (n_subjects,), float64, optional
        Positive weights of the subjects in training; None gives all the weight 1.
    """

    fc: "Tensor"
    y: "Tensor"
    weight: "Tensor | None" = None

    @classmethod
    def from_numpy(
        cls, fc: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
    ) -> "FCBatch":
        """Return the batch of n subjects with R ROIs.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        y : ndarray of shape (n,)
            Classes as integers, or numbers as floats.
        weight : ndarray of shape (n,), optional
            Weights in training; None gives all the weight 1.
        """
        import torch

        y_type = np.float32 if y.dtype.kind == "f" else np.int64
        return cls(
            torch.from_numpy(np.ascontiguousarray(fc, dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(y, dtype=y_type)),
            None if weight is None else torch.from_numpy(weight.astype(np.float64)),
        )

    @classmethod
    def concat(cls, batches: "Sequence[FCBatch]") -> "FCBatch":
        """Return one batch of all subjects of `batches`, in order."""
        import torch

        fc = torch.cat([batch.fc for batch in batches])
        y = torch.cat([batch.y for batch in batches])
        if all(batch.weight is None for batch in batches):
            return cls(fc, y)
        return cls(fc, y, torch.cat([batch.weights for batch in batches]))

    @property
    def weights(self) -> "Tensor":
        """Weights of the subjects, shape (n_subjects,); 1 each where `weight` is None."""
        import torch

        if self.weight is None:
            return torch.ones_like(self.y, dtype=torch.float64)
        return self.weight

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def n_rois(self) -> int:
        """Number of ROIs (116 for AAL, any other atlas works)."""
        return int(self.fc.shape[-1])

    def select(self, index: Any) -> "FCBatch":
        """Return the batch of the subjects at `index` (integer tensor, slice or boolean mask)."""
        weight = None if self.weight is None else self.weight[index]
        return FCBatch(self.fc[index], self.y[index], weight)

    def to(self, device: Any) -> "FCBatch":
        """Return a copy of the batch on a torch device."""
        weight = None if self.weight is None else self.weight.to(device)
        return FCBatch(self.fc.to(device), self.y.to(device), weight)


@dataclass(frozen=True)
class Site:
    """Subjects of one hospital in three splits that share nobody.

    A learner may see `train` and `val` while the site is open, that is while it is being learned.
    Only the evaluator reads `test`. `val` is cut from the training part. If no epoch is chosen by
    it, `learning` returns it to the training part.

    Parameters
    ----------
    name : str
    train, val, test : FCBatch
        Subjects to train on, to choose the best epoch by, and to score.
    subject_ids : mapping of split name to tuple of str
        Ids of the subjects of "train", "val" and "test", in the order of their batch.
    covariates : mapping of split name to mapping of name to ndarray
        Optional per-subject numbers, e.g. ``{"train": {"mean_fd": ...}}``.
    """

    name: str
    train: FCBatch
    val: FCBatch
    test: FCBatch
    subject_ids: Mapping[str, tuple[str, ...]]
    covariates: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    def learning(self, *, with_val: bool) -> FCBatch:
        """Return the subjects that a learner trains on: `train`, joined by `val` if `with_val`."""
        if with_val and len(self.val):
            return FCBatch.concat([self.train, self.val])
        return self.train

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return self.train.n_rois
