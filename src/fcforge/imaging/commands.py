"""The two imaging commands as plain functions; the command line mounts them (`imaging.cli`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fcforge.errors import FCForgeError, unknown_name
from fcforge.imaging.app import Outcome, Request, make_fc
from fcforge.imaging.denoise import make_denoise
from fcforge.imaging.extract import Settings
from fcforge.imaging.raw.pipeline import Recipe
from fcforge.imaging.raw.walk import preprocess_all
from fcforge.imaging.sources import Choice
from fcforge.report import quality

OK, SOME_FAILED, NOTHING_DONE = 0, 1, 2
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def fc_command(
    *,
    source: Path,
    out: Path,
    analysis_level: str = "participant",
    participant_label: Sequence[str] = (),
    atlas: str = "AAL116",
    atlas_image: Path | None = None,
    atlas_lut: Path | None = None,
    denoise: str = "simple",
    high_pass: float | None = 0.01,
    low_pass: float | None = 0.1,
    fd_threshold: float | None = None,
    std_dvars_threshold: float | None = None,
    layout: str = "auto",
    participants: Path | None = None,
    task: str = "",
    session: str = "",
    space: str = "",
    select: str = "",
    tr: float | None = None,
    drop: int = 0,
    columns: str | None = None,
    variable: str | None = None,
    min_coverage: float = 0.5,
    max_empty: float = 0.1,
    report: bool = True,
    progress: Progress | None = None,
    say: Callable[[str], None],
) -> int:
    """``fcforge fc IN OUT participant``: FC of every subject, in BIDS-derivatives names.

    Parameters
    ----------
    source, out : Path
        Arguments IN and OUT.
    analysis_level : {"participant", "group"}
        Third argument. "group" makes nothing new: it rewrites participants.tsv and the group page
        from what is in OUT.
    participant_label : sequence of str
        ``--participant-label``, repeatable, with or without ``sub-``.
    atlas, atlas_image, atlas_lut
        ``--atlas`` AAL116, a volume's path, or the name another tool gave its series;
        ``--atlas-image`` another AAL-116 volume; ``--atlas-lut`` label table (index, name).
    denoise : str
        ``--denoise`` none, simple, scrubbing, compcor, ica_aroma (nilearn's), or components joined
        by +, e.g. motion+wm_csf+global_signal. Applied to fMRIPrep and plain scans alone.
    high_pass, low_pass : float or None
        ``--high-pass``, ``--low-pass`` in Hz, 0 or None for none.
    fd_threshold, std_dvars_threshold : float, optional
        ``--fd-threshold``, ``--std-dvars-threshold`` of a method that scrubs.
    layout : str
        ``--layout`` auto, fmriprep, xcpd, cpac, dpabi, nifti, series.
    participants : Path, optional
        ``--participants`` table with id, site, diagnosis; else looked for in IN and above it.
    task, session, space, select : str
        ``--task``, ``--session``, ``--space``, ``--select`` (part of the file name).
    tr, drop, columns, variable
        ``--tr`` seconds, ``--drop`` volumes at the start, ``--columns`` 1-116, ``--variable`` name.
    min_coverage, max_empty : float
        ``--min-coverage``, ``--max-empty``: see `Settings`.
    report : bool
        ``--report / --no-report``: HTML quality pages.
    progress : callable, optional
        ``progress(items, total)`` yields the items while it draws; None draws nothing.
    say : callable
        Gets one line of text at a time.

    Returns
    -------
    int
        0 all subjects done, 1 some failed, 2 nothing could be done.
    """
    try:
        if analysis_level not in ("participant", "group"):
            raise unknown_name("level", analysis_level, ("participant", "group"))
        settings = Settings(
            make_denoise(
                denoise,
                high_pass=high_pass or None,
                low_pass=low_pass or None,
                fd_threshold=fd_threshold,
                std_dvars_threshold=std_dvars_threshold,
            ),
            min_coverage=min_coverage,
            max_empty=max_empty,
            tr=tr,
            columns=columns,
            variable=variable,
            drop=drop,
        )
        ask = Request(
            Path(source),
            Path(out),
            settings,
            atlas=atlas,
            atlas_image=atlas_image,
            atlas_lut=atlas_lut,
            choice=Choice(atlas, task, session, space, select, aroma="ica_aroma" in denoise),
            layout=layout,
            labels=tuple(participant_label),
            participants=participants,
            pages=quality if report else None,
            only_group=analysis_level == "group",
        )
        outcome = make_fc(ask, progress=progress or (lambda items, total: items), say=say)
    except FCForgeError as error:
        say(f"nothing done: {error}")
        return NOTHING_DONE
    return _summary(outcome, Path(out), say)


def _summary(outcome: Outcome, out: Path, say: Callable[[str], None], what: str = "have FC") -> int:
    done = len(outcome.made) + len(outcome.kept)
    say(
        f"{done} of {done + len(outcome.failed)} subjects {what} in {out} "
        f"({len(outcome.made)} made now, {len(outcome.kept)} from before)"
    )
    if outcome.failed:
        say(f"{len(outcome.failed)} failed; reasons above and in {out / 'logs' / 'failed.tsv'}")
        return SOME_FAILED if done else NOTHING_DONE
    return OK


def preprocess_command(
    *,
    source: Path,
    out: Path,
    participant_label: Sequence[str] = (),
    drop: int = 5,
    slice_order: str = "",
    tr: float | None = None,
    motion: str = "fcforge",
    sdc: bool = False,
    resolution: float = 3.0,
    route: str = "auto",
    report: bool = True,
    progress: Progress | None = None,
    say: Callable[[str], None],
) -> int:
    """``fcforge preprocess IN OUT``: raw scans to MNI space, with confounds for ``fcforge fc``.

    Parameters
    ----------
    source, out : Path
        BIDS folder (or a folder with one 4D NIfTI file per subject), and the output folder.
    participant_label : sequence of str
        ``--participant-label``, repeatable.
    drop : int
        ``--drop`` first volumes.
    slice_order : str
        ``--slice-order`` ascending, descending, interleaved, interleaved_even, where the sidecar
        has no SliceTiming; without either, slice timing is skipped, and the sidecar says so.
    tr : float, optional
        ``--tr`` seconds.
    motion : {"fcforge", "ants"}
        ``--motion``.
    sdc : bool
        ``--sdc / --no-sdc``: distortion correction with a reverse-phase image.
    resolution : float
        ``--resolution`` of the output in mm.
    route : {"auto", "pip", "fsl"}
        ``--route``: FSL and SPM12 where installed, never, or insisted on.
    report, progress, say
        As in `fc_command`.

    Returns
    -------
    int
        0 all subjects done, 1 some failed, 2 nothing could be done.
    """
    try:
        recipe = Recipe(drop, slice_order, tr, motion, sdc, resolution, route)
        outcome = preprocess_all(
            Path(source),
            Path(out),
            recipe,
            labels=tuple(participant_label),
            page=quality.preprocess_page if report else None,
            progress=progress or (lambda items, total: items),
            say=say,
        )
    except FCForgeError as error:
        say(f"nothing done: {error}")
        return NOTHING_DONE
    return _summary(outcome, Path(out), say, "are preprocessed")
