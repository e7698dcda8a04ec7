"""An audit as ``fcforge audit`` asks: of generators on a site, of a capsule, or of a release."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fcforge.capsule.audit import audit_capsule, site_as_learned
from fcforge.capsule.container import require_place
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import read_home, receipt_of
from fcforge.capsule.keys import read_private
from fcforge.capsule.opening import Trust
from fcforge.capsule.requests import AuditRequest
from fcforge.capsule.sealing import require_own_audit, seal, with_audit
from fcforge.consortium.audit import PLAN, audit_release
from fcforge.consortium.files import write_consortium
from fcforge.consortium.members import Consortium, require_key
from fcforge.consortium.predicting import open_either
from fcforge.errors import ConfigError
from fcforge.sites.cohort import Cohort
from fcforge.studies.audit_inputs import audit_site, load_sites, read_halves
from fcforge.studies.audit_result import Audit, AuditPlan
from fcforge.types import FCBatch


def audit_as_asked(request: AuditRequest, say: Callable[[str], Any] = lambda text: None) -> Audit:
    """The audit; where `request.record` says so, the capsule is sealed again with it inside."""
    _check(request)
    plan = AuditPlan(worlds=request.worlds, multiple=request.multiple, seed=request.seed)
    if request.capsule is None:
        where = request.device
        cohort, halves = _data(request), request.halves
        return audit_site(cohort, request.generator, plan, halves=halves, device=where, say=say)
    opened = open_either(request.capsule, Trust.of(request.trust, request.signature_required))
    key = read_private(request.sign) if request.sign is not None else None
    if isinstance(opened, Consortium):
        return _of_release(request, opened, key)
    if request.record is not None:  # before minutes of attacks
        require_own_audit(opened.entries, request.site[0], key)
    found = _of_chain(request, opened, plan)
    if request.record is not None:
        seal(with_audit(opened, found.to_ledger()), request.record, key=key)
    return found


def _of_chain(request: AuditRequest, capsule: Capsule, plan: AuditPlan) -> Audit:
    """Attack a chained capsule; its receipt is beside it unless another is named."""
    others = None
    if request.reference is not None:
        people = load_sites(request.reference, (), request.kind)
        others = FCBatch.from_numpy(people.fc, people.y)
    site = site_as_learned(capsule, _data(request), request.site[0])
    first = read_halves(request.halves)[0] if request.halves else None
    place = request.local or receipt_of(str(request.capsule))
    home = read_home(place, must_exist=request.local is not None)
    return audit_capsule(capsule, site, home, reference=others, other=first, plan=plan)


def _of_release(request: AuditRequest, group: Consortium, key: Any) -> Audit:
    """Attack a release of a consortium, and record it where that is asked."""
    if request.local is None:
        raise ConfigError(
            "an audit of a release needs the home file of its site.",
            do="Give --local home.json, as `fcforge learn` wrote it.",
        )
    for name in ("halves", "reference"):
        if getattr(request, name):
            raise ConfigError(f"--{name} does not fit a capsule of releases.", do="Leave it out.")
    site, home = request.site[0], read_home(request.local, must_exist=True)
    if request.record is not None:
        require_key(group.of_site(site)[0], key, "audit")
    found = audit_release(group, _data(request), site, home, replace(PLAN, seed=request.seed))
    if request.record is not None:
        write_consortium(group.audited(found, key), request.record)
    return found


def _data(request: AuditRequest) -> Cohort:
    return load_sites(request.data, request.site, request.kind, request.positive)


def _check(request: AuditRequest) -> None:
    """Raise before minutes of attacks, not after them, where something is missing."""
    if bool(request.generator) == (request.capsule is not None):
        raise ConfigError(
            "say what to audit.", do="Give --generator NAME (may be repeated) or --capsule FILE."
        )
    if not request.site or (request.capsule is not None and len(request.site) != 1):
        raise ConfigError("name the site.", do="Give --site NAME; one site for a capsule.")
    if request.record is not None:
        if request.capsule is None:
            raise ConfigError("--record was given without --capsule.", do="Add --capsule FILE.")
        require_place(request.record)
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)
