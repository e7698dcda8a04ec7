"""What an estimator learns from the subjects of a call, and what it hands over.

One site after another: as links of a chain of capsules, or as releases around a public start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fcforge.capsule.chain import ChainSettings
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import fingerprints
from fcforge.capsule.keys import read_keyring
from fcforge.capsule.learning import check_turn, learn_next
from fcforge.capsule.sealing import Trust, open_capsule, seal
from fcforge.components import check_names
from fcforge.consortium import Consortium, Home, PublicStart, read_consortium, write_consortium
from fcforge.consortium.files import is_consortium
from fcforge.consortium.learning import Budget, learn, scores
from fcforge.consortium.public import without_covariates
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError, to_matrices
from fcforge.estimator.parts import RELEASES, SETTINGS, from_settings, to_settings
from fcforge.estimator.people import OwnPeople, require_stated
from fcforge.progress import progress_on_stderr
from fcforge.randomness import numpy_rng
from fcforge.sites.cohort import Cohort, as_text
from fcforge.types import FCBatch, Site

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier

NUMBERS: tuple[Any, Any] = (0, 1)  # what a consortium calls controls and patients


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
    return site, torch.from_numpy(np.concatenate(learned))


# -- releases around a public start
def begin(start: Any) -> Consortium:
    """The consortium to begin from: a start, a consortium, or the capsule file of one."""
    if isinstance(start, Consortium):
        return start
    if isinstance(start, PublicStart):
        return Consortium(start)
    if isinstance(start, (str, Path)):
        return read_consortium(start)
    raise ConfigError(
        "method 'forge_release' needs a public start.",
        do="Give start= a capsule of `fcforge start`, or what `make_public` returned.",
    )


def add_release(
    group: Consortium, home: Home, subjects: OwnPeople, site: str, params: Mapping[str, Any] | None
) -> tuple[Consortium, Home]:
    """The consortium with the release of one more site, and what stays at home.

    A person is known by the scan: the same scan in a second release is told, as everywhere.
    """
    given = dict(params or {})
    check_names("setting", given, SETTINGS)
    accept = bool(given.pop("accept_labels", False))
    fc, n = subjects.fc, len(subjects.fc)
    ids = as_text([scan[:16] for _, scan, _ in fingerprints(fc, [""] * n, subjects.code)])
    people = Cohort("estimator", fc, subjects.code, as_text([site] * n), ids, (), subjects.columns)
    done = learn(group, people, site, home, Budget(**given), accept_labels=accept)
    return done.group, done.home


def log_odds(group: Consortium, fc: np.ndarray, covariates: Mapping[str, np.ndarray]) -> np.ndarray:
    """Calibrated log odds (n,) of the consortium's head; every scan by itself."""
    if without_covariates(group.start, covariates, len(fc)).any():
        names = ", ".join(group.start.removes)
        raise InputError(
            f"the start removes {names}, which X does not tell.",
            do="Give covariates={'" + group.start.removes[0] + "': ...}, one number per subject.",
        )
    parts = [
        group.start.features(
            torch.from_numpy(fc[i : i + 1]), {n: v[i : i + 1] for n, v in covariates.items()}
        )
        for i in range(len(fc))
    ]
    return np.concatenate([scores(group, x) for x in parts])


# -- capsules
def write_capsule(estimator: ForgeClassifier, path: str | Path, key: Any, **allowed: bool) -> str:
    """Seal what an estimator learnt; returns the capsule's id."""
    held: Any = estimator.capsule_
    if estimator.features == "any":
        raise ConfigError("only models of FC can be handed over.", do="Set features='fc'.")
    if estimator.method == RELEASES:
        if key is not None:
            do = "Use `fcforge learn --sign`."
            raise ConfigError("a release is signed when it is made.", do=do)
        write_consortium(held, path, overwrite=allowed["overwrite"])
        return held.digest
    require_stated(estimator.classes_, estimator.positive)
    sealed = seal(held, path, key=key, **allowed)
    estimator.capsule_ = sealed
    return sealed.id


def read_capsule(
    cls: type[ForgeClassifier], path: str | Path, trusted: Sequence[str], params: Mapping[str, Any]
) -> ForgeClassifier:
    """Estimator of a capsule or of a consortium."""
    trust = Trust(tuple(trusted), keyring=read_keyring())
    if is_consortium(path):
        group = read_consortium(path, trust)
        made = cls(method=RELEASES, start=str(path), **params)
        made.capsule_, made.home_, made.n_rois_ = group, Home(), group.start.n_rois
        control, patient = NUMBERS
    else:
        capsule = open_capsule(path, trust)
        made = cls(**from_settings(capsule.settings), **params)
        made.capsule_, made.n_rois_ = capsule, capsule.settings.n_rois
        control, patient = capsule.settings.classes
    made.sites_, made._layout = made.capsule_.sites, None
    made.classes_ = np.unique(np.array([control, patient]))
    made._second_is_patient = bool(patient == made.classes_[1])
    return made
