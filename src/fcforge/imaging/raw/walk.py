"""`fcforge preprocess`: every raw scan of a folder to MNI space."""

import shutil
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.options import PreprocessRequest
from fcforge.imaging.outputs import (
    fingerprint_of,
    is_done,
    refuse_foreign,
    write_description,
    write_table,
)
from fcforge.imaging.people import Outcome, Progress, Say, find_people, no_progress, walk, wanted
from fcforge.imaging.raw.files import RawRun, find_raw
from fcforge.imaging.raw.pipeline import Preprocessed, output_path, preprocess_run
from fcforge.writing import write_text


class RawPages(Protocol):
    """Draws the quality page of a subject; returns HTML."""

    def preprocess_page(
        self,
        subject: str,
        runs: list[tuple[str, np.ndarray, np.ndarray, np.ndarray]],
        facts: dict[str, Any],
    ) -> str:
        """Motion and registration of one subject's raw runs."""


def preprocess_folder(
    request: PreprocessRequest,
    *,
    say: Say,
    progress: Progress = no_progress,
    pages: RawPages | None = None,
) -> Outcome:
    """Every raw run below ``request.source`` to MNI space, with confounds for ``fcforge fc``.

    Parameters are those of `fcforge.imaging.app.fc_folder`.
    """
    say("a basic path: T1w images are not used; where fMRIPrep can be run, prefer its output")
    out, pages = request.out, pages if request.report else None
    refuse_foreign(out, request.source)
    runs = find_raw(request.source)
    people = find_people(request.source)
    subjects = wanted(request.participant_label, people.rows, (r.source.subject for r in runs))
    out.mkdir(parents=True, exist_ok=True)
    # Laid out as fMRIPrep's, so that tools for fMRIPrep's output read it.
    layout = "fcforge preprocess (fMRIPrep layout)"
    write_description(out, request.source, "fcforge preprocess", layout)
    if people.path is not None:  # `fcforge fc` looks for it beside the derivatives
        shutil.copyfile(people.path, out / people.path.name)

    def make(subject: str) -> bool:
        return _subject([r for r in runs if r.source.subject == subject], request, pages, say)

    outcome = walk(subjects, make, progress, say)
    write_table(out / "logs" / "failed.tsv", ["participant_id", "reason"], outcome.failed)
    for line in outcome.summary(out, "are preprocessed"):
        say(line)
    return outcome


def _subject(
    runs: list[RawRun], request: PreprocessRequest, pages: RawPages | None, say: Say
) -> bool:
    if not runs:
        raise DataError("is listed, but there is no scan of it.")
    subject, results = f"sub-{runs[0].source.subject}", []
    for run in runs:
        paths = [run.source.path, *([run.reverse] if run.reverse else [])]
        key = fingerprint_of(paths, [request.recorded, asdict(run)])
        if not is_done(output_path(request.out, run), key):
            results.append(preprocess_run(run, request, key))
            if results[-1].done["slice_timing"] == "not done":
                say(f"{subject}: no slice times known, slice timing skipped")
    if results and pages:
        shown = [(r.path.name, r.parameters, r.mean, _outlines(r)) for r in results]
        facts = {
            f"{step}, run {i}" if len(results) > 1 else step: what
            for i, result in enumerate(results, 1)
            for step, what in result.done.items()
        }
        page = pages.preprocess_page(subject, shown, facts)
        write_text(request.out / f"{subject}.html", page)
    return bool(results)


def _outlines(result: Preprocessed) -> np.ndarray:
    """Borders between ROIs on the output grid; nothing where no atlas is installed."""
    from fcforge.imaging.atlases import load_atlas

    try:
        grid = load_atlas("AAL116").on_grid(result.mean.shape, result.affine)
    except DataError:
        return np.zeros(result.mean.shape, dtype=bool)
    edges = np.zeros(grid.shape, dtype=bool)
    edges[1:] |= grid[1:] != grid[:-1]
    edges[:, 1:] |= grid[:, 1:] != grid[:, :-1]
    return edges
