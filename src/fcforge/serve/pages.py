"""From an address to a page. Every address is one of the patterns below; nothing else exists."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from fcforge import __version__
from fcforge.capsule.saliency import Uses
from fcforge.errors import StoreError
from fcforge.report.html import environment_of_templates, templates_of
from fcforge.serve import drawing
from fcforge.serve.audits import audit_table
from fcforge.serve.capsules import CapsuleView, uses_of, view_capsule
from fcforge.serve.damage import BROKEN, reason
from fcforge.serve.figures import PICTURES, accuracy_figure, run_panels, uses_figures
from fcforge.serve.glass import colour_of
from fcforge.serve.lineage import lineage
from fcforge.serve.once import Once
from fcforge.serve.runs import COLUMNS, RunView, report_of, view_run
from fcforge.serve.shelf import Finder, Item, Shelf, signature

HTML = "text/html; charset=utf-8"
OWN_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Answer:
    """Status, body and what the browser may do with it."""

    body: bytes
    kind: str = HTML
    status: int = 200
    policy: str = OWN_POLICY
    headers: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def templates() -> jinja2.Environment:
    """Templates of the served pages."""
    env = templates_of("fcforge.serve")
    env.globals.update(version=__version__, colour_of=colour_of)
    env.filters.update(short=drawing.short)
    return env


@lru_cache(maxsize=1)
def style() -> bytes:
    """The report's style sheet and what the page adds to it."""
    report, _, _ = environment_of_templates().loader.get_source(  # type: ignore[union-attr]
        environment_of_templates(), "report.css"
    )
    own, _, _ = templates().loader.get_source(templates(), "serve.css")  # type: ignore[union-attr]
    return f"{report}\n{own}".encode()


@lru_cache(maxsize=1)
def report_policy() -> str:
    """A report may run the one script that fcforge puts into reports, in a box of its own.

    The file may come from somebody else: any other script in it stays dead, it can load
    nothing, send nothing, and belongs to no origin.
    """
    text = environment_of_templates().from_string('<script>\n{% include "report.js" %}\n</script>')
    script = text.render().removeprefix("<script>").removesuffix("</script>")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "sandbox allow-scripts allow-downloads"
    )


class Pages:
    """All pages of one folder."""

    def __init__(self, root: Path) -> None:
        self.finder = Finder(root)
        self.root = self.finder.root
        self._once = Once()
        self._routes: list[tuple[re.Pattern[str], Callable[..., Answer]]] = [
            (re.compile(r"/"), self.overview),
            (re.compile(r"/style\.css"), lambda: Answer(style(), "text/css; charset=utf-8")),
            (re.compile(r"/icon\.svg"), lambda: Answer(ICON, "image/svg+xml")),
            (re.compile(r"/run/([0-9a-f]{12})"), self.run),
            (re.compile(r"/run/([0-9a-f]{12})/report\.html"), self.report),
            (re.compile(r"/capsule/([0-9a-f]{12})"), self.capsule),
            (re.compile(r"/capsule/([0-9a-f]{12})/(fc|uses|glass)\.png"), self.picture),
        ]

    def answer(self, path: str) -> Answer:
        """The page at a path (as it came: not decoded, no query)."""
        for pattern, page in self._routes:
            match = pattern.fullmatch(path)
            if match:
                try:
                    return page(*match.groups())
                except BROKEN as error:  # a file that changed while it was read
                    return message(500, "This page could not be made", reason(error))
        return message(404, "There is no such page", "It may have been moved or deleted.")

    def warm(self) -> threading.Thread:
        """Open everything once in the background, so that the first page comes at once."""
        thread = threading.Thread(target=self.answer, args=("/",), daemon=True)
        thread.start()
        return thread

    # -- what is behind the pages --------------------------------------------------------------
    def _capsule(self, item: Item) -> CapsuleView:
        return self._once.get(item, signature(item), lambda: view_capsule(self.root, item))

    def _run(self, item: Item) -> RunView:
        return self._once.get(item, signature(item), lambda: view_run(self.root, item))

    def _uses(self, item: Item) -> Uses:
        key = (item, "uses")
        return self._once.get(key, signature(item), lambda: uses_of(self.root, item))

    def _item(self, kind: str, item_id: str) -> tuple[Item, Shelf]:
        shelf = self.finder.look()
        item = shelf.get(kind, item_id)
        if item is None:
            raise _Gone
        return item, shelf

    # -- the pages -----------------------------------------------------------------------------
    def overview(self) -> Answer:
        """All runs and capsules."""
        shelf = self.finder.look()
        capsules = [self._capsule(item) for item in shelf.of_kind("capsule")]
        knots = lineage(capsules)
        return _render(
            "overview.html.j2",
            folder=self.root.name or "/",
            cut=shelf.cut,
            runs=[self._run(item) for item in shelf.of_kind("run")],
            capsules=capsules,
            graph=drawing.lineage_graph(knots) if knots else "",
        )

    def run(self, item_id: str) -> Answer:
        """One run folder."""
        try:
            item, _ = self._item("run", item_id)
        except _Gone:
            return message(404, "There is no such run", "It may have been moved or deleted.")
        view = self._run(item)
        return _render("run.html.j2", run=view, columns=COLUMNS, panels=run_panels(view))

    def report(self, item_id: str) -> Answer:
        """The report of a run, as it is on disk."""
        try:
            item, _ = self._item("run", item_id)
            return Answer(report_of(self.root, item), policy=report_policy())
        except _Gone:
            return message(404, "There is no such run", "It may have been moved or deleted.")
        except (StoreError, OSError) as error:
            return message(404, "There is no report to show", reason(error))

    def capsule(self, item_id: str) -> Answer:
        """One capsule."""
        try:
            item, shelf = self._item("capsule", item_id)
        except _Gone:
            return message(404, "There is no such capsule", "It may have been moved or deleted.")
        view = self._capsule(item)
        if view.damage:
            return _render("damaged.html.j2", capsule=view)
        others = [self._capsule(other) for other in shelf.of_kind("capsule")]
        knots = lineage(others, only=view.facts["id"])
        return _render(
            "capsule.html.j2",
            capsule=view,
            graph=drawing.lineage_graph(knots, here=view.facts["id"]),
            accuracy=accuracy_figure(view),
            audits=[(time, audit_table(result)) for time, result in view.audits],
            uses=self._shown_uses(item),
        )

    def picture(self, item_id: str, which: str) -> Answer:
        """A heatmap or the glass brain of a capsule."""
        try:
            item, _ = self._item("capsule", item_id)
            uses = self._uses(item)
            key = (item, "png", which)
            data = self._once.get(key, signature(item), lambda: PICTURES[which](uses))
        except _Gone:
            return message(404, "There is no such capsule", "It may have been moved or deleted.")
        except BROKEN as error:
            return message(404, "There is no such picture", reason(error))
        return Answer(data, "image/png")

    def _shown_uses(self, item: Item) -> dict[str, Any]:
        """What the capsule page says of its model; never a reason not to show the page."""
        try:
            uses = self._uses(item)
        except BROKEN as error:
            return {"problem": reason(error)}
        if uses.silent:
            return {"problem": "its answer does not depend on the scan."}
        return uses_figures(item, uses)


class _Gone(Exception):
    """The address names nothing that is there."""


def _render(name: str, **values: Any) -> Answer:
    # a name or a ledger may hold half a surrogate pair, which no encoding has
    return Answer(templates().get_template(name).render(**values).encode("utf-8", "replace"))


def message(status: int, title: str, text: str) -> Answer:
    """A short page for what cannot be shown."""
    page = templates().get_template("message.html.j2").render(title=title, text=text)
    return Answer(page.encode("utf-8", "replace"), status=status)


ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" '
    b'rx="7" fill="#1a5c93"/><g stroke="#fff" stroke-width="2"><path d="M8 22 16 9l8 13M8 22h16"/>'
    b'</g><g fill="#fff"><circle cx="8" cy="22" r="4"/><circle cx="16" cy="9" r="4"/>'
    b'<circle cx="24" cy="22" r="4"/></g></svg>'
)
