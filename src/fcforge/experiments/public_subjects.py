"""The public people of a run: found, held against the tested ones, made into a start."""

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from fcforge.base_model.expected_gain import Dealings
from fcforge.base_model.features import log_features
from fcforge.base_model.start import Start, StartSettings, make_start
from fcforge.core.component import Component
from fcforge.core.constants import SHRINK
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.spec import PublicSpec
from fcforge.core.subjects import FCBatch
from fcforge.data.cohort import Cohort, twins_of
from fcforge.data.confounds import Confounds, fit_on_cohort
from fcforge.data.datasets import load_dataset, require_valid, without_twins

OTHERS = "others"


@dataclass(frozen=True)
class Public:
    """Public people as a run uses them.

    Attributes
    ----------
    people : FCBatch
        Confounds removed.
    start : Start
    confounds : Confounds or None
        Fitted on them; applied to every site.
    """

    people: FCBatch
    start: Start
    confounds: Confounds | None


def resolve_public(wanted: Component, tested: Cohort) -> PublicSpec:
    """The public people a config asks for, by site, refused where they are among the tested.

    `wanted` is the run's own dataset with other sites (``sites = "others"``: all that are not
    tested), or another dataset.
    """
    params = dict(wanted.params)
    sites = params.pop("sites", OTHERS)
    if sites == OTHERS:
        everyone = load_dataset(Component(wanted.name, params))
        sites = [s for s in everyone.site_names if s not in tested.site_names]
        if not sites:
            raise ConfigError(
                "every site of the dataset is tested, so nobody is left for a public start.",
                where="[start]",
                do="Name the tested sites in [dataset] (sites = [...]), or another dataset here.",
            )
    spec = PublicSpec(Component(wanted.name, {**params, "sites": list(sites)}))
    people = load_public(spec)
    if not people.target.fits(tested.target):
        both = f"the target of the public people is {people.target}, of the tested"
        do = "Give both datasets one target and limits, or classes in one order."
        raise ConfigError(f"{both} {tested.target}.", where="[start]", do=do)
    require_strangers(people, tested)
    return replace(spec, sha256=people.content_sha256())


@lru_cache(maxsize=2)
def _load(name: str, params: str) -> Cohort:
    people = load_dataset(Component(name, json.loads(params)))
    require_valid(people, to_split=False)
    return without_twins(people)[0]


def load_public(spec: PublicSpec) -> Cohort:
    """Public people, the second of two scans that look like one person left out."""
    return _load(
        spec.dataset.name, json.dumps(dict(spec.dataset.params), sort_keys=True)
    )


def require_strangers(public: Cohort, tested: Cohort) -> None:
    """Raise `DataError` where somebody is both public and tested, by id or by scan."""
    if public.n_rois != tested.n_rois:
        raise DataError(
            f"public people have {public.n_rois} ROIs, the tested ones {tested.n_rois}.",
            where="[start]",
            do="Use one atlas for both.",
        )
    found = twins_of(public.fc, public.subject_id, tested.fc, tested.subject_id)
    if found:
        first = found[0]
        raise DataError(
            f"{len(found)} public people are among the tested ones (first: {first.first} and "
            f"{first.second}, edge correlation {first.correlation:.2f}).",
            where="[start]",
            do="Leave them out of one of the two: a start that shares a person proves nothing.",
        )


def make_run_start(
    spec: PublicSpec, remove: tuple[str, ...], noise: float | None = None
) -> Public:
    """Start and confound step of a run, from everybody public.

    With `noise` per person its settings are those that suit it (`fcforge.base_model.expected_gain`).
    """
    people = load_public(spec)
    fc = people.fc
    confounds = fit_on_cohort(people, remove, SHRINK) if remove else None
    if confounds is not None:
        fc = confounds.remove(fc, people.covariates)
    features = log_features(fc, SHRINK)
    settings = StartSettings()
    if noise is not None:
        dealt = Dealings(features, people.y, people.site, {noise})
        settings = dealt.settings(noise)
    start = make_start(features, people.y, settings, people.target.columns)
    return Public(FCBatch.from_numpy(fc, people.y), start, confounds)
