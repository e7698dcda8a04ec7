"""Reports of the run folders with the paper's numbers beside ours as a section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fcforge.report import write_report
from fcforge.report.html import Section
from fcforge.runner.collect import collect, kept_by
from fcforge.runner.store import Store


def as_html(text: str) -> Markup:
    """A Markdown table as HTML; other lines as paragraphs."""
    out: list[Markup] = []
    table: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [c.strip() for c in line.strip("|").split("|")]
            if set("".join(cells)) != {"-"}:
                table.append(cells)
            continue
        if table:
            out.append(_table(table))
            table = []
        if line:
            out.append(Markup("<p>{}</p>").format(line))
    return Markup("").join(out)


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    def row(cells: Sequence[str], tag: str) -> Markup:
        cell = (
            f'<{tag} style="white-space:nowrap;padding:.15rem .6rem;text-align:left">{{}}</{tag}>'
        )
        inside = Markup("").join(Markup(cell).format(c) for c in cells)
        return Markup("<tr>{}</tr>").format(inside)

    head, body = row(rows[0], "th"), Markup("").join(row(r, "td") for r in rows[1:])
    frame = '<div style="overflow-x:auto"><table><thead>{}</thead><tbody>{}</tbody></table></div>'
    return Markup(frame).format(head, body)


def write_reports(folders: Mapping[str, Path], sections: Sequence[Any]) -> None:
    """report.html of every folder that a section is about."""
    for name, table, notes in sections:
        store = Store(folders[name])
        results, asked = collect(store)
        data = store.read_experiment()
        text = "\n\n".join([table, *filter(None, notes)])
        write_report(
            results,
            folders[name] / "report.html",
            title=data["experiment"]["title"],
            keeps=kept_by(store),
            expected=asked,
            settings=data["experiment"],
            environment=dict(results[0].environment),
            extra_sections=[Section("Beside the paper's numbers", as_html(text))],
        )
