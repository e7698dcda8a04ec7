"""Pages of consortium files for ``fcforge pages``."""

from pathlib import Path

from fcforge.report.page_kinds import Page, PageKind
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.page import page_of, pictures


def consortium_page(path: Path, name: str, home: str) -> Page:
    """Make the page of a consortium file after verifying it.

    Parameters
    ----------
    path : Path
    name : str
        Name of the file in the overview.
    home : str
        Address of the overview.
    """
    exchange = open_exchange(path)
    description = describe(exchange)
    summary = [", ".join(description.sites) or "no hospital yet", description.kind]
    summary += [answer.say for answer in description.answers]
    if description.real_subjects:
        summary.append("Carries real subjects.")
    return Page(page_of(description, name, home, pictures(exchange)), summary)


CONSORTIUM_FILES = PageKind(
    "exchange",
    "Consortium files",
    "Signed records that travel between hospitals, and the model that follows from them. A file is "
    "shown only after every check of `fcforge consortium verify` has passed.",
    ("*.fcx",),
    consortium_page,
)
