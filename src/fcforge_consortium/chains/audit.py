"""The audit of a chain by one of its hospitals.

Everything in the last step has left the hospital: synthetic subjects, network, class means, statistics,
bandit state. Each is attacked: can an attacker tell *members* (people whom the chain trained on) from
*outsiders*? The hospital knows both, because the split follows from seed and site name, and its test part
was not trained on. The *reference* are further people whom the attacker knows to be outsiders. There is
only one training with known members, so that no attack can learn from other trainings (shadow models).

Shapes: n members and outsiders together.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fcforge.core.component import Component
from fcforge.core.errors import DataError, at
from fcforge.core.randomness import numpy_rng
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.cohort import Cohort
from fcforge.evaluation.privacy import attacks, measures
from fcforge.evaluation.privacy import generator_audit as study
from fcforge.evaluation.privacy.audit_result import (
    BOOTSTRAP,
    UNTRAINED,
    AuditPlan,
    AuditResult,
    AuditRow,
)
from fcforge.evaluation.privacy.generator_audit import Evidence, People
from fcforge.methods.analytic import Analytic, moment_rows
from fcforge.replay.state import named
from fcforge_consortium.audit_target import AuditTarget, require_given
from fcforge_consortium.chains.chain import Chain
from fcforge_consortium.chains.step import people_learned, whole_site

MIN_PEOPLE = 8
FEWEST = 4  # synthetic subjects that can be attacked


def audit_chain(chain: Chain, asked: AuditTarget) -> AuditResult:
    """Attack all that a chain hands on about one site.

    Parameters
    ----------
    chain : Chain
    asked : AuditTarget
        The site, its people and its ledger.

    Returns
    -------
    AuditResult
        Reference rows first, then the synthetic subjects, the network and the method's state.
    """
    chain.require_two_classes("attacks of an audit are")
    require_given(chain.sites, asked.site)
    with at(f"site '{asked.site}'"):
        site = site_as_learned(chain, asked.people, asked.site)
        require_same_people(chain, site, asked)
        who, member = gather(chain, site, asked)
    place = chain.sites.index(asked.site)
    both = [chain.state.remembered.of_site(place), chain.state.held_out.of_site(place)]
    # empty batches are left out, unless both are empty: concatenation needs at least one
    subjects = FCBatch.concat([batch for batch in both if len(batch)] or both)
    evidence_of, left = _evidence(chain, who, member, subjects, asked.plan)
    rows: list[AuditRow] = []
    for name, evidence in evidence_of.items():
        rows += study.summarise(name, [evidence], member, asked.plan)
    step = chain.steps[place]
    last = chain.steps[-1]
    about: dict[str, Any] = {
        "what": f"the chain up to the {last.title}",
        "parents": tuple(dict.fromkeys((step.id, last.id))),
        "site": asked.site,
        **study.about_people(who, member, replace(asked.plan, worlds=1)),
        "not_attacked": [f"state {key}" for key in left],
    }
    return AuditResult(tuple(rows), about)


# -- members and outsiders -------------------------------------------------------------------------
def site_as_learned(chain: Chain, people: Cohort, name: str) -> Site:
    """Return the hospital's subjects as the chain learned them: split, or all for training.

    A step by `ConsortiumClassifier` trains on everybody and counts nobody as tested.

    Parameters
    ----------
    chain : Chain
    people : Cohort
        People of the hospital.
    name : str
        Name of its site.
    """
    tested = chain.steps[chain.sites.index(name)].counts.test
    if (tested.controls, tested.patients) == (0, 0):  # a small count would be None
        return whole_site(people.select_sites([name]), chain.settings)
    return chain.split(people, name)


def require_same_people(chain: Chain, site: Site, asked: AuditTarget) -> None:
    """Raise `DataError` unless a ledger entry proves that these are the people who were learned.

    The step holds a salted hash of them, in the order in which they were learned. Renumbered ids, other
    diagnoses or other people give another hash.

    Parameters
    ----------
    chain : Chain
    site : Site
        The hospital's subjects, split as its step was trained.
    asked : AuditTarget
        Holds the hospital's ledger.
    """
    step = chain.steps[chain.sites.index(site.name)]
    entry = asked.private.entry_for(step.commitment, f"the {step.title}")
    people = people_learned(chain.settings, site)
    if len(entry.places(people)) != len(people):
        raise DataError(
            f"{len(people)} people would be taken for members, {len(entry.people)} were learned.",
            do="Give exactly the data that `fcforge consortium chain` was given.",
        )


def gather(chain: Chain, site: Site, asked: AuditTarget) -> tuple[People, np.ndarray]:
    """Return the people whom the attacks compare, after checking that there are enough.

    Parameters
    ----------
    chain : Chain
    site : Site
        The hospital's subjects, split as its step was trained.
    asked : AuditTarget
        Holds the people outside the study, if any are given, and the seed.

    Returns
    -------
    people : People
        Members and outsiders, and the reference.
    member : ndarray of shape (1, n)
        `measures.MEMBER` or `measures.OUTSIDER` for each of them.
    """
    inside = site.learning(with_val=chain.settings.learns_val)
    outside, reference = _outsiders(site, asked)
    if min(len(inside), len(outside), len(reference)) < MIN_PEOPLE:
        raise DataError(
            f"{len(inside)} trained on, {len(outside)} not, {len(reference)} as reference: too few "
            f"for an audit (at least {MIN_PEOPLE} each).",
            do="Give people outside the study with --reference.",
        )
    batch = FCBatch.concat([inside, outside])
    trained = np.arange(len(batch)) < len(inside)
    member = np.where(trained, measures.MEMBER, measures.OUTSIDER)[None]
    return People(batch, reference), member


def _outsiders(site: Site, asked: AuditTarget) -> tuple[FCBatch, FCBatch]:
    """Return the outsiders, and the attacker's reference.

    If there is only a test part, or only people given as reference, they are cut in half to serve as
    both.

    Parameters
    ----------
    site : Site
        The hospital's subjects; the test part may be empty.
    asked : AuditTarget
        Its `reference` are the people outside the study, or None.
    """
    both = site.test
    if asked.reference is not None:
        both = FCBatch.from_numpy(asked.reference.fc, asked.reference.y)
        if len(site.test):
            return site.test, both
    if not len(both):
        message = "the chain learned everybody, so that nobody is left to compare with."
        raise DataError(message, do="Give people outside the study with --reference.")
    rng = numpy_rng(asked.plan.seed, "audit reference")
    mask = torch.from_numpy(study.stratified(both.y.numpy(), 0.5, rng))
    return both.select(~mask), both.select(mask)


# -- attacks ---------------------------------------------------------------------------------------
def _evidence(
    chain: Chain, who: People, member: np.ndarray, subjects: FCBatch, plan: AuditPlan
) -> tuple[dict[str, Evidence], list[str]]:
    """Run all attacks on what a chain hands on.

    Parameters
    ----------
    chain : Chain
    who : People
        Members, outsiders and the reference.
    member : ndarray of shape (1, n)
        Which of them are members.
    subjects : FCBatch
        Synthetic subjects of the site that travel.
    plan : AuditPlan

    Returns
    -------
    evidence : dict of str to Evidence
        Scores of the attacks by what is attacked: two comparisons first (copies of the members, and
        synthetic subjects that were never trained on them), then what the chain holds.
    left : list of str
        Arrays of the method's state that no attack fits.
    """
    inside = who.batch.select(torch.from_numpy(member[0] == measures.MEMBER))
    # diagnoses of the synthetic subjects, of which there are `multiple` for each member
    y = inside.y.repeat(plan.multiple)
    copies = Component("bootstrap")  # a generator that copies the members
    strangers = Component("corr_gauss")  # fitted on the reference, so on no member
    released = {
        BOOTSTRAP: study.synthetic(copies, inside, y, plan.seed, BOOTSTRAP),
        UNTRAINED: study.synthetic(strangers, who.reference, y, plan.seed, UNTRAINED),
        "synthetic subjects": subjects,
    }
    evidence = {}
    for name, batch in released.items():
        if len(batch) >= FEWEST:
            evidence[name] = study.attack_records(who, batch)
    odds = torch.from_numpy(chain.calibrated(who.batch.fc.numpy(), {}))
    odds_of_truth = torch.where(who.batch.y == 1, odds, -odds)
    # the score of a person is minus the loss, which is higher for people who were trained on
    evidence["network"] = Evidence({"loss": F.logsigmoid(odds_of_truth).numpy()})
    state, left = state_scores(chain, who)
    if state:
        evidence["method state"] = Evidence(state)
    return evidence, left


def state_scores(
    chain: Chain, who: People
) -> tuple[Mapping[str, np.ndarray], list[str]]:
    """Run the attacks on the arrays of the method's state.

    Second moments are attacked by leverage; arrays whose rows are edges (Fisher information,
    means, weights of a teacher) by alignment.

    Parameters
    ----------
    chain : Chain
    who : People
        Members and outsiders, and the reference.

    Returns
    -------
    scores : dict of str to ndarray of shape (n,)
        By the name of the attack.
    left : list of str
        Arrays that no attack fits.
    """
    learner = chain.settings.build()
    inputs = learner.model.prepare(who.batch.fc)
    rows = (
        None  # what each person would add to second moments, if the method keeps them
    )
    if isinstance(learner.method, Analytic):
        rows = moment_rows(learner.model, inputs, who.batch.y)
    n_edges = who.x.shape[1]
    scores: dict[str, np.ndarray] = {}
    left = []
    for key, value in sorted(named(chain.state.lane.state).items()):
        array = value.double().numpy()
        has_edges = array.ndim >= 1 and array.shape[-1] == n_edges and array.size
        if rows is not None and array.ndim == 2 and array.shape[-1] == rows.shape[1]:
            scores[f"leverage in {key}"] = attacks.leverage(rows.numpy(), array)
        elif has_edges and array.std() > 0:
            flat = array.reshape(-1, n_edges)
            scores[f"alignment with {key}"] = attacks.alignment(who.x, flat, who.ref_x)
        else:
            left.append(key)
    return scores, left
