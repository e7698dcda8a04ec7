"""What an exchange file says of itself: plain values, decided here and only shown by reports.

A model describes itself (`Model.describe`). Four questions are answered of every file, in the same
words whatever the model: who signed it, what travels, does it work on real people, and can an
attacker tell who took part.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fcforge.exchange.records import AttackRow
from fcforge.text import counted, memory, percent

if TYPE_CHECKING:
    from fcforge.exchange.exchange import Exchange

Level = Literal["good", "warn", "alarm", ""]  # "" where nothing follows

SIGNED = "Who signed it?"
TRAVELS = "What travels?"
WORKS = "Does it work on real people?"
ATTACKED = "Can an attacker tell who took part?"
COMMONEST = "always naming the commonest class"


@dataclass(frozen=True)
class Bar:
    """A share with its interval on an axis from 0 to 1, and a line to compare it with.

    Attributes
    ----------
    name : str
    value, low, high : float
        NaN where there is no interval.
    line : float
        The dashed line; NaN without one.
    line_is : str
        What that line stands for.
    small : str
        Small print under the name.
    kind : {"", "leak"}
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    line: float = math.nan
    line_is: str = ""
    small: str = ""
    kind: str = ""

    @property
    def beyond(self) -> bool:
        """Whether the whole interval lies above the line."""
        return self.low > self.line


@dataclass(frozen=True)
class Answer:
    """A question and its answer in a sentence, what more there is to say, and bars."""

    question: str
    kind: Level
    say: str
    more: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class PlainTable:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Passage:
    """Lines of text under a title: every number of a release, the sentences of an audit."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """All that is said of an exchange file.

    Attributes
    ----------
    kind : str
        "releases around a public start", "chain of hospitals".
    id : str
        Of the exchange.
    model : str
        What computes an answer, in a phrase.
    sites : tuple of str
        Hospitals, in order where there is one.
    answers : tuple of Answer
        To the four questions.
    facts : mapping of str to str
        Short ones, for the head of a page.
    tables : tuple of PlainTable
        People and sites, who wrote what, and whatever else is tabular.
    passages : tuple of Passage
    settings : mapping
        The contract all hospitals share, nested, in plain values.
    curves : mapping of site to values after each site
        Accuracy over a chain; NaN before a site was learned.
    real_subjects : bool
        Whether somebody's scans are inside.
    """

    kind: str
    id: str
    model: str
    sites: tuple[str, ...]
    answers: tuple[Answer, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[PlainTable, ...] = ()
    passages: tuple[Passage, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    real_subjects: bool = False


# -- answers ---------------------------------------------------------------------------------------
class Signable(Protocol):
    """A record as far as signatures go; `key` is empty where nobody signed it."""

    @property
    def site(self) -> str: ...  # noqa: D102

    @property
    def key(self) -> str: ...  # noqa: D102


def who_signed(records: Iterable[Signable]) -> Answer:
    """Whether every author signed what it wrote."""
    found = list(records)
    if not found:
        return Answer(SIGNED, "", "No hospital has given anything yet.")
    unsigned = sorted({record.site for record in found if not record.key})
    if unsigned:
        say = f"Not everybody: {', '.join(unsigned)} did not sign."
        why = "Whoever had the file could have made what is not signed."
        return Answer(SIGNED, "warn", say, (why,))
    keys = {record.site: record.key[:16] for record in found}
    say = f"Everybody signed what is theirs ({counted(len(keys), 'author')})."
    more = (
        f"Keys: {', '.join(f'{site} {key}' for site, key in sorted(keys.items()))}.",
        "`fcforge verify --trust KEY.pub` tells whether a key is the sender's.",
    )
    return Answer(SIGNED, "good", say, more)


def releases_travel(
    n_numbers: int,
    n_releases: int,
    n_public: int,
    exact: Sequence[str] = (),
    withdrawn: Sequence[str] = (),
) -> Answer:
    """What is in a file of releases.

    Parameters
    ----------
    n_numbers : int
        Of each release.
    n_releases, n_public : int
        Releases, and public people behind the start.
    exact, withdrawn : sequence of str
        Sites that gave numbers without noise, and sites that took theirs back.
    """
    given = counted(n_releases, "release")
    say = f"A public start and {n_numbers} numbers for each of {given}."
    more = [
        f"By its description the start was made from {n_public} public people; a hospital "
        "that shares an id with them is refused.",
        "The head is not in the file: whoever opens it computes it from the releases.",
    ]
    if exact:
        more.append(f"WARNING: exact numbers without noise from {', '.join(exact)}.")
    if withdrawn:
        names = ", ".join(withdrawn)
        more.append(f"Withdrawn, and no longer in the model: {names}.")
    return Answer(TRAVELS, "alarm" if exact else "good", say, tuple(more))


KEPT = {
    "nothing": "only; no subject, real or synthetic",
    "statistics": "and summary statistics of each site's subjects",
    "synthetic subjects": "and synthetic subjects made by a generator",
    "real subjects": "and REAL SUBJECTS of earlier sites",
}


def chain_travels(
    keeps: str, arrays: Sequence[str], *, exact: bool, real_subjects: bool
) -> Answer:
    """What is in a file of a chain.

    Parameters
    ----------
    keeps : str
        What the method carries on, a key of `KEPT`.
    arrays : sequence of str
        What the arrays of the last step hold, in sentences.
    exact : bool
        Whether sums of people without noise are among them.
    real_subjects : bool
    """
    more = list(arrays)
    if real_subjects:
        flag = "--allow-real-subjects"
        more.append(f"WARNING: sealed with {flag}: this file is patient data.")
    else:
        more.append(
            "No raw scan is stored. That is not the same as private: see the audit."
        )
    if exact:
        more.append(
            "Exact statistics give away who was added to them: treat as patient data."
        )
    level: Level = "good" if keeps == "nothing" else "warn"
    if real_subjects or exact:
        level = "alarm"
    return Answer(TRAVELS, level, f"The network {KEPT[keeps]}.", tuple(more))


def works_at_home(tests: Sequence[Bar]) -> Answer:
    """What each hospital measured on real people of its own when it had just learned."""
    if not tests:
        return Answer(WORKS, "warn", "Not known: no hospital kept real test subjects.")
    last = tests[-1]
    against = ", rounded"
    if math.isfinite(last.line):
        against = f"; {COMMONEST} gets {percent(last.line)}"
    say = (
        f"Right for {percent(last.value)} of the real test subjects of {last.name}"
        f"{against}."
    )
    n_good = sum(test.beyond for test in tests)
    more = (
        "Better than the commonest class, beyond chance, at "
        f"{n_good} of {counted(len(tests), 'site')}. Each hospital measured its own test "
        "subjects when it had just learned."
    )
    return Answer(WORKS, "good" if last.beyond else "warn", say, (more,), tuple(tests))


def works_at_unseen_sites(
    accuracy: tuple[float, float, float] | None, majority: float | None, people: int
) -> Answer:
    """What a public start alone does at public sites that it has not seen.

    Parameters
    ----------
    accuracy : (value, low, high), optional
    majority : float, optional
        Accuracy of `COMMONEST` there.
    people : int
    """
    if accuracy is None or majority is None:
        return Answer(
            WORKS, "warn", "Not known: the public people are too few to tell."
        )
    bar = Bar("public start", *accuracy, line=majority, line_is=COMMONEST)
    say = (
        f"The public start alone is right for {percent(bar.value)}; "
        f"{COMMONEST} gets {percent(majority)}."
    )
    more = (
        f"Measured on {people} people at public sites it has not seen. What the hospitals "
        "add is measured at home: `fcforge evaluate`."
    )
    return Answer(WORKS, "good" if bar.beyond else "warn", say, (more,), (bar,))


def strongest_attack(attacks: Sequence[AttackRow], missing: Sequence[str]) -> Answer:
    """The strongest of all attacks that hospitals recorded; `missing` recorded none."""
    rows = [row for row in attacks if not row.reference]
    if not rows:
        how = "Each hospital can, on its own data: `fcforge audit`."
        say = "Not measured: no audit is recorded in this file."
        return Answer(ATTACKED, "warn", say, (how,))
    worst = max(rows, key=lambda row: (row.beats_chance, row.auc))
    more = [
        "Shown one person who took part and one who did not, the strongest attack picks the right "
        f"one {100 * worst.auc:.0f} times in 100; guessing gets 50."
    ]
    if missing:
        more.append(f"Not audited as it travels now: {', '.join(missing)}.")
    say = "No attack tried told who took part."
    level: Level = "good"
    if worst.beats_chance:
        say = "An attacker can tell who took part."
        level = "alarm"
    bar = Bar(
        f"{worst.attack}, on {worst.release}",
        worst.auc,
        line=0.5,
        line_is="guessing",
        kind="leak" if worst.beats_chance else "",
    )
    return Answer(ATTACKED, level, say, tuple(more), (bar,))


def nobody_took_part() -> Answer:
    """A start, perhaps with notices of rounds whose sums are not there, or all withdrawn."""
    return Answer(ATTACKED, "", "Nothing that people gave is in the file.")


def exact_numbers(sites: Sequence[str], audits: Sequence[str] = ()) -> Answer:
    """Sums without noise promise nothing."""
    say = f"Nothing is promised at {', '.join(sites)}: the numbers are exact."
    more = ("Treat this file as patient data.", *audits)
    return Answer(ATTACKED, "alarm", say, more)


def promised_privacy(
    site: str, epsilon: float, delta: float, bound: float, audits: Sequence[str] = ()
) -> Answer:
    """What differential privacy promises, whatever the attack.

    Parameters
    ----------
    site : str
        Where one person has spent most.
    epsilon, delta : float
        That person's budget, over all releases.
    bound : float
        Largest share of pairs that any attack can tell apart with it.
    audits : sequence of str
        What hospitals found when they attacked their own releases.
    """
    say = f"No attack can be right more than {100 * bound:.0f} times in 100; guessing gets 50."
    more = (
        "That is for one person who took part and one who did not, whatever else the attacker "
        f"knows: differential privacy, epsilon {epsilon:g} (delta {delta:g}), the most that a "
        f"person of any hospital has spent (at {site})."
    )
    bar = Bar(f"bound for epsilon {epsilon:g}", bound, line=0.5, line_is="guessing")
    level: Level = "good" if epsilon <= 1 else "warn"
    return Answer(ATTACKED, level, say, (more, *audits), (bar,))


# -- tables of any exchange ------------------------------------------------------------------------
def parts_table(exchange: "Exchange") -> PlainTable:
    """Bytes and numbers of each author's part, counted from the file."""
    rows = []
    for site in sorted({record.site for record in exchange.everything}):
        mine = [record for record in exchange.everything if record.site == site]
        size = sum(len(record.line) for record in mine)
        numbers = 0
        for record in mine:
            if record.payload in exchange.payloads:
                size += len(exchange.payloads[record.payload])
                numbers += sum(array.size for array in exchange.arrays(record).values())
        rows.append((site, str(len(mine)), memory(size), str(numbers)))
    columns = ("author", "records", "size", "numbers in arrays")
    return PlainTable("What the file holds of whom", columns, tuple(rows))


def records_table(exchange: "Exchange") -> PlainTable:
    """Who wrote what, when, and signed by which key."""
    rows = []
    for record in exchange.everything:
        signed = f"key {record.key[:16]}" if record.key else "not signed"
        rows.append((record.title, record.time, signed, record.fcforge, record.id[:12]))
    columns = ("record", "time", "signature", "fcforge", "id")
    return PlainTable("Records", columns, tuple(rows))
