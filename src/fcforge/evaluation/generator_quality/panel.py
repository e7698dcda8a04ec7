"""Judgement of generators: of one synthetic set (`judge`), or of many at once (`judge_all`).

The value of synthetic subjects to a classifier is measured by training on them alone, or on them
and real ones together.
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
        Sites to judge on; all if empty.
    classifiers : tuple of str
        Classifiers trained on synthetic and tested on real subjects.
    augment : tuple of str
        Classifiers trained on real subjects and as many synthetic ones.
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
    """A synthetic set, the subjects that its generator was fitted on, and held-out ones.

    In the row of real subjects `synthetic` is `train` itself.
    """

    train: FCBatch
    test: FCBatch
    synthetic: FCBatch
    seed: int
    diagnostics: Mapping[str, Any]

    @property
    def augmented(self) -> FCBatch:
        """Real training subjects and as many synthetic ones; without them in the row of real subjects."""
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
    """Judge many synthetic sets; on a GPU, classifiers with equally many subjects train in parallel.

    Parameters
    ----------
    sets : sequence of JudgedSet
        Synthetic sets with the real subjects to compare them with.
    panel : Panel
        Classifiers to train.
    training : Training
        Settings of their training.
    device : torch.device or str

    Returns
    -------
    list of dict
        One per set, as `judge` returns it.
    """
    out: list[dict[str, Any]] = []
    for s in sets:
        numbers = judge_fidelity(s.train, s.test, s.synthetic, seed=s.seed)
        out.append({**numbers, "warnings": collapse_warnings(numbers, s.diagnostics)})
    alone = [Task(s.synthetic, s.test, s.seed) for s in sets]
    augmented = [Task(s.augmented, s.test, s.seed) for s in sets]
    # "tstr" is trained on synthetic, tested on real; "aug" is trained on both
    trainings = [("tstr", model, alone) for model in panel.classifiers]
    trainings += [("aug", model, augmented) for model in panel.augment]
    for prefix, model, tasks in trainings:
        results = classify(tasks, model, training, device)
        for record, numbers in zip(out, results, strict=True):
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
    """Measure the validity, fidelity and use of a synthetic set.

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
        Settings of the network classifiers' training.
    seed : int
        Seed of subsampling and of the classifiers.
    diagnostics : mapping, optional
        Values by which the generator describes its training; ``active_units`` of 0 is a collapse.

    Returns
    -------
    dict
        Numbers by name; ``tstr_<model>_<acc|pre|rec|f1|auc>``, ``aug_<model>_...``; and
        ``warnings``, a list of the ways in which the generator collapsed.
    """
    one = JudgedSet(real_train, real_test, synthetic, seed, diagnostics or {})
    return judge_all([one], panel or Panel(), training or Training())[0]


def judge_fidelity(
    real_train: FCBatch, real_test: FCBatch, synthetic: FCBatch, *, seed: int = 0
) -> dict[str, float]:
    """Compute all numbers on a synthetic set that need no classifier of the diagnosis.

    Means, variances and the class effect use all synthetic subjects. Measures that depend on the number of
    subjects (MMD, C2ST, coverage, topology) compare as many synthetic subjects as there are training subjects
    with the held-out ones. They use at most 50 dimensions, and at most half as many as the smaller set has
    subjects, because with more every subject has a dimension of its own.

    Parameters
    ----------
    real_train, real_test : FCBatch
        Real subjects on which the generator was fitted, and held-out ones.
    synthetic : FCBatch
    seed : int
        Seed of the choice of synthetic subjects and of folds.

    Returns
    -------
    dict of str to float
    """
    _check(real_train, real_test, synthetic)
    rng = numpy_rng(seed, "judge")
    chosen = rng.permutation(len(synthetic))[: len(real_train)]
    picked = torch.from_numpy(chosen).to(synthetic.fc.device)
    synthetic_sample = synthetic.fc[picked]
    dimensions = min(50, min(len(real_test), len(synthetic_sample)) // 2)
    held, fake = measures.embed(real_test.fc, synthetic_sample, dimensions)
    return {
        **measures.validity(synthetic.fc),
        **measures.moments(real_train, synthetic),
        **measures.class_effect(real_train, real_test, synthetic),
        **measures.shape_of_graphs(real_test.fc, synthetic_sample),
        **measures.mmd(held, fake, rng),
        "c2st_auc": measures.classifier_test(held, fake, rng),
        **measures.coverage(held, fake),
    }


def collapse_warnings(
    numbers: Mapping[str, Any], diagnostics: Mapping[str, Any]
) -> list[str]:
    """Return the ways in which a generator collapsed: no active latent unit, no variance in a class.

    Parameters
    ----------
    numbers : mapping
        Result of `judge_fidelity`.
    diagnostics : mapping
        Values by which the generator describes its training.
    """
    warnings = []
    if diagnostics.get("active_units") == 0:
        warnings.append("no latent unit is active")
    if numbers["variance_ratio"] < COLLAPSED_VARIANCE:
        warnings.append("within-class edge variance is below a fifth of the real one")
    return warnings


def _check(train: FCBatch, test: FCBatch, synthetic: FCBatch) -> None:
    """Raise `DataError` if a set has fewer than four subjects or numbers that are not finite."""
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
