"""The estimator around a public start: every site adds a release, the head follows from the sum."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcforge.capsule.home import fingerprints
from fcforge.components import check_names
from fcforge.consortium import Consortium, Home, PublicStart, read_consortium
from fcforge.consortium.learning import Budget, learn, scores
from fcforge.consortium.public import without_covariates
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError
from fcforge.estimator.people import OwnPeople
from fcforge.sites.cohort import Cohort, as_text

SETTINGS = {**asdict(Budget()), "accept_labels": False}  # of method forge_release, here


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
