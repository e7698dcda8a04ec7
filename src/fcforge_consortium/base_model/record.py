"""Base model as a record: making it from public people, reading it, and checking scans by it.

A *base model* is a linear model of public people, made before any hospital joins. Its record also holds
the *space* of contributions, which is the coordinate system in which hospitals add to the model
(`base_model.space`), limits that recognise unusual scans, the quality that is expected at a new site,
and the gain that is expected of contributions.

Shapes: n people, R ROIs, p = R (R + 1) / 2 features of a scan (the edges, then the diagonal, of the
matrix logarithm of its FC), K axes (principal directions of the public people).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from fcforge.base_model.calibration import calibrated, targets
from fcforge.base_model.features import log_features
from fcforge.base_model.model import FLAT, BaseModel, rounded, rounded_number
from fcforge.core.errors import DataError, ExchangeError, at, refuse
from fcforge.core.names import folded
from fcforge.core.settings import make
from fcforge.data.checks import require_valid, without_duplicates
from fcforge.data.cohort import Cohort, as_numbers
from fcforge.data.confounds import Confounds, fit_on_cohort, terms
from fcforge.data.scan_checks import likeness, side_distance, unit_rows
from fcforge.data.subject_ids import shared_long_numbers
from fcforge.evaluation.resampling import measure
from fcforge_consortium.base_model.expected_gain import ExpectedGains
from fcforge_consortium.base_model.planning import noise_per_subject, planned_noise
from fcforge_consortium.base_model.quality import answers_of, truth_of
from fcforge_consortium.base_model.space import (
    ContributionSpace,
    SpaceSettings,
    field_settings,
    fit_base_and_space,
)
from fcforge_consortium.base_model.vectors import DOSES
from fcforge_consortium.model import Covariates
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import BaseModelLimits, ExpectedQuality
from fcforge_consortium.records.policy import Policy

MAKER = "public people"  # author of the record of a base model
# Limits, as multiples of the extremes among the public people and sites: of the largest distance of a
# scan from the mean scan, of the lowest correlation with it, and of the largest difference (one minus
# correlation) of a site's mean scan from that of the other sites.
SIZE_LIMIT = 1.5
LIKENESS = 0.5
SITES_APART = 4.0
# Upper bound of the required correlation of a site's mean: ABIDE's sites have at least .89, data with
# misplaced ROIs less than .45.
ALIKE_SITES = 0.8
LEAST_ALIKE_SITES = 0.3  # lower bound of the same, however much the public sites differ
BEYOND = 0.5  # allowed distance of a covariate outside the public range, in units of that range
STRANGE = 0.2  # share of a site's scans that may be unlike the public ones
# Least cosine between whitened coordinates of two scans that count as one person's. With ABIDE's 871
# people and 128 axes: half a scan and the whole scan at least .85, one scan by two pipelines .65 on
# average, two people at most .57. With fewer than `MANY_AXES` axes only identical scans are recognised.
SAME_PERSON = 0.6
SAME_SCAN = 0.999
MANY_AXES = 64
# names of stored arrays
PEOPLE = "people"
CENTRE = "confounds.centre"
COEFFICIENTS = "confounds.coefficients"


@dataclass(frozen=True, eq=False)
class PublicBaseModel:
    """A base model as read from its record.

    Attributes
    ----------
    record : BaseModelRecord
    space : ContributionSpace
        The linear model, and the coordinates in which hospitals add to it.
    confounds : Confounds or None
        Effects of covariates that are removed from every scan; None if nothing is removed.
    people : ndarray of shape (n, K)
        Coordinates of the public people along the axes (`whitened_coordinates`), in the order of the
        record's ids.
    """

    record: records.BaseModelRecord
    space: ContributionSpace
    confounds: Confounds | None
    people: np.ndarray

    def public_among(self, ids: Sequence[str], features: np.ndarray) -> list[str]:
        """Return those of a site's people who are among the public ones, by id or by scan.

        Parameters
        ----------
        ids : sequence of str
            Ids of the site's people.
        features : ndarray of shape (n, p)
            Features of their scans, confounds removed.

        Returns
        -------
        list of str
            Their ids. Where ids are spelt differently but have the same long number
            (`fcforge.data.subject_ids`), or only the scans are alike, with the public person's id
            in words.
        """
        public_ids = [*self.record.ids, *self.record.left_out]
        folded_ids = set(map(folded, public_ids))
        same_number = dict(shared_long_numbers(ids, public_ids))
        cosines = whitened_coordinates(self.space, features) @ self.people.T
        same = SAME_PERSON if self.people.shape[1] >= MANY_AXES else SAME_SCAN
        shared = []
        for place, (id_, row) in enumerate(zip(ids, cosines, strict=True)):
            if folded(id_) in folded_ids:
                shared.append(id_)
            elif place in same_number:
                public = public_ids[same_number[place]]
                shared.append(f"{id_}, which has the number of {public}")
            elif row.max() > same:
                public = self.record.ids[int(row.argmax())]
                shared.append(f"{id_}, whose scan looks like that of {public}")
        return shared

    def features(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return the features (n, p) of scans, confounds removed.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        covariates : mapping of str to ndarray of shape (n,)
            All covariates that the base model removes.
        """
        features = log_features(fc, self.space.base.shrink)
        if self.confounds is not None:
            features -= self.confounds.effect(covariates)
        return features

    def wrong_covariates(self, covariates: Covariates, n: int) -> list[str]:
        """Return the fault of each person's covariates, in words; empty for a person without one.

        A covariate may be missing, or far outside the public people's range: age in months, sex coded
        0 and 1 where the base model has 1 and 2, motion in another unit. Removing the effect of such
        values would distort the scan.

        Parameters
        ----------
        covariates : mapping of str to ndarray of shape (n,)
        n : int
            Number of people.

        Returns
        -------
        list of str
            One text for each person, such as "has no age, which is removed (...)".
        """
        faults = [""] * n
        for name, (low, high) in self.record.ranges.items():
            values = as_numbers(name, covariates.get(name, np.full(n, np.nan)))
            middle = (low + high) / 2
            plausible = np.abs(values - middle) <= (0.5 + BEYOND) * (high - low)
            for i in np.flatnonzero(~plausible):  # NaN is never plausible
                value = f"the {name} {values[i]:.4g}"
                stated = f"no {name}" if np.isnan(values[i]) else value
                faults[i] = (
                    f"has {stated}, which is removed (public people: {low:.4g} to {high:.4g})"
                )
        return faults

    def require_covariates(self, covariates: Covariates, ids: Sequence[str]) -> None:
        """Raise `DataError` if covariates that are removed are missing or far out of range.

        Parameters
        ----------
        covariates : mapping of str to ndarray of shape (n,)
        ids : sequence of str
            Ids of the n people, for the error message.
        """
        faults = self.wrong_covariates(covariates, len(ids))
        wrong = [f"{id_} {why}" for id_, why in zip(ids, faults, strict=True) if why]
        if wrong:
            raise DataError(
                f"covariates of {len(wrong)} people cannot be used (first: {wrong[0]}).",
                do="Supply missing values (in Python: covariates={"
                f"'{self.record.removes[0]}': ...}}), check unit and coding (ABIDE: sex 1 male, 2 "
                "female; age in years; mean FD in mm), or leave these people out.",
            )

    def strangeness(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Return how far scans are from those of the public people, in several respects.

        Parameters
        ----------
        features : ndarray of shape (n, p)

        Returns
        -------
        dict of str to ndarray of shape (n,)
            Distances by a description of what is unusual; above 1 is beyond the limit.
        """
        limits = self.record.limits
        size = sizes(self.space.base, features)
        unlike = (1 - self.alike(features)) / (1 - limits.likeness)
        return {
            "lies further out than the public people's scans": size / limits.size,
            "has another pattern than the public people's scans": unlike,
            "its left and right look swapped": self.side(features),
        }

    def alike(self, features: np.ndarray) -> np.ndarray:
        """Return the correlation (n,) of the edges with those of the public mean.

        The diagonal is left out: with it, a scan whose ROIs are all equal would look familiar.
        """
        return likeness(self.edges(features), self.edges(self.space.base.mean))

    def side(self, features: np.ndarray) -> np.ndarray:
        """Return a distance (n,) that is above 1 if left and right look swapped."""
        return side_distance(self.edges(self.space.base.mean), self.edges(features))

    def edges(self, features: np.ndarray) -> np.ndarray:
        """Return the edges (..., p - R) of features (..., p); the last R features are the diagonal."""
        return features[..., : -self.record.n_rois]

    def require_alike(self, features: np.ndarray) -> None:
        """Raise `DataError` if a site's scans are unlike the public ones.

        Typical reasons are shuffled ROIs, another atlas and swapped hemispheres.

        Parameters
        ----------
        features : ndarray of shape (n, p)
            Features of the site's people.
        """
        mean = features.mean(0)[None]
        if self.side(mean).item() > 1:
            raise DataError(
                "its left and right hemispheres look swapped, compared with the public people's.",
                do="Check the order of the ROIs and the orientation of the images.",
            )
        apart = np.stack([*self.strangeness(features).values()]).max(0)
        strange = int((apart > 1).sum())
        alike = self.alike(mean).item()
        limit = self.record.limits.site
        if strange > STRANGE * len(features) or alike < limit:
            raise DataError(
                f"its scans are unlike the public people's: {strange} of {len(features)} lie "
                f"outside the limits, and the mean scan correlates {alike:.2f} with theirs (at "
                f"least {limit:.2f} is expected).",
                do="Check the order of the ROIs, the atlas and the preprocessing.",
            )


def whitened_coordinates(space: ContributionSpace, features: np.ndarray) -> np.ndarray:
    """Return the whitened coordinates of scans along the axes, scaled to length 1.

    The product of two people's coordinates is the cosine by which duplicate scans are recognised.

    Parameters
    ----------
    space : ContributionSpace
    features : ndarray of shape (n, p)

    Returns
    -------
    ndarray of shape (n, K)
    """
    spread = np.sqrt(np.maximum(space.variance[:-1], 1e-12))
    return unit_rows(space.base.standardise(features) @ space.axes / spread)


def sizes(base: BaseModel, features: np.ndarray) -> np.ndarray:
    """Return the distances (n,) of scans with features (n, p) from the mean of the public people.

    The distance is the root mean square of the standardised features.
    """
    return np.sqrt((base.standardise(features) ** 2).mean(1))


# -- making a base model ---------------------------------------------------------------------------
def make_base_model(
    cohort: Cohort,
    remove: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    policy: Policy = Policy(),  # noqa: B008 (frozen)
    key: Signer = None,
    plan: records.Plan = records.Plan(),  # noqa: B008 (frozen)
) -> Exchange:
    """Make a base model. The same people give the same arrays on every machine.

    Parameters
    ----------
    cohort : Cohort
        Public people with their diagnoses.
    remove : sequence of str
        Covariates whose effect is taken out of every scan, e.g. mean_fd, age, sex.
    settings : mapping, optional
        Settings of `SpaceSettings` that replace those chosen for the plan.
    policy : Policy
        Rules of the consortium. If its diagnoses have generic names, those of the data are used.
    key : private key, optional
        Key of the maker, which signs the record.
    plan : Plan
        Planned people, hospitals and epsilon, for which settings and expected gain are computed.

    Returns
    -------
    Exchange
        The record of the base model, without contributions.
    """
    require_valid(cohort, to_split=False)
    order = np.lexsort((cohort.subject_id, cohort.site))
    cohort, left_out = without_duplicates(cohort.select(order))
    policy = policy.with_diagnoses_of(cohort.target)
    policy.require_target(cohort.target)
    facts, arrays = _fitted(cohort, tuple(remove), dict(settings or {}), policy, plan)
    data = save_arrays(arrays)
    record = records.make(
        records.BaseModelRecord,
        MAKER,
        0,
        (),
        key,
        payload=sha256(data),
        policy=policy,
        plan=plan,
        left_out=tuple(left_out),
        **facts,
        **_public_facts(cohort, remove),
    )
    return Exchange(record).joined([], {record.payload: data})


def _fitted(
    cohort: Cohort,
    remove: tuple[str, ...],
    overrides: dict[str, Any],
    policy: Policy,
    plan: records.Plan,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fit a base model and its space of contributions to public people.

    Parameters
    ----------
    cohort : Cohort
        The public people.
    remove : tuple of str
        Covariates to remove.
    overrides : dict
        Settings that replace those chosen for the plan.
    policy : Policy
    plan : Plan

    Returns
    -------
    facts : dict
        Fields of the record: settings, limits, expected quality and expected gain.
    arrays : dict of str to ndarray
        Payload of the record.
    """
    shrink = make(SpaceSettings, overrides, "base_model").shrink
    confounds, features = _without_confounds(cohort, remove, shrink)
    doses = DOSES if policy.aggregators else plan.hospitals
    noise = noise_per_subject(plan.people, plan.epsilon, doses)
    plans = planned_noise(plan.people, plan.hospitals)
    gains = ExpectedGains(features, cohort.y, cohort.site, {noise, *plans.values()})
    planned = asdict(gains.settings(noise))
    settings = make(SpaceSettings, {**planned, **overrides}, "base_model")
    columns = cohort.target.columns
    space = fit_base_and_space(features, cohort.y, settings, columns)
    facts = {
        "settings": asdict(settings),
        "limits": _limits(space.base, features, cohort),
        "expected": _expected(features, cohort, settings),
        "expected_gain": expected_gain_of(gains, plans),
    }
    return facts, _stored(space, confounds, features[np.argsort(cohort.subject_id)])


def expected_gain_of(
    gains: ExpectedGains, plans: Mapping[tuple[float | None, bool], float]
) -> records.ExpectedGain | None:
    """Return the expected gain of contributions; None if the public people are too few.

    Parameters
    ----------
    gains : ExpectedGains
        Gains over random partitions of the public people.
    plans : mapping of (epsilon, whether aggregators add the noise) to float
        Noise per subject, as returned by `planned_noise`.

    Returns
    -------
    ExpectedGain or None
    """
    if len(gains.references) < 2:
        return None
    rows = []
    for (epsilon, aggregators), level in plans.items():
        _, gain, error = gains.best_pull(level)
        row = records.ExpectedGainRow(
            epsilon=epsilon,
            aggregators=aggregators,
            gain=round(gain, 4),
            error=round(error, 4),
        )
        rows.append(row)
    public, pooled = np.mean(gains.references, axis=0).tolist()
    return records.ExpectedGain(
        public=round(public, 3), pooled=round(pooled, 4), rows=tuple(rows)
    )


def _without_confounds(
    cohort: Cohort, remove: tuple[str, ...], shrink: float
) -> tuple[Confounds | None, np.ndarray]:
    """Fit the effects of covariates, and remove them from the features of all people.

    Parameters
    ----------
    cohort : Cohort
    remove : tuple of str
        Covariates to remove; may be empty.
    shrink : float
        Shrinkage of the FC before the matrix logarithm.

    Returns
    -------
    confounds : Confounds or None
        The fitted effects; None without covariates.
    features : ndarray of shape (n, p)
    """
    features = log_features(cohort.fc, shrink)
    if not remove:
        return None, features
    fitted = fit_on_cohort(cohort, remove, shrink)
    centre = rounded(fitted.centre)
    confounds = Confounds(remove, centre, rounded(fitted.coefficients), shrink)
    return confounds, features - confounds.effect(cohort.covariates)


def _stored(
    space: ContributionSpace, confounds: Confounds | None, features: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the arrays of a base model by name, as float32, which holds their 12 bits exactly.

    Parameters
    ----------
    space : ContributionSpace
    confounds : Confounds or None
    features : ndarray of shape (n, p)
        Features of the public people, sorted by id.
    """
    arrays = space.arrays()
    arrays[PEOPLE] = rounded(whitened_coordinates(space, features))
    if confounds is not None:
        arrays[CENTRE] = confounds.centre
        arrays[COEFFICIENTS] = confounds.coefficients
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}


def _public_facts(cohort: Cohort, remove: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the record that describe the public people.

    Parameters
    ----------
    cohort : Cohort
        The public people.
    remove : sequence of str
        Covariates that are removed from every scan.
    """
    ranges = {}
    for name in remove:
        values = np.asarray(cohort.covariates[name])
        ranges[name] = (rounded_number(values.min()), rounded_number(values.max()))
    return {
        "dataset": cohort.name,
        "people_sha256": cohort.content_sha256(),
        "ids": tuple(sorted(cohort.subject_id.tolist())),
        "people": len(cohort),
        "patients": int((cohort.y > 0).sum()) if cohort.target.classes else 0,
        "sites": {name: int((cohort.site == name).sum()) for name in cohort.site_names},
        "n_rois": cohort.n_rois,
        "roi_names": tuple(cohort.roi_names),
        "removes": tuple(remove),
        "ranges": ranges,
    }


def _limits(base: BaseModel, features: np.ndarray, cohort: Cohort) -> BaseModelLimits:
    """Return the limits for scans and for the mean scan of a site.

    Parameters
    ----------
    base : BaseModel
    features : ndarray of shape (n, p)
        Features of the public people.
    cohort : Cohort
        The public people.
    """
    edges = features[:, : -cohort.n_rois]
    lowest = likeness(edges, base.mean[: -cohort.n_rois]).min()
    differences = []  # of each site's mean scan from that of all other sites
    for name in cohort.site_names if len(cohort.site_names) > 1 else ():
        here = cohort.site == name
        mean = edges[here].mean(0)[None]
        others = edges[~here].mean(0)
        differences.append(1 - likeness(mean, others))
    site = 1 - SITES_APART * float(np.max(differences)) if differences else 0.0
    return BaseModelLimits(
        size=rounded_number(SIZE_LIMIT * float(sizes(base, features).max())),
        likeness=rounded_number(LIKENESS * float(lowest)),
        site=rounded_number(min(ALIKE_SITES, max(LEAST_ALIKE_SITES, site))),
    )


def _expected(
    features: np.ndarray, cohort: Cohort, settings: SpaceSettings
) -> ExpectedQuality:
    """Return the quality of base models at public sites that were left out of their training.

    Parameters
    ----------
    features : ndarray of shape (n, p)
    cohort : Cohort
        The public people.
    settings : SpaceSettings
    """
    target = cohort.target
    scores = _at_unseen_sites(features, cohort, settings)
    known = np.isfinite(scores).reshape(len(cohort), -1).all(1)
    if not known.any():
        return ExpectedQuality(people=0)
    y = cohort.y[known]
    ids = cohort.subject_id[known].tolist()
    measured = measure(answers_of(target, scores[known]), truth_of(target, y), ids)
    intervals: dict[str, Any] = {}
    for name, estimate in measured.items():
        if np.isfinite(estimate.low):
            limits = (estimate.value, estimate.low, estimate.high)
            intervals[name] = tuple(round(value, 3) for value in limits)
    if not target.classes:
        return ExpectedQuality(people=len(y), number=intervals)
    return ExpectedQuality(
        people=len(y),
        majority=round(float(np.bincount(y).max()) / len(y), 3),
        accuracy=intervals.get("accuracy"),
        auroc=intervals.get("auroc"),
    )


def _at_unseen_sites(
    features: np.ndarray, cohort: Cohort, settings: SpaceSettings
) -> np.ndarray:
    """Score the people of each public site by a base model of all other public sites.

    Parameters
    ----------
    features : ndarray of shape (n, p)
    cohort : Cohort
        The public people.
    settings : SpaceSettings

    Returns
    -------
    ndarray of shape (n,), or (n, classes) for more than two classes
        Calibrated scores; NaN for a site without which too few people are left.
    """
    columns = cohort.target.columns
    # only the base model is used, so that further axes would cost time for nothing
    fewest_axes = replace(settings, directions=settings.axes)
    unknown = np.full(targets(cohort.y, columns).shape, np.nan)
    scores = calibrated(unknown, 1.0)
    for name in cohort.site_names:
        here = cohort.site == name
        with suppress(DataError):  # too few people are left: their scores stay NaN
            others = (features[~here], cohort.y[~here])
            base = fit_base_and_space(*others, fewest_axes, columns).base
            score = base.score(base.standardise(features[here]))
            scores[here] = calibrated(score, base.temperature)
    return scores


# -- reading a base model and checking its claims ------------------------------------------
def read_base_model(exchange: Exchange) -> PublicBaseModel:
    """Read the base model of a file, and check that its statements are consistent.

    Parameters
    ----------
    exchange : Exchange

    Returns
    -------
    PublicBaseModel

    Raises
    ------
    ExchangeError
        If settings, arrays or numbers are inconsistent.
    """
    record = exchange.root
    with at(f"the {record.title}"):
        _check_claims(record)
        with at(kind=ExchangeError):
            settings = make(SpaceSettings, record.settings, "settings")
        if asdict(settings) != record.settings:
            raise ExchangeError("settings are missing or have another type.")
        stored = exchange.arrays(record)
        _check_shapes(stored, record)
        confounds = None
        if record.removes:
            centre = stored.pop(CENTRE).astype(np.float64)
            slopes = stored.pop(COEFFICIENTS).astype(np.float64)
            confounds = Confounds(record.removes, centre, slopes, settings.shrink)
        people = stored.pop(PEOPLE).astype(np.float64)
        space = _space_of(stored, settings)
        _check_numbers(space, record)
    return PublicBaseModel(record, space, confounds, people)


def _space_of(
    stored: Mapping[str, np.ndarray], settings: SpaceSettings
) -> ContributionSpace:
    """Return the space of contributions that the arrays of a record and its settings describe.

    Parameters
    ----------
    stored : mapping of str to ndarray
        Arrays of the linear model and of the space by name; numbers have no dimension.
    settings : SpaceSettings
    """
    values: dict[str, Any] = {}
    for name, array in stored.items():
        values[name] = float(array) if array.ndim == 0 else array.astype(np.float64)
    in_base = [f.name for f in fields(BaseModel) if f.name in values]
    base = {name: values.pop(name) for name in in_base}
    shrink = rounded_number(settings.shrink, 24)
    values |= field_settings(asdict(settings))
    return ContributionSpace(BaseModel(**base, shrink=shrink), **values)


def _check_claims(record: records.BaseModelRecord) -> None:
    """Raise `ExchangeError` unless the record's people, sites, ROIs, ranges and estimates agree."""
    expected = record.expected
    of_classes = [e for e in (expected.accuracy, expected.auroc) if e is not None]
    estimates = [*of_classes, *expected.number.values()]
    number = record.policy.number is not None
    faults = {
        "claims more patients than people": record.patients > record.people,
        "claims numbers of people per site that do not add up": sum(
            record.sites.values()
        )
        != record.people,
        "claims more or fewer ids than people": len(set(record.ids)) != record.people,
        "claims more or fewer ROI names than ROIs": len(record.roi_names)
        not in (0, record.n_rois),
        "claims ranges for other covariates than it removes": set(record.ranges)
        != set(record.removes),
        "claims a range whose lower limit is above the upper": any(
            a > b for a, b in record.ranges.values()
        ),
        "claims an expected quality measured on more people than it has": expected.people
        > record.people,
        "claims patients although its target is a number": number
        and record.patients > 0,
        "claims estimates for another kind of target": bool(
            of_classes if number else expected.number
        ),
        "claims an estimate outside its interval": any(
            not low <= value <= high for value, low, high in estimates
        ),
    }
    refuse(faults)


def _check_shapes(
    stored: Mapping[str, np.ndarray], record: records.BaseModelRecord
) -> None:
    """Raise `ExchangeError` unless a record has exactly the arrays of a base model.

    Parameters
    ----------
    stored : mapping of str to ndarray
        All arrays of the record by name.
    record : BaseModelRecord
        Its ROIs, people, target and removed covariates decide the shapes.
    """
    p = record.n_rois * (record.n_rois + 1) // 2
    k = [0, *stored.get("axes", np.zeros(0)).shape][-1]  # number of axes K
    columns = record.policy.target.columns
    many = (columns,) if columns > 1 else ()  # a single column has no dimension
    wanted: dict[str, tuple[int, ...]] = {
        "mean": (p,),
        "scale": (p,),
        "weight": (p, *many),
        "bias": many,
        "axes": (p, k),
        "variance": (k + 1,),
        "size": (),
        "clip": (),
        "temperature": (),
        PEOPLE: (record.people, k),
    }
    if record.removes:
        removed = sum(len(terms(name, np.zeros(1))) for name in record.removes)
        wanted |= {CENTRE: (removed,), COEFFICIENTS: (removed, p)}
    present = {name: (str(array.dtype), array.shape) for name, array in stored.items()}
    for name in sorted({*wanted, *present}):
        if present.get(name) != ("float32", wanted.get(name)):
            difference = f"is {present.get(name)}, not {wanted.get(name)}"
            raise ExchangeError(f"array '{name[:80]}' {difference}.")


def _check_numbers(space: ContributionSpace, record: records.BaseModelRecord) -> None:
    r"""Raise `ExchangeError` unless axes, variances, size and clip are consistent.

    A forged space could give one person more influence than the noise covers. Features are
    standardised, so that the variances of :math:`x / \sqrt p` add up to the share of features that
    vary. They give :math:`E\|z\|^2` of the coordinates z (`base_model.space`). By Markov's inequality the
    quantile of level q of :math:`\|z\|` is at most :math:`\sqrt{E\|z\|^2 / (1 - q)}`, and residuals are at
    most 2 in every column. Size and clip must respect these bounds.

    Parameters
    ----------
    space : ContributionSpace
        Computed from the arrays of the record.
    record : BaseModelRecord
    """
    p, k = space.axes.shape
    base = space.base
    positive = [space.clip, space.size, base.temperature, space.pull, space.full_axes]
    if min(*positive, float(base.scale.min())) <= 0 or base.scale.max() > FLAT:
        raise ExchangeError(
            "holds a scale, clip, size, pull or temperature below zero."
        )
    error = np.abs(space.axes.T @ space.axes - np.eye(k)).max() if k else np.inf
    if error > 0.01 or not space.full_axes <= k < record.people:
        raise ExchangeError("holds axes that are not principal axes of its people.")
    # number of dimensions of each axis (1), and of all other directions together
    dimensions = np.append(np.ones(k), p - k)
    varying = float((base.scale < FLAT).mean())
    if space.variance.min() < 0 or not np.isclose(
        space.variance @ dimensions, varying, rtol=0.01
    ):
        raise ExchangeError("holds variances that do not add up.")
    covered = dimensions  # by the coordinates z: all p directions, or the first q axes
    if not space.all_directions:
        covered = dimensions * (np.arange(k + 1) < space.full_axes)
    mean_square = float(p * (space.gain**2 * space.variance) @ covered)  # E|z|^2
    quantile = float(record.settings.get("clip", 0.5))
    most = 2 * np.sqrt(space.columns * (mean_square + 0.25) / (1 - quantile))
    if 1.01 * np.sqrt(2 * mean_square) < 1 or not 1e-6 < space.clip <= 1.01 * most:
        raise ExchangeError("holds a size or clip that its variances do not allow.")
