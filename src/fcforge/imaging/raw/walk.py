"""Preprocess subject after subject: one scan in memory, done ones skipped, trouble in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError, FCForgeError
from fcforge.imaging.app import SURPRISES, Outcome, Say, one_line
from fcforge.imaging.outputs import (
    fingerprint_of,
    refuse_foreign,
    software,
    write_json,
    write_table,
)
from fcforge.imaging.people import find_people
from fcforge.imaging.raw.files import RawRun, find_raw
from fcforge.imaging.raw.pipeline import Preprocessed, Recipe, output_path, preprocess_run
from fcforge.writing import write_text

PreprocessPage = Callable[[str, Sequence[Any], Mapping[str, Any]], str]
"""Makes the quality page of (subject, runs, facts); given from above."""


def preprocess_all(
    root: Path,
    out: Path,
    recipe: Recipe,
    *,
    labels: Sequence[str],
    page: PreprocessPage | None,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
    say: Say,
) -> Outcome:
    """Every raw run below `root` to MNI space; see `commands.preprocess_command`."""
    refuse_foreign(out, root)
    runs = find_raw(root)
    people = find_people(root)
    named = {label.removeprefix("sub-") for label in labels}
    wanted = sorted(named or {*people.rows, *(run.source.subject for run in runs)})
    out.mkdir(parents=True, exist_ok=True)
    _describe_dataset(out, root)
    if people.path is not None:  # `fcforge fc` looks for it beside the derivatives
        shutil.copyfile(people.path, out / people.path.name)
    made: list[str] = []
    kept: list[str] = []
    failed: list[tuple[str, str]] = []
    for subject in progress(wanted, len(wanted)):
        own = [run for run in runs if run.source.subject == subject]
        try:
            (made if _subject(subject, own, out, recipe, page, say) else kept).append(subject)
        except (FCForgeError, *SURPRISES) as error:
            failed.append((f"sub-{subject}", one_line(error)))
            say(f"sub-{subject} failed: {one_line(error)}")
    write_table(out / "logs" / "failed.tsv", ["participant_id", "reason"], failed)
    return Outcome(tuple(made), tuple(kept), tuple(failed))


def _subject(
    subject: str,
    runs: list[RawRun],
    out: Path,
    recipe: Recipe,
    page: PreprocessPage | None,
    say: Say,
) -> bool:
    if not runs:
        raise DataError("is listed, but there is no scan of it.")
    results = []
    for run in runs:
        paths = [run.source.path, *([run.reverse] if run.reverse else [])]
        key = fingerprint_of(paths, [asdict(recipe), asdict(run)])
        if not _is_done(output_path(out, run), key):
            results.append(preprocess_run(run, out, recipe, key))
            if results[-1].done["slice_timing"] == "not done":
                say(f"sub-{subject}: no slice times known, slice timing skipped")
    if results and page is not None:
        write_text(out / f"sub-{subject}.html", page(f"sub-{subject}", *_page(results)))
    return bool(results)


def _is_done(path: Path, key: str) -> bool:
    side = path.with_name(path.name.replace(".nii.gz", ".json"))
    if not (path.exists() and side.exists()):
        return False
    try:
        return json.loads(side.read_text()).get("Fingerprint") == key
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False


def _page(results: list[Preprocessed]) -> tuple[list[Any], dict[str, str]]:
    """Pictures and facts of the quality page."""
    facts = {
        f"{step}, run {i}" if len(results) > 1 else step: _words(what)
        for i, result in enumerate(results, 1)
        for step, what in result.done.items()
    }
    runs = [(r.path.name, r.parameters, r.mean, _outlines(r)) for r in results]
    return runs, facts


def _words(what: Any) -> str:
    if not isinstance(what, dict):
        return str(what)
    return "; ".join(f"{k}: {f'{v:.3g}' if isinstance(v, float) else v}" for k, v in what.items())


def _outlines(result: Preprocessed) -> np.ndarray:
    """Borders between ROIs on the output grid; nothing where no atlas is installed."""
    from fcforge.imaging.atlas import load_atlas

    try:
        grid = load_atlas("AAL116").on_grid(result.mean.shape, result.affine)
    except DataError:
        return np.zeros(result.mean.shape, dtype=bool)
    edges = np.zeros(grid.shape, dtype=bool)
    edges[1:] |= grid[1:] != grid[:-1]
    edges[:, 1:] |= grid[:, 1:] != grid[:, :-1]
    return edges


def _describe_dataset(out: Path, source: Path) -> None:
    write_json(
        out / "dataset_description.json",
        {
            "Name": "fcforge preprocess",
            "BIDSVersion": "1.10.0",
            "DatasetType": "derivative",
            # Laid out as fMRIPrep's, so that tools for fMRIPrep's output read it.
            "GeneratedBy": [
                {
                    "Name": "fcforge preprocess (fMRIPrep layout)",
                    "Version": software()["fcforge"],
                }
            ],
            "SourceDatasets": [{"URL": str(source)}],
        },
    )
