"""Why a capsule said so: the consortium's head, and scans in files with either kind of capsule."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from fcforge.capsule.contents import Capsule
from fcforge.capsule.explanation import Explanation, atlas_for, explain, explain_capsule
from fcforge.capsule.prediction import Prediction
from fcforge.consortium.members import Consortium
from fcforge.consortium.predicting import predictor
from fcforge.errors import DataError
from fcforge.graphs import from_log_features, log_features
from fcforge.imaging.atlas import Atlas
from fcforge.models.attribution import Scorer
from fcforge.sites.harmonise import Unseen
from fcforge.sites.reading import Kind
from fcforge.sites.scans import find_scans
from fcforge.speed import one_thread


def scorer_of(group: Consortium) -> Scorer:
    """Calibrated log odds of the consortium's head, without what covariates add."""
    arrays, head = group.start.arrays, group.head
    shrink = float(arrays.shrink)

    def score(fc: torch.Tensor) -> torch.Tensor:
        x = arrays.standardise(log_features(fc, shrink))
        return (x @ head.weight + head.bias) / arrays.temperature

    return Scorer(score)


def explain_group(
    group: Consortium,
    fc: np.ndarray,
    covariates: Mapping[str, np.ndarray],
    subjects: Sequence[str] | None = None,
    atlas: Atlas | None = None,
    reference: np.ndarray | None = None,
) -> Explanation:
    """Explain what a consortium says of scans (n, R, R), against the public people's mean.

    What the start removes for age, sex or motion is the same for every edge pattern; it is part
    of each scan's `base`.
    """
    start, names = group.start, tuple(group.start.papers["roi_names"])
    arrays, offset = start.arrays, np.zeros(len(fc))
    if start.confounds is not None:
        removed = torch.from_numpy(start.confounds.effect(covariates)) / arrays.scale
        offset = -(removed @ group.head.weight / arrays.temperature).numpy()
    said = "the reference that was given"
    if reference is None:
        mean = from_log_features(arrays.mean[None], float(arrays.shrink))[0].numpy()
        reference, said = mean, "the mean of the public people"
    with one_thread():
        return explain(
            scorer_of(group), fc, reference, said=said, subjects=subjects, offset=offset,
            atlas=atlas_for(start.n_rois, names, atlas), positive=str(start.papers["classes"][1]),
        )  # fmt: skip


def explain_file(
    capsule: Capsule | Consortium,
    scans: Sequence[Path],
    rows: Sequence[Prediction],
    kind: Kind = "auto",
    atlas: Atlas | None = None,
    site: str | None = None,
    unseen: Unseen = "refuse",
) -> Explanation:
    """Explain the predictions of `predict_scans`: of the scans that got one, and no others.

    `site` and `unseen` are those of `predictor`.
    """
    every = find_scans(scans, kind, predictor(capsule).n_rois)
    found = [s for s, row in zip(every, rows, strict=True) if row.status == "ok"]
    if not found:
        raise DataError("no scan got an answer, so there is nothing to explain.")
    fc = np.stack([scan.fc for scan in found if scan.fc is not None])
    ids = [scan.subject for scan in found]
    if isinstance(capsule, Capsule):
        return explain_capsule(capsule, capsule.moved(fc, site, unseen), ids, atlas)
    known = {k: np.array([scan.covariates[k] for scan in found]) for k in capsule.start.removes}
    return explain_group(capsule, fc, known, ids, atlas)
