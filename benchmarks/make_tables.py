"""Every table and figure of README, REPRODUCIBILITY.md and docs, made from results/*.npz.

    make tables          # or: python benchmarks/make_tables.py
    python benchmarks/make_tables.py --check   # says what is stale, and changes nothing

A page asks for a table between two comments; what stands between them is replaced:

    <!-- table main_529 beside -->  ...  <!-- end -->

Beside the tables every NAME.npz gives NAME.csv with all columns, and two of them the figures of
docs/images.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import paper_tables  # noqa: E402
from paper_tables import Finished  # noqa: E402
from scores import read_table  # noqa: E402

from fcforge.report.results import as_csv  # noqa: E402
from fcforge.stats import Row  # noqa: E402

ROOT = HERE.parent
RESULTS, IMAGES = ROOT / "results", ROOT / "docs" / "images"
NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?\d+\.\d+")
MARKED = re.compile(r"(<!-- table (\S+) (.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@cache
def read(name: str) -> tuple[Finished, dict[str, Any]]:
    """A table of results/ and what was told about it."""
    return read_table(RESULTS / f"{name}.npz")


class Tables(Mapping[str, Finished]):
    """Tables of results/ by name, read when they are asked for."""

    def __getitem__(self, name: str) -> Finished:
        if not (RESULTS / f"{name}.npz").is_file():
            raise KeyError(name)
        return read(name)[0]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(RESULTS.glob("*.npz")))

    def __len__(self) -> int:
        return len(list(iter(self)))


TABLES = Tables()


def _about(name: str) -> str:
    table, told = read(name)
    where = f"`experiments/{name.partition('+')[0]}.toml`"
    return f"{where}: {table.about()}; commit {told['commit'][:10]}."


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# README: learner, what leaves each hospital, the strongest attack (docs/results/releases.md).
SHORT = (
    ("majority class", "counts", ""),
    ("public head alone", "nothing", ""),
    ("DP ridge, epsilon 8", "noisy second moments", ""),
    ("ridge", "exact second moments", "1.00"),
    ("ridge + start", "exact second moments", "1.00"),
    ("release, exact", "18 numbers", "0.71 to 0.84"),
    ("release, epsilon 1", "**18 noisy numbers**", "**0.56 to 0.58**"),
)


def _short(name: str) -> str:
    heads = ["learner", "leaves each hospital", "accuracy along the way", "AUROC, the same way"]
    lines = [
        [title, leaves, *paper_tables.numbers(TABLES[name].rows[title], ("aaa", "auroc")), attack]
        for title, leaves, attack in SHORT
    ]
    return paper_tables.markdown([*heads, "strongest attack"], lines)


VIEWS: Mapping[str, Callable[[str, str], str]] = {
    "about": lambda name, _: _about(name),
    "beside": lambda name, _: paper_tables.beside(name, TABLES),
    "order": lambda name, rest: paper_tables.order_table(name, rest, TABLES),
    "spearman": lambda name, _: paper_tables.spearman(name, TABLES),
    "plain": lambda name, rest: paper_tables.plain(name, _split(rest), TABLES),
    "short": lambda name, _: _short(name),
    "stages": lambda name, _: paper_tables.stages(name, TABLES),
}


def pages() -> list[Path]:
    """Pages that ask for tables."""
    every = [ROOT / "README.md", ROOT / "REPRODUCIBILITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [p for p in every if "_build" not in p.parts and MARKED.search(p.read_text())]


def filled(page: Path) -> str:
    """A page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        head, name, view, _, end = match.groups()
        kind, _, rest = view.partition(" ")
        return f"{head}{VIEWS[kind](name, rest)}\n{end}"

    return MARKED.sub(made, page.read_text())


def agree(one: str, other: str, tolerance: float = 0.0011) -> bool:
    """Whether two texts are equal but for the last digit, which another CPU may round otherwise."""
    (words, numbers), (others, more) = (
        (
            NUMBER.sub("#", text),
            [float(n.replace("\N{MINUS SIGN}", "-")) for n in NUMBER.findall(text)],
        )
        for text in (one, other)
    )
    close = all(abs(a - b) <= tolerance for a, b in zip(numbers, more, strict=False))
    return words == others and close


def rows_of(name: str) -> dict[str, Row]:
    """Lines of a table, all of its columns: what takes the time."""
    return TABLES[name].rows


def figures() -> None:
    """The curve figures, where there are scores for them."""
    from table_figures import draw

    draw(TABLES, IMAGES)


def make(jobs: int | None = None) -> dict[Path, str]:
    """New texts of all pages and spreadsheets."""
    if jobs != 1:
        with ProcessPoolExecutor(jobs) as pool:
            for name, rows in zip(TABLES, pool.map(rows_of, TABLES), strict=True):
                vars(TABLES[name])["rows"] = rows  # as if computed here
    made = {page: filled(page) for page in pages()}
    sheets = {RESULTS / f"{name}.csv": as_csv(list(TABLES[name].rows.values())) for name in TABLES}
    return made | sheets


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if stale")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    made = make(args.jobs)
    stale = [p for p, text in made.items() if not p.is_file() or not agree(p.read_text(), text)]
    for path in stale:
        print(f"{'stale' if args.check else 'written'}: {path.relative_to(ROOT)}")
    if not args.check:
        for path, text in made.items():
            path.write_text(text)
        figures()
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
