"""Walk over subjects: one scan in memory at a time, what is done is not done again.

One subject's trouble is one line; the others finish; the caller learns how many failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fcforge.errors import ConfigError, DataError, FCForgeError
from fcforge.imaging.atlas import Atlas, load_atlas, names_only, read_lut
from fcforge.imaging.extract import Settings, SubjectFC, subject_fc
from fcforge.imaging.group import mixed_trs
from fcforge.imaging.layouts import find_sources
from fcforge.imaging.outputs import (
    bids_label,
    fingerprint,
    is_done,
    read_sidecar,
    refuse_foreign,
    relmat_path,
    software,
    write_dataset,
    write_subject,
    write_table,
)
from fcforge.imaging.people import People, find_people
from fcforge.imaging.series import parse_columns, read_series
from fcforge.imaging.sources import Choice, Source, entities
from fcforge.writing import write_text

Say = Callable[[str], None]
# What numpy, scipy, nilearn and the disk may throw at one subject's odd data: that subject fails
# with the type named, the others go on. Anything else is a bug of ours and stops the program.
SURPRISES = (ValueError, OSError, RuntimeError, LookupError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Outcome:
    """What a walk over subjects came to.

    Attributes
    ----------
    made, kept : tuple of str
        Subjects made now, and found finished from an earlier run.
    failed : tuple of (subject, reason)
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def one_line(error: BaseException) -> str:
    """Message of an error on one line, with its type unless it is one of our own."""
    text = " ".join(str(error).split())
    return text if isinstance(error, FCForgeError) else f"{type(error).__name__}: {text[:200]}"


class QualityPages(Protocol):
    """Writes the quality pages; given from above, as scans are seen one at a time."""

    def subject_page(self, result: SubjectFC, atlas: Atlas, settings: Mapping[str, Any]) -> str:
        """One subject's page as HTML."""

    def group_page(
        self, rows: Sequence[Mapping[str, Any]], failed: Sequence[tuple[str, str]], total: int
    ) -> str:
        """The page of all subjects as HTML."""


@dataclass(frozen=True)
class Request:
    """What `make_fc` is asked for; `commands.fc_command` explains every field."""

    root: Path
    out: Path
    settings: Settings
    atlas: str = "AAL116"
    atlas_image: Path | None = None
    atlas_lut: Path | None = None
    choice: Choice = field(default_factory=Choice)
    layout: str = "auto"
    labels: tuple[str, ...] = ()
    participants: Path | None = None
    pages: QualityPages | None = None
    only_group: bool = False


def make_fc(
    ask: Request, *, progress: Callable[[Iterable[Any], int], Iterable[Any]], say: Say
) -> Outcome:
    """FC of every subject below ``ask.root`` into ``ask.out``.

    Raises
    ------
    FCForgeError
        When nothing can be done at all: no input, no atlas, an unknown setting.
    """
    refuse_foreign(ask.out, ask.root)
    people = find_people(ask.root, ask.participants)
    no_input = {ask.out} | ({ask.participants} if ask.participants else set())
    sources = find_sources(ask.root, ask.choice, ask.layout, frozenset(no_input))
    if not sources:
        what = _nothing_found(ask.root, ask.choice)
        raise DataError(what, where=str(ask.root), do="See --atlas, --space and --layout.")
    atlas = _resolve_atlas(ask, sources)
    if people.path is None:
        say("no participants.tsv found: site and diagnosis are n/a; pass --participants FILE")
    _require_known(people, sources)
    write_dataset(ask.out, atlas, ask.root)
    walk = _Walk(ask, atlas, sources, _recorded(ask.settings, atlas), say)
    wanted = _wanted(sources, people, ask.labels)
    _distinct(wanted)
    made: list[str] = []
    kept: list[str] = []
    failed: list[tuple[str, str]] = []
    for subject in progress(wanted, len(wanted)):
        try:
            (made if walk.make(subject) else kept).append(subject)
        except (FCForgeError, *SURPRISES) as error:
            failed.append((f"sub-{subject}", one_line(error)))
            say(f"sub-{subject} failed: {one_line(error)}")
    for line, count in walk.remarks.items():
        if count > 1:
            say(f"the same for {count - 1} more subjects: {line}")
    outcome = Outcome(tuple(made), tuple(kept), tuple(failed))
    _finish(walk, people, outcome, wanted)
    return outcome


@dataclass(frozen=True)
class _Walk:
    ask: Request
    atlas: Atlas
    sources: Sequence[Source]
    recorded: Mapping[str, Any]
    say: Say
    remarks: Counter[str] = field(default_factory=Counter)

    def of(self, subject: str) -> list[Source]:
        return [s for s in self.sources if s.subject == subject]

    def path(self, subject: str) -> Path:
        return relmat_path(self.ask.out, self.of(subject), self.atlas)

    def make(self, subject: str) -> bool:
        """Make one subject's files; False when they were there already."""
        own = self.of(subject)
        if not own:
            raise DataError("is listed, but there is no scan and no time series of it.")
        path = self.path(subject)
        if self.ask.only_group:
            if not path.with_suffix(".json").exists():
                raise DataError("has no FC yet.", do="Run the participant level first.")
            return False
        key = fingerprint(own, self.atlas, self.recorded)
        if is_done(path, key):
            return False
        _one_file_per_run(own)
        result = subject_fc(own, self.atlas, self.ask.settings)
        for line in _remarks(result, self.atlas):
            self.remarks[line] += 1
            if self.remarks[line] == 1:
                self.say(f"sub-{subject}: {line}")
        if self.ask.pages:
            page = self.ask.pages.subject_page(result, self.atlas, self.recorded)
            write_text(self.ask.out / f"{path.relative_to(self.ask.out).parts[0]}.html", page)
        # The FC sidecar is written last: it marks the subject as done.
        write_subject(self.ask.out, result, self.atlas, self.recorded, key)
        return True


def _remarks(result: SubjectFC, atlas: Atlas) -> list[str]:
    lines = [w for run in result.runs for w in run.warnings]
    if result.empty:
        names = ", ".join(atlas.roi_names[i] for i in result.empty[:5])
        more = ", ..." if len(result.empty) > 5 else ""
        lines.append(f"{len(result.empty)} ROIs without signal, FC 0 ({names}{more})")
    return lines


def _one_file_per_run(own: Sequence[Source]) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for source in own:
        run = (source.session, source.task, source.run)
        if run in seen:
            raise DataError(
                f"two files for one run: {seen[run]} and {source.path.name}.",
                do="Choose with --space, or --select TEXT for a part of the file name.",
            )
        seen[run] = source.path.name


def _wanted(sources: Sequence[Source], people: People, labels: Sequence[str]) -> list[str]:
    """Subjects to make: those named, else all that are listed or found."""
    if labels:
        return sorted({label.removeprefix("sub-") for label in labels})
    return sorted({*people.rows, *(s.subject for s in sources)})


def _require_known(people: People, sources: Sequence[Source]) -> None:
    """A table that lists nobody who was found is of other people, or has other ids."""
    found = sorted({s.subject for s in sources})
    if people.rows and not people.rows.keys() & set(found):
        raise DataError(
            f"lists none of the {len(found)} subjects found (it has '{min(people.rows)}', the "
            f"files '{found[0]}').",
            where=str(people.path),
            do="Ids must be those in the file names; the ABIDE files of the PCP are read as they "
            "are by dataset 'abide'.",
        )


def _distinct(subjects: Sequence[str]) -> None:
    """BIDS names keep letters and digits alone; two subjects must not end in one file."""
    seen: dict[str, str] = {}
    for subject in subjects:
        twin = seen.setdefault(bids_label(subject), subject)
        if twin != subject:
            raise DataError(
                f"subjects '{twin}' and '{subject}' would both be sub-{bids_label(subject)}.",
                do="Rename one of them.",
            )


def _resolve_atlas(ask: Request, sources: Sequence[Source]) -> Atlas:
    name, lut, settings = ask.atlas, ask.atlas_lut, ask.settings
    try:
        return load_atlas(name, image=ask.atlas_image, lut=lut)
    except ConfigError:
        if any(source.kind == "scan" for source in sources):
            raise
    # Series made elsewhere need no volume: names come from the table or the first file.
    if lut is not None:
        return names_only(_tag(name), tuple(read_lut(lut)["name"].astype(str)))
    for source in sources:
        try:
            series = read_series(source.path, variable=settings.variable)
        except DataError:
            continue
        columns = parse_columns(settings.columns) or slice(None)
        n = series.values[:, columns].shape[1]
        names = series.names[columns] or tuple(f"ROI_{i + 1}" for i in range(n))
        return names_only(_tag(name), tuple(names))
    raise DataError("no time series could be read.", where=str(sources[0].path.parent))


def _tag(name: str) -> str:
    return "".join(c for c in name if c.isalnum())


def _nothing_found(root: Path, choice: Choice) -> str:
    there = {
        found.get("seg") or found.get("atlas") or ""
        for path in root.glob("sub-*/**/*_timeseries.*")
        if (found := entities(path.name))
    }
    atlases = ", ".join(sorted(there - {""}))
    known = f" Time series there are of: {atlases}." if atlases else ""
    return f"nothing for atlas {choice.atlas} with this task, session and space.{known}"


def _recorded(settings: Settings, atlas: Atlas) -> dict[str, Any]:
    plain = asdict(settings)
    plain["denoise"] = settings.denoise.describe()
    return {**plain, "atlas": atlas.describe(), "fcforge": software()["fcforge"]}


def _finish(walk: _Walk, people: People, outcome: Outcome, wanted: Sequence[str]) -> None:
    """participants.tsv, the list of failures and the group page, from what is on disk."""
    out = walk.ask.out
    failed = [*_failed_before(out, wanted), *outcome.failed]
    rows = _participants(walk, people, {who for who, _ in failed})
    if rows:
        columns = list(rows[0])
        write_table(out / "participants.tsv", columns, [[r[c] for c in columns] for r in rows])
    write_table(out / "logs" / "failed.tsv", ["participant_id", "reason"], failed)
    for line in mixed_trs(rows):
        walk.say(line)
    if walk.ask.pages:
        page = walk.ask.pages.group_page(rows, failed, len(rows) + len(failed))
        write_text(out / "group.html", page)


def _failed_before(out: Path, wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Failures of earlier runs for subjects that were not asked for now."""
    log = out / "logs" / "failed.tsv"
    if not log.exists():
        return []
    lines = [line.split("\t", 1) for line in log.read_text().splitlines()[1:]]
    now = {f"sub-{subject}" for subject in wanted}
    return [(who, why) for who, why in (ln for ln in lines if len(ln) == 2) if who not in now]


def _participants(walk: _Walk, people: People, failed: set[str]) -> list[Mapping[str, Any]]:
    rows = []
    out = walk.ask.out
    for subject in sorted({s.subject for s in walk.sources}):
        path = walk.path(subject)
        if f"sub-{subject}" in failed or not path.with_suffix(".json").exists():
            continue
        side = read_sidecar(path)
        known = people.of(subject)
        made = {
            "mean_fd": _text(side["MeanFD"]),
            "n_volumes": side["Volumes"],
            "tr": _text(side["RepetitionTime"]),
            "mean_fc": _text(side["MeanFC"]),
            "n_empty_rois": len(side["EmptyROIs"]),
            "min_coverage": _text(side["MinCoverage"]),
        }
        name = path.relative_to(out).parts[0]
        rows.append(
            {
                "participant_id": name,
                "original_id": subject,
                **{k: v for k, v in known.items() if k not in made or made[k] == "n/a"},
                **{k: v for k, v in made.items() if not (v == "n/a" and k in known)},
                "file": str(path.relative_to(out)),
            }
        )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return [{c: row.get(c, "n/a") for c in columns} for row in rows]


def _text(value: Any) -> str:
    return "n/a" if value is None else f"{value:.4g}"
