"""judge: one synthetic set against real subjects, as a dict of numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fcforge.errors import DataError
from fcforge.randomness import numpy_rng
from fcforge.studies.judge import fidelity, two_sample
from fcforge.studies.judge.utility import Task, add_utility
from fcforge.types import FCBatch, Training

COLLAPSED_VARIANCE = 0.2


def judge_fidelity(
    real_train: FCBatch, real_test: FCBatch, synthetic: FCBatch, *, seed: int = 0
) -> dict[str, float]:
    """All numbers that need no classifier of the diagnosis.

    Means, variances and the class effect use all of `synthetic`; measures that depend on the
    number of subjects (MMD, C2ST, coverage, topology) use as many as there are training
    subjects, against the held-out ones, in at most 50 dimensions and at most half as many as
    the smaller set has subjects: beyond that every subject has a dimension of its own.
    """
    _check(real_train, real_test, synthetic)
    rng = numpy_rng(seed, "judge")
    pick = rng.permutation(len(synthetic))[: len(real_train)]
    some = synthetic.fc[torch.from_numpy(pick).to(synthetic.fc.device)]
    dimensions = min(50, min(len(real_test), len(some)) // 2)
    held, fake = two_sample.embed(real_test.fc, some, dimensions)
    return {
        **fidelity.validity(synthetic.fc),
        **fidelity.moments(real_train, real_test, synthetic),
        **fidelity.class_effect(real_train, real_test, synthetic),
        **fidelity.shape_of_graphs(real_test.fc, some),
        **two_sample.mmd(held, fake, rng),
        "c2st_auc": two_sample.classifier_test(held, fake, rng),
        **two_sample.coverage(held, fake),
    }


def judge(
    real_train: FCBatch,
    real_test: FCBatch,
    synthetic: FCBatch,
    *,
    seed: int = 0,
    classifiers: Sequence[str] = ("linear", "gcn"),
    augment: Sequence[str] = (),
    training: Training | None = None,
    diagnostics: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Judge a synthetic set.

    Parameters
    ----------
    real_train : FCBatch
        Subjects the generator learnt from.
    real_test : FCBatch
        Held-out subjects of the same site.
    synthetic : FCBatch
        Judge ``real_train`` itself for the real/real reference.
    seed : int
        Of subsampling and of classifiers.
    classifiers : sequence of str
        Models for train-on-synthetic-test-on-real (``linear`` is ridge in closed form).
    augment : sequence of str
        Models for the paper's 1:1 augmentation: real subjects plus as many synthetic ones.
    training : Training, optional
        Of the network classifiers.
    diagnostics : mapping, optional
        The generator's own; ``active_units`` of 0 is a collapse.

    Returns
    -------
    dict
        Numbers by name; ``tstr_<model>_<acc|pre|rec|f1|auc>``, ``aug_<model>_...``; and
        ``warnings``, a list of sentences.
    """
    out: dict[str, Any] = judge_fidelity(real_train, real_test, synthetic, seed=seed)
    both = FCBatch.concat([real_train, synthetic.select(slice(0, len(real_train)))])
    for prefix, train, models in (("tstr", synthetic, classifiers), ("aug", both, augment)):
        task = Task(train, real_test, seed)
        add_utility([out], prefix, [task], models, training or Training(), device)
    out["warnings"] = collapse_warnings(out, diagnostics or {})
    return out


def collapse_warnings(numbers: Mapping[str, Any], diagnostics: Mapping[str, Any]) -> list[str]:
    """Sentences on collapse: no active unit, or next to no variance within a class."""
    found = []
    if diagnostics.get("active_units") == 0:
        found.append("COLLAPSED: no latent unit is active; samples do not depend on z.")
    if numbers["variance_ratio"] < COLLAPSED_VARIANCE:
        found.append(
            f"COLLAPSED: within-class edge variance is {numbers['variance_ratio']:.3f} of the "
            "real one; all subjects of a class are nearly the same."
        )
    return found


def _check(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> None:
    for name, batch in (("training", train), ("held-out", test), ("synthetic", synthetic)):
        if len(batch) < 4:
            raise DataError(
                f"{len(batch)} {name} subjects are too few to judge (at least 4).", where="judge"
            )
        if not bool(torch.isfinite(batch.fc).all()):
            raise DataError(f"{name} FC holds NaN or infinity.", where="judge")
        if batch.n_rois != train.n_rois:
            raise DataError(f"{name} FC has {batch.n_rois} ROIs, not {train.n_rois}.")
