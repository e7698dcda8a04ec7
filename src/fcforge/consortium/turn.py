"""What the commands of a consortium do with files: start, a hospital's turn, its threshold."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.capsule import container, keys, ledger, sealing
from fcforge.capsule.audit import audit_capsule, site_as_learned
from fcforge.capsule.contents import Capsule
from fcforge.capsule.home import Home, Threshold, read_home, receipt_of, write_own
from fcforge.consortium import files, predicting
from fcforge.consortium.audit import PLAN, audit_release
from fcforge.consortium.few_start import StartSettings
from fcforge.consortium.learning import Budget, Learned, learn
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import PublicStart, make_public
from fcforge.errors import ConfigError
from fcforge.progress import at_work
from fcforge.requests import AuditRequest, LearnRequest
from fcforge.runner.config_files import override
from fcforge.settings import make
from fcforge.sites import Cohort, load_dataset, load_people
from fcforge.studies.audit_inputs import audit_site, read_halves
from fcforge.studies.audit_result import Audit, AuditPlan
from fcforge.types import Component, FCBatch


def names_in(text: str) -> list[str]:
    """Names in a list with commas.

    Examples
    --------
    >>> names_in("NYU, UM"), names_in("")
    (['NYU', 'UM'], [])
    """
    return [name for part in text.split(",") if (name := part.strip())]


def start_file(
    dataset: Mapping[str, Any],
    sites: Sequence[str],
    remove: Sequence[str],
    out: Path,
    settings: Sequence[str] = (),
    overwrite: bool = False,
) -> PublicStart:
    """Make a start from public people and write it as a capsule without a release.

    Parameters
    ----------
    dataset : mapping
        Its name and settings, e.g. ``{"name": "folder", "path": "public.npz"}``.
    sites : sequence of str
        Public sites; may be empty for a user's own file, whose sites are then all public.
    remove : sequence of str
        Covariates to take out of every scan.
    out : Path
    settings : sequence of str
        ``start.axes=8``, ``dataset.quality=all``.
    overwrite : bool
    """
    container.require_place(out, overwrite=overwrite)
    given = override({"start": {}, "dataset": dict(dataset)}, settings)
    if set(given) != {"start", "dataset"}:
        raise ConfigError(
            f"--set {settings[0]}: only start.* and dataset.* can be set."
        )
    name = given["dataset"].pop("name")
    if not sites and name != "folder":
        what = f"dataset '{name}' needs --sites: which of its sites are public?"
        raise ConfigError(what, do="Name them, separated by commas.")
    if sites:
        given["dataset"]["sites"] = list(sites)
    cohort = load_dataset(Component(name, given["dataset"]))
    start = make_public(
        cohort, sites, remove, make(StartSettings, given["start"], "start")
    )
    files.write_consortium(Consortium(start), out, overwrite=overwrite)
    return start


def take_turn(
    request: LearnRequest,
    tell: Callable[[Learned], None] = lambda done: None,
    agree: Callable[[Consortium], Any] = lambda group: None,
) -> Learned:
    """Learn one site around a start: the release is written, and what stays at home.

    `agree` is called with what is about to be continued, and raises where it must not be; `tell`
    with what was found and what is about to be spent, before anything is written.

    The receipt is written first: should the disk fail in between, a release was counted that
    never left, not the other way round.
    """
    budget = _asked(request)
    container.require_place(request.out, overwrite=request.overwrite)
    group = files.read_consortium(str(request.state), sealing.Trust.of(request.trust))
    cohort = load_people(request.data, [request.site], request.kind, request.positive)
    home, place = _own_home(request, group)
    key = keys.read_private(request.sign) if request.sign is not None else None
    ledger.require_same_signing(
        [record.key for record in group.records], key is not None
    )
    agree(group)
    with at_work("making the release"):  # not while somebody is asked
        accept = request.accept_labels
        done = learn(
            group, cohort, request.site, home, budget, key, accept_labels=accept
        )
    tell(done)
    write_own(done.home, place)
    files.write_either(
        done.group, done.release, request.out, overwrite=request.overwrite
    )
    return done


def _asked(request: LearnRequest) -> Budget:
    """What is asked to be spent; `ConfigError` for options that do not fit a release."""
    odd = [
        *request.chosen,
        *(["allow_real_subjects"] if request.allow_real_subjects else []),
    ]
    if odd:
        what = f"--{odd[0].replace('_', '-')} is for chained capsules; the start has fixed it."
        raise ConfigError(what, do="Leave it out.")
    given = request.release
    if given.get("mechanism") == "none" and {"epsilon", "delta"} & set(given):
        do = "Leave --epsilon and --delta out, or use the gaussian mechanism."
        raise ConfigError(
            "--mechanism none (exact sums) has no epsilon or delta.", do=do
        )
    return Budget(
        **{k: v for k, v in given.items() if k not in ("local", "accept_labels")}
    )


def _own_home(request: LearnRequest, group: Consortium) -> tuple[Home, Path]:
    """The home file of a site and its place: by default beside the data, wherever a release goes.

    Refused where the capsule holds a release that it does not know.
    """
    site, name = request.site, re.sub(r"[^\w.-]", "_", request.site)
    place = request.local or request.data.resolve().parent / f"{name}.home.json"
    home = read_home(place)
    known = {receipt.commitment for receipt in home.receipts}
    if any(r.site == site and r.commitment not in known for r in group.releases):
        raise ConfigError(
            f"the capsule holds a release of site '{site}' that {place} does not know, so nobody "
            "can tell who has spent what.",
            do="Name the home file of that release with --local.",
        )
    return home, place


def withdraw_file(
    site: str, state: Path, out: Path, sign: Path | None, overwrite: bool = False
) -> Consortium:
    """Take a site's releases back; OUT is the capsule without them, or the record alone."""
    container.require_place(out, overwrite=overwrite)
    key = keys.read_private(sign) if sign is not None else None
    group = files.read_consortium(state, sealing.Trust.of(())).withdrawn(site, key)
    mine = [w for w in group.withdrawals if w.site == site]
    files.write_either(group, max(mine, key=lambda w: w.time), out, overwrite=overwrite)
    return group


def own_threshold(
    local: Path | None, capsule: Capsule | Consortium
) -> Threshold | None:
    """The threshold of a home file; `ConfigError` where it cannot be meant."""
    if local is not None and isinstance(capsule, Capsule):
        raise ConfigError("--local is for capsules of releases.", where=str(local))
    own = read_home(local, must_exist=True).threshold if local is not None else None
    if local is not None and own is None:
        raise ConfigError(
            "holds no threshold yet.", where=str(local), do="Learn a site first."
        )
    return own


# -- audits: of generators on a site, of a chained capsule, of a release --------------------------
def audit_as_asked(
    request: AuditRequest, say: Callable[[str], Any] = lambda text: None
) -> Audit:
    """The audit; where `request.record` says so, the capsule is sealed again with it inside."""
    _check(request)
    plan = AuditPlan(
        worlds=request.worlds, multiple=request.multiple, seed=request.seed
    )
    mine = load_people(request.data, request.site, request.kind, request.positive)
    if request.capsule is None:
        where, halves = request.device, request.halves
        return audit_site(
            mine, request.generator, plan, halves=halves, device=where, say=say
        )
    trust = sealing.Trust.of(request.trust, request.require_signature or None)
    opened = predicting.open_either(request.capsule, trust)
    key = keys.read_private(request.sign) if request.sign is not None else None
    if request.record is not None:  # before minutes of attacks
        site = request.site[0]
        if isinstance(opened, Capsule):
            ledger.require_same_signing(
                [line["key"] for line in opened.entries], key is not None
            )
        given = (
            opened.line(site)
            if isinstance(opened, Capsule)
            else vars(opened.of_site(site)[0])
        )
        ledger.require_author(site, given["key"], ledger.public_hex(key), "audit")
    if isinstance(opened, Consortium):
        return _of_release(request, opened, mine, key)
    found = _of_chain(request, opened, mine, plan)
    if request.record is not None:
        sealing.seal(
            sealing.with_audit(opened, found.to_ledger()), request.record, key=key
        )
    return found


def _of_chain(
    request: AuditRequest, capsule: Capsule, mine: Cohort, plan: AuditPlan
) -> Audit:
    """Attack a chained capsule; its receipt is beside it unless another is named."""
    others = None
    if request.reference is not None:
        people = load_people(request.reference, (), request.kind)
        others = FCBatch.from_numpy(people.fc, people.y)
    site = site_as_learned(capsule, mine, request.site[0])
    first = read_halves(request.halves)[0] if request.halves else None
    place = request.local or receipt_of(str(request.capsule))
    home = read_home(place, must_exist=request.local is not None)
    return audit_capsule(capsule, site, home, reference=others, other=first, plan=plan)


def _of_release(
    request: AuditRequest, group: Consortium, mine: Cohort, key: Any
) -> Audit:
    """Attack a release of a consortium, and record it where that is asked."""
    if request.local is None:
        do = "Give --local home.json, as `fcforge learn` wrote it."
        raise ConfigError(
            "an audit of a release needs the home file of its site.", do=do
        )
    for name in ("halves", "reference"):
        if getattr(request, name):
            raise ConfigError(
                f"--{name} does not fit a capsule of releases.", do="Leave it out."
            )
    home = read_home(request.local, must_exist=True)
    found = audit_release(
        group, mine, request.site[0], home, replace(PLAN, seed=request.seed)
    )
    if request.record is not None:
        files.write_consortium(group.audited(found, key), request.record)
    return found


def _check(request: AuditRequest) -> None:
    """Raise before minutes of attacks, not after them, where something is missing."""
    if bool(request.generator) == (request.capsule is not None):
        do = "Give --generator NAME (may be repeated) or --capsule FILE."
        raise ConfigError("say what to audit.", do=do)
    if not request.site or (request.capsule is not None and len(request.site) != 1):
        raise ConfigError(
            "name the site.", do="Give --site NAME; one site for a capsule."
        )
    if request.record is not None:
        if request.capsule is None:
            raise ConfigError(
                "--record was given without --capsule.", do="Add --capsule FILE."
            )
        container.require_place(request.record)
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)
