"""Generators judged: one synthetic set (`judge`), or many at once (`judge_all`).

What synthetic subjects are worth to a classifier is found by training on them, or beside real ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fcforge.core.errors import DataError
from fcforge.core.randomness import numpy_rng
from fcforge.core.settings import Checked, at_least, limits
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.evaluation.generator_quality import measures
from fcforge.evaluation.generator_quality.classification import Task, classify
from fcforge.experiments.config import SEEDS

COLLAPSED_VARIANCE = 0.2


@limits(seeds=SEEDS, multiple=at_least(1))
@dataclass(frozen=True)
class Panel(Checked):
    """``[judge]``: how generators are judged.

    Attributes
    ----------
    title : str
    seeds : tuple of int
    sites : tuple of str
        All where none is named.
    classifiers : tuple of str
        For train-on-synthetic-test-on-real.
    augment : tuple of str
        For 1:1 augmentation.
    multiple : int
        Synthetic subjects per training subject (diagnoses as in the training part).
    """

    title: str = "Generators judged"
    seeds: tuple[int, ...] = (0,)
    sites: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = ("linear", "gcn")
    augment: tuple[str, ...] = ()
    multiple: int = 4


class JudgedSet(NamedTuple):
    """A synthetic set beside the subjects it was learnt from and held-out ones.

    The real row is its own training part: nothing is added to it.
    """

    train: FCBatch
    test: FCBatch
    synthetic: FCBatch
    seed: int
    diagnostics: Mapping[str, Any]

    @property
    def augmented(self) -> FCBatch:
        """Real subjects plus as many synthetic ones."""
        if self.synthetic is self.train:
            return self.train
        as_many = slice(0, len(self.train))
        return FCBatch.concat([self.train, self.synthetic.select(as_many)])


def judge_all(
    sets: Sequence[JudgedSet],
    panel: Panel,
    training: Training,
    device: torch.device | str = "cpu",
) -> list[dict[str, Any]]:
    """Return numbers of every set; classifiers of equal size are trained side by side on a GPU."""
    out: list[dict[str, Any]] = []
    for s in sets:
        numbers = judge_fidelity(s.train, s.test, s.synthetic, seed=s.seed)
        out.append({**numbers, "warnings": collapse_warnings(numbers, s.diagnostics)})
    alone = [Task(s.synthetic, s.test, s.seed) for s in sets]
    beside = [Task(s.augmented, s.test, s.seed) for s in sets]
    asked = [("tstr", model, alone) for model in panel.classifiers]
    asked += [("aug", model, beside) for model in panel.augment]
    for prefix, model, tasks in asked:
        found = classify(tasks, model, training, device)
        for record, numbers in zip(out, found, strict=True):
            record.update({f"{prefix}_{model}_{k}": v for k, v in numbers.items()})
    return out


def judge(
    real_train: FCBatch,
    real_test: FCBatch,
    synthetic: FCBatch,
    panel: Panel | None = None,
    training: Training | None = None,
    *,
    seed: int = 0,
    diagnostics: Mapping[str, Any] | None = None,
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
    panel : Panel, optional
        Its classifiers and augmentation are used.
    training : Training, optional
        Of the network classifiers.
    seed : int
        Of subsampling and of classifiers.
    diagnostics : mapping, optional
        The generator's own; ``active_units`` of 0 is a collapse.

    Returns
    -------
    dict
        Numbers by name; ``tstr_<model>_<acc|pre|rec|f1|auc>``, ``aug_<model>_...``; and
        ``warnings``, in what way it collapsed, if it did.
    """
    one = JudgedSet(real_train, real_test, synthetic, seed, diagnostics or {})
    return judge_all([one], panel or Panel(), training or Training())[0]


def judge_fidelity(
    real_train: FCBatch, real_test: FCBatch, synthetic: FCBatch, *, seed: int = 0
) -> dict[str, float]:
    """Compute all numbers that need no classifier of the diagnosis.

    Means, variances and the class effect use all of `synthetic`; measures that depend on the
    number of subjects (MMD, C2ST, coverage, topology) use as many as there are training
    subjects, against the held-out ones, in at most 50 dimensions and at most half as many as
    the smaller set has subjects: beyond that every subject has a dimension of its own.
    """
    _check(real_train, real_test, synthetic)
    rng = numpy_rng(seed, "judge")
    pick = rng.permutation(len(synthetic))[: len(real_train)]
    picked = torch.from_numpy(pick).to(synthetic.fc.device)
    some = synthetic.fc[picked]
    dimensions = min(50, min(len(real_test), len(some)) // 2)
    held, fake = measures.embed(real_test.fc, some, dimensions)
    return {
        **measures.validity(synthetic.fc),
        **measures.moments(real_train, synthetic),
        **measures.class_effect(real_train, real_test, synthetic),
        **measures.shape_of_graphs(real_test.fc, some),
        **measures.mmd(held, fake, rng),
        "c2st_auc": measures.classifier_test(held, fake, rng),
        **measures.coverage(held, fake),
    }


def collapse_warnings(
    numbers: Mapping[str, Any], diagnostics: Mapping[str, Any]
) -> list[str]:
    """Return how a generator collapsed: no dependence on z, or almost no variance in a class."""
    found = []
    if diagnostics.get("active_units") == 0:
        found.append("no latent unit is active")
    if numbers["variance_ratio"] < COLLAPSED_VARIANCE:
        found.append("within-class edge variance is below a fifth of the real one")
    return found


def _check(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> None:
    for name, batch in (
        ("training", train),
        ("held-out", test),
        ("synthetic", synthetic),
    ):
        if len(batch) < 4:
            raise DataError(
                f"{len(batch)} {name} subjects are too few to judge (at least 4).",
                where="judge",
            )
        if not bool(torch.isfinite(batch.fc).all()):
            raise DataError(f"{name} FC holds NaN or infinity.", where="judge")
