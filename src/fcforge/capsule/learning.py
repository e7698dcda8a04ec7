"""One hospital's turn: open a capsule, learn the site, hand over the next capsule.

A chain of capsules is the run `fcforge run` would do for that order and seed, bit by bit: the
split depends on (seed, site), the site is trained by the same engine call with one torch thread,
and remembered synthetic subjects travel as the exact float32 numbers they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fcforge.capsule import ledger
from fcforge.capsule.container import require_place
from fcforge.capsule.contents import Capsule, Settings, Subjects
from fcforge.capsule.judging import (
    DISTANCES,
    Reference,
    fit_temperature,
    held_out_set,
    limits,
    metrics_of,
    scores,
)
from fcforge.capsule.opening import open_capsule
from fcforge.capsule.prediction import references
from fcforge.capsule.sealing import flagged, seal
from fcforge.capsule.turn import Tick, Turn
from fcforge.engine import Learner
from fcforge.errors import CapsuleError
from fcforge.methods import Lane
from fcforge.runner.environment import describe
from fcforge.runner.learners import build_learner
from fcforge.runner.work import Progress
from fcforge.sites import Cohort, require_valid, split_site
from fcforge.types import Site

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# Pattern distance (1 - r) of a site's median subject from the nearest site's mean. From NYU the
# other 19 sites of ABIDE are 0.30 to 0.46 away, USM with its ROIs shuffled 0.99.
UNLIKE = 0.75


def check_turn(capsule: Capsule | None, settings: Settings, site_name: str, n_rois: int) -> None:
    """Raise when this site cannot be learned next."""
    title = settings.learner.title
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
    capsule: Capsule | None,
    settings: Settings,
    site: Site,
    *,
    tick: Tick = lambda: None,
    time_stamp: str | None = None,
) -> Capsule:
    """The capsule after one more site (not sealed yet).

    Parameters
    ----------
    capsule : Capsule or None
        What came in; None starts a chain.
    settings : Settings
        Those of `capsule`, where there is one.
    site : Site
        The hospital's own subjects, split. `test` may be empty.
    tick : callable
        Called after every epoch.
    time_stamp : str, optional
        Time written into the ledger; now.
    """
    check_turn(capsule, settings, site.name, site.n_rois)
    turn = Turn(capsule, settings, site)
    started = time.perf_counter()
    fixed = settings.training.selection == "fixed"
    lane = turn.train(with_val=fixed, tick=tick)
    seconds = time.perf_counter() - started
    packed, remembered = turn.packed(lane)
    held_out = _held_out(turn, capsule)
    sites = (*turn.past, site.name)
    entry = {
        "kind": "learn",
        "site": site.name,
        "time": time_stamp or ledger.now(),
        "parent": capsule.id if capsule is not None else "",
        "parent_signed_by": capsule.signed_by if capsule is not None else "",
        "settings": settings.to_json(),
        "counts": counts_of(site),
        "metrics": _metrics(turn.learner, lane, held_out, sites, site),
        "calibration": _calibration(turn, lane, held_out),
        "reference": _reference(turn, held_out),
        "flags": [],
        "environment": describe("cpu"),
        "seconds": round(seconds, 3),
    }
    entries = ledger.append(capsule.entries if capsule is not None else (), entry)
    return Capsule(
        settings, sites, packed, remembered, held_out, entries, parent=str(entry["parent"])
    )


def learn(
    state: str | Path | None,
    site_name: str,
    cohort: Cohort,
    out: str | Path,
    *,
    settings: Settings | None = None,
    key: Ed25519PrivateKey | None = None,
    trusted: Sequence[str] = (),
    allow_real_subjects: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda done, total, last: None,
    say: Callable[[str], Any] = lambda text: None,
) -> Capsule:
    """What `fcforge learn` does: open, split the site, learn it, seal the next capsule.

    Parameters
    ----------
    state : path or None
        Capsule that came in; None starts a chain with `settings`.
    site_name : str
        Site of `cohort` to learn; other sites of the cohort are not looked at.
    cohort : Cohort
    out : path
        Where the next capsule goes; nothing is written unless everything went well.
    settings : Settings, optional
        Only for the first site; later ones follow the capsule.
    key, trusted, allow_real_subjects, overwrite
        As in `seal` and `open_capsule`.
    progress : callable
        Called with (epochs done, in all, what is going on) as the site is learned.
    say : callable
        Called with a warning where the site's FC is unlike that of every site before it.
    """
    capsule = open_capsule(state, trusted=trusted) if state is not None else None
    if capsule is not None:
        settings = capsule.settings
    if settings is None:
        raise CapsuleError("the first site needs settings.", do="Name a method, or a config.")
    _check_rois(settings, cohort, site_name)
    check_turn(capsule, settings, site_name, cohort.n_rois)
    require_place(out, overwrite=overwrite)
    _refuse_early(settings, capsule, allow_real_subjects)
    mine = cohort.select_sites([site_name])
    require_valid(mine)
    site = split_site(mine, site_name, settings.seed, settings.test_fraction, settings.val_fraction)
    if capsule is not None:
        _say_if_unlike(capsule, site, say)
    epochs, total = count(1), settings.training.epochs
    following = learn_next(
        capsule, settings, site, tick=lambda: progress(next(epochs), total, f"epochs, {site_name}")
    )
    return seal(
        following, out, key=key, allow_real_subjects=allow_real_subjects, overwrite=overwrite
    )


def _check_rois(settings: Settings, cohort: Cohort, site_name: str) -> None:
    if settings.rois and cohort.roi_names and rois_sha256(cohort) != settings.rois:
        raise CapsuleError(
            "the ROI names differ from those of the capsule's first site.",
            where=f"site '{site_name}'",
            do="All hospitals of a chain use one atlas, ROIs in one order.",
        )


def rois_sha256(cohort: Cohort) -> str:
    """SHA-256 of the ROI names; empty where they are unknown."""
    return ledger.sha256("\x1f".join(cohort.roi_names).encode()) if cohort.roi_names else ""


def _say_if_unlike(capsule: Capsule, site: Site, say: Callable[[str], Any]) -> None:
    """Names of ROIs are often unknown; a shuffled atlas shows in the FC itself."""
    fc = site.learning(with_val=True).fc
    away = [float(r.distances(fc)["pattern"].median()) for _, r, _ in references(capsule)]
    if away and min(away) > UNLIKE:
        say(
            f"WARNING: FC of '{site.name}' does not resemble that of {', '.join(capsule.sites)} "
            f"(correlation with the nearest mean {1 - min(away):.2f}). Are these the same atlas "
            "and the same order of ROIs?"
        )


def _refuse_early(settings: Settings, capsule: Capsule | None, allowed: bool) -> None:
    """Refuse before training what sealing would refuse after it."""
    nobody = Subjects.none(settings.n_rois)
    empty = Capsule(settings, (), Lane({}, {}, {}), nobody, nobody, ({"flags": []},))
    flagged(empty, allowed)
    if capsule is not None and capsule.holds_real:
        flagged(replace(capsule, entries=({"flags": []},)), allowed)


def _held_out(turn: Turn, capsule: Capsule | None) -> Subjects:
    settings, site = turn.settings, turn.site
    before = capsule.held_out if capsule is not None else Subjects.none(settings.n_rois)
    if not settings.held_out:
        return before
    learning = site.learning(with_val=settings.training.selection == "fixed")
    batch = held_out_set(settings.judge, learning, settings.seed, site.name, settings.held_out)
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


def _metrics(
    learner: Learner, lane: Lane, held_out: Subjects, sites: tuple[str, ...], site: Site
) -> dict[str, Any]:
    """Accuracy on every site's held-out set, and on the own real test split."""
    found: dict[str, Any] = {"held_out": {}, "own_test": None}
    for place, name in enumerate(sites):
        batch = held_out.of_site(place)
        if len(batch):
            found["held_out"][name] = metrics_of(scores(learner, lane, batch.fc), batch.y)
    if len(site.test):
        found["own_test"] = metrics_of(scores(learner, lane, site.test.fc), site.test.y)
    return found


def _calibration(turn: Turn, lane: Lane, held_out: Subjects) -> dict[str, Any]:
    """Temperature of this hospital.

    ``inner_val``: logits of the validation part. Where it was folded into training (nothing
    was chosen on it), a second network is trained without it, only to be measured.
    """
    how, val = turn.settings.calibrate, turn.site.val
    if how == "inner_val" and len(val):
        other = lane
        if turn.settings.training.selection == "fixed":
            other = turn.train(with_val=False, tick=lambda: None)
        u, y = scores(turn.learner, other, val.fc), val.y
    elif how == "synthetic" and len(held_out):
        batch = held_out.batch()
        u, y = scores(turn.learner, lane, batch.fc), batch.y
    else:
        return {"how": "none", "temperature": None}
    return {"how": how, "temperature": ledger.rounded(fit_temperature(u, y))}


def _reference(turn: Turn, held_out: Subjects) -> dict[str, float | None]:
    batch = held_out.of_site(len(turn.past))
    if len(batch) < 4:
        return dict.fromkeys(DISTANCES)
    learning = turn.site.learning(with_val=True)
    return dict(limits(Reference.of(batch.fc), learning.fc))
