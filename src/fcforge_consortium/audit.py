"""Audits: a hospital attacks what it gave, in either model, and may put on record what it found.

Attacks are the model's own (`Model.attack`). An audit that took members for outsiders would find
nothing and look reassuring: the private record must prove that these are the people.

What is put on record gives away nothing about how many people there were: rates in steps of 0.05,
areas in steps of 0.01, no interval, no count. (The lower limit of a rate that is 1 for n people is
:math:`0.025^{1/n}`, which is n.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.core.errors import ConfigError, DataError
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge.evaluation.privacy.audit_result import Audit, AuditPlan, AuditRow
from fcforge.evaluation.privacy.generator_audit import audit_generators
from fcforge_consortium.ledger.ledger import PrivateRecord
from fcforge_consortium.operations import people_for, private_place
from fcforge_consortium.options import AuditRequest
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer, Trust, read_signer
from fcforge_consortium.records.kinds import AttackRow
from fcforge_consortium.records.schema import site_name

AREAS = 0.01  # steps of recorded areas under a curve
RATES = 0.05  # of recorded rates: every number of people from 20 on gives every step


@dataclass(frozen=True)
class Attacked:
    """What a hospital attacks, and what the attacker holds.

    Attributes
    ----------
    site : str
    people : Cohort
        The hospital's own data.
    private : PrivateRecord
        Its receipts prove that they are the people who were learned.
    plan : AuditPlan
    reference : Cohort, optional
        People of a similar population who are not among them.
    """

    site: str
    people: Cohort
    private: PrivateRecord
    plan: AuditPlan
    reference: Cohort | None = None


def attack_rows(found: Audit) -> tuple[AttackRow, ...]:
    """An audit's rows as they are put on record."""
    return tuple(_row(found, row) for row in found.rows)


def _row(found: Audit, row: AuditRow) -> AttackRow:
    identified = row.identified
    return AttackRow(
        release=row.release,
        attack=row.attack,
        auc=_step(row.auc.value, AREAS),
        tpr_at_1pct_fpr=_step(row.tpr.value, RATES),
        identified=None if identified is None else _step(identified.value, RATES),
        beats_chance=found.beats_chance(row),
        reference=row.is_reference,
    )


def _step(value: float, step: float) -> float:
    return round(round(value / step) * step, 2)


def on_record(before: Exchange, found: Audit, site: str, key: Signer) -> Exchange:
    """The exchange with an audit by one of its hospitals.

    ``found.about["parents"]`` are the ids of what was attacked, the hospital's own first.
    """
    return before.recorded(
        records.Audit,
        site,
        key,
        found.about["parents"],
        what=found.about["what"],
        not_attacked=tuple(found.about.get("not_attacked", ())),
        rows=attack_rows(found),
    )


# -- as ``fcforge audit`` asks: of generators on a site, or of what a site gave ------------------
def audit_as_asked(
    request: AuditRequest, say: Callable[[str], Any] = lambda text: None
) -> Audit:
    """The audit; where `request.record` says so, the exchange is written with it inside."""
    _check(request)
    if request.state is not None:
        return _audit_file(request, request.state)
    request.require_for("generators")
    mine = load_people(request.data, request.site, **request.loading)
    return audit_generators(
        mine,
        request.generator,
        AuditPlan(seed=request.seed),
        halves=request.halves,
        device=request.device,
        say=say,
    )


def _audit_file(request: AuditRequest, path: Path) -> Audit:
    opened = exchange.open_exchange(path, Trust.asked(request))
    request.require_for(opened.root.kind)
    site = site_name(request.site[0])
    key = read_signer(request.sign)
    if request.record is not None:  # before minutes of attacks
        opened.require_author(site, key, "audit")
    others = None
    if request.reference is not None:
        loading = request.loading | {"leave_out": []}
        others = load_people(request.reference, (), **loading)
    asked = Attacked(
        site=site,
        people=people_for(opened, request, site),
        private=PrivateRecord.read(private_place(request)),
        plan=AuditPlan(seed=request.seed),
        reference=others,
    )
    found = opened.model.attack(asked)
    if request.record is not None:
        made = on_record(opened, found, site, key)
        exchange.save(made, request.record, made.of(records.Audit, site)[-1:])
    return found


def _check(request: AuditRequest) -> None:
    """Raise before minutes of attacks, not after them, where something is missing."""
    if bool(request.generator) == (request.state is not None):
        do = "Give --generator NAME (may be repeated) or an exchange file."
        raise ConfigError("say what to audit.", do=do)
    if not request.site or (request.state is not None and len(request.site) != 1):
        do = "Give --site NAME; one site for an exchange file."
        raise ConfigError("name the site.", do=do)
    if request.record is not None:
        archive.require_place(request.record)
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)


def require_given(model_sites: tuple[str, ...], site: str) -> None:
    """Raise `DataError` where a site gave nothing that could be attacked."""
    if site not in model_sites:
        known = ", ".join(model_sites) or "none"
        raise DataError(
            f"site '{site}' gave nothing to this exchange.", do=f"Sites: {known}."
        )
