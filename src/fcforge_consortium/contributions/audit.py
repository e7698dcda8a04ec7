"""Attacks on a contribution: how well its numbers reveal who is in it.

The audit makes contributions whose members are known. A quarter of a site's people is the *reference*:
people whom the attacker knows, and who are in no contribution. Random halves of the remaining people each
make a contribution with noise of its own. Every attack of `fcforge.evaluation.privacy.attacks` on sums is tried
on all of these contributions. A half hides its people less than the whole site does, so the audit
overestimates the leakage of the site's real contribution.

Shapes: H contributions of halves, n people outside the reference, m numbers of a contribution.
"""

from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np

from fcforge.base_model.calibration import targets
from fcforge.core.errors import DataError
from fcforge.core.randomness import numpy_rng
from fcforge.evaluation.privacy import attacks
from fcforge.evaluation.privacy.attacks import KNOWN, SAMPLE
from fcforge.evaluation.privacy.audit_result import (
    BOOTSTRAP,
    UNTRAINED,
    AuditPlan,
    AuditResult,
    AuditRow,
)
from fcforge.evaluation.privacy.generator_audit import Evidence, stratified, summarise
from fcforge.evaluation.privacy.measures import MEMBER, OUTSIDER
from fcforge_consortium.audit_target import AuditTarget, require_given
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.space import ContributionSpace
from fcforge_consortium.contributions.contribution import own_features
from fcforge_consortium.contributions.model import ContributionModel
from fcforge_consortium.ledger.people import people_in
from fcforge_consortium.privacy import noise
from fcforge_consortium.records.kinds import Charged, Contribution

# attacks that also train on contributions of other halves (shadow models)
SHADOWED = (SAMPLE, "class mean", "loss against base model")
PLAN = AuditPlan(worlds=100, n_draws=100)
# halves for the comparison that publishes every vector: it is slow and always detected
FEW = 8
MIN_PEOPLE = 32
UNLIKELY = 1e-9  # p value below which noise does not explain a difference


class Trial:
    """Contributions of random halves of a site's people, to be attacked.

    A quarter of the people is the reference; the halves are drawn from the remaining people.

    Parameters
    ----------
    space : ContributionSpace
    features : ndarray of shape (n, p)
        Features of all people, confounds removed.
    y : ndarray of shape (n,)
        Their diagnoses.
    plan : AuditPlan
        Number of contributions, size of the reference and seed.

    Attributes
    ----------
    rows : ndarray of shape (n, m)
        Vector that each person outside the reference adds to a contribution, in units of the grid.
    reference_rows : ndarray of shape (., m)
        The same of the people in the reference.
    inside : ndarray of shape (H, n), bool
        Members of each contribution. They are drawn regardless of diagnosis: halves with equal
        shares of patients would hide the leakage of diagnoses.
    """

    def __init__(
        self,
        space: ContributionSpace,
        features: np.ndarray,
        y: np.ndarray,
        plan: AuditPlan,
    ) -> None:
        if len(y) < MIN_PEOPLE:
            message = f"{len(y)} people are too few to audit a contribution."
            hint = f"Use at least {MIN_PEOPLE} people; estimates are reliable from about 100."
            raise DataError(message, do=hint)
        rng = numpy_rng(plan.seed, "audit reference")
        in_reference = stratified(y, plan.reference, rng)
        x = space.base.standardise(features[~in_reference])
        rows = vector.contribution_rows(space, features, y).astype(np.float64)
        self.space = space
        self.seed = plan.seed
        self.rows = rows[~in_reference]
        self.reference_rows = rows[in_reference]
        self.y = y[~in_reference]
        self.reference_y = y[in_reference]
        self.coordinates = space.coordinates(x)
        self.residual = targets(self.y) - space.base.score(x)
        rng = numpy_rng(plan.seed, "audit halves")
        n = len(self.y)
        rank = np.stack([rng.permutation(n) for _ in range(plan.worlds)])
        self.inside = rank < n // 2  # the first half of the people in a random order

    def attacked(self, totals: np.ndarray, noise: float = 0.0) -> list[Evidence]:
        """Run every attack on every contribution.

        The attacker knows the number of people in a contribution, so the count is left out.

        Parameters
        ----------
        totals : ndarray of shape (H, m)
            The contributions, in units of the grid.
        noise : float
            Standard deviation of the noise on each number, in units.

        Returns
        -------
        list of Evidence
            For each contribution, the score of every person by every attack.
        """
        n_members = self.inside.sum(1)
        # all but the count, in coordinates of the span of people's vectors: the attacks are quicker there
        sums, rows, reference = attacks.within_span(
            totals[:, :-1], self.rows[:, :-1], self.reference_rows[:, :-1]
        )
        step = vector.solve(self.space, totals, noise**2)
        seen = (sums, n_members, rows)  # arguments of all attacks on sums
        shift = attacks.sum_shift(*seen, self.y, reference, self.reference_y)
        scores = {
            SAMPLE: attacks.sample_known(*seen, reference, noise),
            KNOWN: attacks.site_known(*seen, noise),
            "class mean": shift,
            "loss against base model": attacks.loss_drop(
                self.residual, self.coordinates, step
            ),
        }
        by_contribution = zip(*scores.values(), strict=True)
        return [
            Evidence(dict(zip(scores, values, strict=True)))
            for values in by_contribution
        ]

    def references(self) -> dict[str, list[Evidence]]:
        """Run the attacks on two extremes, between which a contribution must lie.

        One publishes the vector of every member, the other the sum over people of the reference, who are
        no members.

        Returns
        -------
        dict of str to list of Evidence
        """
        open_vectors = []
        for members in self.inside[:FEW]:
            published = self.rows[members]
            ratio = attacks.distance_ratio(self.rows, published, self.reference_rows)
            open_vectors.append(Evidence({"distance ratio": ratio}))
        rng = numpy_rng(self.seed, "audit strangers")
        strangers = []
        for size in self.inside.sum(1):
            drawn = rng.integers(len(self.reference_rows), size=size)
            strangers.append(self.reference_rows[drawn].sum(0))
        return {BOOTSTRAP: open_vectors, UNTRAINED: self.attacked(np.stack(strangers))}

    def released(self, epsilon: float | None, delta: float) -> list[Evidence]:
        """Run the attacks on the contributions of the halves, with the noise of a budget.

        Parameters
        ----------
        epsilon : float or None
            None for exact sums.
        delta : float
        """
        sums = self.inside.astype(float) @ self.rows
        noise = float(vector.noise_units(epsilon, delta))
        rng = numpy_rng(self.seed, "audit noise", str(epsilon))
        return self.attacked(sums + noise * rng.standard_normal(sums.shape), noise)


def audit_people(
    space: ContributionSpace,
    features: np.ndarray,
    y: np.ndarray,
    epsilon: float | None,
    delta: float,
    plan: AuditPlan = PLAN,
) -> AuditResult:
    """Attack contributions of random halves of these people.

    Parameters
    ----------
    space : ContributionSpace
    features : ndarray of shape (n, p)
        Confounds removed.
    y : ndarray of shape (n,)
        Diagnoses.
    epsilon : float or None
        Budget of the contributions; None for exact sums.
    delta : float
    plan : AuditPlan

    Returns
    -------
    AuditResult
        First the rows of two comparisons: all vectors published ("bootstrap"), and a sum over people
        who are no members ("untrained"). Rows of the contribution follow.
    """
    trial = Trial(space, features, y, plan)
    name = "contribution without noise"
    if epsilon is not None:
        name = f"contribution at epsilon {epsilon:g}"
    evidence = trial.references() | {name: trial.released(epsilon, delta)}
    rows: list[AuditRow] = []
    for title, by_half in evidence.items():
        member = np.where(trial.inside[: len(by_half)], MEMBER, OUTSIDER)
        rows += summarise(title, by_half, member, plan, SHADOWED)
    about = {
        "people": len(trial.y),
        "trained_on": len(trial.y) // 2,
        "reference_people": len(trial.reference_rows),
        "released": name,
        "epsilon": epsilon,
        "delta": delta,
        "ceilings": {name: round(noise.ceiling_of(epsilon, delta), 4)},
        "plan": asdict(plan),
    }
    return AuditResult(tuple(rows), about)


def audit_contribution(model: ContributionModel, target: AuditTarget) -> AuditResult:
    """Attack a site's last contribution.

    The entry in the site's ledger and the commitment in the record must prove that these are the
    people behind it. People, scans or diagnoses that differ are refused by name.

    Parameters
    ----------
    model : ContributionModel
    target : AuditTarget
        The site, its people and its ledger.

    Returns
    -------
    AuditResult

    Raises
    ------
    DataError
        If the site contributed nothing, or other people than these.
    """
    model.require_two_classes("attacks of an audit are")
    record, features, y = contributed_people(model, target)
    space = model.base_model.space
    if isinstance(record, Contribution):
        require_numbers(model, record, vector.contribution_rows(space, features, y))
    plan = replace(PLAN, seed=target.plan.seed)
    result = audit_people(space, features, y, *record.budget, plan)
    about = {
        **result.about,
        "what": f"the {record.title}",
        "parents": (record.id,),
        "site": target.site,
    }
    return replace(result, about=about)


def contributed_people(
    model: ContributionModel, target: AuditTarget
) -> tuple[Charged, np.ndarray, np.ndarray]:
    """Return a site's last contribution or notice, with the people behind it.

    Parameters
    ----------
    model : ContributionModel
    target : AuditTarget

    Returns
    -------
    record : Contribution or Notice
    features : ndarray of shape (n, p)
        Features of its people, in the order of the ledger entry.
    y : ndarray of shape (n,)
        Their diagnoses.
    """
    last = {record.site: record for record in model.exchange.of(Charged)}
    require_given(tuple(last), target.site)
    record = last[target.site]
    people = target.people.select_sites([target.site])
    entry = target.private.entry_for(record.commitment, f"the {record.title}")
    places = entry.places(people_in(people))
    features = own_features(model, people)
    return record, features[places], people.y[places]


def require_numbers(
    model: ContributionModel, record: Contribution, rows: np.ndarray
) -> None:
    """Raise `DataError` if a contribution cannot be these people's sum plus the stated noise.

    The ledger proves people, scans and diagnoses, but not covariates. With other covariates the
    attacks would target vectors that are not in the sum.

    Parameters
    ----------
    model : ContributionModel
    record : Contribution
    rows : ndarray of shape (n, m)
        Vectors of the people, in units.
    """
    from scipy.stats import chi2  # slow to import

    difference = model.read_numbers(record) - rows.sum(0, dtype=np.float64)
    variance = float(Fraction(record.variance))
    if variance:
        statistic = float((difference**2).sum()) / variance
        fits = chi2.sf(statistic, len(difference)) > UNLIKELY
    else:  # another machine may cut a number to the next unit
        fits = bool(np.abs(difference).max() <= 2 * len(rows))
    if not fits:
        raise DataError(
            f"the numbers of the {record.title} are not the sum over these people.",
            do="Check the covariates: they must be those of the contribution.",
        )
