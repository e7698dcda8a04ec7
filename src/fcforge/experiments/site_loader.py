"""Show sites to methods, and translate the rows that a method remembers.

A run and a chain of hospitals load sites in the same way, so that both give the same numbers.
Rows of a bank have no meaning outside their process. A stored state therefore holds places among
the subjects that it remembers; a chain's file holds these subjects, a run folder their addresses.
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
PUBLIC = "(public)"  # name of the pool of public people
LEAKED_SHARE = 0.8  # of a site that the authors' generator is trained on


class SiteLoader:
    """Puts sites into a bank and makes the views that methods learn from.

    Parameters
    ----------
    device : str
    generators : Path or None
        Folder that keeps fitted generators.
    public : callable, optional
        Public subjects and base model of a run that has one.
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
        # of the generators of synthetic pools
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
            Whether the validation part is trained on; where nothing is chosen on it, unless given.
        """
        if with_val is None:
            with_val = spec.training.selection == "fixed"
        part = "train+val" if with_val else "train"

        def pool(kind: str, name: str) -> PoolName:
            conditions = site_conditions(spec)
            place = (kind, site.name, spec.seed, name, 0, conditions, spec.fitted_on)
            return PoolName(*place)

        learning = site.learning(with_val=with_val)
        train = self.bank.add(pool("real", part), learning)
        val = self.bank.add(pool("real", "val"), site.val)
        leaked = None
        if spec.leaks.context_on_test:
            leaked = self.bank.add(pool("test", "test"), site.test)
        make = None
        if spec.learner.generator:
            make = partial(self.synthetic, site, spec)
        shown = (train, val, make, leaked, self.public_view(spec), spec.seed)
        return SiteView(site.name, len(spec.order) - 1, self.bank, *shown)

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
        """Return rows of n synthetic subjects of (site, seed); the generator is fitted once."""
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
        """Return synthetic subjects with the class shares of the site, and the bytes of the state.

        They are drawn on the bank's device; on a CPU that takes seconds, so that in a run they
        lie beside the generators until it has ended.
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
        """Return a learner's generator, its state fitted on a site's training part, and that part."""
        generator, source, names = self.generator_for(site, spec)
        return generator, fit_cached(generator, source, names, self.generators), source

    def generator_for(
        self, site: Site, spec: RunSpec
    ) -> tuple[Generator, FCBatch, tuple[int, str, str]]:
        """Return the generator of a learner, the subjects it is fitted on, and the names of its seed.

        Under the `generator_sees_test` leak they are a random 80 % of the whole site, test
        subjects and all, as in the authors' code.
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
        """Replace bank rows in a state by places in the sorted list of all rows that it holds.

        Returns
        -------
        state
        rows : Tensor of shape (m,), int64
            The list. Empty slots keep -1.
        """
        held = [rows.reshape(-1) for rows in rows_of(state).values()]
        every = torch.cat(held) if held else torch.empty(0, dtype=torch.int64)
        listed = torch.unique(every[every >= 0])

        def place(rows: Tensor) -> Tensor:
            places = torch.searchsorted(listed, rows.clamp(min=0))
            return torch.where(rows >= 0, places, -1)

        return replace_rows(state, place), listed

    def from_places(self, state: S, rows: Tensor) -> S:
        """Invert `to_places`, where `rows` are the same subjects' rows in this bank."""
        table = torch.cat([rows, rows.new_tensor([-1])])  # place -1 stays -1
        return replace_rows(state, lambda places: table[places])


def weigh_by_class(made: FCBatch, source: FCBatch) -> FCBatch:
    """Return synthetic subjects with the mean weight of their class among real subjects.

    Parameters
    ----------
    made, source : FCBatch
        The synthetic subjects, and the real ones that they were made of.
    """
    if source.weight is None:
        return made
    weight = made.weights
    for label in made.y.unique():
        mine = source.y.to(label.device) == label
        weight[made.y == label] = source.weight[mine.cpu()].mean().to(weight)
    return replace(made, weight=weight)


def site_conditions(spec: RunSpec) -> str:
    """Return the digest of what decides a site's subjects, beside its name and the seed.

    The sites that confounds are fitted on have a field of their own in `PoolName`.
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
    return None if spec.base_model is None else asdict(spec.base_model)


def spec_of_pool(spec: RunSpec, pool: PoolName) -> RunSpec:
    """Return the spec under which a pool was made: confounds may since be fitted on more sites."""
    return replace(spec, order=pool.fitted_on) if pool.fitted_on else spec


def synthetic_name(spec: RunSpec, site: str, n: int) -> PoolName:
    """Return the name of a pool of n synthetic subjects, which holds all that decides them."""
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
