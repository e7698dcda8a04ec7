"""One hospital's bench: the bank with what it was handed and its own open site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fcforge.capsule.contents import Capsule, Settings, Subjects
from fcforge.engine import Job, learn_site, start_lane
from fcforge.methods import Lane
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.runner.pools import synthetic_subjects
from fcforge.runner.workshop import build_learner
from fcforge.types import FCBatch, RunSpec, Site, SiteSeal

Tick = Callable[[], Any]
CARRIED = "(from earlier sites)"


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: the order of sums, and so every number, is the same on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Bench:
    """The bank of one hospital: what it was handed, and its own open site.

    Parameters
    ----------
    capsule : Capsule or None
        What came in; None at the first hospital.
    settings : Settings
    site : Site
    """

    def __init__(self, capsule: Capsule | None, settings: Settings, site: Site) -> None:
        self.settings, self.site = settings, site
        self.learner = build_learner(settings.learner, settings.n_rois)
        self.bank = Bank()
        self.past = capsule.sites if capsule is not None else ()
        self.carried = capsule.remembered if capsule is not None else Subjects.none(settings.n_rois)
        # pools are of one kind each: the bank tells real from synthetic by pool
        self._start = torch.full((len(self.carried),), -1, dtype=torch.int64)
        for kind, real in (("synthetic", 0), ("real", 1)):
            mine = self.carried.real == real
            if bool(mine.any()):
                pool = PoolName(kind, CARRIED, settings.seed, kind)
                self._start[mine] = self.bank.add(pool, self.carried.batch().select(mine))
        self.lane = self._lane(capsule)

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
        state = dict(capsule.lane.state)
        table = torch.cat([self._start, torch.tensor([-1])])  # place -1 stays -1
        for key in self.learner.method.row_keys:
            state[key] = table[state[key]]
        # sums over arrays (gradient norm, penalties) are rounded by order; a run reads its lanes
        # back from files sorted by name
        parts = (capsule.lane.params, capsule.lane.stats, state)
        return Lane(*({key: part[key] for key in sorted(part)} for part in parts))

    def view(self, *, with_val: bool) -> SiteView:
        """What the method is shown of the site."""
        name, seed = self.site.name, self.settings.seed
        part = "train+val" if with_val else "train"
        train = self.bank.add(
            PoolName("real", name, seed, part), self.site.learning(with_val=with_val)
        )
        val = self.bank.add(PoolName("real", name, seed, "val"), self.site.val)
        make = self._synthesise if self.settings.learner.generator else None
        return SiteView(
            name=name,
            position=len(self.spec.order) - 1,
            bank=self.bank,
            train=train,
            val=val,
            seal=SiteSeal(name),
            synthesise=make,
        )

    def _synthesise(self, n: int) -> Tensor:
        pool = PoolName("synthetic", self.site.name, self.settings.seed, str(n))
        if pool in self.bank:
            return self.bank.rows(pool)
        return self.bank.add(pool, synthetic_subjects(self.site, self.spec, n, None))

    def train(self, *, with_val: bool, tick: Tick) -> Lane:
        """Lane after the site."""
        job = Job(self.lane, self.view(with_val=with_val), self.settings.seed, self.spec.order)
        with one_thread():
            (lane,) = learn_site(self.learner, [job], self.bank, self.settings.training, tick=tick)
        return lane

    def packed(self, lane: Lane) -> tuple[Lane, Subjects]:
        """Lane whose rows are places among the subjects it remembers, and those subjects."""
        keys = self.learner.method.row_keys
        if not keys:
            return lane, Subjects.none(self.settings.n_rois)
        held = torch.cat([lane.state[key].reshape(-1) for key in keys])
        rows = torch.unique(held[held >= 0])
        pools, pool, _ = self.bank.address(rows)
        real = torch.tensor([p.kind == "real" for p in pools] + [False])[pool].to(torch.uint8)
        batch = FCBatch(self.bank.fc(rows), self.bank.y[rows])
        site = self._sites_of(rows, [p.site for p in pools], pool)
        subjects = Subjects.of(batch, site, real)
        state = dict(lane.state)
        for key in keys:
            place = torch.searchsorted(rows, state[key].clamp(min=0))
            state[key] = torch.where(state[key] >= 0, place, -1)
        return lane._replace(state=state), subjects

    def _sites_of(self, rows: Tensor, names: list[str], pool: Tensor) -> Tensor:
        """Place of each row's site among all sites learned."""
        site = torch.full_like(rows, len(self.past))
        carried = torch.tensor([name == CARRIED for name in names] + [False])[pool]
        origin = {int(r): int(s) for r, s in zip(self._start, self.carried.site, strict=True)}
        for i in torch.nonzero(carried).flatten().tolist():
            site[i] = origin[int(rows[i])]
        return site
