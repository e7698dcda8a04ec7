"""Loading of sites into the bank, and translation of the rows that a method remembers.

The bank holds the tensors of all subjects on the device; a subject is a row of it, and a pool is a named set of
rows. A view is what a method may see of a site. Runs and chains of hospitals load sites in the same way, so
that both give the same numbers.

Row numbers have no meaning outside their process. A stored state therefore numbers only the subjects that it
remembers (places), and beside it a chain's file holds these subjects, a run folder their addresses.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from fcforge.core.errors import ConfigError
from fcforge.core.identity import digest
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import RunSpec
from fcforge.core.subjects import FCBatch, Site
from fcforge.experiments.public_subjects import Public
from fcforge.experiments.store import SUBJECTS
from fcforge.generators import make_generator
from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.cache import (
    fit_cached,
    generator_key,
    is_stored,
    read_tensors,
    write_tensors,
)
from fcforge.graphs import edges, from_edges
from fcforge.replay.bank import Bank, PoolName, PublicView, SiteView
from fcforge.replay.state import replace_rows, rows_of

S = TypeVar("S")
PUBLIC = "(public)"  # name of the pool of public subjects
LEAKED_SHARE = 0.8  # share of a site on which the authors' generator is trained


class SiteLoader:
    """Loader of sites into a bank, which makes the views that methods learn from.

    Parameters
    ----------
    device : str
    generators : Path or None
        Folder that stores fitted generators.
    public : callable, optional
        Takes a run with a base model and returns its public subjects.

    Attributes
    ----------
    bank : Bank
    state_bytes : dict of PoolName to int
        Size of the generator of each pool of synthetic subjects.
    """

    def __init__(
        self,
        device: str = "cpu",
        generators: Path | None = None,
        public: Callable[[RunSpec], Public] | None = None,
    ) -> None:
        self.bank = Bank(device)
        self.generators = generators
        self.public = public
        self.state_bytes: dict[PoolName, int] = {}

    # -- a site --------------------------------------------------------------------------------
    def view(
        self, site: Site, spec: RunSpec, *, with_val: bool | None = None
    ) -> SiteView:
        """Return the view of a site that a method learns from.

        Parameters
        ----------
        site : Site
        spec : RunSpec
            The run up to and including this site.
        with_val : bool, optional
            Whether the validation part is used for training, too. By default it is if no epoch is
            selected on it.
        """
        if with_val is None:
            with_val = spec.training.selection == "fixed"
        learned = "train+val" if with_val else "train"

        def pool(kind: str, part: str) -> PoolName:
            """Return the name of the pool with a part of the site's real subjects."""
            return PoolName(
                kind,
                site.name,
                spec.seed,
                part,
                conditions=site_conditions(spec),
                fitted_on=spec.fitted_on,
            )

        learning = site.learning(with_val=with_val)
        train = self.bank.add(pool("real", learned), learning)
        val = self.bank.add(pool("real", "val"), site.val)
        leaked = None
        if spec.leaks.context_on_test:
            leaked = self.bank.add(pool("test", "test"), site.test)
        synthesise = None
        if spec.learner.generator:
            synthesise = partial(self.synthetic, site, spec)
        return SiteView(
            site.name,
            len(spec.order) - 1,
            self.bank,
            train,
            val,
            synthesise,
            leaked,
            self.public_view(spec),
            spec.seed,
        )

    def public_view(self, spec: RunSpec) -> PublicView | None:
        """Return the view of the public subjects; None in a run without a base model."""
        if spec.base_model is None or self.public is None:
            return None
        public = self.public(spec)
        conditions = digest(
            {"base_model": _base_model(spec), "confounds": spec.confounds}
        )
        name = PoolName("public", PUBLIC, 0, "train", 0, conditions)
        rows = self.bank.add(name, public.batch)
        return PublicView(public.subjects, self.bank, rows)

    def show(self, name: str, batch: FCBatch, seed: int) -> SiteView:
        """Return a view of synthetic subjects as if they were a site of their own."""
        rows = self.bank.add(PoolName("synthetic", name, seed, "train"), batch)
        return SiteView(name, 0, self.bank, rows, rows[:0])

    # -- its synthetic subjects: a generator is fitted once per (site, seed) ---------------------
    def synthetic(self, site: Site, spec: RunSpec, n: int) -> Tensor:
        """Return the rows (n,) of a site's n synthetic subjects, which are made on the first call.

        Parameters
        ----------
        site : Site
        spec : RunSpec
            The run up to and including this site.
        n : int
            Number of synthetic subjects.
        """
        name = synthetic_name(spec, site.name, n)
        if name in self.bank:
            return self.bank.rows(name)
        made, self.state_bytes[name] = self._subjects(name, site, spec, n)
        with_val = spec.training.selection == "fixed"
        weighted = weigh_by_class(made, site.learning(with_val=with_val))
        return self.bank.add(name, weighted)

    def _subjects(
        self, name: PoolName, site: Site, spec: RunSpec, n: int
    ) -> tuple[FCBatch, int]:
        """Return synthetic subjects with the class shares of the site, and the size of their generator.

        To draw them takes seconds on a CPU. So a run stores them beside the generators until it has ended.

        Parameters
        ----------
        name : PoolName
            Name of their pool.
        site : Site
        spec : RunSpec
        n : int
            Number of subjects.

        Returns
        -------
        subjects : FCBatch
        size : int
            Bytes of the generator's state.
        """
        path = None
        if self.generators:
            generator, *_ = self.generator_for(site, spec)
            made_by = generator_key(generator)
            file = digest([name, spec.data_sha256, made_by], length=32)
            path = self.generators / f"{SUBJECTS}{file}.safetensors"
        if path and is_stored(path):
            kept = read_tensors(path)
            stored = FCBatch(from_edges(kept["edges"]), kept["y"])
            return stored, int(kept["bytes"])
        generator, state, source = self.fit_generator(site, spec)
        rng = torch_rng(spec.seed, "generator", site.name, "sample", n)
        y = generator.diagnoses(state.model, source.y, n)
        made = generator.sample(state, y, rng, self.bank.device)
        size = state.n_bytes
        if not path:
            return made, size
        flat = edges(made.fc)
        tensors = {"edges": flat, "y": made.y, "bytes": torch.tensor(size)}
        write_tensors(path, tensors)
        return FCBatch(from_edges(flat), made.y), size

    def fit_generator(
        self, site: Site, spec: RunSpec
    ) -> tuple[Generator, GeneratorState, FCBatch]:
        """Fit a learner's generator to a site's training part, or read it from the cache.

        Returns
        -------
        generator : Generator
        state : GeneratorState
        source : FCBatch
            The subjects on which it was fitted.
        """
        generator, source, names = self.generator_for(site, spec)
        return generator, fit_cached(generator, source, names, self.generators), source

    def generator_for(
        self, site: Site, spec: RunSpec
    ) -> tuple[Generator, FCBatch, tuple[int, str, str]]:
        """Return what is needed to fit a learner's generator to a site.

        With the leak `generator_sees_test` the subjects are a random 80 % of the whole site, test subjects
        included, as in the authors' code.

        Returns
        -------
        generator : Generator
        source : FCBatch
            Subjects to fit.
        names : (int, str, str)
            Seed and names from which the seed of the fit is derived.
        """
        if spec.learner.generator is None:
            raise ConfigError(f"learner '{spec.learner.title}' names no generator.")
        names = (spec.seed, "generator", site.name)
        source = site.learning(with_val=spec.training.selection == "fixed")
        if spec.leaks.generator_sees_test:
            everybody = FCBatch.concat([site.learning(with_val=True), site.test])
            rng = torch_rng(*names, "people")
            order = torch.randperm(len(everybody), generator=rng)
            source = everybody.select(order[: int(LEAKED_SHARE * len(order))])
        public = self.public_view(spec)
        subjects = public.subjects if public else None
        return make_generator(spec.learner.generator, subjects), source, names

    # -- rows of a state as places among some subjects, and back -------------------------------
    def to_places(self, state: S) -> tuple[S, Tensor]:
        """Replace the bank rows in a method's state by places in a list of all rows that it holds.

        Returns
        -------
        state
            The state with places, counted from 0; empty slots stay -1.
        rows : Tensor of shape (m,), int64
            The list: rows of the m remembered subjects, ascending.
        """
        held = [rows.reshape(-1) for rows in rows_of(state).values()]
        every = torch.cat(held) if held else torch.empty(0, dtype=torch.int64)
        listed = torch.unique(every[every >= 0])

        def place(rows: Tensor) -> Tensor:
            """Return the place of each row in the list."""
            places = torch.searchsorted(listed, rows.clamp(min=0))
            return torch.where(rows >= 0, places, -1)

        return replace_rows(state, place), listed

    def from_places(self, state: S, rows: Tensor) -> S:
        """Replace places in a method's state by bank rows; inverts `to_places`.

        Parameters
        ----------
        state
            State with places.
        rows : Tensor of shape (m,), int64
            Rows of the remembered subjects in this bank.
        """
        table = torch.cat([rows, rows.new_tensor([-1])])  # place -1 stays -1
        return replace_rows(state, lambda places: table[places])


def weigh_by_class(made: FCBatch, source: FCBatch) -> FCBatch:
    """Give synthetic subjects the mean training weight of real subjects of their class.

    Parameters
    ----------
    made : FCBatch
        The synthetic subjects.
    source : FCBatch
        The real subjects on which their generator was fitted.
    """
    if source.weight is None:
        return made
    weight = made.weights
    for label in made.y.unique():
        mine = source.y.to(label.device) == label
        weight[made.y == label] = source.weight[mine.cpu()].mean().to(weight)
    return replace(made, weight=weight)


def site_conditions(spec: RunSpec) -> str:
    """Return a digest of the settings on which a site's subjects depend, except its name and the seed.

    The sites on which confounds are fitted have a field of their own in `PoolName`.
    """
    conditions: dict[str, Any] = {
        "test_fraction": spec.test_fraction,
        "val_fraction": spec.val_fraction,
        "folds": spec.folds,
        "left_out": spec.left_out,
    }
    if spec.visits > 1:
        conditions["visits"] = spec.visits
    if spec.confounds:
        conditions["confounds"] = spec.confounds
        conditions["base_model"] = _base_model(spec)
    return digest(conditions)


def _base_model(spec: RunSpec) -> dict[str, Any] | None:
    """Return the settings of a run's base model as a dictionary; None without one."""
    return None if spec.base_model is None else asdict(spec.base_model)


def spec_of_pool(spec: RunSpec, pool: PoolName) -> RunSpec:
    """Return the run at the time when a pool was made; since then, confounds may be fitted on more sites."""
    return replace(spec, order=pool.fitted_on) if pool.fitted_on else spec


def synthetic_name(spec: RunSpec, site: str, n: int) -> PoolName:
    """Return the name of a pool of n synthetic subjects of a site.

    It contains all on which they depend, or its digest.
    """
    generator = spec.learner.generator
    conditions = {
        "generator": None if generator is None else asdict(generator),
        "base_model": _base_model(spec),
        "selection": spec.training.selection,
        "generator_sees_test": spec.leaks.generator_sees_test,
        "site": site_conditions(spec),
    }
    return PoolName(
        "synthetic", site, spec.seed, "train", n, digest(conditions), spec.fitted_on
    )
