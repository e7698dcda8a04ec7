"""What an estimator learns from the subjects of a call, and what it hands over.

One site after another: as links of a chain of capsules, or as releases around a public start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fcforge.capsule.chain import ChainSettings
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import fingerprints
from fcforge.capsule.keys import read_keyring
from fcforge.capsule.learning import check_turn, learn_next
from fcforge.capsule.sealing import Trust, open_capsule, seal
from fcforge.components import check_names
from fcforge.consortium import (
    Consortium,
    Home,
    PublicStart,
    read_consortium,
    write_consortium,
)
from fcforge.consortium.files import is_consortium
from fcforge.consortium.learning import Budget, learn, scores
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError
from fcforge.estimator.parts import RELEASES, SETTINGS, Parameters, from_settings
from fcforge.estimator.people import OwnPeople, require_stated
from fcforge.progress import progress_on_stderr
from fcforge.randomness import numpy_rng
from fcforge.sites.cohort import Cohort, as_text
from fcforge.types import FCBatch, Site

NUMBERS: tuple[Any, Any] = (0, 1)  # what a consortium calls controls and patients


class Learns(Parameters):
    """Learns one site after another: as links of a chain, or as releases around a start."""

    def _learn_sites(
        self, people: OwnPeople, known: np.ndarray, patient: Any, first: bool
    ) -> None:
        """Add every site of `people` to what is held, or to nothing where it is `first`.

        The estimator is left as it was unless all of them could be learned.
        """
        held: Any = None if first else self.capsule_
        if self.method != RELEASES:
            control = known[0] if patient == known[1] else known[1]
            self.capsule_ = self._links(held, people, np.array([control, patient]))
            return
        require_stated(known, self.positive)
        if self.features != "fc":
            raise ConfigError(
                "releases are made from FC only.", do="Set features='fc'."
            )
        home = Home() if first else self.home_
        group = begin(self.start) if first else held
        with progress_on_stderr("learning", on=self.verbose) as report:
            for k, (name, part) in enumerate(people.by_site()):
                report(k, len(people.order), name)
                group, home = add_release(group, home, part, name, self.method_params)
        self.capsule_, self.home_ = group, home

    def _links(self, capsule: Any, people: OwnPeople, classes: np.ndarray) -> Capsule:
        """The capsule after every site of `people`."""
        n_rois = people.fc.shape[1]
        if not capsule:
            capsule = Capsule.empty(self._chain(n_rois, classes))
        for name in people.order:
            check_turn(capsule, name, n_rois)  # all, before any is trained
        epochs = capsule.settings.training.epochs
        total = epochs * len(people.order)
        with progress_on_stderr("learning", on=self.verbose) as report:
            for k, (name, part) in enumerate(people.by_site()):
                site, weight = as_site(part, name, capsule.settings)
                done = count(
                    k * epochs
                )  # a closed form has no epochs: sites alone count

                def tick(done: Iterator[int] = done, name: str = name) -> None:
                    report(next(done), total, f"epochs, {name}")

                tick()
                capsule = learn_next(capsule, site, weight=weight, tick=tick)
            report(total, total, "")
        return capsule

    def to_capsule(
        self,
        path: str | Path,
        *,
        key: Any = None,
        allow_real_subjects: bool = False,
        overwrite: bool = False,
    ) -> str:
        """Seal what was learnt (no pickle); returns the capsule's id."""
        check_is_fitted(self, "capsule_")
        held: Any = self.capsule_
        if self.features == "any":
            raise ConfigError(
                "only models of FC can be handed over.", do="Set features='fc'."
            )
        if self.method == RELEASES:
            if key is not None:
                do = "Use `fcforge learn --sign`."
                raise ConfigError("a release is signed when it is made.", do=do)
            write_consortium(held, path, overwrite=overwrite)
            return held.digest
        require_stated(self.classes_, self.positive)
        allowed = {"allow_real_subjects": allow_real_subjects, "overwrite": overwrite}
        self.capsule_ = sealed = seal(held, path, key=key, **allowed)
        return sealed.id

    @classmethod
    def from_capsule(
        cls, path: str | Path, *, trusted: Sequence[str] = (), **params: Any
    ) -> Self:
        """Estimator of a capsule or a consortium, ready to predict or to learn the next site.

        Parameters
        ----------
        path : path
        trusted : sequence of str
            As in `fcforge.capsule.open_capsule`.
        **params
            How X is read: `edges`, `kind`.
        """
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


def as_site(
    people: OwnPeople, name: str, settings: ChainSettings
) -> tuple[Site, Tensor | None]:
    """A site that is all training, and the weights of those learned, in the order learned.

    A validation part is cut only where one is used.
    """
    weight, val = people.weight, np.zeros(len(people.code), dtype=bool)
    fixed = settings.training.selection == "fixed"
    if not fixed or settings.calibrate == "inner_val":
        rng = numpy_rng(settings.seed, "split", name)
        for label in (0, 1):
            members = rng.permutation(np.flatnonzero(people.code == label))
            val[members[: max(1, round(settings.val_fraction * len(members)))]] = True
    every = FCBatch.from_numpy(people.fc, people.code)
    train, kept = every.select(~val) if val.any() else every, every.select(val)
    nobody = {"train": (), "val": (), "test": ()}
    site = Site(name, train, kept, kept.select(slice(0, 0)), nobody)
    if weight is None:
        return site, None
    learned = [weight[~val], *[weight[val]] * fixed]
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
    do = "Give start= a capsule of `fcforge start`, or what `make_public` returned."
    raise ConfigError("method 'forge_release' needs a public start.", do=do)


def add_release(
    group: Consortium,
    home: Home,
    subjects: OwnPeople,
    site: str,
    params: Mapping[str, Any] | None,
) -> tuple[Consortium, Home]:
    """The consortium with the release of one more site, and what stays at home.

    A person is known by the scan: the same scan in a second release is told, as everywhere.
    """
    given = dict(params or {})
    check_names("setting", given, SETTINGS)
    accept = bool(given.pop("accept_labels", False))
    fc, n = subjects.fc, len(subjects.fc)
    ids = as_text(
        [scan[:16] for _, scan, _ in fingerprints(fc, [""] * n, subjects.code)]
    )
    people = Cohort(
        "estimator", fc, subjects.code, as_text([site] * n), ids, (), subjects.columns
    )
    done = learn(group, people, site, home, Budget(**given), accept_labels=accept)
    return done.group, done.home


def log_odds(
    group: Consortium, fc: np.ndarray, covariates: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Calibrated log odds (n,) of the consortium's head; every scan by itself."""
    told = enumerate(group.start.wrong_covariates(covariates, len(fc)))
    if wrong := [f"subject {k + 1} {why}." for k, why in told if why]:
        do = f"Give covariates={{'{group.start.removes[0]}': ...}}, one number per subject."
        raise InputError(wrong[0], do=do)
    found = []
    for one in (slice(i, i + 1) for i in range(len(fc))):
        own = {name: values[one] for name, values in covariates.items()}
        found.append(scores(group, group.start.features(fc[one], own)))
    return np.concatenate(found)
