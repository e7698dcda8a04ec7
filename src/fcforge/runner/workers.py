"""What happens in a worker process, of this machine or of another: one workshop per run folder."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fcforge.errors import DataError, StoreError
from fcforge.runner.plan import Node
from fcforge.runner.store import Store
from fcforge.sites import load_dataset
from fcforge.types import Component

if TYPE_CHECKING:
    from fcforge.runner.workshop import Workshop

# The lock: Dask may give one process several threads, a workshop has one.
_workshops: dict[tuple[str, str], Workshop] = {}
_lock = threading.Lock()


def _workshop(dataset: Component, root: str, data_sha256: str) -> Workshop:
    """Workshop of this process for a dataset and a run folder; the data are loaded once."""
    import torch

    from fcforge.runner.workshop import Workshop

    # one thread: the order of sums, and so every number, is the same on any machine; set in the
    # task, as torch counts threads per thread, and Dask chooses the thread
    torch.set_num_threads(1)
    key = (repr(dataset), root)
    if key not in _workshops:
        if not Path(root).is_dir():
            raise StoreError(
                "a worker does not see the run folder.",
                where=root,
                do="Give --out on a drive that all machines share under the same path.",
            )
        cohort = load_dataset(dataset)
        if data_sha256 and cohort.content_sha256() != data_sha256:
            raise DataError(
                f"a worker finds other data than this machine in dataset '{dataset.name}'.",
                do="Put the data on a drive that all machines share.",
            )
        _workshops[key] = Workshop(cohort, Store(root))
    return _workshops[key]


def train(node: Node, dataset: Component, root: str) -> str:
    """Train a node into the run folder at `root`; returns its key."""
    with _lock:
        _workshop(dataset, root, node.spec.data_sha256).run([node])
    return node.key


def fit_generator(node: Node, dataset: Component, root: str) -> None:
    """Fit the generator of a node's last site into the run folder's cache."""
    with _lock:
        shop = _workshop(dataset, root, node.spec.data_sha256)
        shop.fit_generator(node.spec, node.spec.order[-1])
