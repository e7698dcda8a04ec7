"""A hospital's turn: check the data, make the release, fit its threshold at home."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fcforge.capsule.contents import require_fit
from fcforge.capsule.home import Home, People, Receipt, Threshold, fingerprints
from fcforge.capsule.judging import probability, quality, require_labels
from fcforge.capsule.ledger import PrivateKey
from fcforge.consortium import few_vector as vector
from fcforge.consortium.few_start import coordinates
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import PublicStart, likeness
from fcforge.consortium.records import Release, limit_of
from fcforge.errors import ConfigError, DataError, at
from fcforge.privacy.accounting import DELTA, EPSILON, check_budget
from fcforge.privacy.noise import discrete_gaussian
from fcforge.sites.check import require_valid
from fcforge.sites.cohort import Cohort

GRAIN = 2.0**-10  # released numbers are rounded to about so much of the noise


@dataclass(frozen=True)
class Budget:
    """What a hospital is ready to spend on each of its people.

    Attributes
    ----------
    mechanism : {"gaussian", "none"}
        Noise for (epsilon, delta), or exact sums, which promise nothing.
    epsilon, delta : float
    again : bool
        Release people again who are in an earlier release; what they spend adds up.
    """

    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: float = EPSILON
    delta: float = DELTA
    again: bool = False

    @property
    def limit(self) -> float | None:
        """Epsilon, or None under "none"."""
        return limit_of(self.mechanism, self.epsilon)


@dataclass(frozen=True)
class Learned:
    """What a turn gives: the consortium with the release, and what stays at home.

    Attributes
    ----------
    group : Consortium
    release : Release
    home : Home
        With the receipt and the hospital's own threshold.
    before, after : mapping
        Accuracy, balanced accuracy and AUROC on its own people: of the head that came in, and
        of the new one with each person's own contribution left out. For the hospital's eyes.
    """

    group: Consortium
    release: Release
    home: Home
    before: Mapping[str, float]
    after: Mapping[str, float]


def learn(
    group: Consortium,
    cohort: Cohort,
    site: str,
    home: Home,
    budget: Budget,
    key: PrivateKey | None = None,
    *,
    accept_labels: bool = False,
) -> Learned:
    """Add the release of one site's people to a consortium.

    Parameters
    ----------
    group : Consortium
    cohort : Cohort
        The hospital's own people; those of `site` alone are used.
    site : str
    home : Home
        Receipts of earlier releases (empty at the first).
    budget : Budget
    key : PrivateKey, optional
        The hospital's own key.
    accept_labels : bool
        Go on although the diagnoses look swapped.
    """
    mine, x = own_people(group, cohort, site)
    people, y = people_of(mine), mine.y
    spent = require_budget(home, people, budget)
    odds = scores(group, x)
    with at(f"site '{site}'"):
        require_labels(odds, mine.y, accept_labels)
    wave = 1 + max((r.wave for r in home.receipts if r.site == site), default=0)
    receipt = Receipt(site, people, wave, budget.limit)
    release = group.made(
        Release,
        site,
        key,
        wave=wave,
        numbers=made_numbers(group, x, y, budget),
        mechanism=budget.mechanism,
        epsilon=budget.limit or 0.0,
        delta=budget.delta if budget.limit else 0.0,
        spent=spent,
        commitment=receipt.commitment,
        noise_sd=vector.noise_sd(group.start.arrays, budget.limit, budget.delta),
    )
    joined, kept = (
        group.joined([release]),
        replace(home, receipts=(*home.receipts, receipt)),
    )
    left_out = leave_one_out_scores(joined, x, y, times_released(joined, kept, people))
    kept = replace(kept, threshold=fit_threshold(left_out, mine.y, joined.digest, site))
    return Learned(
        joined, release, kept, quality(odds, mine.y), quality(left_out, mine.y)
    )


def own_people(
    group: Consortium, cohort: Cohort, site: str
) -> tuple[Cohort, np.ndarray]:
    """People of `site`, fit for this start, and their features (n, p); else `DataError`."""
    mine = cohort.select_sites([site])
    start = group.start
    require_valid(mine, n_rois=start.n_rois)
    with at(f"site '{site}'"):
        require_fit(mine, start.papers["roi_names"], start.papers["classes"])
        if both := start.public_among(mine.subject_id.tolist()):
            raise DataError(
                f"{len(both)} of its people are among the public ones by id (first: "
                f"{', '.join(both[:5])}).",
                do="Leave them out: a start that shares a person proves nothing. If they are other "
                "people, put the site before their ids.",
            )
        told = start.wrong_covariates(mine.covariates, len(mine))
        wrong = [pair for pair in zip(mine.subject_id, told, strict=True) if pair[1]]
        if wrong:
            raise DataError(
                f"covariates of {len(wrong)} people cannot be used (first: {wrong[0][0]} "
                f"{wrong[0][1]}).",
                do="Add what is missing, check unit and coding (ABIDE: sex 1 male, 2 female; age "
                "in years; mean FD in mm), or leave these people out.",
            )
        features = start.features(mine.fc, mine.covariates)
        require_alike(start, features)
    return mine, features


def people_of(cohort: Cohort) -> People:
    """What receipts hold of people."""
    return fingerprints(cohort.fc, cohort.subject_id.tolist(), cohort.y)


def require_alike(start: PublicStart, features: np.ndarray) -> None:
    """Refuse scans that are unlike the public people's: shuffled ROIs, another atlas."""
    mean = features.mean(0)[None]
    if start.side(mean).item() > 1:
        what = "its left and right hemispheres look swapped beside the public people's."
        raise DataError(
            what, do="Check the order of the ROIs and the orientation of the images."
        )
    apart = np.stack([*start.strangeness(features).values()])
    strange = int((apart.max(0) > 1).sum())
    alike, limit = (
        likeness(mean, start.arrays.mean).item(),
        start.papers["limits"]["site"],
    )
    if strange > 0.2 * len(features) or alike < limit:
        raise DataError(
            f"its scans are unlike the public people's: {strange} of {len(features)} lie outside "
            f"what was seen, and the mean scan correlates {alike:.2f} with theirs (at least "
            f"{limit:.2f} is expected).",
            do="Check the order of the ROIs, the atlas and the preprocessing.",
        )


def require_budget(home: Home, people: People, budget: Budget) -> float:
    """Most that one of these people will have spent; told and refused where it adds up unasked."""
    if budget.limit is not None:
        check_budget(budget.epsilon, budget.delta, "release")
    seen = home.seen(people)
    if seen and not budget.again:
        what = f"{len(seen)} of these {len(people)} people are in an earlier release of this site."
        do = "Release new people only, or add --again: what they have spent adds up."
        raise ConfigError(what, where="home file", do=do)
    if budget.limit is None:
        return 0.0
    before = list(seen.values())
    if None in before:
        what = f"{before.count(None)} of these people are in a release of exact sums: no noise now"
        do = "Release the others, or use --mechanism none."
        raise ConfigError(
            f"{what} can promise them anything.", where="home file", do=do
        )
    return float(budget.limit + max((v for v in before if v is not None), default=0.0))


def made_numbers(
    group: Consortium, x: np.ndarray, y: np.ndarray, budget: Budget
) -> tuple[float, ...]:
    """The numbers of a release with secret noise, rounded to a thousandth of it.

    Rounding to a public grid after the noise costs no privacy and hides the last bits, in which
    floating-point noise can be told apart (Mironov 2012).
    """
    arrays = group.start.arrays
    drawn = discrete_gaussian(vector.UNIT, arrays.n_axes + 2)
    found = vector.release_vector(arrays, x, y, budget.limit, budget.delta, drawn)
    noise = vector.noise_sd(arrays, budget.limit, budget.delta)
    if noise:
        grain = 2.0 ** math.floor(math.log2(noise * GRAIN))
        found = np.round(found / grain) * grain
    return tuple(found.tolist())


def scores(group: Consortium, x: np.ndarray) -> np.ndarray:
    """Log odds (n,) of the consortium's head for features (n, p)."""
    raw = group.start.arrays.standardise(x) @ group.head.weight + group.head.bias
    return raw / group.start.arrays.temperature


def leave_one_out_scores(
    group: Consortium, x: np.ndarray, y: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Log odds of each person by the head without that person's own contributions.

    `times` (n,) says how often each is in the releases. Clipping and the noise stay as they were.
    """
    arrays = group.start.arrays
    z = arrays.standardise(x)
    own = vector.contributions(arrays, x, y) * times[:, None]
    beta = np.stack([group.solve(group.total - v) for v in own])
    step = (coordinates(arrays, z) * beta).sum(1)
    return (arrays.score(z) + step) / arrays.temperature


def refit_threshold(group: Consortium, cohort: Cohort, site: str, home: Home) -> Home:
    """Home with its threshold fitted anew for this state; costs nothing, sends nothing.

    Another hospital's home file is refused: it does not say which of these people are in releases,
    and what that hospital reads by its own threshold would be this one's.
    """
    theirs = {receipt.site for receipt in home.receipts}
    if theirs and site not in theirs:
        raise DataError(
            f"the home file is of {', '.join(sorted(theirs))}, not of '{site}'.",
            do="Give the file that `fcforge learn` wrote for this site.",
        )
    mine, x = own_people(group, cohort, site)
    times = times_released(group, home, people_of(mine))
    left_out = leave_one_out_scores(group, x, mine.y, times)
    return replace(home, threshold=fit_threshold(left_out, mine.y, group.digest, site))


def times_released(group: Consortium, home: Home, people: People) -> np.ndarray:
    """In how many releases of the group each of these people is, (n,)."""
    here = {release.commitment for release in group.releases}
    seen = [Home((r,)).seen(people) for r in home.receipts if r.commitment in here]
    return np.array(
        [float(sum(person in those for those in seen)) for person in people]
    )


def fit_threshold(
    score: np.ndarray, y: np.ndarray, capsule: str, site: str = ""
) -> Threshold:
    """The hospital's own intercept and slope by penalised logistic regression.

    The slope is held at 1 and the intercept at 0 by a prior worth about four people, so that few
    people move them little.
    """
    design = np.stack([np.ones_like(score), score], 1)
    theta = prior = np.array([0.0, 1.0])
    for _ in range(50):  # Newton; the penalised loss is strictly convex
        p = probability(design @ theta)
        gradient = design.T @ (p - y) + (theta - prior)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.eye(2)
        theta = theta - np.linalg.solve(hessian, gradient)
    intercept, slope = (round(float(value), 6) for value in theta)
    return Threshold(intercept, slope, len(y), capsule, site)
