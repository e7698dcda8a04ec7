"""Judged generators: Markdown tables, one self-contained page, a section of a run's page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fcforge.errors import DataError
from fcforge.report import judge_figures as figures
from fcforge.report import judge_tables as tables
from fcforge.report.frame import Section, picture, render
from fcforge.report.table import Table
from fcforge.studies.judge.experiment import Judgement
from fcforge.studies.judge.panel import Panel, Requirement, summarise
from fcforge.studies.judge.portraits import Portrait, read_portraits
from fcforge.writing import write_text

READING = "Mean over sites, then over seeds; brackets: 95 % t interval over seeds."
FIGURES = "Generated functional connectivity"


def groups_of(panel: Panel, summary: tables.Summary) -> list[tuple[str, list[Table]]]:
    """Headings and their tables, empty ones left out."""
    groups = [
        ("Fidelity and use", tables.fidelity_tables(summary)),
        ("1:1 augmentation", tables.augmentation_tables(summary, panel.augment)),
        ("Ablation of FCM-VAE", tables.ablation_tables(summary, panel.augment)),
    ]
    return [(heading, found) for heading, found in groups if found]


def headline(findings: Sequence[Requirement], warnings: Sequence[str]) -> str:
    """One sentence on top."""
    collapsed = len({text.split(" COLLAPSED")[0] for text in warnings})
    said = f"{collapsed} of the generators collapsed." if collapsed else "No generator collapsed."
    missed = [f.what for f in findings if not f.ok]
    if missed:
        n = f"{len(missed)} of {len(findings)}"
        said += f" The checked generator misses {n} requirements: {', '.join(missed)}."
    elif findings:
        said += f" The checked generator meets all {len(findings)} requirements."
    return said


def write_judgement(found: Judgement, folder: Path) -> str:
    """``judge.html`` and ``tables.md`` in `folder`; the latter is returned."""
    text = markdown(found)
    write_text(folder / "tables.md", text)
    write_text(folder / "judge.html", page_of(found))
    return text


def markdown(found: Judgement) -> str:
    """All tables of a judgement as Markdown."""
    parts = [f"## {found.title}", "", *(f"**{text}**\n" for text in found.warnings)]
    if found.findings:
        parts.append(tables.requirements_table(found.findings).markdown())
    for heading, group in groups_of(found.panel, found.summary):
        parts += [f"### {heading}", "", *(f"#### {table.markdown()}" for table in group)]
    return "\n".join([*parts, READING + "\n"])


def page_of(found: Judgement) -> str:
    """The page as text."""
    sections = []
    if found.findings:
        table = tables.requirements_table(found.findings)
        sections.append(Section("Requirements of the checked generator", table))
    sections.append(figure_section(found.portraits or {}, found.where))
    for heading, group in groups_of(found.panel, found.summary):
        sections.append(Section(heading, tuple(group), READING))
    return render(
        "sections.html.j2",
        title=found.title,
        home="",
        kind="fcforge judge",
        lead=headline(found.findings, found.warnings),
        warnings=[("serious", text) for text in found.warnings],
        sections=sections,
    )


def figure_section(portraits: Mapping[str, Portrait], where: str, *before: Table) -> Section:
    """The pictures, after the given tables; the first portrait is the real one."""
    if not portraits:
        return Section(FIGURES, "No pictures were kept.")
    note = (
        f"{where} The most typical control and patient of every generator (nearest to its class "
        "mean), ROIs ordered by brain system with lines between the systems; blue -1, red +1. "
        "Below, the mean of every edge against the real one. Real and bootstrap show single real "
        "subjects: share the page only where those may be seen. Last, the mean eigenvalues: a "
        "correlation matrix has none below zero."
    )
    spectra = picture(figures.spectra_figure(portraits), "mean eigenvalues by rank")
    return Section(FIGURES, (*before, figures.portrait_cards(portraits), spectra), note.strip())


def folder_section(folder: Path) -> Section:
    """Figures and first table of a judged folder, for ``fcforge report --judge FOLDER``."""
    store, pictures = folder / "records.json", folder / "portraits.npz"
    if not (store.exists() and pictures.exists()):
        raise DataError(
            "holds no finished judgement (records.json and portraits.npz).",
            where=str(folder),
            do="Run `fcforge judge CONFIG --out FOLDER` first.",
        )
    stored = json.loads(store.read_text(encoding="utf-8"))["sites"]
    records = [record for site in stored.values() for record in site]
    first = tables.fidelity_tables(summarise(records))[0]
    return figure_section(read_portraits(pictures), READING, first)
