"""Kinds of things that `fcforge pages` makes pages of; packages add kinds by entry points.

An entry point of the group ``fcforge.pages`` names a `PageKind`. The consortium package adds the
page of its files in this way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from fcforge.core.errors import ConfigError

GROUP = "fcforge.pages"


class Page(NamedTuple):
    """A page and its summary.

    Attributes
    ----------
    html : str
    summary : sequence of str
        Lines of the card in the overview.
    """

    html: str
    summary: Sequence[str]


@dataclass(frozen=True)
class PageKind:
    """A kind of thing that has a page.

    Attributes
    ----------
    name : str
        Prefix of the pages' file names: lower-case letters.
    title, note : str
        Heading in the overview, and the sentence below it; `commands` in backticks.
    patterns : tuple of str
        File names (with wildcards) by which a thing is recognised; all must be in the folder.
    make : callable
        ``(path, name, home) -> Page``: the thing, its name below the searched folder, and the
        address of the overview. It may raise any error; the overview then shows a page that names
        the damage.
    is_folder : bool
        Whether the folder is the thing, and nothing below it is searched. Otherwise every file
        that matches the pattern is one.
    """

    name: str
    title: str
    note: str
    patterns: tuple[str, ...]
    make: Callable[[Path, str, str], Page]
    is_folder: bool = False

    def find(self, folder: Path, files: Mapping[str, Path]) -> Iterator[Path]:
        """Yield the things of this kind in one folder.

        Parameters
        ----------
        folder : Path
        files : mapping of file name to Path
            Files of the folder, without links and hidden files.
        """
        matches = [
            [path for name, path in files.items() if fnmatch(name, pattern)]
            for pattern in self.patterns
        ]
        if self.is_folder:
            if all(matches):
                yield folder
        else:
            for paths in matches:
                yield from paths


def installed_page_kinds() -> list[PageKind]:
    """Return the page kinds that other packages register.

    Raises
    ------
    ConfigError
        If an entry point of the group ``fcforge.pages`` is not a `PageKind`.
    """
    kinds = []
    for entry in entry_points(group=GROUP):
        kind = entry.load()
        if not isinstance(kind, PageKind):
            raise ConfigError(
                f"{entry.value} is not a PageKind.",
                where=f"entry point '{entry.name}' of group {GROUP}",
                do="Correct or uninstall the plug-in.",
            )
        kinds.append(kind)
    return kinds
