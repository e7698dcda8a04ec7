"""What `fit` and `partial_fit` do with the subjects of a call: one site after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError, to_matrices
from fcforge.estimator.parts import RELEASES, to_settings
from fcforge.estimator.people import OwnPeople, require_stated
from fcforge.progress import progress_on_stderr
from fcforge.randomness import numpy_rng
from fcforge.types import FCBatch, Site

if TYPE_CHECKING:
    from torch import Tensor

    from fcforge.capsule.chain import ChainSettings
    from fcforge.estimator.classifier import ForgeClassifier


def learn_subjects(
    estimator: ForgeClassifier, subjects: OwnPeople, known: np.ndarray, patient: Any, *, first: bool
) -> None:
    """Add every site of `subjects` to what the estimator holds, or to nothing where it is `first`.

    The estimator is left as it was unless all of them could be learned.
    """
    held: Any = None if first else estimator.capsule_
    if estimator.method != RELEASES:
        control = known[0] if patient == known[1] else known[1]
        estimator.capsule_ = _links(estimator, held, subjects, np.array([control, patient]))
        return
    require_stated(known, estimator.positive)
    if estimator.features != "fc":
        raise ConfigError("releases speak about FC.", do="Set features='fc'.")
    if estimator.harmonise != "none":
        raise ConfigError(
            "a site's exact means would break the promise of its release.",
            do="Set harmonise='none'; the start is made from public people of many sites.",
        )
    from fcforge.consortium import Home
    from fcforge.estimator.releases import add_release, begin

    home = Home() if first else estimator.home_
    group = begin(estimator.start) if first else held
    with progress_on_stderr("learning", on=estimator.verbose) as report:
        for k, (name, part) in enumerate(subjects.by_site()):
            report(k, len(subjects.order), name)
            group, home = add_release(group, home, part, name, estimator.method_params)
    estimator.capsule_, estimator.home_ = group, home


def _links(
    estimator: ForgeClassifier, capsule: Any, subjects: OwnPeople, classes: np.ndarray
) -> Any:
    """The capsule after every site of `subjects`."""
    from fcforge.capsule.contents import Capsule
    from fcforge.capsule.learning import check_turn, learn_next

    n_rois = subjects.fc.shape[1]
    public = None if capsule else _public(estimator)
    capsule = capsule or Capsule.empty(to_settings(estimator, n_rois, classes))
    for name in subjects.order:
        check_turn(capsule, name, n_rois)  # all, before any is trained
    epochs = capsule.settings.training.epochs
    total = epochs * len(subjects.order)
    with progress_on_stderr("learning", on=estimator.verbose) as report:
        for k, (name, part) in enumerate(subjects.by_site()):
            site, weight = as_site(part.fc, part.code, name, capsule.settings, part.weight)
            done = count(k * epochs)  # a closed form has no epochs: sites alone count

            def tick(done: Iterator[int] = done, name: str = name) -> None:
                report(next(done), total, f"epochs, {name}")

            tick()
            capsule = learn_next(capsule, site, weight=weight, public=public, tick=tick)
        report(total, total, "")
    return capsule


def _public(estimator: ForgeClassifier) -> FCBatch | None:
    """The people to harmonise to, where some were given; their diagnoses are not asked for."""
    if estimator.harmonise_to is None:
        return None
    fc = to_matrices(np.asarray(estimator.harmonise_to), estimator.kind)
    if fc.ndim != 3:
        raise InputError("harmonise_to holds no FC matrices.", do="Give FC of shape (m, R, R).")
    return FCBatch.from_numpy(fc, np.zeros(len(fc), dtype=np.int64))


def as_site(
    fc: np.ndarray,
    code: np.ndarray,
    name: str,
    settings: ChainSettings,
    weight: np.ndarray | None = None,
) -> tuple[Site, Tensor | None]:
    """A site that is all training, and the weights of those learned, in the order learned.

    A validation part is cut only where one is used.

    Parameters
    ----------
    fc : ndarray of shape (n, R, R), float32
    code : ndarray of shape (n,)
        0 or 1.
    name : str
    settings : ChainSettings
    weight : ndarray of shape (n,), optional
    """
    val = np.zeros(len(code), dtype=bool)
    if settings.training.selection == "inner_val" or settings.calibrate == "inner_val":
        rng = numpy_rng(settings.seed, "split", name)
        for label in (0, 1):
            members = rng.permutation(np.flatnonzero(code == label))
            val[members[: max(1, round(settings.val_fraction * len(members)))]] = True
    every = FCBatch.from_numpy(fc, code)
    train, kept = every.select(~val) if val.any() else every, every.select(val)
    nobody = {"train": (), "val": (), "test": ()}
    site = Site(name, train, kept, kept.select(slice(0, 0)), nobody)
    if weight is None:
        return site, None
    learned = (
        [weight[~val], weight[val]] if settings.training.selection == "fixed" else [weight[~val]]
    )
    import torch

    return site, torch.from_numpy(np.concatenate(learned))
