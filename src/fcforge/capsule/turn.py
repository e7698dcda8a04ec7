"""One hospital's turn: what it was handed and its own open site, on the bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcforge.capsule.contents import Capsule, ChainSettings, Subjects
from fcforge.capsule.receipts import LinkReceipt
from fcforge.capsule.templates import unpinned
from fcforge.engine import Job, learn_site, start_lane
from fcforge.methods import Lane
from fcforge.replay.bank import PoolName
from fcforge.runner.bench import Bench
from fcforge.runner.learners import build_learner
from fcforge.speed import one_thread
from fcforge.types import FCBatch, RunSpec, Site

Tick = Callable[[], Any]
CARRIED = "(from earlier sites)"


class Turn:
    """A capsule that came in and the site that is learned next.

    Parameters
    ----------
    capsule : Capsule or None
        What came in; None at the first hospital.
    settings : ChainSettings
    site : Site
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    """

    def __init__(
        self,
        capsule: Capsule | None,
        settings: ChainSettings,
        site: Site,
        template: str | Path | None = None,
    ) -> None:
        self.settings = replace(settings, learner=unpinned(settings.learner, template))
        self.site = site
        self.learner = build_learner(self.settings.learner, settings.n_rois, has_start=False)
        own = self.settings.learner.generator
        self.judge = own if own and own.name == settings.judge.name else settings.judge
        self.bench = Bench()
        self.past = capsule.sites if capsule is not None else ()
        self.carried = capsule.remembered if capsule is not None else Subjects.none(settings.n_rois)
        # pools are of one kind each: the bank tells real from synthetic by pool
        self._start = torch.full((len(self.carried),), -1, dtype=torch.int64)
        for kind, real in (("synthetic", 0), ("real", 1)):
            mine = self.carried.real == real
            if bool(mine.any()):
                pool = PoolName(kind, CARRIED, settings.seed, kind)
                self._start[mine] = self.bench.bank.add(pool, self.carried.batch().select(mine))
        self.lane = self._lane(capsule)

    @property
    def learns_val(self) -> bool:
        """Whether the validation part is trained on: nothing is chosen on it."""
        return self.settings.training.selection == "fixed"

    @property
    def learned(self) -> FCBatch:
        """The site's subjects that are trained on."""
        return self.site.learning(with_val=self.learns_val)

    def receipt(self) -> LinkReceipt:
        """Who was learned, in the order learned."""
        parts = ("train", "val") if self.learns_val else ("train",)
        ids = [who for part in parts for who in self.site.subject_ids[part]]
        learned = self.learned
        return LinkReceipt.of(self.site.name, learned.fc.numpy(), ids, learned.y.numpy())

    @property
    def fresh(self) -> bool:
        """Whether this hospital starts from the untrained network."""
        return not self.past or self.learner.method.depends_on == "site"

    @property
    def spec(self) -> RunSpec:
        """The node of the prefix tree that is about to be trained."""
        order = (self.site.name,) if self.fresh else (*self.past, self.site.name)
        return self.settings.spec(order)

    def _lane(self, capsule: Capsule | None) -> Lane:
        if capsule is None or self.fresh:
            return start_lane(self.learner, self.settings.seed)
        keys = self.learner.method.row_keys
        state = self.bench.from_places(capsule.lane.state, keys, self._start)
        # sums over arrays (gradient norm, penalties) are rounded by order; a run reads its lanes
        # back from files sorted by name
        parts = (capsule.lane.params, capsule.lane.stats, state)
        return Lane(*({key: part[key] for key in sorted(part)} for part in parts))

    def train(self, *, with_val: bool, tick: Tick, weight: Tensor | None = None) -> Lane:
        """Lane after the site; `weight` is what each learned subject counts, all alike if None."""
        spec = self.spec
        view = replace(self.bench.view(self.site, spec, with_val=with_val), weight=weight)
        job = Job(self.lane, view, spec.seed, spec.order)
        with one_thread():
            (lane,) = learn_site(self.learner, [job], self.bench.bank, spec.training, tick=tick)
        return lane

    def packed(self, lane: Lane) -> tuple[Lane, Subjects]:
        """Lane whose rows are places among the subjects it remembers, and those subjects."""
        bank = self.bench.bank
        state, rows = self.bench.to_places(lane.state, self.learner.method.row_keys)
        if not len(rows):
            return lane._replace(state=state), Subjects.none(self.settings.n_rois)
        pools, pool, _ = bank.address(rows)
        real = torch.tensor([p.kind == "real" for p in pools])[pool].to(torch.uint8)
        origin = torch.full((len(bank),), len(self.past))
        origin[self._start] = self.carried.site
        batch = FCBatch(bank.fc(rows), bank.y[rows])
        subjects = Subjects.of(batch, origin[rows], real)
        return lane._replace(state=state), subjects
