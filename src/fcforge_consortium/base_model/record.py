"""A start and what it is made of: who the public people are, and what is expected of every scan."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from fcforge.base_model.calibration import calibrated, targets
from fcforge.base_model.features import log_features
from fcforge.base_model.model import FLAT, BaseModel, rounded, rounded_number
from fcforge.core.errors import DataError, ExchangeError, at, refuse
from fcforge.core.settings import make
from fcforge.data.checks import require_valid, without_duplicates
from fcforge.data.cohort import Cohort, as_numbers
from fcforge.data.confounds import Confounds, fit_on_cohort, terms
from fcforge.data.scan_checks import likeness, side_distance, unit_rows
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

MAKER = "public people"
SIZE_LIMIT = 1.5  # a scan may lie so much further out than any public one
LIKENESS = 0.5  # and be so much less like the public mean than the least alike of them
SITES_APART = 4.0  # a site's mean may differ so much more than a public site's
# More is never asked: ABIDE's sites have .89 and more, ROIs out of place below .45.
ALIKE_SITES = 0.8
BEYOND = 0.5  # a covariate may lie so much of the public range outside of it
STRANGE = 0.2  # share of a site's scans that may lie outside what was seen
# Cosine of two scans' whitened places along the axes from which on they are one person's. With
# ABIDE's 871 and 128 axes: half of a scan and the whole .85 and more, the same scan of another
# pipeline .65 on average, two people .57 at most. Few axes tell nothing but the very same scan.
SAME_PERSON = 0.6
SAME_SCAN = 0.999
MANY_AXES = 64
PEOPLE = "people"
CENTRE = "confounds.centre"
COEFFICIENTS = "confounds.coefficients"


@dataclass(frozen=True, eq=False)
class PublicBaseModel:
    """A start, its confound step and its record.

    Attributes
    ----------
    record : Start of `fcforge_consortium.records.kinds`
    space : ContributionSpace
    confounds : Confounds or None
    people : ndarray of shape (n, K)
        Where each public person, in the order of the record's ids, lies along the axes (`places`).
    """

    record: records.BaseModelRecord
    space: ContributionSpace
    confounds: Confounds | None
    people: np.ndarray

    def public_among(self, ids: Sequence[str], features: np.ndarray) -> list[str]:
        """Those of some people who are among the public ones, by id or by scan."""
        known = {*self.record.ids, *self.record.left_out}
        alike = places(self.space, features) @ self.people.T
        enough = SAME_PERSON if self.people.shape[1] >= MANY_AXES else SAME_SCAN
        found = []
        for who, row in zip(ids, alike, strict=True):
            if who in known:
                found.append(who)
            elif row.max() > enough:
                public = self.record.ids[int(row.argmax())]
                found.append(f"{who}, whose scan looks like that of {public}")
        return found

    def features(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Features (n, p) of scans (n, R, R), confounds removed."""
        found = log_features(fc, self.space.base.shrink)
        if self.confounds is not None:
            found -= self.confounds.effect(covariates)
        return found

    def wrong_covariates(self, covariates: Covariates, n: int) -> list[str]:
        """What is wrong with the covariates of each of n people; empty where nothing is.

        One may be missing, or far outside the public people's: age in months, sex counted 0 and 1
        where the start has 1 and 2, motion in another unit would be removed as if they were meant.
        """
        told = [""] * n
        for name, (low, high) in self.record.ranges.items():
            values = as_numbers(name, covariates.get(name, np.full(n, np.nan)))
            near = np.abs(values - (low + high) / 2) <= (0.5 + BEYOND) * (high - low)
            for i in np.flatnonzero(~near):  # nothing is near to NaN
                value = f"the {name} {values[i]:.4g}"
                has = f"no {name}" if np.isnan(values[i]) else value
                told[i] = (
                    f"has {has}, which is removed (public: {low:.4g} to {high:.4g})"
                )
        return told

    def require_covariates(self, covariates: Covariates, ids: Sequence[str]) -> None:
        """Raise `DataError` for people whose covariates cannot be removed."""
        told = self.wrong_covariates(covariates, len(ids))
        wrong = [f"{who} {why}" for who, why in zip(ids, told, strict=True) if why]
        if wrong:
            raise DataError(
                f"covariates of {len(wrong)} people cannot be used (first: {wrong[0]}).",
                do=f"Give what is missing (in Python: covariates={{'{self.record.removes[0]}': "
                "...}), check unit and coding (ABIDE: sex 1 male, 2 female; age in years; mean FD "
                "in mm), or leave these people out.",
            )

    def strangeness(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Distances (n,) from the public people, each with the limit 1, by what is odd then."""
        limits = self.record.limits
        size = sizes(self.space.base, features)
        unlike = (1 - self.alike(features)) / (1 - limits.likeness)
        return {
            "lies further out than the public people's scans": size / limits.size,
            "has another pattern than the public people's scans": unlike,
            "its left and right look swapped": self.side(features),
        }

    def alike(self, features: np.ndarray) -> np.ndarray:
        """Correlation (n,) of the edges with those of the public mean.

        The diagonal stands apart: with it, a scan whose ROIs all do the same would look familiar.
        """
        return likeness(self.edges(features), self.edges(self.space.base.mean))

    def side(self, features: np.ndarray) -> np.ndarray:
        """Beyond 1 where left and right are swapped, (n,)."""
        return side_distance(self.edges(self.space.base.mean), self.edges(features))

    def edges(self, features: np.ndarray) -> np.ndarray:
        """Those of features (..., p); the diagonal follows them."""
        return features[..., : -self.record.n_rois]

    def require_alike(self, features: np.ndarray) -> None:
        """Raise `DataError` for a site unlike the public ones: shuffled ROIs, another atlas."""
        mean = features.mean(0)[None]
        if self.side(mean).item() > 1:
            raise DataError(
                "its left and right hemispheres look swapped beside the public people's.",
                do="Check the order of the ROIs and the orientation of the images.",
            )
        apart = np.stack([*self.strangeness(features).values()]).max(0)
        strange = int((apart > 1).sum())
        alike = self.alike(mean).item()
        limit = self.record.limits.site
        if strange > STRANGE * len(features) or alike < limit:
            raise DataError(
                f"its scans are unlike the public people's: {strange} of {len(features)} lie "
                f"outside what was seen, and the mean scan correlates {alike:.2f} with theirs (at "
                f"least {limit:.2f} is expected).",
                do="Check the order of the ROIs, the atlas and the preprocessing.",
            )


def places(space: ContributionSpace, features: np.ndarray) -> np.ndarray:
    """Return whitened coordinates (n, K) of scans along the axes, of length 1."""
    spread = np.sqrt(np.maximum(space.variance[:-1], 1e-12))
    return unit_rows(space.base.standardise(features) @ space.axes / spread)


def sizes(base: BaseModel, features: np.ndarray) -> np.ndarray:
    """Return the distances (n,) of scans from the public mean."""
    return np.sqrt((base.standardise(features) ** 2).mean(1))


# -- making one ------------------------------------------------------------------------------------
def make_base_model(
    cohort: Cohort,
    remove: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    policy: Policy = Policy(),  # noqa: B008 (frozen)
    key: Signer = None,
    plan: records.Plan = records.Plan(),  # noqa: B008 (frozen)
) -> Exchange:
    """An exchange that holds a start; the same people give the same arrays on every machine.

    Parameters
    ----------
    cohort : Cohort
        Public people with their diagnoses.
    remove : sequence of str
        Covariates whose effect is taken out of every scan, e.g. mean_fd, age, sex.
    settings : mapping, optional
        Those of `SpaceSettings` that shall not be what suits the plan.
    policy : Policy
        Its words for controls and patients are those of the data where it says none.
    key : private key, optional
        Of who makes it.
    plan : Plan
        For which is told what sums would add.
    """
    require_valid(cohort, to_split=False)
    order = np.lexsort((cohort.subject_id, cohort.site))
    cohort, twice = without_duplicates(cohort.select(order))
    policy = policy.spoken(cohort.target)
    policy.require_target(cohort.target)
    said, arrays = _made(cohort, tuple(remove), dict(settings or {}), policy, plan)
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
        left_out=tuple(twice),
        **said,
        **_facts(cohort, remove),
    )
    return Exchange(record).joined([], {record.payload: data})


def _made(
    cohort: Cohort,
    remove: tuple[str, ...],
    asked: dict[str, Any],
    policy: Policy,
    plan: records.Plan,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the record of a start says of how it was made and what to expect; its arrays."""
    shrink = make(SpaceSettings, asked, "base_model").shrink
    confounds, features = _without_confounds(cohort, remove, shrink)
    doses = DOSES if policy.aggregators else plan.hospitals
    noise = noise_per_subject(plan.people, plan.epsilon, doses)
    plans = planned_noise(plan.people, plan.hospitals)
    gains = ExpectedGains(features, cohort.y, cohort.site, {noise, *plans.values()})
    suited = asdict(gains.settings(noise))
    settings = make(SpaceSettings, {**suited, **asked}, "base_model")
    columns = cohort.target.columns
    space = fit_base_and_space(features, cohort.y, settings, columns)
    said = {
        "settings": asdict(settings),
        "limits": _limits(space.base, features, cohort),
        "expected": _expected(features, cohort, settings),
        "expected_gain": expected_gain_of(gains, plans),
    }
    return said, _stored(space, confounds, features[np.argsort(cohort.subject_id)])


def expected_gain_of(
    gains: ExpectedGains, plans: Mapping[tuple[float | None, bool], float]
) -> records.ExpectedGain | None:
    """What sums would add by `planned_noise`; None where the public people are too few to tell."""
    if len(gains.references) < 2:
        return None
    rows = []
    for (epsilon, aggregators), level in plans.items():
        _, gain, error = gains.best_pull(level)
        told = {"gain": round(gain, 4), "error": round(error, 4)}
        rows.append(
            records.ExpectedGainRow(epsilon=epsilon, aggregators=aggregators, **told)
        )
    public, pooled = np.mean(gains.references, axis=0).tolist()
    return records.ExpectedGain(
        public=round(public, 3), pooled=round(pooled, 4), rows=tuple(rows)
    )


def _without_confounds(
    cohort: Cohort, remove: tuple[str, ...], shrink: float
) -> tuple[Confounds | None, np.ndarray]:
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
    """Return all arrays but settings as float32, which holds their 12 bits exactly."""
    found = space.arrays()
    found[PEOPLE] = rounded(places(space, features))
    if confounds is not None:
        found[CENTRE] = confounds.centre
        found[COEFFICIENTS] = confounds.coefficients
    return {name: np.asarray(array, np.float32) for name, array in found.items()}


def _facts(cohort: Cohort, remove: Sequence[str]) -> dict[str, Any]:
    """Who the public people are."""
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
    """How far out, how unlike a scan and how unlike a site (its mean scan) may be."""
    edges = features[:, : -cohort.n_rois]
    alike = likeness(edges, base.mean[: -cohort.n_rois]).min()
    apart = []
    for name in cohort.site_names if len(cohort.site_names) > 1 else ():
        here = cohort.site == name
        own = edges[here].mean(0)[None]
        others = edges[~here].mean(0)
        apart.append(1 - likeness(own, others))
    site = 1 - SITES_APART * float(np.max(apart)) if apart else 0.0
    return BaseModelLimits(
        size=rounded_number(SIZE_LIMIT * float(sizes(base, features).max())),
        likeness=rounded_number(LIKENESS * float(alike)),
        site=rounded_number(min(ALIKE_SITES, max(0.3, site))),
    )


def _expected(
    features: np.ndarray, cohort: Cohort, settings: SpaceSettings
) -> ExpectedQuality:
    """How good the public head is at a public site it has not seen."""
    target = cohort.target
    scores = _at_unseen_sites(features, cohort, settings)
    known = np.isfinite(scores).reshape(len(cohort), -1).all(1)
    if not known.any():
        return ExpectedQuality(people=0)
    y = cohort.y[known]
    ids = cohort.subject_id[known].tolist()
    measured = measure(answers_of(target, scores[known]), truth_of(target, y), ids)
    said: dict[str, Any] = {}
    for name, found in measured.items():
        if np.isfinite(found.low):
            limits = (found.value, found.low, found.high)
            said[name] = tuple(round(value, 3) for value in limits)
    if not target.classes:
        return ExpectedQuality(people=len(y), number=said)
    return ExpectedQuality(
        people=len(y),
        majority=round(float(np.bincount(y).max()) / len(y), 3),
        accuracy=said.get("accuracy"),
        auroc=said.get("auroc"),
    )


def _at_unseen_sites(
    features: np.ndarray, cohort: Cohort, settings: SpaceSettings
) -> np.ndarray:
    """Calibrated scores by starts that leave one site out; NaN where too few people are left."""
    columns = cohort.target.columns
    fewest_axes = replace(settings, directions=settings.axes)
    scores = np.full(targets(cohort.y, columns).shape, np.nan)
    found = calibrated(scores, 1.0)
    for name in cohort.site_names:
        here = cohort.site == name
        with suppress(DataError):
            others = (features[~here], cohort.y[~here])
            left = fit_base_and_space(*others, fewest_axes, columns).base
            score = left.score(left.standardise(features[here]))
            found[here] = calibrated(score, left.temperature)
    return found


# -- reading one: what it claims is held against itself ------------------------------------------
def read_base_model(exchange: Exchange) -> PublicBaseModel:
    """The start of an exchange, its claims cross-checked; `ExchangeError` where they cannot be."""
    record = exchange.root
    with at(f"the {record.title}"):
        _check_claims(record)
        with at(kind=ExchangeError):
            settings = make(SpaceSettings, record.settings, "settings")
        if asdict(settings) != record.settings:
            raise ExchangeError("its settings are not all there, or of another type.")
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
    """Return the space with these stored arrays and settings."""
    values: dict[str, Any] = {}
    for name, array in stored.items():
        values[name] = float(array) if array.ndim == 0 else array.astype(np.float64)
    in_base = [f.name for f in fields(BaseModel) if f.name in values]
    base = {name: values.pop(name) for name in in_base}
    shrink = rounded_number(settings.shrink, 24)
    values |= field_settings(asdict(settings))
    return ContributionSpace(BaseModel(**base, shrink=shrink), **values)


def _check_claims(record: records.BaseModelRecord) -> None:
    """People, sites, ROIs and ranges agree."""
    expected = record.expected
    of_classes = [e for e in (expected.accuracy, expected.auroc) if e is not None]
    estimates = [*of_classes, *expected.number.values()]
    number = record.policy.number is not None
    faults = {
        "claims more patients than people": record.patients > record.people,
        "claims sites that do not add up": sum(record.sites.values()) != record.people,
        "claims other ids than people": len(set(record.ids)) != record.people,
        "claims ROI names for other ROIs": len(record.roi_names)
        not in (0, record.n_rois),
        "claims ranges of what it does not remove": set(record.ranges)
        != set(record.removes),
        "claims a range upside down": any(a > b for a, b in record.ranges.values()),
        "claims more expected people than people": expected.people > record.people,
        "claims patients where there is a number": number and record.patients > 0,
        "claims estimates of another target": bool(
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
    """Exactly the arrays of a start, each of its type and shape."""
    p = record.n_rois * (record.n_rois + 1) // 2
    k = [0, *stored.get("axes", np.zeros(0)).shape][-1]
    columns = record.policy.target.columns
    many = (columns,) if columns > 1 else ()
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
    found = {name: (str(array.dtype), array.shape) for name, array in stored.items()}
    for name in sorted({*wanted, *found}):
        if found.get(name) != ("float32", wanted.get(name)):
            is_ = f"is {found.get(name)}, not {wanted.get(name)}"
            raise ExchangeError(f"array '{name[:80]}' {is_}.")


def _check_numbers(space: ContributionSpace, record: records.BaseModelRecord) -> None:
    r"""Axes are axes, variances add up, and size and clip can be of the same people.

    Features are standardised, so that the variances of :math:`x / \sqrt p` add up to the share of
    features that vary. With :math:`E\|z\|^2` known from them, no quantile c of :math:`\|z\|` is
    above :math:`\sqrt{E\|z\|^2 / (1 - c)}` (Markov); residuals are at most 2 in every column.
    """
    p, k = space.axes.shape
    base = space.base
    positive = [space.clip, space.size, base.temperature, space.pull, space.full]
    if min(*positive, float(base.scale.min())) <= 0 or base.scale.max() > FLAT:
        raise ExchangeError(
            "holds a scale, clip, size, pull or temperature below zero."
        )
    apart = np.abs(space.axes.T @ space.axes - np.eye(k)).max() if k else np.inf
    if apart > 0.01 or not space.full <= k < record.people:
        raise ExchangeError("holds axes that are not principal axes of its people.")
    others = np.append(np.ones(k), p - k)
    vary = float((base.scale < FLAT).mean())
    if space.variance.min() < 0 or not np.isclose(
        space.variance @ others, vary, rtol=0.01
    ):
        raise ExchangeError("holds variances that do not add up.")
    spoken = others if space.gamma else others * (np.arange(k + 1) < space.full)
    square = float(p * (space.gain**2 * space.variance) @ spoken)
    quantile = float(record.settings.get("clip", 0.5))
    most = 2 * np.sqrt(space.columns * (square + 0.25) / (1 - quantile))
    if 1.01 * np.sqrt(2 * square) < 1 or not 1e-6 < space.clip <= 1.01 * most:
        raise ExchangeError("holds a size or clip that its variances do not allow.")
