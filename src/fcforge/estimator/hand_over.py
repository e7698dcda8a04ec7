"""Capsules of an estimator: sealing what was learnt, and going on from what another learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import ConfigError
from fcforge.estimator.parts import RELEASES, from_settings
from fcforge.estimator.people import require_stated

if TYPE_CHECKING:
    from fcforge.estimator.classifier import ForgeClassifier


NUMBERS: tuple[Any, Any] = (0, 1)  # what a consortium calls controls and patients


def write_capsule(estimator: ForgeClassifier, path: str | Path, key: Any, **allowed: bool) -> str:
    """Seal what an estimator learnt; returns the capsule's id."""
    from fcforge.capsule.sealing import seal
    from fcforge.consortium import write_consortium

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
    from fcforge.capsule.keys import read_keyring
    from fcforge.capsule.opening import Trust, open_capsule
    from fcforge.consortium import Home, read_consortium
    from fcforge.consortium.files import is_consortium

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
