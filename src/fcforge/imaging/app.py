"""`fcforge fc`: FC of every subject of a folder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from fcforge.errors import DataError
from fcforge.imaging.atlas import Atlas, is_aal, load_atlas, names_only, read_lut
from fcforge.imaging.extract import SubjectFC, subject_fc
from fcforge.imaging.layouts import find_sources, made_by
from fcforge.imaging.methods_text import Methods, describe_methods
from fcforge.imaging.options import FCRequest
from fcforge.imaging.outputs import (
    bids_label,
    fingerprint,
    is_done,
    refuse_foreign,
    relmat_path,
    software,
    write_dataset,
    write_failed,
    write_subject,
    write_table,
)
from fcforge.imaging.people import ParticipantTable, Row, find_people, mixed_trs, participant_rows
from fcforge.imaging.series import parse_columns, read_series
from fcforge.imaging.sources import VARIANTS, Source, sidecar_of
from fcforge.imaging.walk import Outcome, Progress, Say, no_progress, walk, wanted
from fcforge.writing import write_text


class QualityPages(Protocol):
    """Draws the quality pages; each returns HTML."""

    def subject_page(self, result: SubjectFC, atlas: Atlas, settings: Mapping[str, Any]) -> str:
        """Page of one subject."""

    def group_page(
        self, rows: Sequence[Row], failed: Sequence[tuple[str, str]], methods: Methods
    ) -> str:
        """Page of all subjects."""


def fc_folder(
    request: FCRequest,
    *,
    say: Say,
    progress: Progress = no_progress,
    pages: QualityPages | None = None,
) -> Outcome:
    """FC of every subject below ``request.source`` into ``request.out``, in BIDS names.

    Parameters
    ----------
    request : FCRequest
    say : callable
        Gets one line of text at a time.
    progress : callable
        ``progress(items, total)`` yields the items while it draws.
    pages : QualityPages, optional
        Draws the quality pages that ``request.report`` asks for; None draws none.

    Raises
    ------
    FCForgeError
        When nothing can be done at all: no input, no atlas, an unknown setting.
    """
    recorded = request.recorded  # an unknown method is said before the folder is searched
    refuse_foreign(request.out, request.source)
    people = find_people(request.source, request.participants)
    sources = find_sources(request, say)
    atlas = _resolve_atlas(request, sources)
    if people.path is None:
        say("no participants.tsv found: site and diagnosis are n/a; pass --participants FILE")
    found = {subject: list(own) for subject, own in groupby(sources, key=lambda s: s.subject)}
    _require_known(people, sorted(found))
    subjects = _distinct(wanted(request.participant_label, people.rows, found))
    write_dataset(request.out, atlas, request.source)
    recorded = {**recorded, "atlas": atlas.describe(), "fcforge": software()["fcforge"]}
    maker = _Maker(request, atlas, found, recorded, say, pages if request.report else None)
    outcome = walk(subjects, maker.make, progress, say)
    maker.finish(people, outcome, subjects)
    for line in outcome.summary(request.out, "have FC"):
        say(line)
    return outcome


@dataclass(frozen=True)
class _Maker:
    request: FCRequest
    atlas: Atlas
    sources: Mapping[str, list[Source]]
    recorded: Mapping[str, Any]
    say: Say
    pages: QualityPages | None
    remarks: Counter[str] = field(default_factory=Counter)

    def path(self, subject: str) -> Path:
        return relmat_path(self.request.out, self.sources[subject], self.atlas)

    def make(self, subject: str) -> bool:
        """Make one subject's files; False when they were there already."""
        own = self.sources.get(subject)
        if not own:
            raise DataError("is listed, but there is no scan and no time series of it.")
        path = self.path(subject)
        if self.request.level == "group":
            if not sidecar_of(path).exists():
                raise DataError("has no FC yet.", do="Run the participant level first.")
            return False
        key = fingerprint(own, self.atlas, self.recorded)
        if is_done(path, key):
            return False
        _one_scan_per_run(own, self.request.session)
        result = subject_fc(own, self.atlas, self.request)
        for line in _remarks(result, self.atlas):
            self.remarks[line] += 1
            if self.remarks[line] == 1:
                self.say(f"sub-{subject}: {line}")
        if self.pages:
            page = self.pages.subject_page(result, self.atlas, self.recorded)
            write_text(self.request.out / f"sub-{bids_label(subject)}.html", page)
        # The FC sidecar is written last: it marks the subject as done.
        write_subject(self.request.out, result, self.atlas, self.recorded, key)
        return True

    def finish(self, people: ParticipantTable, outcome: Outcome, asked: Sequence[str]) -> None:
        """participants.tsv, the list of failures and the group page, from what is on disk."""
        for line, count in self.remarks.items():
            if count > 1:
                self.say(f"the same for {count - 1} more subjects: {line}")
        out = self.request.out
        failed = write_failed(out, outcome.failed, asked)
        bad = {who for who, _ in failed}
        files = {s: self.path(s) for s in sorted(self.sources) if f"sub-{s}" not in bad}
        rows = participant_rows(out, files, people)
        if rows:
            columns = list(rows[0])
            write_table(out / "participants.tsv", columns, [[r[c] for c in columns] for r in rows])
        for line in mixed_trs(rows):
            self.say(line)
        methods = self.methods(len(rows), len(rows) + len(failed))
        write_text(out / "methods.md", methods.markdown())
        self.say(f"a methods paragraph for your paper is in {out / 'methods.md'}")
        if self.pages:
            write_text(out / "group.html", self.pages.group_page(rows, failed, methods))

    def methods(self, n_done: int, total: int) -> Methods:
        """The paragraph for a paper."""
        source = next(iter(self.sources.values()))[0]
        try:
            tool = made_by(self.request.source)
        except DataError:  # a damaged description does not undo what was made
            tool = ""
        return describe_methods(self.request, self.atlas, source, tool, (n_done, total))


def _remarks(result: SubjectFC, atlas: Atlas) -> list[str]:
    lines = [w for run in result.runs for w in run.warnings]
    if result.empty:
        names = ", ".join(atlas.roi_names[i] for i in result.empty[:5])
        more = ", ..." if len(result.empty) > 5 else ""
        lines.append(f"{len(result.empty)} ROIs without signal, FC 0 ({names}{more})")
    return lines


def _one_scan_per_run(own: Sequence[Source], session: str) -> None:
    """Runs of one subject are joined; scans that are not runs of one experiment are a question."""
    seen: dict[tuple[str, ...], Path] = {}
    for source in own:
        run = (source.session, source.task, source.variant.get("dir", ""), source.run)
        twin = seen.setdefault(run, source.path)
        if twin != source.path and _variant(own) is None:
            what = f"two files for one run: {twin.name} and {source.path.name}."
            do = "Choose with --space, or --select TEXT for a part of the file name."
            raise DataError(what, do=do)
    if found := _variant(own):
        raise DataError(
            f"several scans of one run: {', '.join(found)}.", do=f"Choose one: --select {found[0]}."
        )
    sessions = sorted({source.session for source in own})
    if len(sessions) > 1 and session != "all":
        what = f"several sessions: {', '.join(sessions)}."
        do = f"Choose one: --session {sessions[0]}; or join them: --session all."
        raise DataError(what, do=do)


def _variant(own: Sequence[Source]) -> list[str] | None:
    """Values of the first entity but ``dir`` in which the scans of a subject differ."""
    for key in VARIANTS:
        values = sorted({source.variant.get(key, "") for source in own})
        if key != "dir" and len(values) > 1:
            return [f"{key}-{value}" if value else f"no {key}" for value in values][::-1]
    return None


def _require_known(people: ParticipantTable, found: Sequence[str]) -> None:
    """A table that lists nobody who was found is of other people, or has other ids."""
    if people.rows and not people.rows.keys() & set(found):
        raise DataError(
            f"lists none of the {len(found)} subjects found (it has '{min(people.rows)}', the "
            f"files '{found[0]}').",
            where=str(people.path),
            do="Ids must be those in the file names; the ABIDE files of the PCP are read as they "
            "are by dataset 'abide'.",
        )


def _distinct(subjects: list[str]) -> list[str]:
    """BIDS names keep letters and digits alone; two subjects must not end in one file."""
    seen: dict[str, str] = {}
    for subject in subjects:
        twin = seen.setdefault(bids_label(subject), subject)
        if twin != subject:
            what = f"subjects '{twin}' and '{subject}' would both be sub-{bids_label(subject)}."
            do = "Rename one of them."
            raise DataError(what, do=do)
    return subjects


def _resolve_atlas(request: FCRequest, sources: Sequence[Source]) -> Atlas:
    if any(source.kind == "scan" for source in sources) or is_aal(request.atlas):
        return load_atlas(request.atlas, image=request.atlas_image, lut=request.atlas_lut)
    # Series made elsewhere need no volume: names come from the table or the first file.
    name = bids_label(request.atlas)
    if request.atlas_lut is not None:
        return names_only(name, tuple(read_lut(request.atlas_lut)["name"].astype(str)))
    columns = parse_columns(request.columns) or slice(None)
    for source in sources:
        try:
            series = read_series(source.path, variable=request.variable)
        except DataError:
            continue
        n = series.values[:, columns].shape[1]
        return names_only(name, series.names[columns] or tuple(f"ROI_{i + 1}" for i in range(n)))
    raise DataError("no time series could be read.", where=str(sources[0].path.parent))
