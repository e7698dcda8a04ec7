"""The audit of a whole capsule against the data of one hospital that contributed to it.

Everything in the file counts as released: synthetic subjects, network, class means, statistics,
bandit state. The hospital knows who was trained on (the split follows from seed and site name);
its test split was not. That is one world, so there is no shadow attack here.

An audit that took members for outsiders would find nothing and look reassuring. The hospital's
receipt must therefore prove, against the ledger's commitment, that these are the people.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.capsule import judging, turn
from fcforge.capsule.contents import Capsule, budget, require_fit
from fcforge.capsule.home import Home
from fcforge.engine import Learner
from fcforge.errors import DataError, at
from fcforge.privacy import attacks, measures
from fcforge.randomness import numpy_rng
from fcforge.sites import Cohort, split_site
from fcforge.studies import audit as study
from fcforge.studies.audit import Evidence, People
from fcforge.studies.audit_result import BOOTSTRAP, UNTRAINED, Audit, AuditPlan
from fcforge.types import Component, FCBatch, Site

MIN_PEOPLE = 8


def site_as_learned(capsule: Capsule, cohort: Cohort, name: str) -> Site:
    """The hospital's subjects as the capsule learned them: split, or all of them for training.

    `ForgeClassifier` trains on everybody it is given; the ledger then counts nobody as tested.
    """
    settings = capsule.settings
    with at(f"site '{name}'"):
        require_fit(cohort, settings.roi_names, settings.classes)
    if set(capsule.line(name)["counts"]["test"].values()) != {0}:
        test, val = settings.test_fraction, settings.val_fraction
        return split_site(cohort, name, settings.seed, test, val)
    if settings.training.selection == "inner_val":
        what = "who was used for validation is not known, so members cannot be told from others."
        do = "Audit a capsule of `fcforge learn`, or one with selection = 'fixed'."
        raise DataError(what, where=f"site '{name}'", do=do)
    mine = cohort.select_sites([name])
    everyone = FCBatch.from_numpy(mine.fc, mine.y)
    nobody = everyone.select(slice(0, 0))
    ids = {"train": tuple(mine.subject_id.tolist()), "val": (), "test": ()}
    return Site(name, everyone, nobody, nobody, ids)


def require_same_people(capsule: Capsule, site: Site, home: Home) -> None:
    """Raise where no receipt proves that these are the people that were learned.

    The ledger holds a salted hash of them, in the order learned; ids that were renumbered, rows
    that were shuffled, other diagnoses and strangers under the site's name give another.
    """
    said = capsule.line(site.name)["commitment"]
    receipt = home.receipt_for(said, f"site '{site.name}'")
    people = turn.people_learned(capsule.settings, site)
    if len(receipt.places(people)) != len(people):
        raise DataError(
            f"{len(people)} people would be taken for members, {len(receipt.people)} were learned.",
            do="Give exactly the data that `fcforge learn` was given.",
        )


def _outsiders(
    site: Site, reference: FCBatch | None, plan: AuditPlan
) -> tuple[FCBatch, list[str], FCBatch]:
    """People nobody trained on with their ids, and the attacker's reference.

    Where only one of test split and reference is there, it is cut in half to serve as both.
    """
    outside, ids = site.test, list(site.subject_ids["test"])
    if len(outside) and reference is not None:
        return outside, ids, reference
    both = outside if reference is None else reference
    if not len(both):
        what = "the capsule learned everybody, so that nobody is left to compare with."
        raise DataError(what, do="Give people outside the study with --reference.")
    ids = ids or ["(reference)"] * len(both)
    mask = study.stratified(
        both.y.numpy(), 0.5, numpy_rng(plan.seed, "audit reference")
    )
    rest = [i for i, m in zip(ids, mask, strict=True) if not m]
    return (
        both.select(torch.from_numpy(~mask)),
        rest,
        both.select(torch.from_numpy(mask)),
    )


def gather(
    capsule: Capsule,
    site: Site,
    reference: FCBatch | None,
    other: Mapping[str, Tensor] | None,
    plan: AuditPlan,
) -> tuple[People, np.ndarray]:
    """Members, outsiders and reference of a site; `member` of shape (1, n).

    All are as the network sees them: harmonised as those of the site are.
    """
    inside = site.learning(with_val=capsule.settings.learns_val)
    ids = [who for who, *_ in turn.people_learned(capsule.settings, site)]
    outside, outside_ids, reference = _outsiders(site, reference, plan)
    if min(len(inside), len(outside), len(reference)) < MIN_PEOPLE:
        raise DataError(
            f"{len(inside)} trained on, {len(outside)} not, {len(reference)} as reference: too few "
            f"for an audit (at least {MIN_PEOPLE} each).",
            do="Give people outside the study with --reference.",
        )

    def seen(people: FCBatch) -> FCBatch:
        fc = capsule.moved(people.fc.numpy(), site.name)
        return FCBatch.from_numpy(fc, people.y.numpy())

    batch, reference = seen(FCBatch.concat([inside, outside])), seen(reference)
    member = np.where(
        np.arange(len(batch)) < len(inside), measures.MEMBER, measures.OUTSIDER
    )[None]
    if other is None:
        return study.People(batch, reference), member
    if missing := [i for i in (*ids, *outside_ids) if i not in other]:
        raise DataError(
            f"no other scan of {len(missing)} subjects, e.g. '{missing[0]}'."
        )
    scans = torch.stack([other[i] for i in (*ids, *outside_ids)])
    return study.People(batch, reference, seen(FCBatch(scans, batch.y)).fc), member


def state_scores(
    capsule: Capsule, learner: Learner, who: People
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Attacks on the method's state, and the arrays that none of them fits.

    Second moments are attacked by leverage; arrays whose rows are edges (Fisher information,
    means, weights of a teacher) by alignment.
    """
    model, n_edges = learner.model, who.x.shape[1]
    rows = learner.method.statistics_rows(
        model, model.prepare(who.batch.fc), who.batch.y
    )
    found: dict[str, np.ndarray] = {}
    left = []
    kept = dict(capsule.lane.state)
    if (
        capsule.harmony is not None
    ):  # the site's people are moved there: how their mean is special
        kept["harmonisation"] = torch.from_numpy(
            capsule.harmony.level - who.ref_x.mean(0)
        )
    for key, value in sorted(kept.items()):
        array = value.double().numpy()
        wide = array.ndim >= 1 and array.shape[-1] == n_edges and array.size
        if rows is not None and array.ndim == 2 and array.shape[-1] == rows.shape[1]:
            found[f"leverage in {key}"] = attacks.leverage(rows.numpy(), array)
        elif wide and np.isfinite(array).all() and array.std() > 0:
            flat = array.reshape(-1, n_edges)
            found[f"alignment with {key}"] = attacks.alignment(who.x, flat, who.ref_x)
        else:
            left.append(key)
    return found, left


def audit_capsule(
    capsule: Capsule,
    site: Site,
    home: Home,
    *,
    reference: FCBatch | None = None,
    other: Mapping[str, Tensor] | None = None,
    plan: AuditPlan = AuditPlan(),  # noqa: B008
) -> Audit:
    """Attack all that a capsule releases about one site.

    Parameters
    ----------
    capsule : Capsule
    site : Site
        The hospital's own subjects, as `site_as_learned` gives them.
    home : Home
        Its receipt proves that they are the people that were learned; refused without.
    reference : FCBatch, optional
        People of a similar population who are not in the site; else half of the test split.
        Needed where everybody was learned: half of them are then the outsiders.
    other : mapping of subject id to FC (R, R), optional
        Another scan of the site's people, for fingerprinting.
    plan : AuditPlan

    Returns
    -------
    Audit
        Reference rows first, then the synthetic subjects, the network and the method's state.
    """
    started = time.perf_counter()
    with at(f"site '{site.name}'"):
        require_same_people(capsule, site, home)
        who, member = gather(capsule, site, reference, other, plan)
    place = capsule.sites.index(site.name)
    both = [capsule.remembered.of_site(place), capsule.held_out.of_site(place)]
    subjects = FCBatch.concat([batch for batch in both if len(batch)] or both)
    found, left = _evidence(capsule, who, member, subjects, plan)
    rows = [
        row
        for name, e in found.items()
        for row in study.summarise(name, [e], member, plan)
    ]
    about: dict[str, Any] = {
        "what": f"capsule {capsule.id[:16]}",
        "site": site.name,
        "proved_by_receipt": True,
        **study.about_people(who, member, replace(plan, worlds=1)),
        "released_subjects": len(subjects),
        "not_attacked": [f"state {key}" for key in left],
        "seconds_total": round(time.perf_counter() - started, 1),
    }
    if spent := budget(capsule):
        names = ("epsilon_of_method", "delta_of_method", "noise_is_secret")
        about |= dict(zip(names, (round(spent[0], 4), *spent[1:]), strict=True))
    return Audit(tuple(rows), about)


def _evidence(
    capsule: Capsule,
    who: People,
    member: np.ndarray,
    subjects: FCBatch,
    plan: AuditPlan,
) -> tuple[dict[str, Evidence], list[str]]:
    """What every attack found, the two references first, and arrays that no attack fits."""
    learner = capsule.settings.build()
    inside = who.batch.select(torch.from_numpy(member[0] == measures.MEMBER))
    y = inside.y.repeat(plan.multiple)
    released = {
        BOOTSTRAP: study.synthetic(
            Component("bootstrap"), inside, y, plan.seed, BOOTSTRAP
        ),
        UNTRAINED: study.synthetic(
            Component("corr_gauss"), who.reference, y, plan.seed, UNTRAINED
        ),
        "synthetic subjects": subjects,
    }
    there = {name: batch for name, batch in released.items() if len(batch) >= 4}
    found = {
        name: study.attack_records(who, b, plan.components) for name, b in there.items()
    }
    logits = judging.scores(learner, capsule.lane, who.batch.fc).double()
    loss = F.cross_entropy(
        logits, who.batch.y, reduction="none"
    )  # lower for who was trained on
    none = np.zeros((len(loss), 0))
    found["network"] = Evidence({"loss": -loss.numpy()}, {}, none)
    state, left = state_scores(capsule, learner, who)
    return found | ({"method state": Evidence(state, {}, none)} if state else {}), left
