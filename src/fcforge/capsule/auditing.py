"""An audit as ``fcforge audit`` asks: of generators on a site, or of a capsule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fcforge.capsule.audit import audit_capsule, site_as_learned
from fcforge.capsule.container import require_place
from fcforge.capsule.contents import Capsule
from fcforge.capsule.opening import open_trusted
from fcforge.capsule.receipts import read_receipt, receipt_of
from fcforge.capsule.requests import AuditRequest
from fcforge.capsule.sealing import require_own_audit
from fcforge.capsule.signing import read_private
from fcforge.errors import ConfigError
from fcforge.studies.audit_inputs import audit_site, load_sites, read_halves
from fcforge.studies.audit_result import Audit, AuditPlan
from fcforge.types import FCBatch


def audit_as_asked(
    request: AuditRequest, say: Callable[[str], Any] = lambda text: None
) -> tuple[Audit, Capsule | None]:
    """The audit, and the capsule it is of where it is of one."""
    _check(request)
    plan = AuditPlan(worlds=request.worlds, multiple=request.multiple, seed=request.seed)
    cohort = load_sites(request.data, request.site, request.kind, request.positive)
    if request.capsule is None:
        audit = audit_site(
            cohort,
            request.generator,
            plan,
            halves=request.halves,
            device=request.device,
            say=say,
        )
        return audit, None
    capsule = _opened(request, request.capsule)
    others = None
    if request.reference is not None:
        people = load_sites(request.reference, (), request.kind)
        others = FCBatch.from_numpy(people.fc, people.y)
    site = site_as_learned(capsule, cohort, request.site[0])
    first = read_halves(request.halves)[0] if request.halves else None
    place = _receipt_file(request)
    receipt = read_receipt(place) if place is not None else None
    audit = audit_capsule(capsule, site, receipt, reference=others, other=first, plan=plan)
    return audit, capsule


def _opened(request: AuditRequest, path: Path) -> Capsule:
    """The capsule; an audit that could not be recorded is refused before it is made."""
    capsule = open_trusted(path, request.trust, request.signature_required)
    if request.record is not None:
        key = read_private(request.sign) if request.sign is not None else None
        require_own_audit(capsule.entries, request.site[0], key)
    return capsule


def _receipt_file(request: AuditRequest) -> Path | None:
    """The receipt asked for, else the one beside the capsule, if it is there."""
    if request.local is not None or request.capsule is None:
        return request.local
    beside = receipt_of(request.capsule)
    return beside if beside.is_file() else None


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
