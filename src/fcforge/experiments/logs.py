"""Logs of a run's site trainings as one CSV table or as TensorBoard event files.

Every node (one site training) keeps the log of its own training (`fcforge.core.training_log`), written
together with its scores. Both formats are made from the nodes' logs. So they hold every site of every run
exactly once, also after runs that were killed and continued.
"""

import csv
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fcforge.core.errors import StoreError
from fcforge.core.files import whole_file, write_bytes
from fcforge.core.formatting import no_formula, printable
from fcforge.core.identity import digest
from fcforge.core.options import LogFormat
from fcforge.core.spec import RunSpec
from fcforge.core.training_log import GENERATOR, Entry, entries_of
from fcforge.experiments.pipelines import PIPELINE
from fcforge.experiments.plan import Plan
from fcforge.experiments.store import Store
from fcforge.experiments.tensorboard import Scalar, event_file
from fcforge.experiments.work import Progress

LOG_PATHS = {"csv": "log.csv", "tensorboard": "tensorboard"}
COLUMNS = (
    "learner",
    "seed",
    "order",
    "position",
    "site",
    "name",
    "past_site",
    "epoch",
    "value",
)
ALL_SITES = "(all sites)"  # site of a learner that is trained on all of them at once
LONGEST = 200  # largest number of bytes in a folder's name; most systems allow 255
SECONDS = 10.0  # time between two updates of the event files


class LoggedSite(NamedTuple):
    """Log of one run at one site.

    Attributes
    ----------
    spec : RunSpec
        The run, with its whole order.
    position : int
        Position of the site in the order, counted from 0.
    site : str
    key : str
        Key of the node that was trained.
    """

    spec: RunSpec
    position: int
    site: str
    key: str

    def entries(self, store: Store) -> list[Entry] | None:
        """Return the entries of the log; None if the node was trained without one."""
        stored = store.read_log(self.key)
        try:
            return None if stored is None else entries_of(stored)
        except (KeyError, TypeError, ValueError) as error:
            where = store.folder(self.key)
            raise StoreError(f"damaged log ({error}).", where=where) from error


def logged_sites(plan: Plan) -> Iterator[LoggedSite]:
    """Yield every site of every run; a learner that trains once on all sites is yielded once per run."""
    for spec, keys in plan.runs:
        trained = keys[1:]
        if len(trained) > 1 and len(set(trained)) == 1:
            yield LoggedSite(spec, 0, ALL_SITES, trained[0])
            continue
        for position, key in enumerate(trained):
            yield LoggedSite(spec, position, spec.order[position], key)


def unlogged(store: Store, plan: Plan) -> list[str]:
    """Return the keys of stored networks that were trained without a log.

    Untrained networks (of depth 0) and scikit-learn estimators never have one, and are not meant.
    """
    whole, _ = store.complete(plan.nodes, checksums=False)
    return [
        key
        for key, node in plan.nodes.items()
        if key in whole
        and node.depth
        and node.spec.learner.method.name != PIPELINE
        and store.read_log(key) is None
    ]


# -- CSV -------------------------------------------------------------------------------------------
def write_csv(store: Store, plan: Plan) -> None:
    """Write ``log.csv`` with a row for every number of every run, site and epoch."""
    whole, _ = store.complete(plan.nodes, checksums=False)
    with (
        whole_file(store.root / LOG_PATHS["csv"]) as part,
        part.open("w", newline="", encoding="utf-8") as stream,
    ):
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        for one in logged_sites(plan):
            entries = one.entries(store) if one.key in whole else None
            for entry in entries or ():
                table.writerow(map(_cell, _row(one, entry)))


def _row(one: LoggedSite, entry: Entry) -> tuple[str | int | float, ...]:
    """Return the cells of an entry, in the order of `COLUMNS`."""
    run = one.spec.learner.title, one.spec.seed, ">".join(one.spec.order)
    place = one.position + 1, one.site
    return (*run, *place, entry.name, entry.past_site, entry.epoch, entry.value)


def _cell(value: str | int | float) -> str | int | float:
    """Return a value for the table; text that a spreadsheet would read as a formula is escaped."""
    return no_formula(printable(value)) if isinstance(value, str) else value


# -- TensorBoard -----------------------------------------------------------------------------------
def write_tensorboard(store: Store, plan: Plan) -> None:
    """Write an event file for every finished site of every run that has none yet."""
    whole, _ = store.complete(plan.nodes, checksums=False)
    for one in logged_sites(plan):
        path = event_path(store.root / LOG_PATHS["tensorboard"], one)
        if one.key not in whole or path.is_file():
            continue
        if entries := one.entries(store):  # a closed form has none
            write_bytes(path, event_file(scalars(one, entries), time.time()))


UNSAFE = re.compile(
    r"[^\w >()+=,.-]|^\.+|[. ]+$|^$|^(?:con|prn|aux|nul|com\d|lpt\d)(?=\.|$)",
    re.IGNORECASE,
)


def event_path(folder: Path, one: LoggedSite) -> Path:
    """Return the event file of a run at a site.

    A run is a folder, which TensorBoard shows as one curve. It reads the files of a folder in the
    order of their names.
    """
    parts = [*one.spec.learner.title.split("/"), f"seed {one.spec.seed}"]
    parts.append(">".join(one.spec.order))
    file = f"events.out.tfevents.{one.position + 1:010d}.{one.key}"
    return folder.joinpath(*map(folder_name, parts), file)


def folder_name(text: str) -> str:
    """Return the name of a folder for any text; different texts have different names.

    A ``>`` between two sites becomes ``~``. Percent-encoded are other characters outside a safe set, full
    stops at the beginning, full stops and spaces at the end, an empty text (as %00) and the device names of
    Windows, which cannot hold such names. A name that is too long is cut and ends with a digest of the text.

    Examples
    --------
    >>> folder_name("NYU>A/B"), folder_name(".."), folder_name("é 100 %")
    ('NYU~A%2FB', '%2E%2E', 'é 100 %25')
    """
    encoded = re.sub(UNSAFE, lambda m: "".join(map(_code, m[0] or "\0")), text)
    encoded = encoded.replace(">", "~")  # an own ~ of the text is %7E
    if len(encoded.encode()) <= LONGEST:
        return encoded
    return f"{encoded[:40]}...{digest([text])}"


def _code(character: str) -> str:
    """Return a character as its percent code, for example %2F."""
    return f"%{ord(character):02X}"


def scalars(one: LoggedSite, entries: Sequence[Entry]) -> list[Scalar]:
    """Return the entries of a site's log as points of curves that run on from site to site.

    Parameters
    ----------
    one : LoggedSite
    entries : sequence of Entry

    Returns
    -------
    list of Scalar
        The step of a point is its epoch, counted from the beginning of the run. Epochs of a generator are
        counted by themselves.
    """
    of_generator = [e.epoch for e in entries if e.name.startswith(GENERATOR)]
    generator_epochs = max(of_generator, default=0)
    made = []
    for entry in entries:
        epochs_per_site = one.spec.training.epochs
        if entry.name.startswith(GENERATOR):
            epochs_per_site = generator_epochs
        tag = f"{entry.name}/{entry.past_site}" if entry.past_site else entry.name
        step = one.position * epochs_per_site + entry.epoch
        made.append(Scalar(tag, step, entry.value))
    return sorted(made, key=lambda scalar: scalar.step)


# -- during a run ----------------------------------------------------------------------------------
@contextmanager
def written_logs(
    store: Store, plan: Plan, log: LogFormat | None, progress: Progress
) -> Iterator[tuple[Plan, Progress]]:
    """Log all site trainings inside the ``with`` block and write the logs in a format.

    The block has to train the yielded plan and report to the yielded function. Event files are written while
    the block runs, the CSV table when it ends, also after an error.

    Parameters
    ----------
    store : Store
    plan : Plan
    log : {"csv", "tensorboard"} or None
        Format; None keeps no log.
    progress : callable
        As for `fcforge.experiments.run.run_experiment`.

    Yields
    ------
    plan : Plan
        The plan whose nodes keep a log.
    progress : callable
        The function to call in place of `progress`.
    """
    if log is None:
        yield plan, progress
        return
    nodes = {key: replace(node, logged=True) for key, node in plan.nodes.items()}
    next_update = time.monotonic() + SECONDS

    def progress_with_logs(done: int, total: int, last: str) -> None:
        """Report progress, and write new event files from time to time."""
        nonlocal next_update
        progress(done, total, last)
        if log == "tensorboard" and time.monotonic() > next_update:
            write_tensorboard(store, plan)
            next_update = time.monotonic() + SECONDS

    write = write_csv if log == "csv" else write_tensorboard
    try:
        yield replace(plan, nodes=nodes), progress_with_logs
    finally:
        write(store, plan)
