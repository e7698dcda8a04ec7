"""A page taken apart: tags, ids, visible text, and whether every element was closed."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files

VOID = frozenset({"meta", "link", "br", "wbr", "img", "input", "hr"})
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags with attributes, visible text, tables as lists of rows of cell texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"script", "style"} & set(self.open):
            return
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            before = self.rows[-1][-1]
            gap = (
                " " if before and not before.endswith("/") else ""
            )  # names may break at a slash
            self.rows[-1][-1] = f"{before}{gap}{data.strip()}".strip()

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def row(self, name: str) -> list[str]:
        """Cells of the first row of that name."""
        return next(
            row for row in self.rows if row and row[0].split("⚠")[0].strip() == name
        )

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attrs for t, attrs in self.tags if t == tag]


def require_own_script(html: str) -> None:
    """The page has one script, that of fcforge, and its policy allows no other."""
    assert html.count("<script") == 1
    assert html.count("<script>") == 1
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in html
    own = files("fcforge.report").joinpath("templates", "page.js")
    assert script == own.read_text("utf-8")


def require_sound(html: str, links: tuple[str, ...] = ()) -> Page:
    """Closed elements, one id each, nothing from elsewhere, no script but our own."""
    page = Page(html)
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert sorted(ids) == sorted(set(ids))
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href", "srcset", "action", "data"):
            found = attrs.get(name)
            if found and tag not in ("image", "use"):
                inside = found.startswith(("#", "data:")) or found in links
                assert inside, (tag, attrs)
                assert not found.startswith("#") or found[1:] in ids, found
    require_own_script(html)
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\x1b\ufeff]", html)
    return page
