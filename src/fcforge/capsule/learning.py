"""One hospital's turn: open a capsule, learn the site, hand over the next capsule.

A chain of capsules is the run `fcforge run` would do for that order and seed, bit by bit: the
split depends on (seed, site), the site is trained by the same engine call with one torch thread,
and remembered synthetic subjects travel as the exact float32 numbers they were.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from fcforge.capsule import container, home, ledger
from fcforge.capsule.chain import ChainSettings
from fcforge.capsule.contents import Capsule, require_fit
from fcforge.capsule.sealing import Trust, open_capsule, require_allowed, seal
from fcforge.capsule.turn import (
    Tick,
    Turn,
    people_learned,
    require_alike,
    require_budget,
)
from fcforge.errors import CapsuleError, at
from fcforge.runner import environment, plan
from fcforge.sites import Cohort, require_valid, split_site
from fcforge.sites.harmonise import Harmony, arrive
from fcforge.types import FCBatch, Site

ALIKE = (
    "allow_real_subjects",
    "overwrite",
    "epsilon",
    "accept",
)  # called so in a request, too


def check_turn(before: Capsule, site_name: str, n_rois: int) -> None:
    """Raise when this site cannot be learned next."""
    settings = before.settings
    settings.check_harmonise()
    if settings.build().method.depends_on == "all":
        what = f"learner '{settings.learner.title}' needs all sites at once: nothing to hand over."
        raise CapsuleError(
            what, do="Choose a continual method; see `fcforge list methods`."
        )
    if n_rois != settings.n_rois:
        what = f"the data have {n_rois} ROIs, the capsule {settings.n_rois}."
        raise CapsuleError(what, do="All hospitals of a chain use one atlas.")
    if site_name in before.sites:
        what = f"site '{site_name}' was learned already."
        raise CapsuleError(what, do="Give the new site another name.")


def learn_next(
    before: Capsule,
    site: Site,
    *,
    template: str | Path | None = None,
    weight: Tensor | None = None,
    tick: Tick = lambda: None,
    flags: Sequence[str] = (),
    public: FCBatch | None = None,
) -> Capsule:
    """The capsule after one more site (not sealed yet).

    Parameters
    ----------
    before : Capsule
        What came in; `Capsule.empty` starts a chain.
    site : Site
        The hospital's own subjects, split. `test` may be empty.
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    weight : Tensor, optional
        What each learned subject counts, for methods that weigh; recorded as a flag.
    tick : callable
        Called after every epoch.
    flags : sequence of str
        What was accepted, to be recorded.
    public : FCBatch, optional
        People that a chain's first site is harmonised to; else it is itself the reference.
    """
    check_turn(before, site.name, site.n_rois)
    settings = before.settings
    known = before.harmony if before.sites else _harmony(settings, public)
    harmony, moved = arrive(known, settings.harmonise, site)
    turn, started = Turn(before, moved, template), time.perf_counter()
    lane = turn.train(with_val=settings.learns_val, tick=tick, weight=weight)
    seconds = round(time.perf_counter() - started, 3)
    (packed, remembered), synthetic = turn.packed(lane), turn.held_out()
    receipt = home.Receipt(site.name, people_learned(settings, site))
    entry: ledger.Entry = {
        "kind": "learn",
        "site": site.name,
        "settings": settings.digest,
        "seconds": seconds,
        "time": ledger.now(),
        "parent": before.id,
        "commitment": receipt.commitment,
        "arrays": "",
        "flags": [*flags, *([] if weight is None else ["weighted subjects"])],
        "environment": environment.describe("cpu"),
        **turn.measured(lane, synthetic),
    }
    if harmony is not None:
        entry["harmonised"] = harmony.digest(len(before.sites))
    sites, entries = (*before.sites, site.name), ledger.append(before.entries, entry)
    made = Capsule(
        settings, sites, packed, remembered, synthetic, entries, parent=before.id
    )
    return replace(made, receipts=(*before.receipts, receipt), harmony=harmony)


def _harmony(settings: ChainSettings, public: FCBatch | None) -> Harmony | None:
    """What a chain starts from: public people as the reference, or nothing."""
    if public is None:
        return None
    if settings.harmonise == "none":
        do = "Set harmonise to 'site_demean' or 'combat', or give no public people."
        raise CapsuleError(
            "public people were given, but nothing is harmonised.", do=do
        )
    rois = public.fc.shape[1]
    if rois != settings.n_rois:
        raise CapsuleError(
            f"the public people have {rois} ROIs, the site {settings.n_rois}."
        )
    return Harmony.to_public(settings.harmonise, public.fc.numpy(), public.y.numpy())


@dataclass(frozen=True)
class LearnOptions:
    """What a hospital may ask for besides learning.

    Attributes
    ----------
    key : PrivateKey, optional
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
        What may look odd (`turn.ACCEPT_LABELS`, `turn.ACCEPT_SCANS`); recorded.
    public : FCBatch, optional
        People that the first site is harmonised to.
    agree : callable
        Called with the capsule that is about to be continued; raises where it must not be.
    progress : callable
        Called with (epochs done, in all, what is going on) as the site is learned.
    say : callable
        Told what is about to be spent.
    """

    key: ledger.PrivateKey | None = None
    trust: Trust = field(default_factory=Trust)
    allow_real_subjects: bool = False
    overwrite: bool = False
    epsilon: float | None = None
    template: str | Path | None = None
    accept: Sequence[str] = ()
    public: FCBatch | None = None
    agree: Callable[[Capsule], Any] = lambda capsule: None
    progress: plan.Progress = lambda done, total, last: None
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
    before = _handed(state, settings, options.trust)
    chain, where = before.settings, f"site '{site_name}'"
    with at(where):
        require_fit(cohort, chain.roi_names, chain.classes)
    check_turn(before, site_name, cohort.n_rois)
    mine = cohort.select_sites([site_name])
    require_valid(mine)
    site = split_site(
        mine, site_name, chain.seed, chain.test_fraction, chain.val_fraction
    )
    container.require_place(out, overwrite=options.overwrite)
    with at(where):
        flags = _accepted(before, site, options)
    epochs, total = count(1), chain.training.epochs
    following = learn_next(
        before,
        site,
        template=options.template,
        flags=flags,
        public=options.public,
        tick=lambda: options.progress(next(epochs), total, f"epochs, {site_name}"),
    )
    real, overwrite = options.allow_real_subjects, options.overwrite
    return seal(
        following, out, key=options.key, allow_real_subjects=real, overwrite=overwrite
    )


def _handed(
    state: str | Path | None, settings: ChainSettings | None, trust: Trust
) -> Capsule:
    """What a site goes on from: the capsule that came in, or an empty one at the first."""
    if state is not None:
        return open_capsule(state, trust)
    if settings is None:
        raise CapsuleError(
            "the first site needs settings.", do="Name a method, or a config."
        )
    return Capsule.empty(settings)


def _accepted(before: Capsule, site: Site, options: LearnOptions) -> list[str]:
    """Flags of what was accepted; refuses before training what sealing would refuse after it."""
    if before.holds_real:
        require_allowed(before.settings, options.allow_real_subjects)
    signed = [line["key"] for line in before.entries]
    ledger.require_same_signing(signed, options.key is not None)
    if spends := require_budget(before.settings, options.epsilon):
        options.say(spends)
    if not before.sites:
        return []
    options.agree(before)
    return require_alike(before, site, options.accept, options.say)
