"""One hospital's contribution: published alone with noise, or as shares for the aggregators of a round.

The hospital's people become a vector of whole numbers (`base_model.vectors`). Before it leaves, the people
are compared with the public people, with the base model and with the hospital's ledger, and the budget is
charged: an *entry* of the ledger lists the people behind the record and what it spends of each of them.
Nothing in this module writes a file.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.base_model.calibration import fit_line
from fcforge.core.errors import ConfigError, DataError, at
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.subject_ids import id_faults
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
from fcforge_consortium.records.kinds import Charged, Contribution, Withdrawal
from fcforge_consortium.records.names import site_name
from fcforge_consortium.step_result import StepResult

if TYPE_CHECKING:
    from fcforge_consortium.contributions.model import ContributionModel
    from fcforge_consortium.options import ContributeRequest
    from fcforge_consortium.records.exchange import Exchange


def asked_budget(request: "ContributeRequest") -> tuple[float | None, float]:
    """Return the budget of a requested contribution, with defaults filled in.

    Parameters
    ----------
    request : ContributeRequest

    Returns
    -------
    epsilon : float or None
        None for exact sums.
    delta : float

    Raises
    ------
    ConfigError
        If exact sums are requested together with a budget.
    """
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
    ledger: Ledger,
    request: "ContributeRequest",
    key: Signer,
    tick: Any = None,
) -> StepResult:
    """Return the records, files and ledger entry of a site's contribution; nothing is written.

    Parameters
    ----------
    model : ContributionModel
        Model before the contribution.
    people : Cohort
        People of the site, with diagnoses.
    ledger : Ledger
        The hospital's ledger, which bounds the budget.
    request : ContributeRequest
    key : private key or None
        Key that signs the record.
    tick : callable, optional
        Ignored: a contribution has no progress to report.

    Returns
    -------
    StepResult

    Raises
    ------
    DataError, ConfigError
        If the people do not fit the base model, their labels look swapped, they were contributed
        before, or the budget is spent.
    """
    budget = asked_budget(request)
    x = own_features(model, people)
    before = model.odds(x)
    with at(f"site '{request.site}'"):
        require_labels(before, people.y, request.accept_labels, model.target)
    entry, spent = _charged(model, people, ledger, request, budget)
    numbers = vector.contribution_rows(model.base_model.space, x, people.y).sum(0)
    new, payloads, files = _outgoing(model, numbers, entry, spent, key)
    joined = model.exchange.joined([new], payloads)
    measured = quality(before, people.y, model.target)
    return StepResult(joined, (new,), entry.having_seen(joined), measured, files)


def _charged(
    model: "ContributionModel",
    people: Cohort,
    ledger: Ledger,
    request: "ContributeRequest",
    budget: tuple[float | None, float],
) -> tuple[LedgerEntry, Spent]:
    """Return the ledger entry of a contribution, and the budget that the ledger will have spent in all.

    Parameters
    ----------
    model : ContributionModel
    people : Cohort
    ledger : Ledger
        The hospital's ledger before the contribution.
    request : ContributeRequest
    budget : (epsilon or None, delta)
        Budget of this contribution.

    Raises
    ------
    DataError
        If there are too few or too many people, or one person has two scans.
    ConfigError
        If people were contributed before, the ledger lacks an entry, or the budget is spent.
    """
    policy = model.exchange.root.policy
    policy.require_people(len(people), model.exchange.root.most_people)
    _require_known(model, request.site, ledger)
    if duplicates := people.duplicates:
        first, second, alike = duplicates[0]
        raise DataError(
            f"scans {first} and {second} look like one person's (pairs: {len(duplicates)}; "
            f"correlation of the edges: {alike:.3f}). A person with two scans would spend twice "
            "the stated budget.",
            do=f"Leave one of each pair out (of the command: --leave-out {second}).",
        )
    for fault in id_faults(people):  # a warning where no budget is stated
        raise DataError(
            f"{fault.what} A person with two scans would spend twice the stated budget.",
            do="Leave one of each pair out (of the command: --leave-out). If they are two people, "
            "give them short numbers of their own (001, 002).",
        )
    who = people_in(people)
    ledger.require_nobody_elsewhere(who)
    require_new(model, who, ledger)
    # raises for a budget whose noise cannot be drawn
    vector.noise_units(*budget, model.size)
    spent = ledger.require_budget(*budget, policy)
    earlier = [e.number for e in ledger.every_entry if e.site == request.site]
    entry = LedgerEntry(
        site=request.site,
        number=1 + max(earlier, default=0),
        people=who,
        epsilon=budget[0],
        delta=budget[1],
        round=site_name(request.round) if request.round else "",
    )
    return entry, spent


def _outgoing(
    model: "ContributionModel",
    numbers: np.ndarray,
    entry: LedgerEntry,
    spent: Spent,
    key: Signer,
) -> tuple[Charged, dict[str, bytes], dict[str, bytes]]:
    """Return the record, arrays and shares with which a contribution leaves the hospital.

    A contribution that is published alone gets secret noise here. In a round only shares leave,
    and each aggregator adds noise to their sum.

    Parameters
    ----------
    model : ContributionModel
    numbers : ndarray of shape (m,), int64
        Exact sum over the site's people, in units of the grid.
    entry : LedgerEntry
        The people and the budget of the contribution.
    spent : Spent
        Budget that the ledger will have spent in all.
    key : private key or None

    Returns
    -------
    record : Contribution or Notice
    payloads : dict of str to bytes
        Arrays of the record by SHA-256.
    files : dict of str to bytes
        Share file by aggregator; empty for a contribution that is published alone.
    """
    if entry.round:
        notice, files = rounds.give(model.exchange, entry, numbers, spent, key)
        return notice, {}, files
    sigma = vector.noise_units(entry.epsilon, entry.delta, model.size)
    if sigma:
        numbers = numbers + discrete_gaussian(sigma, len(numbers))
    data = save_arrays({rounds.NUMBERS: numbers})
    contribution = records.make(
        Contribution,
        entry.site,
        entry.number,
        (model.exchange.root.id,),
        key,
        payload=sha256(data),
        grid=model.grid,
        variance=str(sigma**2),
        **entry.budget_fields(spent),
    )
    return contribution, {contribution.payload: data}, {}


# -- checks of the people --------------------------------------------------------------------------
def own_features(model: "ContributionModel", people: Cohort) -> np.ndarray:
    """Return the features of a hospital's people, after checking that they fit the base model.

    Parameters
    ----------
    model : ContributionModel
    people : Cohort
        People of one hospital.

    Returns
    -------
    ndarray of shape (n, p)
        Confounds removed.

    Raises
    ------
    DataError
        If scans or covariates cannot be used, or somebody is among the public people.
    """
    # of more than two classes, a hospital may lack some
    needs_all_classes = people.target.kind != "more classes"
    require_valid(people, n_rois=model.n_rois, to_split=needs_all_classes)
    with at(f"site {' and '.join(repr(s) for s in people.site_names)}"):
        ids = people.subject_id.tolist()
        model.base_model.require_covariates(people.covariates, ids)
        x = model.base_model.features(people.fc, people.covariates)
        if public := model.base_model.public_among(ids, x):
            raise DataError(
                f"{len(public)} of its people are among the public ones (first: "
                f"{'; '.join(public[:5])}).",
                do="Leave them out (--leave-out ID), or make a base model without their site "
                "(--without). If they are other people with the same ids, put the name of the "
                "site before each id; where a number has five digits or more, also shorten it "
                "(NYU_001).",
            )
        model.base_model.require_alike(x)
    return x


def _require_known(model: "ContributionModel", site: str, ledger: Ledger) -> None:
    """Raise `ConfigError` if the file shows a contribution of the site that its ledger lacks.

    Withdrawn contributions count, too: their budget stays spent.

    Parameters
    ----------
    model : ContributionModel
    site : str
    ledger : Ledger
    """
    known = {entry.commitment for entry in ledger.every_entry}
    for commitment, title in _shown(model.exchange, site):
        if commitment not in known:
            raise ConfigError(
                f"the file shows the {title}, which {ledger.path} does not list. The budget "
                "that its people have spent is therefore unknown.",
                do="Name the ledger with that entry by --ledger, or restore the newest copy of it.",
            )


def _shown(exchange: "Exchange", site: str) -> Iterator[tuple[str, str]]:
    """Yield commitment and title of each contribution of a site that a file shows.

    Parameters
    ----------
    exchange : Exchange
    site : str

    Yields
    ------
    commitment : str
    title : str
    """
    for record in exchange.records:
        if record.site == site and record.committed:
            yield record.committed, record.title
    for withdrawal in exchange.of(Withdrawal, site):
        for taken in withdrawal.takes:
            title = f"withdrawn {taken.kind} {taken.number} of '{site}'"
            yield taken.commitment, title


def require_new(model: "ContributionModel", who: People, ledger: Ledger) -> None:
    """Raise `ConfigError` if people are, or may come to be, in the model already.

    They would count twice. Entries whose contribution was withdrawn do not matter, nor do those of a
    round that is void or was closed without this hospital. A round that is still open may be published,
    so that its entry does matter.

    Parameters
    ----------
    model : ContributionModel
    who : tuple of Person
        The people to contribute.
    ledger : Ledger
    """
    counting = [entry for entry in ledger.entries if _may_count(model, entry)]
    twice = int(ledger.holds(who, {entry.commitment for entry in counting}).sum())
    if not twice:
        return
    names = sorted({f"'{entry.round}'" for entry in counting if entry.round})
    rounds_named = f" (rounds: {', '.join(names)})" if names else ""
    raise ConfigError(
        f"{twice} of these {len(who)} people were contributed before to this base model, by id "
        f"or by scan{rounds_named}.",
        where=ledger.path,
        do="Contribute other people, or withdraw the earlier contribution first "
        "(`fcforge consortium withdraw`); its budget stays spent. If its round is void or was "
        "closed without you, give the file that shows it with --state.",
    )


def _may_count(model: "ContributionModel", entry: LedgerEntry) -> bool:
    """Return whether the contribution of a ledger entry is in the model, or may come to be.

    Parameters
    ----------
    model : ContributionModel
    entry : LedgerEntry
    """
    exchange = model.exchange
    if exchange.root.id not in entry.seen:
        return False  # another base model, or a chain
    withdrawn = {
        taken.commitment
        for withdrawal in exchange.of(Withdrawal, entry.site)
        for taken in withdrawal.takes
    }
    if entry.commitment in withdrawn:
        return False
    for each in model.rounds:
        if entry.round and each.name == entry.round:
            members = {member.commitment for member in each.members}
            came_too_late = each.closed and entry.commitment not in members
            return not (each.void or came_too_late)
    return True  # published alone, or in a round that nobody has closed yet


def counted_commitments(model: "ContributionModel") -> set[str]:
    """Return the commitments of all contributions that are in the model, alone or in a round."""
    in_rounds = {
        member.commitment
        for each in model.rounds
        if each.published
        for member in each.members
    }
    alone = {record.commitment for record in model.exchange.of(Contribution)}
    return alone | in_rounds


# -- a hospital's threshold ------------------------------------------------------------------------
def own_threshold(
    model: "ContributionModel", people: Cohort, site: str, ledger: Ledger
) -> Threshold:
    """Fit a hospital's own threshold on its people.

    Each person's log odds come from the model without that person's contributions, so that nobody is
    tested on the own scan. The ledger tells how often each person is in a contribution. What a person
    added to each is computed again; the noise stays.

    Parameters
    ----------
    model : ContributionModel
    people : Cohort
        People of the hospital, with diagnoses.
    site : str
    ledger : Ledger
        The ledger of this site; another site's does not list these people.

    Returns
    -------
    Threshold

    Raises
    ------
    DataError
        If the ledger belongs to another site, or the people do not fit the base model.
    """
    model.require_two_classes("a threshold is")
    owners = sorted({entry.site for entry in ledger.entries})
    if owners and site not in owners:
        raise DataError(
            f"the ledger belongs to {', '.join(owners)}, not to '{site}'.",
            where=ledger.path,
            do="Name the ledger that `fcforge consortium contribute` wrote for this site.",
        )
    x = own_features(model, people)
    counted = counted_commitments(model)
    who = people_in(people)
    times = np.zeros((len(who), 1), dtype=np.int64)
    for entry in ledger.entries:
        if entry.commitment in counted:
            times[same_people(who, entry.people)] += 1
    added = times * vector.contribution_rows(model.base_model.space, x, people.y)
    intercept, slope = fit_line(model.odds_without(x, added), people.y)
    return Threshold(
        intercept=round(intercept, 6),
        slope=round(slope, 6),
        people=len(people),
        exchange=model.exchange.id,
        site=site,
    )
