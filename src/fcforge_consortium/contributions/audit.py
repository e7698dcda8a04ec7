"""The audit of a release: what its numbers tell about who was among the people.

A quarter of a site's people is the attacker's reference; random halves of the others each make a
release (with noise of its own), so that who was in it is known, and every attack of
`fcforge.evaluation.privacy.attacks` on sums is tried on all of them at once. A half hides its people worse
than the whole site does: what is found here is more than the release itself gives away.
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
from fcforge_consortium.contributions.model import ContributionModel
from fcforge_consortium.contributions.step import own_features
from fcforge_consortium.ledger.people import people_in
from fcforge_consortium.privacy import noise
from fcforge_consortium.records.kinds import Charged, Contribution

SHADOWED = (SAMPLE, "class mean", "loss against public head")  # seen by shadow models
PLAN = AuditPlan(worlds=100, n_draws=100)
FEW = 8  # worlds of the reference that leaks everything: slow, and always found
MIN_PEOPLE = 32
UNLIKELY = 1e-9


class Trial:
    """Releases of random halves of some people, and the attacker's own reference.

    A quarter of the people is the reference, random halves of the others are released.

    Parameters
    ----------
    start : ContributionSpace
    features : ndarray of shape (n, p)
        Of everybody, confounds removed.
    y : ndarray of shape (n,)
    plan : AuditPlan

    Attributes
    ----------
    rows, others : ndarray of shape (n, d + 2)
        What everybody else, and everybody of the reference, adds to a release, in units.
    inside : ndarray of shape (K, n), bool
        Who is in each release, whatever the diagnoses: halves with equal shares of patients would
        hide what a release says about them.
    """

    def __init__(
        self,
        start: ContributionSpace,
        features: np.ndarray,
        y: np.ndarray,
        plan: AuditPlan,
    ) -> None:
        if len(y) < MIN_PEOPLE:
            what = f"{len(y)} people are too few to audit a release."
            do = f"At least {MIN_PEOPLE} are needed, and a hundred for numbers worth reading."
            raise DataError(what, do=do)
        rng = numpy_rng(plan.seed, "audit reference")
        mask = stratified(y, plan.reference, rng)
        x = start.base.standardise(features[~mask])
        rows = vector.contribution_rows(start, features, y).astype(np.float64)
        self.start = start
        self.seed = plan.seed
        self.rows = rows[~mask]
        self.others = rows[mask]
        self.y = y[~mask]
        self.others_y = y[mask]
        self.coordinates = start.coordinates(x)
        self.residual = targets(self.y) - start.base.score(x)
        rng = numpy_rng(plan.seed, "audit halves")
        n = len(self.y)
        place = np.stack([rng.permutation(n) for _ in range(plan.worlds)])
        self.inside = place < n // 2

    def attacked(self, totals: np.ndarray, noise: float = 0.0) -> list[Evidence]:
        """Every attack on every release, of numbers (K, d + 2).

        The attacker knows how many people a release has, and so looks at the other numbers alone.
        """
        members = self.inside.sum(1)
        sums, rows, ref = attacks.within_span(
            totals[:, :-1], self.rows[:, :-1], self.others[:, :-1]
        )
        step = vector.solve(self.start, totals, noise**2)
        given = (sums, members, rows)
        scores = {
            SAMPLE: attacks.sample_known(*given, ref, noise),
            KNOWN: attacks.site_known(*given, noise),
            "class mean": attacks.sum_shift(*given, self.y, ref, self.others_y),
            "loss against public head": attacks.loss_drop(
                self.residual, self.coordinates, step
            ),
        }
        each = zip(*scores.values(), strict=True)
        return [Evidence(dict(zip(scores, one, strict=True))) for one in each]

    def references(self) -> dict[str, list[Evidence]]:
        """What an audit is read against: rows one by one, and strangers."""
        copied = []
        for mine in self.inside[:FEW]:
            near = attacks.distance_ratio(self.rows, self.rows[mine], self.others)
            copied.append(Evidence({"distance ratio": near}))
        rng = numpy_rng(self.seed, "audit strangers")
        strangers = []
        for size in self.inside.sum(1):
            drawn = rng.integers(len(self.others), size=size)
            strangers.append(self.others[drawn].sum(0))
        return {BOOTSTRAP: copied, UNTRAINED: self.attacked(np.stack(strangers))}

    def released(self, epsilon: float | None, delta: float) -> list[Evidence]:
        """Evidence against the halves' releases at a budget."""
        sums = self.inside.astype(float) @ self.rows
        noise = float(vector.noise_units(epsilon, delta))
        rng = numpy_rng(self.seed, "audit noise", str(epsilon))
        return self.attacked(sums + noise * rng.standard_normal(sums.shape), noise)


def audit_people(
    start: ContributionSpace,
    features: np.ndarray,
    y: np.ndarray,
    epsilon: float | None,
    delta: float,
    plan: AuditPlan = PLAN,
) -> AuditResult:
    """Attack releases of random halves of these people at an epsilon (None: exact).

    Returns
    -------
    Audit
        Rows of the references first: members' contributions one by one ("bootstrap"), a release of
        strangers ("untrained"); then those of the release.
    """
    trial = Trial(start, features, y, plan)
    name = "release without noise"
    if epsilon is not None:
        name = f"release at epsilon {epsilon:g}"
    evidence = trial.references() | {name: trial.released(epsilon, delta)}
    rows: list[AuditRow] = []
    for release, found in evidence.items():
        member = np.where(trial.inside[: len(found)], MEMBER, OUTSIDER)
        rows += summarise(release, found, member, plan, SHADOWED)
    about = {
        "people": len(trial.y),
        "trained_on": len(trial.y) // 2,
        "reference_people": len(trial.others),
        "released": name,
        "epsilon": epsilon,
        "delta": delta,
        "ceilings": {name: round(noise.ceiling_of(epsilon, delta), 4)},
        "plan": asdict(plan),
    }
    return AuditResult(tuple(rows), about)


def audit_release(model: ContributionModel, asked: AuditTarget) -> AuditResult:
    """Attack what a site gave last.

    That they are its people is proved first, by the receipt kept at home and the commitment in
    the record; people, scans or diagnoses that differ are refused by name.
    """
    model.require_two_classes("attacks of an audit are")
    record, features, y = given_people(model, asked)
    start = model.start.space
    if isinstance(record, Contribution):
        require_numbers(model, record, vector.contribution_rows(start, features, y))
    plan = replace(PLAN, seed=asked.plan.seed)
    found = audit_people(start, features, y, *record.budget, plan)
    about = {
        **found.about,
        "what": f"the {record.title}",
        "parents": (record.id,),
        "site": asked.site,
    }
    return replace(found, about=about)


def given_people(
    model: ContributionModel, asked: AuditTarget
) -> tuple[Charged, np.ndarray, np.ndarray]:
    """The site's last record; its people in its order: features (n, p), diagnoses."""
    given = {record.site: record for record in model.exchange.of(Charged)}
    require_given(tuple(given), asked.site)
    record = given[asked.site]
    mine = asked.people.select_sites([asked.site])
    receipt = asked.private.receipt_for(record.commitment, f"the {record.title}")
    places = receipt.places(people_in(mine))
    features = own_features(model, mine)
    return record, features[places], mine.y[places]


def require_numbers(
    model: ContributionModel, release: Contribution, rows: np.ndarray
) -> None:
    """Refuse where the released numbers cannot be these people's sum plus the stated noise.

    The receipt proves people, scans and diagnoses, not covariates: others would be attacked in
    vain.
    """
    from scipy.stats import chi2  # slow to import

    apart = model.read_numbers(release) - rows.sum(0, dtype=np.float64)
    variance = float(Fraction(release.variance))
    if variance:
        far = float((apart**2).sum()) / variance
        fits = chi2.sf(far, len(apart)) > UNLIKELY
    else:  # another machine may cut a number to the next unit
        fits = bool(np.abs(apart).max() <= 2 * len(rows))
    if not fits:
        raise DataError(
            f"the numbers of the {release.title} are not what these people add up to.",
            do="Check the covariates: they must be those that were learned.",
        )
