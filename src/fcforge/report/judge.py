"""The judge as one self-contained HTML page, and as a section of a run's report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from fcforge.errors import DataError
from fcforge.report import Section
from fcforge.report import judge_figures as figures
from fcforge.report import judge_tables as tables
from fcforge.report.html import templates_of
from fcforge.studies.judge.experiment import Judgement
from fcforge.studies.judge.panel import Panel, Requirement, summarise
from fcforge.studies.judge.portraits import read_portraits
from fcforge.writing import write_text

READING = "Mean over sites, then over seeds; brackets: 95 % t interval over seeds."


def groups_of(panel: Panel, summary: tables.Summary) -> list[tuple[str, list[tables.Table]]]:
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
    said = f"{collapsed} of the generators collapsed. " if collapsed else "No generator collapsed. "
    if not findings:
        return said.strip()
    missed = [f.what for f in findings if not f.ok]
    if not missed:
        return f"{said}The checked generator meets all {len(findings)} requirements."
    return f"{said}The checked generator misses {len(missed)} of {len(findings)} requirements: " + (
        ", ".join(missed) + "."
    )


def write_judgement(found: Judgement, folder: Path) -> str:
    """``judge.html`` and ``tables.md`` in `folder`; the latter is returned."""
    text = markdown(found)
    write_text(folder / "tables.md", text)
    write_text(folder / "judge.html", render(found))
    return text


def markdown(found: Judgement) -> str:
    """All tables of a judgement as Markdown."""
    parts = [f"## {found.title}", "", *(f"**{text}**\n" for text in found.warnings)]
    if found.findings:
        parts += [tables.findings_table(found.findings).markdown(), ""]
    for heading, group in groups_of(found.panel, found.summary):
        parts += [f"### {heading}", ""]
        for table in group:
            parts += [f"#### {table.title}", "", table.markdown(), ""]
    return "\n".join([*parts, READING + "\n"])


def render(page: Judgement) -> str:
    """The page as text."""
    css = resources.files("fcforge.report").joinpath("templates/report.css").read_text("utf-8")
    title, body = figures.section(page.portraits or {}, page.where)
    template = templates_of("fcforge.report").get_template("judge.html.j2")
    return template.render(
        css=Markup(css),
        page=page,
        headline=headline(page.findings, page.warnings),
        groups=groups_of(page.panel, page.summary),
        figure_title=title,
        figures=Markup(body),
        reading=READING,
    )


def report_section(folder: Path) -> Section:
    """Figures and warnings of a judged folder, for ``fcforge report --judge FOLDER``."""
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
    title, body = figures.section(read_portraits(pictures))
    lines = Markup("").join(
        Markup("<tr><th scope=row>{}</th>{}</tr>").format(
            line[0], Markup("").join(Markup("<td>{}</td>").format(c) for c in line[1:])
        )
        for line in first.body
    )
    head = Markup("").join(Markup("<th scope=col>{}</th>").format(h) for h in first.header)
    table = Markup(
        '<div class="scroll"><table class="results"><thead><tr>{}</tr></thead>'
        '<tbody>{}</tbody></table></div><p class="note">{}</p>'
    ).format(head, lines, READING)
    return Section(title, table + Markup(body))
