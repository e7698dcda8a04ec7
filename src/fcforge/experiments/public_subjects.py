"""Public subjects of a run: they are loaded, compared with the tested ones, and a base model is fitted.

Tested subjects are those of the run's own sites; a base model is a linear model of the public subjects.
Both are compared by id, by scan, and as sites of one run are.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fcforge.base_model.features import log_features
from fcforge.base_model.model import fit_base_model
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.component import Component
from fcforge.core.constants import SHRINK
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import abbreviated, counted
from fcforge.core.spec import BaseModelSpec
from fcforge.core.subjects import FCBatch
from fcforge.data.checks import require_valid, without_duplicates
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.confounds import Confounds, fit_on_cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.duplicates import find_duplicates
from fcforge.data.faults import Fault
from fcforge.data.person_checks import person_faults, unlike_sites
from fcforge.data.site_checks import public_site_faults
from fcforge.data.subject_ids import (
    LONG,
    SHOWN_PAIRS,
    bare_id,
    respelt_faults,
    shared_long_numbers,
)

OTHERS = "others"


@dataclass(frozen=True)
class Public:
    """Public subjects of a run, their base model and the confound model.

    Attributes
    ----------
    subjects : PublicSubjects
        With confounds removed.
    confounds : Confounds or None
        Fitted on the public subjects; applied to every site.
    """

    subjects: PublicSubjects
    confounds: Confounds | None

    @property
    def batch(self) -> FCBatch:
        """The public subjects as tensors."""
        return FCBatch.from_numpy(self.subjects.fc, self.subjects.y)


def resolve_public(
    wanted: Component, tested: Cohort
) -> tuple[BaseModelSpec, tuple[Fault, ...]]:
    """Return the dataset of a run's public subjects with their sites and digest, and warnings.

    Parameters
    ----------
    wanted : Component
        Dataset that the config states: the run's own with other sites (``sites = "others"`` for all that are
        not tested), or another one.
    tested : Cohort
        Subjects of the run.

    Returns
    -------
    spec : BaseModelSpec
    warnings : tuple of Fault
        What `compare_public` warns of.

    Raises
    ------
    ConfigError
        If no site is left, or the two datasets have different targets.
    DataError
        If a public subject is among the tested ones, or their scans contradict each other.
    """
    _load.cache_clear()  # the files may have changed since an earlier experiment of this process
    params = dict(wanted.params)
    sites = params.pop("sites", OTHERS)
    if sites == OTHERS:
        everyone = load_dataset(Component(wanted.name, params))
        sites = [s for s in everyone.site_names if s not in tested.site_names]
        if not sites:
            raise ConfigError(
                "every site of the dataset is tested, so that no public subjects are left.",
                where="[base_model]",
                do="Name the tested sites in [dataset] (sites = [...]), or another dataset here.",
            )
    spec = BaseModelSpec(Component(wanted.name, {**params, "sites": list(sites)}))
    people = load_public(spec)
    if not people.target.fits(tested.target):
        message = f"the target of the public subjects is {people.target}, of the tested"
        hint = "Give both datasets one target and limits, or classes in one order."
        raise ConfigError(f"{message} {tested.target}.", where="[base_model]", do=hint)
    require_strangers(people, tested)
    warnings = compare_public(people, tested)
    return replace(spec, sha256=people.content_sha256()), warnings


@lru_cache(maxsize=2)
def _load(dataset: Component) -> Cohort:
    """Load and check a dataset of public subjects, without duplicate scans; cached."""
    people = load_dataset(dataset)
    require_valid(people, to_split=False)
    return without_duplicates(people)[0]


def load_public(spec: BaseModelSpec) -> Cohort:
    """Return the public subjects; of two duplicate scans only the first."""
    return _load(spec.dataset)


def _planned_people(spec: BaseModelSpec) -> Cohort:
    """Return the public subjects; `DataError` if they are others than those the run was planned with.

    A worker of a cluster lives on, and may have loaded the files before they changed.
    """
    if spec.sha256 and load_public(spec).content_sha256() != spec.sha256:
        _load.cache_clear()
        if load_public(spec).content_sha256() != spec.sha256:
            raise DataError(
                f"a worker reads other public subjects than this machine from dataset '{spec.dataset.name}'.",
                do="Put the data on a drive that all machines share.",
            )
    return load_public(spec)


def require_strangers(public: Cohort, tested: Cohort) -> None:
    """Raise `DataError` if a subject is both public and tested, by id or by scan."""
    if public.n_rois != tested.n_rois:
        raise DataError(
            f"the public subjects have {public.n_rois} ROIs, the tested ones {tested.n_rois}.",
            where="[base_model]",
            do="Use one atlas for both.",
        )
    # blanks at the ends of an id do not count
    public_ids, tested_ids = (
        as_text([bare_id(subject) for subject in people.subject_id.tolist()])
        for people in (public, tested)
    )
    duplicates = find_duplicates(public.fc, public_ids, tested.fc, tested_ids)
    if duplicates:
        first = duplicates[0]
        raise DataError(
            f"{len(duplicates)} public subjects are among the tested ones (first: {first.first} and "
            f"{first.second}, edge correlation {first.correlation:.2f}).",
            where="[base_model]",
            do="Leave them out of one of the two: a base model that has seen a tested subject "
            "proves nothing.",
        )
    ids, other_ids = public.subject_id.tolist(), tested.subject_id.tolist()
    shared = shared_long_numbers(ids, other_ids)
    if shared:
        pairs = [f"{ids[one]!r} and {other_ids[other]!r}" for one, other in shared]
        left_out = [*dict.fromkeys(ids[one] for one, _ in shared)]
        numbers = "number" if len(left_out) == 1 else "numbers"
        raise DataError(
            f"ids of {counted(len(left_out), 'public subject')} have the {numbers} of tested ones "
            f"({abbreviated(pairs, SHOWN_PAIRS)}).",
            where="[base_model]",
            do=f"Leave them out of one of the two, e.g. leave_out = {left_out[:SHOWN_PAIRS]} here: a "
            "base model that has seen a tested subject proves nothing. If they are other people, number "
            f"those of one data set anew, with fewer than {LONG} digits (P001).",
        )


def compare_public(public: Cohort, tested: Cohort) -> tuple[Fault, ...]:
    """Return warnings about public and tested people that contradict each other, or raise `DataError`.

    They are compared as sites of one run are: order of the ROIs, hemispheres, meaning of the
    diagnoses, ids that may be of one person, and single scans that are unlike the others. Each fault has
    the severity that it has there.

    Parameters
    ----------
    public, tested : Cohort
        With one target and equally many ROIs.

    Raises
    ------
    DataError
        With the first errors, unless one of the two has ``allow_unlike_sites``.
    """
    public_sites = [f"{site} (public)" for site in public.site.tolist()]
    both = Cohort(
        "public and tested people",
        np.concatenate([public.fc, tested.fc]),
        np.concatenate([public.y, tested.y]),
        as_text([*public_sites, *tested.site.tolist()]),
        as_text([*public.subject_id.tolist(), *tested.subject_id.tolist()]),
        allow_unlike_sites=public.allow_unlike_sites or tested.allow_unlike_sites,
        target=tested.target,
    )
    is_public = np.arange(len(both)) < len(public)
    faults = [*respelt_faults(both, is_public), *public_site_faults(both, is_public)]
    errors = [fault for fault in faults if fault.severity == "error"]
    if errors:
        lines = "".join(f"\n  - {fault}" for fault in errors)
        raise DataError(
            f"public and tested people contradict each other:{lines}\n",
            where="[base_model]",
            do="Nothing was trained.",
        )
    unlike = unlike_sites(faults)
    if "" in unlike:  # the public people as a whole, which was allowed
        unlike |= {*public_sites}
    # Faults of tested people are reported without the public ones.
    of_people = person_faults(both, unlike)
    faults += [fault for fault in of_people if fault.site in public_sites]
    return tuple(faults)


def fit_public(spec: BaseModelSpec, remove: tuple[str, ...]) -> Public:
    """Fit the confound model and the base model of a run to its public subjects.

    Parameters
    ----------
    spec : BaseModelSpec
    remove : tuple of str
        Covariates whose effect is removed from every scan.
    """
    people = _planned_people(spec)
    fc = people.fc
    confounds = fit_on_cohort(people, remove, SHRINK) if remove else None
    if confounds is not None:
        fc = confounds.remove(fc, people.covariates)
    features = log_features(fc, SHRINK)
    base_model = fit_base_model(features, people.y, people.target.columns)
    subjects = PublicSubjects(fc, people.y, people.site, base_model)
    return Public(subjects, confounds)
