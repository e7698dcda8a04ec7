"""One hospital's turn: open a capsule, learn the site, hand over the next capsule.

A chain of capsules is the run `fcforge run` would do for that order and seed, bit by bit: the
split depends on (seed, site), the site is trained by the same engine call with one torch thread,
and remembered synthetic subjects travel as the exact float32 numbers they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fcforge.capsule import contract, ledger, sealing
from fcforge.capsule import turn as measuring
from fcforge.capsule.arrays import Subjects
from fcforge.capsule.container import require_place
from fcforge.capsule.contents import Capsule, ChainSettings
from fcforge.capsule.home import Receipt
from fcforge.capsule.opening import Trust, open_capsule
from fcforge.capsule.turn import Tick, Turn
from fcforge.errors import CapsuleError
from fcforge.methods import Lane
from fcforge.runner.environment import describe
from fcforge.runner.learners import build_learner
from fcforge.runner.plan import Progress
from fcforge.sites import Cohort, require_valid, split_site
from fcforge.sites.harmonise import Harmony, arrive
from fcforge.types import FCBatch, Site

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def check_turn(
    capsule: Capsule | None, settings: ChainSettings, site_name: str, n_rois: int
) -> None:
    """Raise when this site cannot be learned next."""
    title = settings.learner.title
    settings.check_harmonise()
    learner = build_learner(settings.learner, settings.n_rois, has_start=False)
    if learner.method.depends_on == "all":
        raise CapsuleError(
            f"learner '{title}' needs all sites at once and cannot be handed over.",
            do="Choose a continual method; see `fcforge list methods`.",
        )
    if n_rois != settings.n_rois:
        raise CapsuleError(
            f"the data have {n_rois} ROIs, the capsule {settings.n_rois}.",
            where=f"site '{site_name}'",
            do="All hospitals of a chain use one atlas.",
        )
    if capsule is not None and site_name in capsule.sites:
        raise CapsuleError(
            f"site '{site_name}' was learned already.", do="Give the new site another name."
        )


def learn_next(
    capsule: Capsule | None, settings: ChainSettings, site: Site, *,
    template: str | Path | None = None, weight: Tensor | None = None, tick: Tick = lambda: None,
    time_stamp: str | None = None, public: FCBatch | None = None,
) -> Capsule:  # fmt: skip
    """The capsule after one more site (not sealed yet).

    Parameters
    ----------
    capsule : Capsule or None
        What came in; None starts a chain.
    settings : ChainSettings
        Those of `capsule`, where there is one.
    site : Site
        The hospital's own subjects, split. `test` may be empty.
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    weight : Tensor, optional
        What each learned subject counts, for methods that weigh; recorded as a flag.
    tick : callable
        Called after every epoch.
    time_stamp : str, optional
        UTC; now, unless given.
    public : FCBatch, optional
        People that a chain's first site is harmonised to; else it is itself the reference.
    """
    check_turn(capsule, settings, site.name, site.n_rois)
    known = _harmony(settings, public) if capsule is None else capsule.harmony
    harmony, moved = arrive(known, settings.harmonise, site)
    turn = Turn(capsule, settings, moved, template)
    started = time.perf_counter()
    lane = turn.train(with_val=turn.learns_val, tick=tick, weight=weight)
    seconds = round(time.perf_counter() - started, 3)
    packed, remembered = turn.packed(lane)
    synthetic = measuring.held_out(turn, capsule)
    receipt = Receipt(site.name, measuring.people_learned(settings, site))
    before = capsule or Capsule(settings, (), packed, remembered, synthetic, ())
    entry = {
        "seconds": seconds,
        "time": time_stamp or ledger.now(),
        "parent": before.id,
        "commitment": receipt.commitment,
        "flags": [] if weight is None else ["weighted subjects"],
        **_measured(turn, lane, synthetic),
        **({} if harmony is None else {"harmonised": harmony.digest(len(turn.past))}),
    }
    entries = ledger.append(before.entries, entry)
    made = Capsule(settings, (*turn.past, site.name), packed, remembered, synthetic, entries)
    receipts = (*before.receipts, receipt)
    return replace(made, parent=before.id, receipts=receipts, harmony=harmony)


def _harmony(settings: ChainSettings, public: FCBatch | None) -> Harmony | None:
    """What a chain starts from: public people as the reference, or nothing."""
    if public is None:
        return None
    if settings.harmonise == "none":
        do = "Set harmonise to 'site_demean' or 'combat'."
        raise CapsuleError("public people to harmonise with were given.", do=do)
    if public.fc.shape[1] != settings.n_rois:
        raise CapsuleError(
            f"the public people have {public.fc.shape[1]} ROIs, the site {settings.n_rois}."
        )
    return Harmony.to_public(settings.harmonise, public.fc.numpy(), public.y.numpy())


def _measured(turn: Turn, lane: Lane, synthetic: Subjects) -> ledger.Entry:
    """What the new ledger line says of the site and the network."""
    return {
        "kind": "learn",
        "site": turn.site.name,
        "settings": sealing.settings_sha256(turn.chain),
        "counts": measuring.counts_of(turn.site),
        "metrics": measuring.metrics(turn, lane, synthetic),
        "calibration": measuring.calibration(turn, lane, synthetic),
        "reference": measuring.reference(turn, synthetic),
        "environment": describe("cpu"),
    }


@dataclass(frozen=True)
class LearnOptions:
    """What a hospital may ask for besides learning.

    Attributes
    ----------
    key : Ed25519PrivateKey, optional
        Signs the new ledger line and the capsule.
    trust : Trust
        Whose capsules are accepted.
    allow_real_subjects, overwrite
        As in `seal`.
    epsilon : float, optional
        The most that each person may spend.
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    accept : sequence of str
        What may look odd (`contract.ACCEPT_LABELS`, `contract.ACCEPT_SCANS`); recorded.
    public : FCBatch, optional
        People that the first site is harmonised to.
    agree : callable
        Called with the capsule that is about to be continued; raises where it must not be.
    progress : callable
        Called with (epochs done, in all, what is going on) as the site is learned.
    say : callable
        Told what is about to be spent.
    """

    key: Ed25519PrivateKey | None = None
    trust: Trust = field(default_factory=Trust)
    allow_real_subjects: bool = False
    overwrite: bool = False
    epsilon: float | None = None
    template: str | Path | None = None
    accept: Sequence[str] = ()
    public: FCBatch | None = None
    agree: Callable[[Capsule], Any] = lambda capsule: None
    progress: Progress = lambda done, total, last: None
    say: Callable[[str], Any] = lambda text: None


def learn(
    state: str | Path | None,
    site_name: str,
    cohort: Cohort,
    out: str | Path,
    *,
    settings: ChainSettings | None = None,
    options: LearnOptions = LearnOptions(),  # noqa: B008 (frozen)
) -> Capsule:
    """What `fcforge learn` does: open, split the site, learn it, seal the next capsule.

    Receipts are written beside the capsule and must stay at home.

    Parameters
    ----------
    state : path or None
        Capsule that came in; None starts a chain with `settings`.
    site_name : str
        Site of `cohort` to learn; other sites of the cohort are not looked at.
    cohort : Cohort
    out : path
        Where the next capsule goes; nothing is written unless everything went well.
    settings : ChainSettings, optional
        Only for the first site; later ones follow the capsule.
    options : LearnOptions, optional
    """
    capsule = open_capsule(state, trusted=options.trust) if state is not None else None
    settings = capsule.settings if capsule is not None else settings
    if settings is None:
        raise CapsuleError("the first site needs settings.", do="Name a method, or a config.")
    site = _own_site(capsule, settings, cohort, site_name)
    require_place(out, overwrite=options.overwrite)
    _refuse_early(settings, capsule, options)
    if spends := contract.require_budget(settings, options.epsilon, f"site '{site_name}'"):
        options.say(spends)
    flags = _agreed(capsule, site, options)
    epochs, total = count(1), settings.training.epochs
    tick = lambda: options.progress(next(epochs), total, f"epochs, {site_name}")  # noqa: E731
    following = learn_next(
        capsule, settings, site, template=options.template, tick=tick, public=options.public
    )
    allowed = {"allow_real_subjects": options.allow_real_subjects, "overwrite": options.overwrite}
    return sealing.seal(sealing.with_flags(following, flags), out, key=options.key, **allowed)


def _agreed(capsule: Capsule | None, site: Site, options: LearnOptions) -> list[str]:
    """Flags of what was accepted, once the hospital agreed to go on with what came in."""
    if capsule is None:
        return []
    options.agree(capsule)
    return contract.require_alike(capsule, site, options.accept, options.say)


def _own_site(
    capsule: Capsule | None, settings: ChainSettings, cohort: Cohort, site_name: str
) -> Site:
    """The hospital's subjects, split; `CapsuleError` where they do not fit the chain."""
    where = f"site '{site_name}'"
    contract.require_rois(settings.wrong_rois(cohort.roi_names), where)
    contract.require_classes(settings.classes, cohort.classes, where)
    check_turn(capsule, settings, site_name, cohort.n_rois)
    mine = cohort.select_sites([site_name])
    require_valid(mine)
    return split_site(mine, site_name, settings.seed, settings.test_fraction, settings.val_fraction)


def _refuse_early(settings: ChainSettings, capsule: Capsule | None, options: LearnOptions) -> None:
    """Refuse before training what sealing would refuse after it."""
    nobody = Subjects.none(settings.n_rois)
    empty = Capsule(settings, (), Lane({}, {}, {}), nobody, nobody, ({"flags": []},))
    allowed = options.allow_real_subjects
    sealing.flagged(empty, allowed)
    if capsule is not None and capsule.holds_real:
        sealing.flagged(replace(capsule, entries=({"flags": []},), id=""), allowed)
    before = capsule.entries if capsule is not None else ()
    sealing.require_same_signing(before, options.key is not None)
