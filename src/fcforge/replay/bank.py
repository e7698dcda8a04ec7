"""The bank: all subjects that may be trained on, each prepared for the model once.

A subject's place in the bank is its row, an integer. Lanes (one training run each: one learner, one
order of sites, one seed) remember rows in place of FC matrices, so that many lanes share one copy; on
a GPU the whole bank lives on the device. Rows are grouped into pools. A pool is one site's training
part, or the synthetic subjects that a generator made of it, for one seed.

Test subjects are never put into a bank that a learner can reach, unless the leak `context_on_test` is
measured on purpose.

Shapes: n rows, R ROIs.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fcforge.base_model.model import BaseModel
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.errors import SealedError
from fcforge.core.subjects import FCBatch
from fcforge.models.base import Model
from fcforge.nn.tensors import Inputs

T = TypeVar("T")
CHUNK = 256  # subjects that are prepared at once
MOST_CACHED = 600  # results kept by `Bank.once`; pairs of pools of twenty sites are 231


def gather(inputs: Inputs, rows: Tensor) -> Inputs:
    """Return the prepared inputs of some rows of the bank.

    Parameters
    ----------
    inputs : dict of Tensor
        Prepared inputs of all rows (`Bank.inputs`).
    rows : Tensor of int64, of any shape
        Numbers of the rows, all at least 0.
    """
    if rows.device.type != "cpu" or rows.dim() != 1:
        return {k: v[rows] for k, v in inputs.items()}
    # three times as fast as an index on a CPU
    return {k: v.index_select(0, rows) for k, v in inputs.items()}


def joined_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Concatenate the prepared inputs of several groups of subjects."""
    return {k: torch.cat([part[k] for part in parts]) for k in parts[0]}


class PoolName(NamedTuple):
    """Name of a pool that is the same in every process, unlike row numbers; stores write it.

    Attributes
    ----------
    kind : str
        ``"real"``, ``"synthetic"``, ``"public"``, or ``"test"`` under the `context_on_test` leak.
    site : str
        Name of the site.
    seed : int
        Seed of the split and of the generator.
    part : str
        Part of the site: ``"train"``, ``"train+val"``, ``"val"`` or ``"test"``.
    size : int
        Number of synthetic subjects.
    conditions : str
        Digest of the settings that decide who is in the pool and how the scans were prepared.
    fitted_on : tuple of str
        Sites whose training parts the confounds were fitted on.
    """

    kind: str
    site: str
    seed: int
    part: str
    size: int = 0
    conditions: str = ""
    fitted_on: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "PoolName":
        """Return the name that was written as a JSON list."""
        kind, site, seed, part, size, conditions, fitted_on = values
        return cls(kind, site, seed, part, size, conditions, tuple(fitted_on))


class Bank:
    """Subjects by row, with prepared model inputs cached per model.

    Parameters
    ----------
    device : torch.device or str
        Where FC and prepared inputs live.

    Attributes
    ----------
    y : Tensor of shape (n,)
        Labels of all rows.
    weight : Tensor of shape (n,), float64, or None
        Training weights of all rows; None while no pool has weights.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._fc: dict[PoolName, Tensor] = {}
        self.y = torch.empty(0, dtype=torch.int64, device=self.device)
        self.weight: Tensor | None = None
        self._pools: dict[PoolName, range] = {}
        self._prepared: dict[Model, tuple[int, Inputs]] = {}
        self._cache: dict[Hashable, Any] = {}
        self._n = 0
        self._closed = False

    def __len__(self) -> int:
        return self._n

    def __contains__(self, name: PoolName) -> bool:
        return name in self._pools

    def add(self, name: PoolName, batch: FCBatch) -> Tensor:
        """Add the subjects of a pool and return their rows (n,).

        If the bank has a pool of this name already, it stays as it is and its rows are returned.

        Raises
        ------
        SealedError
            If the bank is closed and has no pool of this name.
        """
        if name not in self._pools:
            if self._closed:
                raise SealedError(
                    f"a method adds {len(batch)} subjects to the bank as {name.kind} ones.",
                    where=f"site '{name.site}'",
                    do="Take synthetic subjects from site.synthetic(n): only the engine adds subjects.",
                )
            self._pools[name] = range(self._n, self._n + len(batch))
            self._fc[name] = batch.fc.to(self.device)
            if self.weight is None and batch.weight is not None:
                # the first pool with weights: subjects of earlier pools weigh 1
                self.weight = torch.ones_like(self.y, dtype=torch.float64)
            if self.weight is not None:
                self.weight = torch.cat([self.weight, batch.weights.to(self.device)])
            self.y = torch.cat([self.y, batch.y.to(self.device)])
            self._n += len(batch)
        return self.rows(name)

    @contextmanager
    def closed(self, closed: bool = True) -> Iterator[None]:
        """Refuse new pools in a ``with`` block; with False, accept them although the bank is closed.

        The bank is closed while hooks of a method run, because real subjects that a method adds as
        synthetic ones would count as such. Code that opens it on purpose is not stopped.
        """
        before = self._closed
        self._closed = closed
        try:
            yield
        finally:
            self._closed = before

    def rows(self, name: PoolName) -> Tensor:
        """Return the rows (n,) of a pool."""
        pool = self._pools[name]
        return torch.arange(pool.start, pool.stop, device=self.device)

    def fc(self, rows: Tensor) -> Tensor:
        """Return the FC (n, R, R) of some rows."""
        names, pool, item = self.address(rows)
        any_pool = next(iter(self._fc.values()))
        fc = any_pool.new_empty(len(rows), *any_pool.shape[1:])
        for i, name in enumerate(names):
            inside = pool == i
            fc[inside.to(self.device)] = self._fc[name][item[inside].to(self.device)]
        return fc

    def inputs(self, model: Model) -> Inputs:
        """Return the inputs of all rows as `Model.prepare` computes them.

        They are cached, so that each subject is prepared once per model.
        """
        n_prepared, cached = self._prepared.get(model, (0, {}))
        if n_prepared < self._n:
            parts = [cached] if n_prepared else []
            for name, pool in self._pools.items():
                # each pool on its own: a batch's size can change the last digit
                if pool.start >= n_prepared and len(pool):
                    parts += map(model.prepare, self._fc[name].split(CHUNK))
            cached = joined_inputs(parts)
            self._prepared[model] = (self._n, cached)
        return cached

    def products(self, model: Model, rows: Tensor) -> Tensor:
        """Return the inner products (n, n) of the edges of some rows, in float64.

        Products of whole pools are cached, because all orders of the same sites use them. The result is
        put together from blocks, one per pair of pools, of which the asked rows are taken.

        Parameters
        ----------
        model : Model
            One whose prepared inputs are edges.
        rows : Tensor of shape (n,), int64
            Numbers of the rows, all at least 0.
        """
        x = self.inputs(model)["edges"]
        names, pool, item = self.address(rows)
        by_pool = torch.argsort(pool, stable=True)
        items = item[by_pool].to(self.device).split(torch.bincount(pool).tolist())
        parts = list(zip(names, items, strict=True))  # the items asked for, by pool
        bands = []
        for left, left_items in parts:
            blocks = []
            for right, right_items in parts:
                block = self._block(x, model, left, right)
                blocks.append(block[left_items][:, right_items])
            bands.append(torch.cat(blocks, 1))
        products = torch.cat(bands)  # rows sorted by pool
        already_sorted = bool((by_pool.diff() > 0).all())
        if already_sorted:
            return products
        original = torch.argsort(by_pool).to(self.device)  # the inverse of `by_pool`
        return products[original][:, original]

    def _block(self, x: Tensor, model: Model, a: PoolName, b: PoolName) -> Tensor:
        """Return the inner products of all subjects of pool `a` with those of pool `b`, cached.

        `x` holds the edges of all rows of the bank, prepared by `model`.
        """
        first, second = sorted((a, b))

        def multiply() -> Tensor:
            """Compute the products for the cache, in which either order of the pools is one entry."""
            left, right = (
                x[self._pools[p].start : self._pools[p].stop] for p in (first, second)
            )
            return left.double() @ right.double().T

        block = self.once((model, first, second), multiply)
        return block if a == first else block.T

    def once(self, name: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which is called only if no result of this name is cached.

        The cache keeps the latest `MOST_CACHED` results. Lanes share it.
        """
        if name not in self._cache:
            if len(self._cache) >= MOST_CACHED:
                oldest = next(iter(self._cache))
                self._cache.pop(oldest)
            self._cache[name] = compute()
        return self._cache[name]

    # -- addresses -----------------------------------------------------------------------------
    def address(self, rows: Tensor) -> tuple[list[PoolName], Tensor, Tensor]:
        """Turn rows into addresses, which have a meaning in other processes, too.

        A store writes addresses, so that no subject's data are copied into it.

        Returns
        -------
        pools : list of PoolName
            Pools that contain some of the rows.
        pool : Tensor of shape (n,), int64
            Number of each row's pool in the list; -1 for an empty slot (row -1).
        item : Tensor of shape (n,), int64
            Number of the row in its pool; -1 for an empty slot. `pool` and `item` are on the CPU, to
            avoid one synchronisation with a GPU per pool.
        """
        rows = rows.cpu()
        pools: list[PoolName] = []
        pool = torch.full_like(rows, -1)
        item = torch.full_like(rows, -1)
        for name, span in self._pools.items():
            inside = (rows >= span.start) & (rows < span.stop)
            if bool(inside.any()):
                pool[inside] = len(pools)
                item[inside] = rows[inside] - span.start
                pools.append(name)
        return pools, pool, item

    def locate(self, pools: Sequence[PoolName], pool: Tensor, item: Tensor) -> Tensor:
        """Turn addresses back into rows; the inverse of `address`.

        Parameters
        ----------
        pools, pool, item
            As `address` returns them. All pools must be in the bank.

        Returns
        -------
        Tensor of shape (n,), int64
            Rows; -1 for an empty slot.
        """
        # one number more than pools, which the index -1 of an empty slot finds
        start = torch.tensor(
            [self._pools[p].start for p in pools] + [0], device=self.device
        )
        pool = pool.to(self.device)
        item = item.to(self.device)
        return torch.where(pool >= 0, start[pool] + item, -1)

    def real_rows(self, rows: Tensor) -> Tensor:
        """Return the rows among `rows` whose subjects are not synthetic."""
        names, pool, _ = self.address(rows)
        real = [i for i, name in enumerate(names) if name.kind != "synthetic"]
        return rows.cpu()[torch.isin(pool, torch.tensor(real))]


@dataclass(frozen=True)
class PublicView:
    """View of the public subjects of a run, which every method may use before the first site.

    Parameters
    ----------
    subjects : PublicSubjects
        The subjects with their base model.
    bank : Bank
    rows : Tensor of shape (n,), int64
        Bank rows of the public subjects.
    """

    subjects: PublicSubjects
    bank: Bank
    rows: Tensor

    @property
    def base_model(self) -> BaseModel:
        """The base model fitted on the public subjects."""
        return self.subjects.base_model

    @property
    def y(self) -> Tensor:
        """Diagnoses (n,) of the public subjects."""
        return self.bank.y[self.rows]

    def inputs(self, model: Model) -> Inputs:
        """Return the prepared inputs of the public subjects."""
        return gather(self.bank.inputs(model), self.rows)


@dataclass
class SiteView:
    """The site that is being learned, as a method sees it: its training subjects, nothing else.

    The engine seals the view after ``end_site``; from then on every access raises `SealedError`.

    Parameters
    ----------
    name : str
        Name of the site.
    position : int
        Number of sites learned before this one.
    bank : Bank
    train, val : Tensor of shape (n,), int64
        Bank rows of the subjects to train on, and of those held back to choose the best epoch.
    synthesise : callable or None
        Generates a number of synthetic subjects of the site, or reads them from a cache, and returns
        their bank rows. None for a learner without generator.
    leaked : Tensor or None
        Bank rows of the site's test subjects, only under the `context_on_test` leak.
    public : PublicView or None
        The public subjects, in a run that has some.
    seed : int
        Seed of the run, for draws that must not depend on the order of sites.
    wanted : bool
        Whether the model after this site will be evaluated. If not, a method in closed form can put
        its computation off.
    rng : torch.Generator
        Random generator for draws in ``end_site``.
    """

    name: str
    position: int
    bank: Bank
    train: Tensor
    val: Tensor
    synthesise: Callable[[int], Tensor] | None = None
    leaked: Tensor | None = None
    public: PublicView | None = None
    seed: int = 0
    wanted: bool = field(default=True, init=False)
    open: bool = field(default=True, init=False)
    rng: torch.Generator = field(init=False)

    def seal(self) -> None:
        """Refuse all further access."""
        self.open = False

    def _check(self, data: str) -> None:
        """Raise `SealedError` if the site has been sealed; `data` names what was to be read."""
        if not self.open:
            raise SealedError(
                f"the {data} of site '{self.name}' cannot be read after the site was sealed.",
                do="A learner may use a site's subjects only between begin_site and end_site.",
            )

    @property
    def rows(self) -> Tensor:
        """Bank rows (n,) of the site's training subjects."""
        self._check("training subjects")
        return self.train

    @property
    def y(self) -> Tensor:
        """Labels (n,) of the site's training subjects."""
        return self.bank.y[self.rows]

    @property
    def weight(self) -> Tensor | None:
        """Weights (n,) of the site's training subjects, float64; None if all are 1."""
        weight = self.bank.weight
        return None if weight is None else weight[self.rows]

    @property
    def fc(self) -> Tensor:
        """FC (n, R, R) of the site's training subjects."""
        return self.bank.fc(self.rows)

    def inputs(self, model: Model) -> Inputs:
        """Return the prepared inputs of the site's training subjects."""
        return gather(self.bank.inputs(model), self.rows)

    def synthetic(self, n: int) -> Tensor:
        """Return the rows of `n` synthetic subjects made from this site's training part.

        Class shares are those of the training part. The same call returns the same subjects.
        """
        self._check("generator")
        if self.synthesise is None:
            raise SealedError(
                f"site '{self.name}' has no generator.",
                do="Give the learner a generator, e.g. generator = 'corr_gauss'.",
            )
        with self.bank.closed(False):
            return self.synthesise(n)
