"""Quality pages of `fc` and `preprocess`: one per subject, one for the group."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from fcforge.core.formatting import number
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.imaging.group_quality import MEANINGS, MEASURES, GroupQuality
from fcforge.imaging.matrix_files import column_of
from fcforge.imaging.people import SITE_COLUMNS, by_reason, mixed_trs
from fcforge.report import cells
from fcforge.report.figures import by_system, fc_figure
from fcforge.report.group_figures import distributions, download, qc_fc_parts
from fcforge.report.html import Section, comma_list, macro, picture, sections_page
from fcforge.report.scan_figures import (
    FD_LINE_MM,
    atlas_mosaic,
    coverage_plot,
    legend_of,
    motion_plot,
    spectrum_plot,
    template_mosaic,
    time_plot,
)
from fcforge.report.tables import Cell, Heading, Table

MATRIX = 5.1  # inches
MOTION = f"Framewise displacement, mm, volume by volume (dotted: {FD_LINE_MM})."
MEAN = "Mean over all volumes; orange: borders of the atlas' ROIs. The borders should follow the brain."
OVER_TIME = (
    f"Before denoising, volume by volume. Dotted: framewise displacement of {FD_LINE_MM} mm. A "
    "vertical stripe in the carpet is a change of the whole brain, mostly motion."
)
LOST = " Grey bands: volumes that scrubbing removes."
SERIES_OVER_TIME = (
    "The series as the tool before left them, volume by volume, grouped by network where the atlas "
    "knows it."
)
COVERAGE = "Share of each ROI that has voxels with signal. Point at an ROI for its name and value."
TEMPLATE = "Orange: borders of the template's brain and ventricles. They should lie on those of the scan."
SPECTRUM = "Share of the power of the ROI series at each frequency, mean over ROIs."
SCRUBBED = (
    " Scrubbing removed volumes, so that the series after denoising is not evenly spaced: its "
    "spectrum is approximate."
)
FC = "Correlation of every pair of ROIs. Point at a cell for its two ROIs and value."
NO_SCAN = (
    "These are ready-made series: there is no scan, so that mean image, coverage, tSNR, DVARS and "
    "FC before denoising cannot be shown."
)
MATRIX_ONLY = (
    "This is an FC matrix of another tool: there are no series, so that nothing can be shown over "
    "time, nor coverage, power spectrum or FC before denoising."
)
NO_VOLUME = "The scan is of grayordinates (CIFTI): its mean image cannot be shown."
DENOISED_SCAN = "The scan was denoised by the tool before: tSNR, DVARS and FC before denoising cannot be shown."
NO_MEAN = "The voxels have no baseline (their mean was removed): tSNR and DVARS cannot be shown."
NO_MOTION = "No table with framewise displacement was found: motion cannot be shown."
NO_CONFOUNDS = (
    "No table of confounds lies beside the scan: their traces cannot be shown."
)
NO_TISSUE = (
    "No maps of white matter and CSF in the space of the scan were found: the carpet shows voxels "
    "of ROIs alone."
)
NO_TR = "The repetition time is unknown: frequencies are in cycles per volume."
NO_NETWORKS = "The atlas names no networks: ROIs are in its own order."
UNKNOWN = "unknown"
STRIPS = (
    "A dot is a subject, red where it is flagged; the line is the site's median. Point at a dot for its "
    "value, click it for its page."
)
FLAGS = (
    "Flagged subjects are included all the same: look at their pages. Unusual is more than 3.5 robust "
    "standard deviations from the median of the site (of at least 8 subjects)."
)
QC_FC = (
    "Correlation of every edge with mean framewise displacement over subjects. Motion that denoising "
    "left shows as a median above chance, and as a slope against distance."
)
GROUP = "group.html"
# Columns of participants.tsv that fcforge adds, and their headings.
IN_WORDS = {
    "mean_fd": Heading("Framewise displacement, mm", MEANINGS["mean_fd"]),
    "dof": Heading("Degrees of freedom", MEANINGS["dof"]),
    "n_volumes": Heading("Volumes", MEANINGS["n_volumes"]),
    "tr": Heading("TR, s", "Repetition time."),
    "n_empty_rois": Heading("Empty ROIs", MEANINGS["n_empty_rois"]),
}
LONGEST_WRAPPED = 40  # characters
LABEL_COLUMNS = ("diagnosis", "group", "dx", "dx_group", "label")
SIDECAR = "Names are those of the JSON files beside the series and of the options."
_page = partial(
    sections_page, kind="quality of functional connectivity", home_name="All subjects"
)


def subject_page(result: SubjectFC, atlas: Atlas) -> str:
    """Return the page of one subject: mean image, carpet plot, coverage, spectrum, FC and steps."""
    sections = []
    step_sections = []
    several = len(result.runs) > 1
    first_volume = int(result.settings.get("drop") or 0) + 1
    for k, run in enumerate(result.runs, 1):
        prefix = f"Run {k}: " if several else ""
        sections += _run_sections(run, atlas, prefix, first_volume)
        facts_of_run = {"source": run.source.path, **run.report, **result.settings}
        title = f"{prefix}what was done" if several else "What was done"
        step_sections.append(Section(title, facts_of_run, SIDECAR))
    sections.append(_fc_section(result, atlas))
    warnings = [("caution", warning) for warning in result.warnings]
    name = f"sub-{result.subject}"
    facts = _facts(result)
    all_sections = [*sections, *step_sections]
    return _page(
        name, sections=all_sections, warnings=warnings, home=GROUP, facts=facts
    )


def _facts(result: SubjectFC) -> list[tuple[str, str, str]]:
    """Return the numbers at the head of a subject's page, each as (name, value, small print)."""
    measures = result.measures

    def text_of(name: str, digits: int) -> str:
        value = measures.get(name)
        return UNKNOWN if value is None else number(value, digits)

    tr = result.runs[0].tr
    minutes = measures["minutes"]
    length = "" if minutes is None else f"{number(minutes, 1)} min"
    dof = "" if measures["dof"] is not None else "denoised elsewhere"
    return [
        ("Mean FD, mm", text_of("mean_fd", 2), ""),
        ("DVARS, %", text_of("dvars", 2), ""),
        ("tSNR", text_of("tsnr", 0), ""),
        ("ROIs without signal", str(len(result.empty)), f"of {len(result.fc)}"),
        ("Mean FC", text_of("mean_fc", 2), ""),
        ("Volumes", str(result.n_volumes or UNKNOWN), length),
        ("Repetition time, s", UNKNOWN if tr is None else f"{tr:g}", ""),
        ("Degrees of freedom", text_of("dof", 0), dof),
    ]


def _run_sections(
    run: Run, atlas: Atlas, prefix: str, first_volume: int
) -> list[Section]:
    """Return the sections of one run; the section on signal over time says what cannot be shown.

    Parameters
    ----------
    run : Run
    atlas : Atlas
    prefix : str
        Beginning of every title, such as "Run 2: "; empty for the only run.
    first_volume : int
        Number of the first volume that is used, counted from 1.
    """
    quality = run.quality
    sections = []
    body: Any

    def title(text: str) -> str:
        return f"{prefix}{text}" if prefix else text[0].upper() + text[1:]

    if not run.carpet.size:
        return [Section(title("signal over time"), MATRIX_ONLY)]
    if quality.mean is not None and quality.affine is not None:
        body = atlas_mosaic(quality.mean, quality.affine, atlas)
        sections.append(Section(title("mean scan"), body, MEAN))
    is_scan = run.source.kind == "scan"
    parts = (*time_plot(run, first_volume), *_not_shown(run))
    note = OVER_TIME if is_scan else SERIES_OVER_TIME
    scrubbed = quality.before is not None and len(run.series) < len(quality.before)
    note += LOST if scrubbed else ""
    sections.append(Section(title("signal over time"), parts, note))
    if run.coverage is not None:
        body = coverage_plot(run.coverage, quality.tsnr, atlas)
        sections.append(Section(title("coverage of each ROI"), body, COVERAGE))
    lines = [("", "after denoising"), ("l-ref", "before denoising")]
    if quality.before is None:
        lines = [("", "as the tool before left it")]
    note = SPECTRUM + (SCRUBBED if scrubbed else "")
    body = (spectrum_plot(run), legend_of(*lines), NO_TR if run.tr is None else "")
    sections.append(Section(title("power spectrum"), body, note))
    return sections


def _not_shown(run: Run) -> list[str]:
    """Return a sentence for each part of a run's page that is missing."""
    quality = run.quality
    sentences = []
    if run.source.kind != "scan":
        sentences.append(NO_SCAN)
    elif quality.before is None:
        sentences.append(DENOISED_SCAN)
    elif quality.tsnr is None:
        sentences.append(NO_MEAN)
    if run.source.kind == "scan" and quality.mean is None:
        sentences.append(NO_VOLUME)
    if run.fd is None:
        sentences.append(NO_MOTION)
    if run.source.kind == "scan" and not quality.traces:
        sentences.append(NO_CONFOUNDS)
    if run.source.kind == "scan" and not {"White matter", "CSF"} & {
        *quality.row_groups
    }:
        sentences.append(NO_TISSUE)
    return [" ".join(sentences)] if sentences else []


def _fc_section(result: SubjectFC, atlas: Atlas) -> Section:
    """Return the section with FC, and FC before denoising if it is known."""
    networks = any(atlas.systems)
    order = "grouped by network" if networks else "in the order of the atlas"
    title = f"Functional connectivity, ROIs {order}"
    after = _matrix(result.fc, atlas, "FC after denoising")
    note = FC if networks else f"{FC} {NO_NETWORKS}"
    if result.fc_before is None:
        return Section(title, after, note)
    before = _matrix(result.fc_before, atlas, "FC before denoising")
    pair = [("Before denoising", before), ("After denoising", after)]
    return Section(title, macro("pair", pair), note)


def _matrix(fc: np.ndarray, atlas: Atlas, alt: str) -> Markup:
    """Return a picture of FC (R, R) that shows ROIs and value of the cell at the pointer."""
    figure = fc_figure(fc, atlas.systems, "correlation", MATRIX, vmin=-1, vmax=1)
    order = by_system(atlas.systems)[0]
    systems = atlas.systems
    rows = [atlas.roi_names[k] for k in order]
    columns = [
        f"{atlas.roi_names[k]} ({systems[k]})" if systems[k] else atlas.roi_names[k]
        for k in order
    ]
    values = cells.content(fc[np.ix_(order, order)], rows, columns)
    return picture(figure, alt, cells=[cells.over_axes(figure.axes[0], values)])


def preprocess_page(
    name: str,
    fd: np.ndarray,
    mean: np.ndarray,
    affine: np.ndarray,
    done: Mapping[str, Any],
) -> str:
    """Return the HTML page on motion and registration of one preprocessed run.

    Parameters
    ----------
    name : str
    fd : ndarray of shape (n_volumes,)
        Framewise displacement.
    mean : ndarray of shape (x, y, z)
        Mean in MNI space.
    affine : ndarray of shape (4, 4)
    done : mapping
        Steps of the preprocessing and their settings.
    """
    registered = template_mosaic(mean, affine)
    sections = [
        Section("Motion", motion_plot(fd), MOTION),
        Section("Mean scan with the template's outline", registered, TEMPLATE),
        Section("What was done", done, SIDECAR),
    ]
    return _page(name, kind="quality of preprocessing", sections=sections)


def group_page(
    people: pd.DataFrame,
    failed: Sequence[Sequence[str]],
    methods: str,
    quality: GroupQuality | None = None,
) -> str:
    """Return the HTML page of a group of subjects.

    It has distributions by site, QC-FC, flagged subjects, all subjects and a methods paragraph.

    Parameters
    ----------
    people : DataFrame
        participants.tsv.
    failed : sequence of Failure, or of (subject, reason)
    methods : str
        Methods paragraph.
    quality : GroupQuality, optional
        Measures of the same subjects.
    """
    sections = []
    flagged = 0
    if quality is not None and len(quality.table):
        sections += _quality_sections(quality)
        flagged = int((quality.table["flags"] != "").sum())
    if len(people):
        body = _subjects(people, quality)
        export = people if quality is None else _joined(people, quality)
        save = download(export, "subjects.csv")
        note = "Click a heading to sort, a subject for its page."
        sections.append(Section("Subjects", (body, save), note))
    warnings = [("serious", text) for text in by_reason(failed)]
    warnings += [("caution", text) for text in mixed_trs(people)]
    note = "Free to copy into a paper as it is; the same is in methods.md."
    sections.append(Section("Methods", (methods,), note))
    title = f"{len(people)} of {len(people) + len(failed)} subjects have FC"
    facts = [
        ("Subjects with FC", str(len(people)), ""),
        ("Without FC", str(len(failed)), "reasons below" if failed else ""),
        ("Flagged", str(flagged), "still included" if flagged else ""),
    ]
    return _page(title, sections=sections, warnings=warnings, facts=facts)


def _quality_sections(quality: GroupQuality) -> list[Section]:
    """Return the sections on distributions, flags and QC-FC."""
    strips, unknown = distributions(quality.table)
    missing = ""
    if unknown:
        # inside a sentence; abbreviations stay as they are
        names = comma_list(
            [n if n[1].isupper() else n[0].lower() + n[1:] for n in unknown]
        )
        missing = f"Not known for any subject, and therefore not shown: {names}."
    marked = quality.table[quality.table["flags"] != ""]
    rows = [
        [Cell(str(subject), link=f"{subject}.html"), str(reason)]
        for subject, reason in zip(
            marked["participant_id"], marked["flags"], strict=True
        )
    ]
    body: Any = "No subject is flagged."
    if rows:
        body = Table.of(("subject", Heading("reason", words=True)), rows)
    qcfc = quality.qcfc
    note = QC_FC
    if qcfc.after is not None:
        within = " within sites" if qcfc.n_sites > 1 else ""
        note += f" {qcfc.n_subjects} subjects with known motion{within}."
    return [
        Section("Distributions by site", (strips, missing), STRIPS),
        Section("Flagged subjects", body, FLAGS),
        Section("FC and motion (QC-FC)", qc_fc_parts(qcfc), note),
    ]


def _joined(people: pd.DataFrame, quality: GroupQuality) -> pd.DataFrame:
    """Return participants.tsv with the measures that it lacks."""
    more = [
        c for c in quality.table.columns if c == "participant_id" or c not in people
    ]
    return people.merge(quality.table[more], on="participant_id", how="left")


def _holds_numbers(values: pd.Series) -> bool:
    """Return whether all values of a column that are not n/a can be read as numbers."""
    known = values[values != "n/a"]
    return bool(pd.to_numeric(known, errors="coerce").notna().all())


def _subjects(people: pd.DataFrame, quality: GroupQuality | None) -> Table:
    """Return a table of the subjects, linked to their pages, with what is looked at first in front.

    Site, diagnosis, measures and flags precede the other columns of participants.tsv, of which a
    phenotype table can have a hundred. Measures that nobody has are left out.
    """
    has_values = (people != "n/a").any()
    columns = people.loc[:, has_values].drop(columns="file")
    columns = columns.set_index("participant_id")
    parts: list[tuple[Heading, pd.Series]] = []

    def take(name: str, heading: Heading | None = None) -> None:
        if name in columns:
            values = columns.pop(name)
            # numbers to the right, words to the left; long texts would make rows too high
            short = values.map(len).max() <= LONGEST_WRAPPED
            words = short and not _holds_numbers(values)
            parts.append((heading or Heading(name, words=words), values))

    for names in (SITE_COLUMNS, LABEL_COLUMNS):
        # no column has an empty name, so that a table without such a column has nothing to take
        take(column_of(list(columns.columns), names) or "")
    if quality is not None:
        table = quality.table.set_index("participant_id").reindex(columns.index)
        for measure in MEASURES:
            if table[measure.column].notna().any():
                columns = columns.drop(columns=measure.column, errors="ignore")
                unit = f", {measure.unit}" if measure.unit else ""
                texts = table[measure.column].map(
                    partial(_measured, digits=measure.digits)
                )
                heading = Heading(f"{measure.title}{unit}", measure.meaning)
                parts.append((heading, texts))
    for name, heading in IN_WORDS.items():
        take(name, heading)
    if quality is not None:
        flags = table["flags"].map(
            lambda reason: reason.replace("; ", ", ") or "\N{EN DASH}"
        )
        parts.append((Heading("Flags", words=True), flags))
    for name in list(columns.columns):
        take(name)
    body = [
        [
            Cell(subject, link=f"{subject}.html"),
            *(str(part.iloc[k]) for _, part in parts),
        ]
        for k, subject in enumerate(columns.index)
    ]
    return Table.of(["Subject", *(heading for heading, _ in parts)], body)


def _measured(value: float, digits: int) -> str:
    """Return a measure as text, "n/a" where it is unknown."""
    return number(value, digits) if np.isfinite(value) else "n/a"
