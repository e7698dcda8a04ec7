"""Every table and figure of README, paper/RESULTS.md and docs, made from paper/results/*.npz.

    make tables          # or: python paper/benchmarks/make_tables.py
    python paper/benchmarks/make_tables.py --check   # says what is stale, and changes nothing
    python paper/benchmarks/make_tables.py --check --only buffer sums   # of some pages, by name

paper/RESULTS.md and the pages of docs/results are rendered from the templates of paper/pages (pages.py).

Another page asks for a table between two comments; what stands between them is replaced:

    <!-- table sums curve abide1_aal116.npz 200 -->  ...  <!-- end -->

Beside the tables every NAME.npz gives NAME.csv with all columns (sums.npz and sums_attacks.npz too:
`sums_scores`; four_hospitals.npz: `four_hospitals_scores`), and the figures of docs/images are drawn.
Numbers are rounded twice (`fcforge.core.formatting.rounded`): every CPU writes the same bytes.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # small products: threads would wait for each other
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

import four_hospitals_scores  # noqa: E402
import sums_scores  # noqa: E402
import sums_tables  # noqa: E402
from pages import PORTRAITS, Pages  # noqa: E402
from paper_tables import Finished  # noqa: E402
from scores import read_table  # noqa: E402

from fcforge.evaluation.tables import Row  # noqa: E402
from fcforge.report.results_table import rows_csv  # noqa: E402

RESULTS, IMAGES = ROOT / "paper" / "results", ROOT / "docs" / "images"
RESULT_PAGES = Pages(RESULTS)
MARKED = re.compile(r"(<!-- table (\S+) (.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@cache
def read(name: str) -> tuple[Finished, dict[str, Any]]:
    """Return a table of paper/results, and what was told about it."""
    return read_table(RESULTS / f"{name}.npz")


def table_names() -> list[str]:
    """Return the tables of runs in paper/results, the largest first."""
    files = sorted(RESULTS.glob("*.npz"), key=lambda path: -path.stat().st_size)
    names = [path.stem for path in files if not path.stem.endswith(PORTRAITS)]
    return [n for n in names if n not in (*sums_tables.SCORED, sums_tables.FOUR)]


@cache
def tables() -> dict[str, Finished]:
    """Return the tables of paper/results by name, the largest first."""
    return {name: read(name)[0] for name in table_names()}


@cache
def sums(name: str) -> sums_scores.Stored:
    """Return the stored scores of sums."""
    return sums_scores.read_scores(RESULTS / f"{name}.npz")


def sums_rows(asked: tuple[str, int]) -> list[dict[str, object]]:
    """Return the lines of one cell of a spreadsheet of sums."""
    name, cell = asked
    return sums_scores.rows_of_cell(sums(name), cell)


def sums_sheets(jobs: int) -> dict[str, str]:
    """Return the spreadsheets of sums by name, from the stored scores alone."""
    asked = [
        (name, c) for name in sums_tables.SCORED for c in range(len(sums(name).cells))
    ]
    rows: dict[str, list[dict[str, object]]] = {}
    for (name, _), lines in zip(
        asked, side_by_side(jobs, sums_rows, asked), strict=True
    ):
        rows.setdefault(name, []).extend(lines)
    of_four = four_hospitals_scores.read_scores(RESULTS / f"{sums_tables.FOUR}.npz")
    rows[sums_tables.FOUR] = four_hospitals_scores.summary(of_four)
    return {name: sums_scores.sheet(lines) for name, lines in rows.items()}


VIEWS: Mapping[str, Callable[[str, str], str]] = {
    "audit": lambda name, _: RESULT_PAGES.audit(name),
    "by_hospitals": sums_tables.by_hospitals,
    "by_rois": sums_tables.by_rois,
    "costs": sums_tables.costs,
    "curve": sums_tables.curve,
    "fits": sums_tables.fits,
    "groups": sums_tables.groups,
    "in_orders": sums_tables.in_orders,
    "many": sums_tables.many,
    "ran": sums_tables.about,
    "template": lambda _, rest: RESULT_PAGES.render(rest).rstrip(),
}
SLOW = ("template",)


def pages() -> list[Path]:
    """Pages that ask for tables."""
    every = [
        ROOT / "README.md",
        ROOT / "paper" / "RESULTS.md",
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
    templated = RESULT_PAGES.pages().values()
    return [
        p
        for p in every
        if p not in templated
        and "_build" not in p.parts
        and MARKED.search(p.read_text())
    ]


def view_of(asked: tuple[str, str]) -> str:
    """Return the text for a page's placeholder: a view of a table, with its options."""
    kind, _, rest = asked[1].partition(" ")
    return VIEWS[kind](asked[0], rest)


def filled(page: Path, made: Mapping[tuple[str, str], str]) -> str:
    """A page with its tables made anew."""
    return MARKED.sub(lambda m: f"{m[1]}{made[m[2], m[3]]}\n{m[5]}", page.read_text())


def rows_of(name: str) -> dict[str, Row]:
    """Lines of a table, all of its columns: what takes the time."""
    return read(name)[0].rows


def side_by_side(
    jobs: int, work: Callable[[Any], Any], items: Iterable[Any]
) -> list[Any]:
    """Work on every item, in processes that know the tables read so far where there is fork."""
    if jobs == 1 or "fork" not in get_all_start_methods():
        return [work(item) for item in items]
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        return list(pool.map(work, items))


def make(jobs: int) -> dict[Path, str]:
    """Return the new texts of all pages and spreadsheets."""
    for table, rows in zip(
        tables().values(), side_by_side(jobs, rows_of, tables()), strict=True
    ):
        vars(table)["rows"] = rows  # as if computed here
    RESULT_PAGES.use({name: read(name) for name in tables()})
    of_sums = sums_sheets(jobs)
    sums_tables.use(of_sums)
    sheets = {
        name: rows_csv(list(table.rows.values())) for name, table in tables().items()
    } | of_sums
    return (
        with_tables(jobs, pages())
        | rendered(jobs, RESULT_PAGES.pages())
        | {RESULTS / f"{name}.csv": text for name, text in sheets.items()}
    )


def make_some(jobs: int, only: Sequence[str]) -> dict[Path, str]:
    """Return the new texts of the named pages, e.g. "sums" for docs/results/sums.md.

    Tables of sums are made from the stored spreadsheets.

    Raises
    ------
    ValueError
        If there is no page of a name.
    """
    templates = {
        Path(name.removesuffix(".j2")).stem: name for name in RESULT_PAGES.pages()
    }
    marked = [page for page in pages() if page.stem in only]
    unknown = {*only} - {*templates, *(page.stem for page in marked)}
    if unknown:
        raise ValueError(f"no page is named {', '.join(sorted(unknown))}")
    named = [templates[name] for name in templates if name in only]
    return with_tables(jobs, marked) | rendered(jobs, named)


def with_tables(jobs: int, asking: Sequence[Path]) -> dict[Path, str]:
    """Return the texts of pages with the tables made anew that they ask for."""
    asked = {
        match.group(2, 3)
        for page in asking
        for match in MARKED.finditer(page.read_text())
    }
    slow_first = sorted(asked, key=lambda a: (a[1].partition(" ")[0] not in SLOW, a))
    made = dict(zip(slow_first, side_by_side(jobs, view_of, slow_first), strict=True))
    return {page: filled(page, made) for page in asking}


def rendered(jobs: int, names: Iterable[str]) -> dict[Path, str]:
    """Return the texts of pages that have a template, by the names of these."""
    asked = list(names)
    texts = side_by_side(jobs, RESULT_PAGES.render, asked)
    every = RESULT_PAGES.pages()
    return {every[name]: text for name, text in zip(asked, texts, strict=True)}


def main() -> int:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; 1 if stale"
    )
    parser.add_argument("--only", nargs="+", default=[], help="pages by name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    try:
        made = make_some(args.jobs, args.only) if args.only else make(args.jobs)
    except ValueError as error:
        parser.error(str(error))
    stale = [p for p, t in made.items() if not p.is_file() or p.read_text() != t]
    for path in stale:
        print(f"{'stale' if args.check else 'written'}: {path.relative_to(ROOT)}")
    if not args.check and args.only:
        for path, text in made.items():
            path.write_text(text)
    elif not args.check:
        from table_figures import draw

        for path, text in made.items():
            path.write_text(text)
        draw(RESULTS, IMAGES)
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
