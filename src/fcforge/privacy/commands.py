"""What `fcforge audit` does, without a command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import ConfigError, DataError

if TYPE_CHECKING:
    import torch

    from fcforge.capsule.contents import Capsule
    from fcforge.sites import Cohort
    from fcforge.studies.audit_result import Audit, Plan
    from fcforge.types import FCBatch

Say = Callable[[str], Any]
HALVES = ("subject_id", "fc_first", "fc_second")


def audit_command(
    *,
    data: str | Path,
    sites: Sequence[str],
    generators: Sequence[str] = (),
    capsule: str | Path | None = None,
    halves: str | Path | None = None,
    reference: str | Path | None = None,
    record: str | Path | None = None,
    sign: str | Path | None = None,
    trust: Sequence[str | Path] = (),
    kind: str = "auto",
    worlds: int = 8,
    multiple: int = 4,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    as_json: bool = False,
    say: Say = lambda text: None,
) -> str:
    """Audit generators on a site, or a capsule against a hospital's own data.

    Parameters
    ----------
    data : path
        The hospital's data: .npz file or folder.
    sites : sequence of str
        Sites of `data`; several are audited as one (generators only).
    generators : sequence of str
        Names, with settings as ``name:key=value,key=value``.
    capsule : path, optional
        Audit this capsule instead.
    halves : path, optional
        .npz with ``subject_id, fc_first, fc_second``: two halves of each run. Generators are
        then fitted on the second halves and the fingerprinting attacker holds the first.
    reference : path, optional
        Data of other people, the attacker's reference (capsules only).
    record : path, optional
        Seal the capsule again with the audit in its ledger.
    sign, trust
        Keys for `record` and for opening.
    worlds, multiple, seed
        See `fcforge.studies.audit_result.Plan`.
    device : str
        Where generators are fitted.
    out : path, optional
        Folder for audit.json and audit.md.
    as_json : bool
        Return JSON instead of a table.

    Returns
    -------
    str
        What to print.
    """
    from fcforge.report import audits as words
    from fcforge.studies.audit_result import Plan

    _check_choice(sites, generators, capsule, record)
    _check_places(record, out)
    plan = Plan(worlds=worlds, multiple=multiple, seed=seed)
    cohort = load_sites(data, sites, kind)
    if capsule is None:
        audit = _audit_generators(cohort, sites, generators, halves, plan, device, say)
    else:
        opened = _open(capsule, trust)
        people = _batch(load_sites(reference, (), kind)) if reference is not None else None
        audit = _audit_capsule(opened, cohort, sites[0], halves, people, plan)
        if record is not None:
            _record(opened, audit, record, sign)
            say(f"sealed {record} with the audit in its ledger.")
    if out is not None:
        write_files(audit, Path(out))
        say(f"wrote {out}/audit.json and audit.md")
    return words.as_json(audit) if as_json else words.as_text(audit)


def _check_choice(
    sites: Sequence[str], generators: Sequence[str], capsule: Any, record: Any
) -> None:
    if bool(generators) == (capsule is not None):
        raise ConfigError(
            "say what to audit.", do="Give --generator NAME (may be repeated) or --capsule FILE."
        )
    if not sites or (capsule is not None and len(sites) != 1):
        raise ConfigError("name the site.", do="Give --site NAME; one site for a capsule.")
    if record is not None and capsule is None:
        raise ConfigError("--record was given without --capsule.", do="Add --capsule FILE.")


def _check_places(record: str | Path | None, out: str | Path | None) -> None:
    """Raise before minutes of attacks, not after them, where the results cannot be written."""
    from fcforge.capsule.container import require_place

    if record is not None:
        require_place(record)
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)


def load_sites(data: str | Path, sites: Sequence[str], kind: str = "auto") -> Cohort:
    """Subjects of some sites, checked; of all when none is named, whoever they are."""
    from fcforge.sites import load_dataset, require_valid
    from fcforge.types import Component

    named = {"sites": list(sites)} if sites else {}
    cohort = load_dataset(Component("folder", {"path": str(data), "kind": kind, **named}))
    if sites:
        require_valid(cohort)
    return cohort


def _batch(cohort: Cohort) -> FCBatch:
    from fcforge.types import FCBatch

    return FCBatch.from_numpy(cohort.fc, cohort.y)


def read_halves(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """FC (R, R) by subject id of the first and of the second half of each run.

    The file is an .npz with ``subject_id`` (n,) and ``fc_first``, ``fc_second`` (n, E), upper
    triangles row by row; nothing in it is unpickled.
    """
    import torch

    from fcforge.graphs import from_edges
    from fcforge.imaging.matrix_files import read_npz

    arrays = read_npz(path)
    missing = [name for name in HALVES if name not in arrays]
    if missing:
        raise DataError(
            f"holds no halves of runs: no {', '.join(missing)}.",
            where=str(path),
            do=f"It must be an .npz with {', '.join(HALVES)}.",
        )
    ids, first, second = (arrays[name] for name in HALVES)
    if first.ndim != 2 or first.shape != second.shape or len(ids) != len(first):
        raise DataError(
            f"has shapes {ids.shape}, {first.shape}, {second.shape}.",
            where=str(path),
            do="One row of edges per subject in both halves.",
        )
    names = [str(i) for i in ids.tolist()]
    found = []
    for half in (first, second):
        fc = from_edges(torch.from_numpy(half.astype(np.float32)))
        found.append(dict(zip(names, fc, strict=True)))
    return found[0], found[1]


def parse_generator(text: str) -> tuple[str, Any]:
    """Row name and Component of ``name`` or ``name:key=value,key=value`` (values as JSON).

    Examples
    --------
    >>> parse_generator("corr_gauss:rank=8")[1].params
    {'rank': 8}
    """
    from fcforge.generators import make_generator
    from fcforge.types import Component

    name, _, rest = text.partition(":")
    params: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            params[key.strip()] = json.loads(value)
        except ValueError:
            params[key.strip()] = value
    component = Component(name, params)
    make_generator(component)
    return text, component


def _audit_generators(
    cohort: Cohort,
    sites: Sequence[str],
    generators: Sequence[str],
    halves: str | Path | None,
    plan: Plan,
    device: str,
    say: Say,
) -> Audit:
    from dataclasses import replace

    import torch

    from fcforge.studies.audit import audit_generators
    from fcforge.types import FCBatch

    batch, other = _batch(cohort), None
    if halves is not None:
        first, second = read_halves(halves)
        keep = np.array([s in first for s in cohort.subject_id.tolist()])
        if not keep.any():
            raise DataError("has none of the site's subjects.", where=str(halves))
        ids = cohort.subject_id[keep].tolist()
        other = torch.stack([first[s] for s in ids])
        labels = batch.y[torch.from_numpy(keep)]
        batch = FCBatch(torch.stack([second[s] for s in ids]), labels)
    rows = dict(parse_generator(text) for text in generators)
    audit = audit_generators(rows, batch, other=other, plan=plan, device=device, say=say)
    about = {"what": f"generators at {' + '.join(sites)}", "site": " + ".join(sites)}
    return replace(audit, about={**audit.about, **about, "halves": halves is not None})


def _open(path: str | Path, trust: Sequence[str | Path]) -> Capsule:
    from fcforge.capsule.commands import open_trusted

    return open_trusted(path, trust)


def _audit_capsule(
    capsule: Capsule,
    cohort: Cohort,
    site_name: str,
    halves: str | Path | None,
    reference: FCBatch | None,
    plan: Plan,
) -> Audit:
    from fcforge.capsule.audit import audit_capsule, site_as_learned

    site = site_as_learned(capsule, cohort, site_name)
    other: Mapping[str, torch.Tensor] | None = read_halves(halves)[0] if halves else None
    return audit_capsule(capsule, site, reference=reference, other=other, plan=plan)


def _record(capsule: Capsule, audit: Audit, out: str | Path, sign: str | Path | None) -> None:
    from fcforge.capsule import seal, with_audit
    from fcforge.capsule.signing import read_private
    from fcforge.report.audits import ledger_result

    key = read_private(sign) if sign is not None else None
    seal(with_audit(capsule, ledger_result(audit)), out, key=key)


def write_files(audit: Audit, folder: Path) -> None:
    """audit.json and audit.md in `folder`, each written whole or not at all."""
    from fcforge.report.audits import as_json, as_markdown
    from fcforge.writing import write_text

    write_text(folder / "audit.json", as_json(audit) + "\n")
    write_text(folder / "audit.md", as_markdown(audit))


def read_audit(path: str | Path) -> Audit:
    """An audit from its audit.json, e.g. for the report page."""
    from fcforge.studies.audit_result import Audit

    try:
        return Audit.from_json(json.loads(Path(path).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is no audit ({error}).", where=str(path)) from error
