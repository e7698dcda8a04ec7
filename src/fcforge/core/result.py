"""Raw scores of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcforge.core.spec import RunSpec
from fcforge.core.target import Kind, kind_of


@dataclass(frozen=True)
class RunResult:
    """Raw scores of one run, from which any metric can be computed later.

    Attributes
    ----------
    spec : RunSpec
    sites : tuple of str
        All sites of the dataset, in the dataset's own order.
    scores : mapping of site to ndarray of shape (n_stages, n_test), float32
        Probability of being a patient, of every test subject of every site, after each stage.
        Stage t is the end of training on site t of ``spec.order``. Sites that are not yet learned
        are scored, too (zero-shot). For K > 2 classes the probabilities of all classes, shape
        (n_stages, n_test, K); for a numeric target the prediction.
    initial : mapping of site to ndarray of shape (n_test,) or (n_test, K)
        The same scores before any training (for forward transfer).
    y : mapping of site to ndarray of shape (n_test,)
        Targets of the test subjects: classes (int64), or numbers in their unit (float64).
    subject_ids : mapping of site to tuple of str
        Test subjects, in the order of the scores.
    train_mean : mapping of site to float, or to the shares of the classes (K,)
        Share of patients in the site's training part, or the mean number. The table's row
        "majority class" predicts from it.
    memory_bytes : ndarray of shape (n_stages,)
        Bytes that the method keeps between sites beyond the network.
    seconds : ndarray of shape (n_stages,)
        Wall time of each site's training. Training that several runs share, because their orders
        begin with the same sites, took place once and is reported in each of them.
    environment : mapping
        Versions of the software and the machine.
    """

    spec: RunSpec
    sites: tuple[str, ...]
    scores: Mapping[str, np.ndarray]
    initial: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    subject_ids: Mapping[str, tuple[str, ...]]
    train_mean: Mapping[str, Any]
    memory_bytes: np.ndarray
    seconds: np.ndarray
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Kind of the target."""
        site = self.sites[0]
        return kind_of(self.scores[site][0], self.y[site])

    def truth(self, site: str) -> np.ndarray:
        """Return the targets of a site: y (n_test,), or one-hot rows (n_test, K) for K > 2 classes."""
        y = self.y[site]
        scores = self.scores[site]
        return y if scores.ndim == 2 else np.eye(scores.shape[-1])[y]


RunResults = Sequence[RunResult]
