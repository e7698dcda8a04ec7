"""What a hospital measures while its site is open, and may write into the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fcforge.capsule import ledger
from fcforge.capsule.contents import Capsule, Subjects
from fcforge.capsule.judging import (
    DISTANCES,
    Reference,
    fit_temperature,
    held_out_set,
    limits,
    metrics_of,
    scores,
)
from fcforge.capsule.turn import Turn
from fcforge.engine import Learner
from fcforge.methods import Lane
from fcforge.types import Site


def held_out(turn: Turn, capsule: Capsule | None) -> Subjects:
    """Synthetic held-out subjects of all sites, this one last."""
    settings = turn.settings
    before = capsule.held_out if capsule is not None else Subjects.none(settings.n_rois)
    if not settings.held_out:
        return before
    batch = held_out_set(turn.judge, turn.learned, settings.seed, turn.site.name, settings.held_out)
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


def metrics(
    learner: Learner, lane: Lane, held_out: Subjects, sites: tuple[str, ...], site: Site
) -> dict[str, Any]:
    """Accuracy on every site's held-out set, and on the own real test split."""
    found: dict[str, Any] = {"held_out": {}, "own_test": None}
    for place, name in enumerate(sites):
        batch = held_out.of_site(place)
        if len(batch):
            found["held_out"][name] = metrics_of(scores(learner, lane, batch.fc), batch.y)
    if len(site.test):
        own = metrics_of(scores(learner, lane, site.test.fc), site.test.y)
        found["own_test"] = published(own, counts_of(site)["test"])
    return found


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
        u, y = scores(turn.learner, other, val.fc), val.y
    elif how == "synthetic" and len(held_out):
        batch = held_out.batch()
        u, y = scores(turn.learner, lane, batch.fc), batch.y
    else:
        return {"how": "none", "temperature": None}
    return {"how": how, "temperature": ledger.rounded(fit_temperature(u, y))}


def reference(turn: Turn, held_out: Subjects) -> dict[str, float | None]:
    """Limits of ordinary scans; None without a held-out set."""
    batch = held_out.of_site(len(turn.past))
    if len(batch) < 4:
        return dict.fromkeys(DISTANCES)
    learning = turn.site.learning(with_val=True)
    return dict(limits(Reference.of(batch.fc), learning.fc))
