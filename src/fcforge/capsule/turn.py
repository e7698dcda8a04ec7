"""One hospital's turn: what it was handed and its own open site.

What it measures while the site is open, and may write into the ledger, is here too, and what its
data must be like beside the capsule that came in.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcforge import graphs, randomness
from fcforge.capsule import home, judging, ledger, prediction
from fcforge.capsule.arrays import Subjects
from fcforge.capsule.chain import ChainSettings, unpinned
from fcforge.capsule.contents import Capsule
from fcforge.engine import Job, learn_site, start_lane
from fcforge.errors import ConfigError, DataError
from fcforge.generators import cache, make_generator
from fcforge.methods import Lane, make_method
from fcforge.replay.bank import PoolName
from fcforge.runner.site_loader import SiteLoader
from fcforge.speed import one_thread
from fcforge.types import FCBatch, Site

Tick = Callable[[], Any]
CARRIED = "(from earlier sites)"
ACCEPT_LABELS, ACCEPT_SCANS = "accept_labels", "accept_scans"
# Pattern distance (1 - r) of a site's median subject from the nearest site's mean. From NYU the
# other 19 sites of ABIDE are 0.30 to 0.46 away, USM with its ROIs shuffled 0.99.
UNLIKE = 0.75


def people_learned(settings: ChainSettings, site: Site) -> home.People:
    """The subjects of a site that are trained on, in order."""
    fixed = settings.learns_val
    ids = [
        who for part in ("train", "val")[: 1 + fixed] for who in site.subject_ids[part]
    ]
    learning = site.learning(with_val=fixed)
    return home.fingerprints(
        learning.fc.numpy(), ids or [""] * len(learning), learning.y.numpy()
    )


class Turn:
    """A capsule that came in and the site that is learned next.

    Parameters
    ----------
    before : Capsule
        What came in; empty at the first hospital.
    site : Site
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    """

    def __init__(
        self, before: Capsule, site: Site, template: str | Path | None = None
    ) -> None:
        chain, self.before, self.site = before.settings, before, site
        self.settings = replace(chain, learner=unpinned(chain.learner, template))
        self.learner, self.loader = self.settings.build(), SiteLoader()
        own, carried = self.settings.learner.generator, before.remembered
        self.judge = own if own and own.name == chain.judge.name else chain.judge
        # pools are of one kind each: the bank tells real from synthetic by pool
        self._start = torch.full((len(carried),), -1, dtype=torch.int64)
        for kind, real in (("synthetic", 0), ("real", 1)):
            mine = carried.real == real
            if bool(mine.any()):
                pool = PoolName(kind, CARRIED, chain.seed, kind)
                self._start[mine] = self.loader.bank.add(
                    pool, carried.batch().select(mine)
                )
        fresh = (
            not before.sites or self.learner.method.depends_on == "site"
        )  # untrained network
        past = () if fresh else before.sites
        self.spec = self.settings.spec((*past, site.name))  # node of the prefix tree
        if fresh:
            self.lane = start_lane(self.learner, chain.seed)
            return
        lane, keys = before.lane, self.learner.method.row_keys
        # sums over arrays (gradient norm, penalties) are rounded by order; a run reads its lanes
        # back from files sorted by name
        parts = (
            lane.params,
            lane.stats,
            self.loader.from_places(lane.state, keys, self._start),
        )
        self.lane = Lane(*({key: part[key] for key in sorted(part)} for part in parts))

    def train(
        self, *, with_val: bool, tick: Tick, weight: Tensor | None = None
    ) -> Lane:
        """Lane after the site; `weight` is what each learned subject counts, all alike if None."""
        spec = self.spec
        view = replace(
            self.loader.view(self.site, spec, with_val=with_val), weight=weight
        )
        job = Job(self.lane, view, spec.seed, spec.order)
        with one_thread():
            (lane,) = learn_site(
                self.learner, [job], self.loader.bank, spec.training, tick=tick
            )
        return lane

    def packed(self, lane: Lane) -> tuple[Lane, Subjects]:
        """Lane whose rows are places among the subjects it remembers, and those subjects."""
        bank = self.loader.bank
        state, rows = self.loader.to_places(lane.state, self.learner.method.row_keys)
        if not len(rows):
            return lane._replace(state=state), Subjects.none(self.settings.n_rois)
        pools, pool, _ = bank.address(rows)
        real = torch.tensor([p.kind == "real" for p in pools])[pool].to(torch.uint8)
        origin = torch.full((len(bank),), len(self.before.sites))
        origin[self._start] = self.before.remembered.site
        batch = FCBatch(bank.fc(rows), bank.y[rows])
        return lane._replace(state=state), Subjects.of(batch, origin[rows], real)

    def held_out(self) -> Subjects:
        """Synthetic held-out subjects of all sites, this one last."""
        settings, before = self.settings, self.before.held_out
        if not settings.held_out:
            return before
        # the generator is the one replay uses where both are the same (fitted once per site and
        # seed); the draw is another one
        learned, n = self.site.learning(with_val=settings.learns_val), settings.held_out
        generator, names = (
            make_generator(self.judge),
            (settings.seed, "generator", self.site.name),
        )
        state = cache.fit_cached(generator, learned, names, None)
        y = generator.diagnoses(state, learned.y, n)
        batch = generator.sample(state, y, randomness.torch_rng(*names, "held-out", n))
        place = torch.full((len(batch),), len(self.before.sites), dtype=torch.int64)
        return before.join(
            Subjects.of(batch, place, torch.zeros(len(batch), dtype=torch.uint8))
        )

    def measured(self, lane: Lane, held_out: Subjects) -> dict[str, Any]:
        """What the new ledger line says of the site and the network.

        Accuracy on every site's held-out set, and on the site's real test split: that one must not
        undo a small cell.
        """
        site, own, names = self.site, None, (*self.before.sites, self.site.name)
        counts = counts_of(site)
        batches = {name: held_out.of_site(k) for k, name in enumerate(names)}

        def measured(batch: FCBatch) -> dict[str, float | None]:
            u = judging.scores(self.learner, lane, batch.fc)
            found = judging.quality((u[:, 1] - u[:, 0]).numpy(), batch.y.numpy())
            return {
                k: ledger.rounded(found[k]) for k in ("accuracy", "balanced_accuracy")
            }

        if len(site.test):
            own, said = measured(site.test), list(counts["test"].values())
            if own["accuracy"] is not None:
                own["accuracy"] = ledger.published_share(own["accuracy"], said)
            own["balanced_accuracy"] = (
                None if None in said else own["balanced_accuracy"]
            )
        synthetic = {
            name: measured(batch) for name, batch in batches.items() if len(batch)
        }
        return {
            "metrics": {"held_out": synthetic, "own_test": own},
            "counts": counts,
            "calibration": self.calibration(lane, held_out),
            "reference": self.reference(held_out),
        }

    def calibration(self, lane: Lane, held_out: Subjects) -> dict[str, Any]:
        """Temperature of this hospital.

        ``inner_val``: logits of the validation part. Where it was folded into training (nothing
        was chosen on it), a second network is trained without it, only to be measured.
        """
        how, val = self.settings.calibrate, self.site.val
        if how == "inner_val" and len(val):
            if self.settings.learns_val:
                lane = self.train(with_val=False, tick=lambda: None)
            u, y = judging.scores(self.learner, lane, val.fc), val.y
        elif how == "synthetic" and len(held_out):
            batch = held_out.batch()
            u, y = judging.scores(self.learner, lane, batch.fc), batch.y
        else:
            return {"how": "none", "temperature": None}
        return {
            "how": how,
            "temperature": ledger.rounded(judging.fit_temperature(u, y)),
        }

    def reference(self, held_out: Subjects) -> dict[str, float | None]:
        """Limits of ordinary scans; None without a held-out set."""
        batch = held_out.of_site(len(self.before.sites))
        if len(batch) < 4:
            return dict.fromkeys(judging.DISTANCES)
        learning = self.site.learning(with_val=True)
        return dict(judging.limits(judging.Reference.of(batch.fc), learning.fc))


def counts_of(site: Site) -> dict[str, dict[str, int | None]]:
    """Subjects per split and class, small cells suppressed. No totals: they would undo it."""
    found = {}
    for part, y in (
        ("learning", site.learning(with_val=True).y),
        ("test", site.test.y),
    ):
        counts = [ledger.suppressed(int((y == c).sum())) for c in (0, 1)]
        found[part] = dict(zip(("controls", "patients"), counts, strict=True))
    return found


def require_budget(settings: ChainSettings, most: float | None) -> str:
    """What each person will spend, in words; `ConfigError` where it is more than allowed."""
    method = make_method(settings.learner.method)
    epsilon = getattr(method, "epsilon", None)
    if most is not None and epsilon is None:
        raise ConfigError(
            f"--epsilon {most:g} was given, but method '{method.name}' adds no noise and promises "
            "nothing.",
            do="Leave --epsilon out, or take part in a capsule of releases.",
        )
    if epsilon is None:
        return ""
    if most is not None and epsilon > most:
        what = f"the capsule's settings spend epsilon {epsilon:g} per person, more than {most:g}."
        raise ConfigError(what, do="Do not take part, or raise --epsilon.")
    return (
        f"each person of this site spends epsilon {epsilon:g} (delta {method.delta:g})"  # type: ignore[attr-defined]
    )


def require_alike(
    capsule: Capsule, site: Site, accept: Sequence[str], say: Callable[[str], Any]
) -> list[str]:
    """Flags of what was accepted; `DataError` for scans or diagnoses that cannot be right.

    How well the model that came in does here is said before anything is learned.

    Names of ROIs are often unknown: a shuffled atlas shows in the FC itself. Diagnoses that are
    turned round show in a model that tells them apart the wrong way round.
    """
    flags, learning = [], site.learning(with_val=True)
    if odd := _odd_scans(capsule, learning.fc):
        if ACCEPT_SCANS not in accept:
            do = "Check the atlas and the order of the ROIs; if they are right, add --accept-scans."
            raise DataError(odd, do=do)
        flags.append(ACCEPT_SCANS)
    if (
        capsule.harmony is not None
    ):  # moved only now: harmonised scans resemble the others' anyway
        learning = capsule.harmony.zero_shot(site).learning(with_val=True)
    u, y = (
        judging.scores(capsule.settings.build(), capsule.lane, learning.fc),
        learning.y.numpy(),
    )
    odds = (u[:, 1] - u[:, 0]).numpy()
    found = judging.quality(odds, y)
    say(
        f"site '{site.name}': the model that came in reaches accuracy {found['accuracy']:.3f} on "
        f"the {len(y)} people to be learned (majority class {found['majority']:.3f}), AUROC "
        f"{found['auroc']:.3f}."
        + (
            " WARNING: that is below chance; are diagnoses swapped?"
            if found["auroc"] < 0.5
            else ""
        )
    )
    turned = judging.require_labels(odds, y, ACCEPT_LABELS in accept)
    return [*flags, ACCEPT_LABELS] if turned else flags


def _odd_scans(capsule: Capsule, fc: Tensor) -> str:
    """What is odd about a site's FC; empty where nothing is."""
    known = [reference for _, reference, _ in prediction.references(capsule)]
    away = [float(r.distances(fc)["pattern"].median()) for r in known]
    if away and min(away) > UNLIKE:
        return (
            f"its FC does not resemble that of {', '.join(capsule.sites)} (correlation with the "
            f"nearest mean {1 - min(away):.2f})."
        )
    mean = graphs.fisher_z(graphs.edges(fc)).double().mean(0)[None]
    if any(float(judging.side_distance(r.mean, mean)) > 1 for r in known):
        return "its left and right hemispheres look swapped beside the sites before it."
    return ""
