"""What an audit of generators reads: sites, halves of runs, generators by name."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcforge.errors import DataError
from fcforge.generators import make_generator
from fcforge.graphs import from_edges
from fcforge.imaging.matrix_files import read_npz
from fcforge.sites import Cohort
from fcforge.studies.audit import audit_generators
from fcforge.studies.audit_result import Audit, AuditPlan
from fcforge.types import Component, FCBatch

HALVES = ("subject_id", "fc_first", "fc_second")


def read_halves(
    path: str | Path,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """FC (R, R) by subject id of the first and of the second half of each run.

    The file is an .npz with ``subject_id`` (n,) and ``fc_first``, ``fc_second`` (n, E), upper
    triangles row by row; nothing in it is unpickled.
    """
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
    fc = (
        from_edges(torch.from_numpy(half.astype(np.float32)))
        for half in (first, second)
    )
    one, two = (dict(zip(names, half, strict=True)) for half in fc)
    return one, two


def parse_generator(text: str) -> Component:
    """Generator of ``name`` or ``name:key=value,key=value`` (values as JSON).

    Examples
    --------
    >>> parse_generator("corr_gauss:rank=8").params
    {'rank': 8}
    """
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
    return component


def audit_site(
    cohort: Cohort,
    generators: Sequence[str],
    plan: AuditPlan,
    *,
    halves: str | Path | None = None,
    device: str = "cpu",
    say: Callable[[str], Any] = lambda text: None,
) -> Audit:
    """Audit generators on all subjects of a cohort as one site.

    With `halves` the generators are fitted on the second half of each run, and the fingerprinting
    attacker holds the first.
    """
    batch = FCBatch.from_numpy(cohort.fc, cohort.y)
    other = None
    if halves is not None:
        first, second = read_halves(halves)
        keep = np.array([s in first for s in cohort.subject_id.tolist()])
        if not keep.any():
            raise DataError("has none of the site's subjects.", where=str(halves))
        ids = cohort.subject_id[keep].tolist()
        other = torch.stack([first[s] for s in ids])
        y = batch.y[torch.from_numpy(keep)]
        batch = FCBatch(torch.stack([second[s] for s in ids]), y)
    rows = {text: parse_generator(text) for text in generators}
    audit = audit_generators(
        rows, batch, other=other, plan=plan, device=device, say=say
    )
    sites = " + ".join(cohort.site_names)
    about = {
        "what": f"generators at {sites}",
        "site": sites,
        "halves": halves is not None,
    }
    return replace(audit, about={**audit.about, **about})
