"""What must be the same at every hospital, compared whenever a capsule is used."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fcforge.capsule.contents import Capsule, ChainSettings
from fcforge.capsule.judging import scores, side_distance
from fcforge.capsule.prediction import references
from fcforge.errors import CapsuleError, ConfigError, DataError
from fcforge.graphs import edges, fisher_z
from fcforge.methods import make_method
from fcforge.metrics import cell_values
from fcforge.runner.learners import build_learner
from fcforge.sites.cohort import NUMBERED
from fcforge.types import Site

ANYWHERE = (NUMBERED, ("control", "patient"))  # mean the same in all data
ACCEPT_LABELS, ACCEPT_SCANS = "accept_labels", "accept_scans"
TURNED = 2.0  # standard errors below chance at which diagnoses look turned round
# Pattern distance (1 - r) of a site's median subject from the nearest site's mean. From NYU the
# other 19 sites of ABIDE are 0.30 to 0.46 away, USM with its ROIs shuffled 0.99.
UNLIKE = 0.75


def require_rois(wrong: str, where: str) -> None:
    """Raise `CapsuleError` for ROIs of other names or in another order (`wrong_rois`)."""
    if wrong:
        raise CapsuleError(
            wrong, where=where, do="All hospitals use one atlas with its ROIs in one order."
        )


def require_classes(ours: Sequence[Any], classes: Sequence[Any], where: str) -> None:
    """Raise `CapsuleError` where data call other people patients than the capsule does.

    0 and 1 are controls and patients everywhere, and so are the words.
    """
    both = [tuple(str(c).lower() for c in said) for said in (ours, classes)]
    if both[0] == both[1] or any(said in ANYWHERE for said in both):
        return
    turned = " The other way round." if both[0] == both[1][::-1] else ""
    raise CapsuleError(
        f"the capsule's patients are '{ours[1]}' and its controls '{ours[0]}', those of these data "
        f"'{classes[1]}' and '{classes[0]}'.{turned}",
        where=where,
        do=f"Say which diagnosis is the capsule's '{ours[1]}': --positive VALUE, and name it so in "
        "the data.",
    )


def require_labels(auroc: float, y: np.ndarray, site: str, errors: float, accept: bool) -> bool:
    """Whether diagnoses look turned round: an AUROC far below chance; `DataError` unless accepted.

    Parameters
    ----------
    auroc : float
        Of the model that came in.
    y : ndarray of shape (n,)
    site : str
    errors : float
        Standard errors (under chance) below one half that are too many.
    accept : bool
    """
    n1, n0 = int(y.sum()), int(len(y) - y.sum())
    error = math.sqrt((n0 + n1 + 1) / (12 * max(n0 * n1, 1)))
    turned = auroc < 0.5 - errors * error
    if turned and not accept:
        raise DataError(
            "the model that came in tells this site's patients from controls the wrong way round "
            f"(AUROC {auroc:.2f}).",
            where=f"site '{site}'",
            do="Check which diagnosis means patient in the data (--positive); if it is right, say "
            "--accept-labels.",
        )
    return turned


def require_budget(settings: ChainSettings, most: float | None, where: str) -> str:
    """What each person will spend, in words; `ConfigError` where it is more than allowed."""
    method = make_method(settings.learner.method)
    epsilon = getattr(method, "epsilon", None)
    if most is not None and epsilon is None:
        raise ConfigError(
            f"--epsilon {most:g} was given, but method '{method.name}' adds no noise and promises "
            "nothing.",
            where=where,
            do="Leave --epsilon out, or take part in a capsule of releases.",
        )
    if epsilon is None:
        return ""
    if most is not None and epsilon > most:
        raise ConfigError(
            f"the capsule's settings spend epsilon {epsilon:g} per person, more than {most:g}.",
            where=where,
            do="Do not take part, or raise --epsilon.",
        )
    return f"each person of this site spends epsilon {epsilon:g} (delta {method.delta:g})"  # type: ignore[attr-defined]


def require_alike(
    capsule: Capsule,
    site: Site,
    accept: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Flags of what was accepted; `DataError` for scans or diagnoses that cannot be right.

    How well the model that came in does here is said before anything is learned.

    Names of ROIs are often unknown: a shuffled atlas shows in the FC itself. Diagnoses that are
    turned round show in a model that tells them apart the wrong way round.
    """
    flags, learning = [], site.learning(with_val=True)
    if odd := _odd_scans(capsule, learning.fc):
        if ACCEPT_SCANS not in accept:
            do = "Check the atlas and the order of the ROIs; if they are right, say --accept-scans."
            raise DataError(odd, where=f"site '{site.name}'", do=do)
        flags.append(ACCEPT_SCANS)
    learner = build_learner(capsule.settings.learner, capsule.settings.n_rois, has_start=False)
    if capsule.harmony is not None:  # moved only now: harmonised scans resemble the others' anyway
        learning = capsule.harmony.zero_shot(site).learning(with_val=True)
    p = torch.softmax(scores(learner, capsule.lane, learning.fc), -1)[:, 1].numpy()
    y = learning.y.numpy()
    auroc = float(np.nan_to_num(cell_values(p[None], y, "auroc")[0], nan=0.5))
    right, most = float(((p > 0.5) == y).mean()), max(y.mean(), 1 - y.mean())
    say(
        f"site '{site.name}': the model that came in reaches accuracy {right:.3f} on the {len(y)} "
        f"people to be learned (majority class {most:.3f}), AUROC {auroc:.3f}."
    )
    if require_labels(auroc, y, site.name, TURNED, ACCEPT_LABELS in accept):
        flags.append(ACCEPT_LABELS)
    return flags


def _odd_scans(capsule: Capsule, fc: torch.Tensor) -> str:
    """What is odd about a site's FC; empty where nothing is."""
    known = [reference for _, reference, _ in references(capsule)]
    away = [float(r.distances(fc)["pattern"].median()) for r in known]
    if away and min(away) > UNLIKE:
        return (
            f"its FC does not resemble that of {', '.join(capsule.sites)} (correlation with the "
            f"nearest mean {1 - min(away):.2f})."
        )
    mean = fisher_z(edges(fc)).double().mean(0)[None]
    if any(float(side_distance(r.mean, mean)) > 1 for r in known):
        return "its left and right hemispheres look swapped beside the sites before it."
    return ""
