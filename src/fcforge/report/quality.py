"""Quality pages of `fc` and `preprocess`: one per subject, one for the group."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.extract import SubjectFC
from fcforge.imaging.group_quality import GroupQuality
from fcforge.imaging.people import by_reason, mixed_trs
from fcforge.report.figures import (
    MUTED,
    SERIES,
    colour_bar,
    fc_figure,
    in_page_style,
    new_figure,
)
from fcforge.report.html import Section, sections_page
from fcforge.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FD_LINE_MM = 0.5
WIDE = 6.6  # inches
# as wide as each other: volumes stand below each other
MARGINS = {"left": 0.09, "right": 0.9, "top": 0.9, "bottom": 0.2}
MOTION = f"Framewise displacement, mm, volume by volume (dotted: {FD_LINE_MM})."
CARPET = (
    "Voxels (of series ROIs), ROI by ROI, volume by volume; black -2 SD, white 2 SD."
)
GROUP = "group.html"
SIDECAR = "Names are those of the JSON files beside the series and of the options."
_page = partial(
    sections_page, kind="quality of functional connectivity", home_name="All subjects"
)


def subject_page(result: SubjectFC, atlas: Atlas) -> str:
    """Return the page of one subject: carpet plot, FC, motion, coverage and processing steps."""
    sections = []
    done = []
    for k, run in enumerate(result.runs, 1):
        if run.fd is not None:
            motion = _motion_figure(run.fd)
            sections.append(Section(f"Run {k}: motion", motion, MOTION))
        if run.carpet.size:  # a matrix of another tool has no series
            carpet = _carpet_figure(run.carpet)
            sections.append(Section(f"Run {k}: signal over time", carpet, CARPET))
        if run.coverage is not None:
            seen = _coverage_figure(run.coverage)
            sections.append(Section(f"Run {k}: coverage of each ROI", seen))
        known = {"source": run.source.path, **run.report, **result.settings}
        done.append(Section(f"Run {k}: what was done", known, SIDECAR))
    order = "grouped by system" if any(atlas.systems) else "in the order of the atlas"
    title = f"Functional connectivity, ROIs {order}"
    fc = fc_figure(result.fc, atlas.systems, "correlation", WIDE, vmin=-1, vmax=1)
    sections.append(Section(title, fc))
    warnings = [("caution", warning) for warning in result.warnings]
    shown = [*sections, *done]
    name = f"sub-{result.subject}"
    return _page(name, sections=shown, warnings=warnings, home=GROUP)


def preprocess_page(
    name: str,
    fd: np.ndarray,
    mean: np.ndarray,
    affine: np.ndarray,
    done: Mapping[str, Any],
) -> str:
    """Return motion and registration of one raw run, as one HTML page.

    Parameters
    ----------
    name : str
    fd : ndarray of shape (n_volumes,)
        Framewise displacement.
    mean : ndarray of shape (x, y, z)
        Mean in MNI space.
    affine : ndarray of shape (4, 4)
    done : mapping
        What was done, step by step.
    """
    registered = _mean_figure(mean, affine)
    sections = [
        Section("Motion", _motion_figure(fd), MOTION),
        Section("Mean scan with the template's edges", registered),
        Section("What was done", done, SIDECAR),
    ]
    return _page(name, kind="quality of preprocessing", sections=sections)


def group_page(
    people: pd.DataFrame,
    failed: Sequence[Sequence[str]],
    methods: str,
    quality: GroupQuality | None = None,
) -> str:
    """Return a table of subjects, what failed and why, and the methods paragraph."""
    sections = []
    if len(people):
        sections.append(Section("Subjects", _subjects(people)))
    warnings = [("serious", text) for text in by_reason(failed)]
    warnings += [("caution", text) for text in mixed_trs(people)]
    note = "Free to copy into a paper as it is; the same is in methods.md."
    sections.append(Section("Methods", (methods,), note))
    title = f"{len(people)} of {len(people) + len(failed)} subjects have FC"
    return _page(title, sections=sections, warnings=warnings)


def _subjects(people: pd.DataFrame) -> Table:
    """Return the columns of participants.tsv as a table, each subject linked to its page."""
    known = (people != "n/a").any()
    shown = people.loc[:, known].drop(columns="file")
    body = []
    for who, *cells in shown.itertuples(index=False):
        body.append([Cell(who, link=f"{who}.html"), *cells])
    return Table.of(shown, body)


@in_page_style
def _coverage_figure(coverage: np.ndarray) -> "Figure":
    figure = new_figure(WIDE, 1.5, **MARGINS)
    axes = figure.subplots()
    rois = np.arange(len(coverage))
    axes.fill_between(rois, coverage, step="mid", color=SERIES[0])
    axes.set(ylim=(0, 1), yticks=[0, 1], xlim=(-0.5, len(coverage) - 0.5))
    return figure


@in_page_style
def _motion_figure(fd: np.ndarray) -> "Figure":
    """Draw framewise displacement with the line that scrubbing usually goes by."""
    figure = new_figure(WIDE, 1.5, **MARGINS)
    axes = figure.subplots()
    axes.plot(np.arange(len(fd)), fd, lw=0.8, color=SERIES[1])
    axes.axhline(FD_LINE_MM, ls=":", lw=0.8, color=MUTED)
    largest = float(np.nanmax(fd, initial=0.0))
    top = max(1.2 * FD_LINE_MM, 1.05 * largest)
    axes.set(xlim=(0, len(fd) - 1), ylim=(0, top), yticks=[0, FD_LINE_MM])
    return figure


@in_page_style
def _carpet_figure(carpet: np.ndarray) -> "Figure":
    """Draw every row in standard deviations about its own mean."""
    figure = new_figure(WIDE, 3.5, **MARGINS)
    axes = figure.subplots()
    known = np.nan_to_num(carpet)
    centred = known - known.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    z = centred / np.where(spread > 0, spread, 1.0)
    look: Any = {"aspect": "auto", "cmap": "gray", "interpolation": "nearest"}
    image = axes.imshow(z, vmin=-2, vmax=2, **look)
    beside = figure.add_axes((0.92, 0.2, 0.02, 0.7))
    colour_bar(figure, image, "SD", cax=beside, ticks=[-2, 0, 2])
    axes.set_yticks([])
    return figure


@in_page_style
def _mean_figure(mean: np.ndarray, affine: np.ndarray) -> "Figure":
    """Draw the mean scan in MNI space with the edges of the template."""
    import nibabel as nib
    from nilearn.datasets import load_mni152_template
    from nilearn.plotting import plot_epi

    figure = new_figure(WIDE, 1.9)
    cuts = {"display_mode": "z", "cut_coords": 5, "annotate": False}
    image = nib.Nifti1Image(mean, affine)
    display = plot_epi(image, figure=figure, colorbar=False, **cuts)
    display.add_edges(load_mni152_template())
    return figure
