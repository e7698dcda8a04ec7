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
        P(patient) of every test subject of every site after every site of ``spec.order``:
        the full matrix, with sites not yet learned (zero-shot). For K > 2 classes the probability
        of each, (n_stages, n_test, K); for a numeric target the prediction.
    initial : mapping of site to ndarray of shape (n_test,) or (n_test, K)
        The same before any learning (for forward transfer).
    y : mapping of site to ndarray of shape (n_test,)
        Classes (int64), or numbers in their unit (float64).
    subject_ids : mapping of site to tuple of str
    train_mean : mapping of site to float, or to the shares of the classes (K,)
        Share of patients in the site's training part, or the mean number (for the majority row).
    memory_bytes : ndarray of shape (n_stages,)
        Bytes that the method keeps between sites beyond the network.
    seconds : ndarray of shape (n_stages,)
        Wall time of each site's training (a shared prefix counts once in the store, here too).
    environment : mapping
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
        """Return the targets of a site: y (n_test,), or indicators (n_test, K) for K > 2 classes."""
        y = self.y[site]
        scores = self.scores[site]
        return y if scores.ndim == 2 else np.eye(scores.shape[-1])[y]


RunResults = Sequence[RunResult]
