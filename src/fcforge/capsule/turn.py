"""One hospital's turn: what it was handed and its own open site, on the bench.

What it measures while the site is open, and may write into the ledger, is at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcforge.capsule import judging, ledger
from fcforge.capsule.arrays import Subjects
from fcforge.capsule.contents import Capsule, ChainSettings, unpinned
from fcforge.capsule.home import People, fingerprints
from fcforge.engine import Job, learn_site, start_lane
from fcforge.methods import Lane
from fcforge.replay.bank import PoolName
from fcforge.runner.bench import Bench
from fcforge.runner.learners import build_learner
from fcforge.speed import one_thread
from fcforge.types import FCBatch, RunSpec, Site

Tick = Callable[[], Any]
CARRIED = "(from earlier sites)"


def people_learned(settings: ChainSettings, site: Site) -> People:
    """The subjects of a site that are trained on, in order."""
    fixed = settings.training.selection == "fixed"
    ids = [who for part in ("train", "val")[: 1 + fixed] for who in site.subject_ids[part]]
    learning = site.learning(with_val=fixed)
    return fingerprints(learning.fc.numpy(), ids or [""] * len(learning), learning.y.numpy())


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
        self.chain = settings
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


def held_out(turn: Turn, capsule: Capsule | None) -> Subjects:
    """Synthetic held-out subjects of all sites, this one last."""
    settings = turn.settings
    before = capsule.held_out if capsule is not None else Subjects.none(settings.n_rois)
    if not settings.held_out:
        return before
    batch = judging.held_out_set(
        turn.judge, turn.learned, settings.seed, turn.site.name, settings.held_out
    )
    place = torch.full((len(batch),), len(turn.past), dtype=torch.int64)
    return before.join(Subjects.of(batch, place, torch.zeros(len(batch), dtype=torch.uint8)))


def counts_of(site: Site) -> dict[str, dict[str, int | None]]:
    """Subjects per split and class, small cells suppressed. No totals: they would undo it."""
    learning = site.learning(with_val=True).y
    return {
        part: {
            "controls": ledger.suppressed(int((y == 0).sum())),
            "patients": ledger.suppressed(int((y == 1).sum())),
        }
        for part, y in (("learning", learning), ("test", site.test.y))
    }


def published(
    own: Mapping[str, float | None], counts: Mapping[str, int | None]
) -> dict[str, float | None]:
    """Accuracy on real test subjects as the ledger may have it: it must not undo a small cell."""
    small = None in counts.values()
    accuracy = own["accuracy"]
    return {
        "accuracy": None
        if accuracy is None
        else ledger.published_share(accuracy, list(counts.values())),
        "balanced_accuracy": None if small else own["balanced_accuracy"],
    }


def metrics(turn: Turn, lane: Lane, held_out: Subjects) -> dict[str, Any]:
    """Accuracy on every site's held-out set, and on the own real test split."""
    site, own = turn.site, None
    batches = {name: held_out.of_site(k) for k, name in enumerate((*turn.past, site.name))}

    def measured(batch: FCBatch) -> dict[str, float | None]:
        return judging.metrics_of(judging.scores(turn.learner, lane, batch.fc), batch.y)

    if len(site.test):
        own = published(measured(site.test), counts_of(site)["test"])
    synthetic = {name: measured(batch) for name, batch in batches.items() if len(batch)}
    return {"held_out": synthetic, "own_test": own}


def calibration(turn: Turn, lane: Lane, held_out: Subjects) -> dict[str, Any]:
    """Temperature of this hospital.

    ``inner_val``: logits of the validation part. Where it was folded into training (nothing
    was chosen on it), a second network is trained without it, only to be measured.
    """
    how, val = turn.settings.calibrate, turn.site.val
    if how == "inner_val" and len(val):
        other = lane
        if turn.learns_val:
            other = turn.train(with_val=False, tick=lambda: None)
        u, y = judging.scores(turn.learner, other, val.fc), val.y
    elif how == "synthetic" and len(held_out):
        batch = held_out.batch()
        u, y = judging.scores(turn.learner, lane, batch.fc), batch.y
    else:
        return {"how": "none", "temperature": None}
    return {"how": how, "temperature": ledger.rounded(judging.fit_temperature(u, y))}


def reference(turn: Turn, held_out: Subjects) -> dict[str, float | None]:
    """Limits of ordinary scans; None without a held-out set."""
    batch = held_out.of_site(len(turn.past))
    if len(batch) < 4:
        return dict.fromkeys(judging.DISTANCES)
    learning = turn.site.learning(with_val=True)
    return dict(judging.limits(judging.Reference.of(batch.fc), learning.fc))
