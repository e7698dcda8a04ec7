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
    y : Tensor of shape (n_subjects,), int64, or float32 of a number
        0 = control, 1 = patient, 2 and up further classes; of a number `Target.scaled`.
    """

    fc: "Tensor"
    y: "Tensor"

    @classmethod
    def from_numpy(cls, fc: np.ndarray, y: np.ndarray) -> "FCBatch":
        """Return a batch of arrays of shape (n, R, R) and (n,)."""
        import torch

        kind = np.float32 if y.dtype.kind == "f" else np.int64
        return cls(
            torch.from_numpy(np.ascontiguousarray(fc, dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(y, dtype=kind)),
        )

    @classmethod
    def concat(cls, batches: "Sequence[FCBatch]") -> "FCBatch":
        """Return one batch of all subjects of `batches`, in order."""
        import torch

        fc = torch.cat([batch.fc for batch in batches])
        y = torch.cat([batch.y for batch in batches])
        return cls(fc, y)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def n_rois(self) -> int:
        """Number of ROIs (116 for AAL, any other atlas works)."""
        return int(self.fc.shape[-1])

    def select(self, index: Any) -> "FCBatch":
        """Return the batch of the subjects at `index` (integer tensor, slice or boolean mask)."""
        return FCBatch(self.fc[index], self.y[index])

    def to(self, device: Any) -> "FCBatch":
        """Return the batch on a device."""
        return FCBatch(self.fc.to(device), self.y.to(device))


@dataclass(frozen=True)
class Site:
    """One hospital: its subjects in three splits that share nobody.

    A learner may see `train` and `val` while the site is open; only the evaluator reads `test`.
    `val` is cut from the training part. If nothing is chosen on it, `learning` returns it to the
    training part.

    Parameters
    ----------
    name : str
    train, val, test : FCBatch
    subject_ids : mapping of split name to tuple of str
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
        """Return the subjects that a learner trains on: train, and val if `with_val`."""
        if with_val and len(self.val):
            return FCBatch.concat([self.train, self.val])
        return self.train

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return self.train.n_rois
