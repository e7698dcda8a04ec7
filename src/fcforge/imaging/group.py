"""The group's table: a row for every subject, what is odd about it, what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.imaging.outputs import write_table
from fcforge.imaging.people import ParticipantTable
from fcforge.imaging.sources import read_json, sidecar_of

Row = Mapping[str, Any]
OUTLIER_SD = 3.0


def participant_rows(out: Path, files: Mapping[str, Path], people: ParticipantTable) -> list[Row]:
    """Rows of participants.tsv: the user's columns, and what the sidecars of FC files say.

    Parameters
    ----------
    out : Path
        Output folder.
    files : mapping of subject to FC file
        Subjects whose FC has no sidecar are not finished and left out.
    people : ParticipantTable
    """
    rows: list[Row] = []
    for subject, path in files.items():
        side = read_json(sidecar_of(path))
        if not side:
            continue
        made, known = _from_sidecar(side), people.of(subject)
        rows.append(
            {
                "participant_id": path.relative_to(out).parts[0],
                "original_id": subject,
                **{k: v for k, v in known.items() if k not in made or made[k] == "n/a"},
                **{k: v for k, v in made.items() if not (v == "n/a" and k in known)},
                "file": str(path.relative_to(out)),
            }
        )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return [{c: row.get(c, "n/a") for c in columns} for row in rows]


def _from_sidecar(side: Mapping[str, Any]) -> dict[str, Any]:
    def text(value: float | None) -> str:
        return "n/a" if value is None else f"{value:.4g}"

    return {
        "mean_fd": text(side["MeanFD"]),
        "n_volumes": side["Volumes"],
        "dof": text(side["DegreesOfFreedom"]),
        "tr": text(side["RepetitionTime"]),
        "mean_fc": text(side["MeanFC"]),
        "n_empty_rois": len(side["EmptyROIs"]),
        "min_coverage": text(side["MinCoverage"]),
    }


def write_failed(
    out: Path, failed: Sequence[tuple[str, str]], asked: Iterable[str]
) -> list[tuple[str, str]]:
    """Write logs/failed.tsv; failures of earlier runs stay for subjects not asked for now."""
    log = out / "logs" / "failed.tsv"
    lines = log.read_text().splitlines()[1:] if log.exists() else []
    before = [(who, why) for who, tab, why in (line.partition("\t") for line in lines) if tab]
    now = {f"sub-{subject}" for subject in asked}
    rows = [*(row for row in before if row[0] not in now), *failed]
    write_table(log, ["participant_id", "reason"], rows)
    return rows


def site_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Subjects, diagnoses and TRs of each site."""
    found = []
    for site in sorted({str(r["site"]) for r in rows}):
        own = [r for r in rows if str(r["site"]) == site]
        diagnoses = [str(r.get("diagnosis", r.get("dx_group", "n/a"))) for r in own]
        counts = [f"{d}: {diagnoses.count(d)}" for d in sorted(set(diagnoses))]
        trs = ", ".join(sorted({str(r["tr"]) for r in own}))
        found.append({"site": site, "n": len(own), "diagnosis": ", ".join(counts), "tr": trs})
    return found


def mixed_trs(rows: Sequence[Row]) -> list[str]:
    """A line for every site whose subjects were scanned with different TRs."""
    return [
        f"site {s['site']} mixes TRs ({s['tr']} s): its subjects were not scanned alike."
        for s in site_rows(rows)
        if ", " in s["tr"]
    ]


def outliers(rows: Sequence[Row]) -> list[str]:
    """A line for every subject whose mean FC is far from the others' (failed normalisation?)."""
    values = numbers(rows, "mean_fc")
    if len(values) < 8 or not np.isfinite(values).all() or values.std() == 0:
        return []
    median = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - median)) or values.std()
    return [
        f"{rows[i]['participant_id']}: mean FC {values[i]:.2f} is far from the group's "
        f"median {median:.2f}; look at its page."
        for i in np.flatnonzero(np.abs(values - median) > OUTLIER_SD * spread)
    ]


def numbers(rows: Sequence[Row], column: str) -> np.ndarray:
    """Column as numbers, NaN where it holds none, (n_rows,)."""
    import pandas as pd

    return pd.to_numeric(pd.Series([r[column] for r in rows]), errors="coerce").to_numpy(float)
