"""The audit of a release: what q + 2 numbers tell about who was among the people.

A quarter of a site's people is the attacker's reference; random halves of the others each make a
release (with noise of its own), so that who was in it is known, and every attack of
`fcforge.privacy.release_attacks` is tried on all of them at once. A half hides its people worse
than the whole site does: what is found here is more than the release itself gives away.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np

from fcforge.capsule.home import Home
from fcforge.consortium import few_vector as vector
from fcforge.consortium.few_start import Start, coordinates
from fcforge.consortium.learning import own_people, people_of
from fcforge.consortium.members import Consortium
from fcforge.consortium.records import Release, limit_of
from fcforge.errors import DataError
from fcforge.privacy import accounting, attacks, release_attacks
from fcforge.privacy.measures import MEMBER, OUTSIDER
from fcforge.privacy.release_attacks import KNOWN, SAMPLE
from fcforge.randomness import numpy_rng
from fcforge.sites.cohort import Cohort
from fcforge.studies.audit import Evidence, stratified, summarise
from fcforge.studies.audit_result import (
    BOOTSTRAP,
    STATISTICS,
    UNTRAINED,
    Audit,
    AuditPlan,
)

SHADOWED = (
    SAMPLE,
    "class mean",
    "loss against public head",
)  # what shadow models look at
PLAN = AuditPlan(worlds=100, n_draws=100)
FEW = 8  # worlds of the two references that leak everything: they are slow and always found
MIN_PEOPLE = 32
UNLIKELY = 1e-9


class Contributors(NamedTuple):
    """What is known of n people: one row of each array per person (float64).

    Attributes
    ----------
    rows : ndarray of shape (n, q + 2)
        What each adds to a release.
    coordinates : ndarray of shape (n, q + 1)
    residual : ndarray of shape (n,)
        Of the public head.
    moments : ndarray of shape (n, p + 2)
        Row of exact ridge statistics: standardised features, one, diagnosis.
    y : ndarray of shape (n,)
    """

    rows: np.ndarray
    coordinates: np.ndarray
    residual: np.ndarray
    moments: np.ndarray
    y: np.ndarray


def contributors(start: Start, features: np.ndarray, y: np.ndarray) -> Contributors:
    """People with their features (n, p), confounds removed, and diagnoses (n,)."""
    x = start.standardise(features)
    t = 2.0 * y - 1.0
    ends = np.stack([np.ones_like(t), t], 1)
    return Contributors(
        rows=vector.contributions(start, features, y),
        coordinates=coordinates(start, x),
        residual=t - start.score(x),
        moments=np.concatenate([x, ends], 1),
        y=y,
    )


def attack_totals(
    start: Start,
    who: Contributors,
    reference: Contributors,
    totals: np.ndarray,
    members: np.ndarray,
    noise: float,
) -> list[Evidence]:
    """Every attack on K releases (K, q + 2) of so many members each (K,).

    The attacker knows how many people a release has, and so looks at the other numbers alone.
    """
    sums, rows, ref = totals[:, :-1], who.rows[:, :-1], reference.rows[:, :-1]
    step = np.stack([vector.solve(start, total, noise**2, 1) for total in totals])
    sampled = release_attacks.from_reference(ref, members, noise)
    known = release_attacks.from_everybody(rows, members, noise)
    seen = who.residual, who.coordinates, step
    scores = {
        SAMPLE: release_attacks.likelihood_ratio(sums, rows, sampled),
        KNOWN: release_attacks.likelihood_ratio(sums, rows, known),
        "class mean": release_attacks.class_mean(
            sums, rows, who.y, ref, reference.y, members
        ),
        "leverage": release_attacks.leverage(sums, rows),
        "loss": release_attacks.loss(*seen),
        "loss against public head": release_attacks.loss_drop(*seen),
    }
    features = np.stack([scores[name] for name in SHADOWED], 2)
    each = [
        {name: values[k] for name, values in scores.items()} for k in range(len(totals))
    ]
    return [Evidence(found, {}, features[k]) for k, found in enumerate(each)]


def references(
    start: Start,
    who: Contributors,
    reference: Contributors,
    member: np.ndarray,
    seed: int,
) -> dict[str, list[Evidence]]:
    """What an audit is read against: rows one by one, exact ridge statistics, strangers."""
    inside = member == MEMBER
    copied = [
        attacks.distance_ratio(who.rows, who.rows[i], reference.rows)
        for i in inside[:FEW]
    ]
    exact = [attacks.leverage(who.moments, who.moments[i]) for i in inside[:FEW]]
    rng, n = numpy_rng(seed, "audit strangers"), inside.sum(1)
    strangers = np.stack(
        [reference.rows[rng.integers(len(reference.y), size=k)].sum(0) for k in n]
    )
    none = np.zeros((len(who.y), 0))
    return {
        BOOTSTRAP: [Evidence({"distance ratio": s}, {}, none) for s in copied],
        STATISTICS: [Evidence({"leverage": s}, {}, none) for s in exact],
        UNTRAINED: attack_totals(start, who, reference, strangers, n, 0.0),
    }


def halves(n: int, plan: AuditPlan) -> np.ndarray:
    """Who is in each world's release, (K, n): halves at random, whatever their diagnoses.

    Halves with equal shares of patients would hide what a release says about diagnoses.
    """
    rng = numpy_rng(plan.seed, "audit halves")
    place = np.stack([rng.permutation(n) for _ in range(plan.worlds)])
    return np.where(place < n // 2, MEMBER, OUTSIDER)


def audit_people(
    start: Start,
    everybody: Contributors,
    epsilons: Sequence[float | None],
    delta: float,
    plan: AuditPlan = PLAN,
) -> Audit:
    """Attack releases of random halves of these people at each epsilon (None: exact).

    Returns
    -------
    Audit
        Rows of the references first: members' contributions one by one ("bootstrap"), exact ridge
        statistics, a release of strangers ("untrained"); then one release per epsilon.
    """
    begun = time.perf_counter()
    if len(everybody.y) < MIN_PEOPLE:
        do = f"At least {MIN_PEOPLE} are needed, and a hundred for numbers worth reading."
        raise DataError(
            f"{len(everybody.y)} people are too few to audit a release.", do=do
        )
    mask = stratified(
        everybody.y, plan.reference, numpy_rng(plan.seed, "audit reference")
    )
    who, reference = (Contributors(*(a[m] for a in everybody)) for m in (~mask, mask))
    member = halves(len(who.y), plan)
    evidence = references(start, who, reference, member, plan.seed)
    sums, sizes = (member == MEMBER).astype(float) @ who.rows, (member == MEMBER).sum(1)
    for epsilon in epsilons:
        noise = vector.noise_sd(start, epsilon, delta)
        drawn = numpy_rng(plan.seed, "audit noise", str(epsilon)).standard_normal(
            sums.shape
        )
        found = attack_totals(start, who, reference, sums + noise * drawn, sizes, noise)
        evidence[release_name(epsilon)] = found
    told = [
        row
        for k, e in evidence.items()
        for row in summarise(k, e, member[: len(e)], plan)
    ]
    about = {
        "what": "releases of random halves",
        "people": len(who.y),
        "trained_on": len(who.y) // 2,
        "reference_people": len(reference.y),
        "ceilings": {
            release_name(e): round(accounting.ceiling_of(e, delta), 4) for e in epsilons
        },
        "plan": asdict(plan),
        "seconds_total": round(time.perf_counter() - begun, 1),
    }
    return Audit(tuple(told), about)


def release_name(epsilon: float | None) -> str:
    """How a row calls a release at this budget."""
    return (
        "release without noise"
        if epsilon is None
        else f"release at epsilon {epsilon:g}"
    )


def audit_release(
    group: Consortium, cohort: Cohort, site: str, home: Home, plan: AuditPlan = PLAN
) -> Audit:
    """Attack the last release of a site whose people are all in the data.

    That they are the people of the release is proved first, by the receipt kept at home and the
    commitment in the release; people, scans or diagnoses that differ are refused by name.

    Parameters
    ----------
    group : Consortium
    cohort : Cohort
        The hospital's own data.
    site : str
    home : Home
        Holds the receipt.
    plan : AuditPlan
    """
    release, mine, features = released_people(group, cohort, site, home)
    epsilon = limit_of(release.mechanism, release.epsilon)
    everybody = contributors(group.start.arrays, features, mine.y)
    require_numbers(release, everybody.rows)
    budgets = (None,) if epsilon is None else (None, epsilon)
    delta = release.delta or accounting.DELTA
    found = audit_people(group.start.arrays, everybody, budgets, delta, plan)
    about = {
        **found.about,
        "what": f"release {release.wave} of site '{site}'",
        "site": site,
        "release": release.digest,
        "released": release_name(epsilon),
        "epsilon": epsilon,
        "delta": release.delta,
        "proved": f"{len(mine)} people, their scans and diagnoses, by the receipt",
    }
    return replace(found, about=about)


def released_people(
    group: Consortium, cohort: Cohort, site: str, home: Home
) -> tuple[Release, Cohort, np.ndarray]:
    """The last release whose people are all here, they in its order, and their features (n, p)."""
    mine, features = own_people(group, cohort, site)
    people = people_of(mine)
    releases = group.of_site(site)[::-1]
    receipts = [
        home.receipt_for(r.commitment, f"release {r.wave} of '{site}'")
        for r in releases
    ]
    known = {who for who, *_ in people}
    here = [{who for who, *_ in receipt.people} <= known for receipt in receipts]
    k = here.index(True) if any(here) else 0  # else the last one says who is missing
    places = receipts[k].places(people)
    return releases[k], mine.select(places), features[places]


def require_numbers(release: Release, rows: np.ndarray) -> None:
    """Refuse where the released numbers cannot be these people's sum plus the stated noise.

    The receipt proves people, scans and diagnoses, not covariates: others would be attacked in
    vain.
    """
    from scipy.stats import chi2  # slow to import

    apart = np.asarray(release.numbers) - rows.sum(0)
    if release.noise_sd:
        fits = (
            chi2.sf(float((apart**2).sum()) / release.noise_sd**2, len(apart))
            > UNLIKELY
        )
    else:
        fits = bool(np.allclose(apart, 0.0, atol=1e-6 * (1 + np.abs(rows).sum())))
    if not fits:
        what = f"the numbers of release {release.wave} are not what these people add up to."
        do = "Check the covariates: they must be those that were learned."
        raise DataError(what, where=f"site '{release.site}'", do=do)
