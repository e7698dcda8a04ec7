"""One hospital's step around a start: a release, or shares for a round of aggregators."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.base_model.calibration import fit_line
from fcforge.core.errors import ConfigError, DataError, at
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.quality import quality, require_labels
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.people import People, people_in, same_people
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.privacy.noise import DELTA, EPSILON, discrete_gaussian
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import Charged, Contribution, Notice, Withdrawal
from fcforge_consortium.records.names import site_name
from fcforge_consortium.step_result import StepResult

if TYPE_CHECKING:
    from fcforge_consortium.contributions.model import ContributionModel
    from fcforge_consortium.options import ContributeRequest


def asked_budget(request: "ContributeRequest") -> tuple[float | None, float]:
    """Epsilon, None for exact sums, and delta; `ConfigError` where a request contradicts itself."""
    if request.mechanism != "none":
        epsilon = EPSILON if request.epsilon is None else request.epsilon
        return epsilon, DELTA if request.delta is None else request.delta
    if request.epsilon is not None or request.delta is not None:
        raise ConfigError(
            "--mechanism none (exact sums) has no epsilon or delta.",
            do="Leave --epsilon and --delta out, or use the gaussian mechanism.",
        )
    return None, 0.0


def learn(
    model: "ContributionModel",
    people: Cohort,
    private: Ledger,
    asked: "ContributeRequest",
    key: Signer,
    tick: Any = None,
) -> StepResult:
    """What the people of one site give; nothing is written."""
    budget = asked_budget(asked)
    x = own_features(model, people)
    before = model.odds(x)
    with at(f"site '{asked.site}'"):
        require_labels(before, people.y, asked.accept_labels, model.target)
    receipt, spent = _charged(model, people, private, asked, budget)
    numbers = vector.contribution_rows(model.start.space, x, people.y).sum(0)
    new, payloads, files = _given(model, numbers, receipt, spent, key)
    joined = model.exchange.joined([new], payloads)
    found = quality(before, people.y, model.target)
    return StepResult(joined, (new,), receipt.having_seen(joined), found, files)


def _charged(
    model: "ContributionModel",
    people: Cohort,
    private: Ledger,
    asked: "ContributeRequest",
    budget: tuple[float | None, float],
) -> tuple[LedgerEntry, Spent]:
    """The receipt of these people, and what one of them will have spent at most."""
    policy = model.exchange.root.policy
    policy.require_people(len(people), model.exchange.root.most_people)
    _require_known(model, asked.site, private)
    if duplicates := people.duplicates:
        first, second, alike = duplicates[0]
        raise DataError(
            f"scans {first} and {second} look like one person's ({len(duplicates)} such in all, "
            f"edges correlate {alike:.3f}): whoever is there twice spends twice what is said.",
            do=f"Leave one of each pair out (of the command: --leave-out {second}).",
        )
    who = people_in(people)
    require_new(model, who, private)
    vector.noise_units(
        *budget, model.size
    )  # refuses a budget for which no noise can be drawn
    spent = private.require_budget(*budget, policy)
    earlier = [r.number for r in private.receipts if r.site == asked.site]
    receipt = LedgerEntry(
        site=asked.site,
        number=1 + max(earlier, default=0),
        people=who,
        epsilon=budget[0],
        delta=budget[1],
        round=site_name(asked.round) if asked.round else "",
    )
    return receipt, spent


def _given(
    model: "ContributionModel",
    numbers: np.ndarray,
    receipt: LedgerEntry,
    spent: Spent,
    key: Signer,
) -> tuple[Charged, dict[str, bytes], dict[str, bytes]]:
    """The record of what is given, its arrays by hash, and the shares of aggregators by name.

    A release has secret noise; of a round there are shares alone, and the aggregators add theirs.
    """
    if receipt.round:
        notice, files = rounds.give(model.exchange, receipt, numbers, spent, key)
        return notice, {}, files
    sigma = vector.noise_units(receipt.epsilon, receipt.delta, model.size)
    if sigma:
        numbers = numbers + discrete_gaussian(sigma, len(numbers))
    data = save_arrays({rounds.NUMBERS: numbers})
    place = (receipt.site, receipt.number, (model.exchange.root.id,), key)
    release = records.make(
        Contribution,
        *place,
        payload=sha256(data),
        grid=model.grid,
        variance=str(sigma**2),
        **receipt.said(spent),
    )
    return release, {release.payload: data}, {}


# -- who the people are ----------------------------------------------------------------------------
def own_features(model: "ContributionModel", people: Cohort) -> np.ndarray:
    """Features (n, p) of people who fit the start; else `DataError`."""
    every = people.target.kind != "more classes"  # else a hospital may lack one
    require_valid(people, n_rois=model.n_rois, to_split=every)
    with at(f"site {' and '.join(repr(s) for s in people.site_names)}"):
        ids = people.subject_id.tolist()
        model.start.require_covariates(people.covariates, ids)
        x = model.start.features(people.fc, people.covariates)
        if both := model.start.public_among(ids, x):
            raise DataError(
                f"{len(both)} of its people are among the public ones (first: "
                f"{'; '.join(both[:5])}).",
                do="Leave them out (of the command: --leave-out ID), or make a start without their "
                "site (--without): one that shares a person proves nothing. Other people with "
                "their ids: put the site before them.",
            )
        model.start.require_alike(x)
    return x


def _require_known(model: "ContributionModel", site: str, private: Ledger) -> None:
    """Refuse where the exchange holds something of the site that its private record lacks."""
    known = {receipt.commitment for receipt in private.receipts}
    for record in model.exchange.records:
        if record.site == site and record.committed and record.committed not in known:
            raise ConfigError(
                f"the exchange holds the {record.title}, which {private.path} does not know, so "
                "nobody can tell who has spent what.",
                do="Name the private record of that release with --ledger.",
            )


def require_new(model: "ContributionModel", who: People, private: Ledger) -> None:
    """Raise `ConfigError` for people whom this model has already: they would count twice.

    A contribution that was withdrawn does not count, nor does a round that is not in the model: its
    hospitals may run a new one.
    """
    exchange = model.exchange
    withdrawn = {w.commitment for r in exchange.of(Withdrawal) for w in r.takes}
    earlier = counted_commitments(model)
    for receipt in private.receipts:
        alone = not receipt.round and exchange.root.id in receipt.seen
        if alone and receipt.commitment not in withdrawn:
            earlier.add(receipt.commitment)
    twice = int(private.holds(who, earlier).sum())
    if twice:
        raise ConfigError(
            f"{twice} of these {len(who)} people were contributed before to this base model, by id "
            "or by scan.",
            where=private.path,
            do="Contribute other people, or withdraw the earlier contribution first "
            "(`fcforge consortium withdraw`); its budget stays spent.",
        )


def counted_commitments(model: "ContributionModel") -> set[str]:
    """Return the commitments of contributions that are part of the model."""
    exchange = model.exchange
    summed = {one for r in model.rounds if r.closed for one in r.notices}
    alone = {record.commitment for record in exchange.of(Contribution)}
    return alone | {n.commitment for n in exchange.of(Notice) if n.id in summed}


# -- the own threshold -----------------------------------------------------------------------------
def own_threshold(
    model: "ContributionModel", people: Cohort, site: str, private: Ledger
) -> Threshold:
    """Fitted on log odds of each person by the head without that person's own contributions.

    Receipts say how often each is in what was given. Clipping and the noise stay. Another
    hospital's private record is refused: it does not say which of these people are in releases,
    and what that hospital reads by its own threshold would be this one's.
    """
    model.require_two_classes("a threshold is")
    theirs = sorted({receipt.site for receipt in private.receipts})
    if theirs and site not in theirs:
        raise DataError(
            f"the private record is of {', '.join(theirs)}, not of '{site}'.",
            where=private.path,
            do="Give the one that `fcforge consortium contribute` wrote for this site.",
        )
    x = own_features(model, people)
    here = counted_commitments(model)
    who = people_in(people)
    times = np.zeros((len(who), 1), dtype=np.int64)
    for receipt in private.receipts:
        if receipt.commitment in here:
            times[same_people(who, receipt.people)] += 1
    own = times * vector.contribution_rows(model.start.space, x, people.y)
    intercept, slope = fit_line(model.odds_without(x, own), people.y)
    return Threshold(
        intercept=round(intercept, 6),
        slope=round(slope, 6),
        people=len(people),
        exchange=model.exchange.id,
        site=site,
    )
