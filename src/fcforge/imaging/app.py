"""`fcforge fc`: FC of every subject of a folder.

A source is an input file of one run (`fcforge.imaging.layouts.Source`). A sidecar is the JSON file beside a
data file. IN and OUT are the input and output folders of the command line.
"""

import multiprocessing
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from itertools import combinations, groupby, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from fcforge.core.console import say
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.files import write_text
from fcforge.core.formatting import abbreviated, counted
from fcforge.imaging import cifti, layouts, outputs, people, series
from fcforge.imaging.atlas import (
    Atlas,
    aal116,
    is_aal,
    load_atlas,
    names_only,
    read_lut,
)
from fcforge.imaging.extract import subject_fc
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.people import Exclusion, Failure, Outcome, People

_METHODS: dict[str, dict[str, str]] = tomllib.loads(
    files("fcforge.imaging").joinpath("methods.toml").read_text("utf-8")
)
SENTENCES = _METHODS["sentences"]
ATLAS_WORKS = _METHODS["atlas_works"]
TOOL_NAMES = _METHODS["tool_names"]


def fc_folder(request: FCRequest, pages: ModuleType) -> Outcome:
    """Make FC of every subject below ``request.source`` and write it into ``request.out``, in BIDS names.

    Parameters
    ----------
    request : FCRequest
        Options of the command.
    pages : module
        `fcforge.report.quality`, which makes the pages if ``request.report`` is set.

    Returns
    -------
    Outcome
        Subjects that are done, and those that failed with the reason.

    Raises
    ------
    FCForgeError
        If nothing can be done at all: no input, no atlas, an unknown setting.
    """
    _ = request.denoising  # an unknown method is refused before a folder is searched
    outputs.refuse_foreign(request.out, request.source)
    sources = layouts.find_sources(request)
    runs = {
        subject: list(group)
        for subject, group in groupby(sources, key=lambda s: s.subject)
    }
    rows = _people_of(request, runs)
    subjects = people.wanted(request.participant_label, rows, runs)
    # BIDS names have only letters and digits; two subjects must not get the same file.
    for first, second in pairwise(sorted(subjects, key=outputs.bids_label)):
        if (label := outputs.bids_label(first)) == outputs.bids_label(second):
            raise DataError(
                f"subjects '{first}' and '{second}' would both be named sub-{label}.",
                do="Rename one of them.",
            )
    _explain_denoising(request, sources)
    atlas = _resolve_atlas(request, sources)
    maker = _Maker(request, atlas, runs, pages)
    if request.level == "group":
        outcome = maker.group(rows)
        say(_next_command(request.out))
        return outcome
    if not request.overwrite:
        maker.refuse_overwriting(subjects)
    name = "fcforge functional connectivity"
    outputs.write_description(request.out, request.source, name)
    outcome = maker.make_all(subjects)
    maker.finish(rows, outcome)
    outcome.print_summary(request.out, "have FC", _next_command(request.out))
    return outcome


def _next_command(out: Path) -> str:
    """Return the command that comes after this one."""
    return f"next: fcforge check {shlex.quote(str(out))}"


def _explain_denoising(request: FCRequest, sources: Sequence[Source]) -> None:
    """Print that another tool has denoised the input, and refuse options that would have no effect.

    Parameters
    ----------
    request : FCRequest
    sources : sequence of Source
        All input files.

    Raises
    ------
    ConfigError
        If an option for denoising is given for runs that are denoised already, ``--min-coverage`` for
        series, or ``--columns`` for scans.
    """
    kinds = " and ".join(sorted({f"{source.kind}s" for source in sources}))
    kinds = kinds.replace("seriess", "series").replace("matrixs", "matrices")
    tool = sources[0].tool
    if unused := request.unused_options(sources):
        verb = "has" if len(unused) == 1 else "have"
        raise ConfigError(
            f"{', '.join(unused)} {verb} no effect on the {kinds} found (layout {tool}).",
            where=request.source,
            do="Leave the option out, or choose other files with --layout.",
        )
    if all(source.denoised for source in sources):
        say(
            f"the {kinds} are used as they are (layout {tool}): fcforge removes no confounds and "
            "does not filter them"
        )


def _people_of(request: FCRequest, runs: Mapping[str, list[Source]]) -> People:
    """Read the table of participants, and print which subjects have no row in it.

    Parameters
    ----------
    request : FCRequest
    runs : mapping of subject to list of Source

    Returns
    -------
    mapping of subject to mapping of column to cell
        Subjects are named as in the names of the files. Empty where there is no table.

    Raises
    ------
    ConfigError
        If ``--columns`` names columns of a table and there is none.
    DataError
        If the table has no row of any subject.
    """
    path = request.participants or people.find_table(request.source)
    if path is None and request.table_columns:
        raise ConfigError(
            "--columns names columns of a table of participants, and there is none.",
            where=str(request.source),
            do="Pass --participants FILE.",
        )
    if path is None:
        say("no participants.tsv found: nobody has a site; pass --participants FILE")
        return {}
    table = people.read_people(path, runs, request.table_columns)
    rows = people.under_ids_of(runs, table)
    unlisted = sorted(runs.keys() - rows.keys())
    if len(unlisted) == len(runs):
        example = f"it has '{min(rows)}', the files '{min(runs)}'"
        raise DataError(
            f"lists none of the {len(runs)} subjects found ({example}).",
            where=path,
            do="Ids must be those in the file names; name their column: --columns id=COLUMN.",
        )
    if unlisted:
        count = counted(len(unlisted), "subject")
        without_files = sorted(rows.keys() - runs.keys())
        typos = [
            f" The table has {listed}, which has no files: did you mean {subject}?"
            for subject, listed in people.likely_typos(unlisted, without_files)
        ]
        unlisted_text = f"{count} without a row in {path.name}: {abbreviated(unlisted)}"
        say(f"{unlisted_text}.{''.join(typos)}" if typos else unlisted_text)
    return rows


@dataclass(frozen=True)
class _Maker:
    """Work of one call of `fc_folder`: the FC of each subject, then the files of the group.

    Attributes
    ----------
    request : FCRequest
    atlas : Atlas
    sources : mapping of subject to list of Source
        Input files of each subject's runs.
    pages : module
        `fcforge.report.quality`.
    remarks : list of (str, str)
        Subject, with ``sub-``, and a warning to print at the end.
    """

    request: FCRequest
    atlas: Atlas
    sources: Mapping[str, list[Source]]
    pages: ModuleType
    remarks: list[tuple[str, str]] = field(default_factory=list)

    def path(self, subject: str) -> Path:
        """Return the path of a subject's FC file."""
        return outputs.relmat_path(self.request.out, self.sources[subject], self.atlas)

    def fingerprint(self, subject: str) -> str:
        """Return the hash of all inputs and settings of one subject."""
        request = self.request
        runs = self.sources[subject]
        settings = [request.tr, request.denoising, request.settings_of(runs)]
        return outputs.fingerprint(runs, self.atlas, settings)

    def refuse_overwriting(
        self,
        subjects: Sequence[str],
        do: str = "Choose another OUT, or pass --overwrite to replace it.",
    ) -> None:
        """Raise `DataError` if OUT holds finished FC of a subject that this call would replace.

        Parameters
        ----------
        subjects : sequence of str
        do : str
            Advice at the end of the message.
        """
        replaced = [
            f"sub-{outputs.bids_label(subject)}"
            for subject in subjects
            if subject in self.sources
            and outputs.is_other(self.path(subject), self.fingerprint(subject))
        ]
        if replaced:
            raise DataError(
                f"OUT holds FC of {counted(len(replaced), 'subject')} ({abbreviated(replaced)}) that was "
                "made from other files, with other settings or by another version of fcforge.",
                where=self.request.out,
                do=do,
            )

    def make(self, subject: str) -> bool:
        """Make the files of one subject.

        Returns
        -------
        bool
            Whether they were made; False if they are there already, from the same input and settings.

        Raises
        ------
        FCForgeError
            If the subject has no input, or input that cannot be used.
        """
        runs = self.sources.get(subject)
        if not runs:
            if spaces := layouts.other_spaces(self.request.source, subject):
                raise Exclusion(
                    f"has no scan in MNI space, which FC needs; there is: {abbreviated(spaces)}.",
                    do=layouts.TO_MNI,
                )
            raise Exclusion(people.NO_SCAN)
        path = self.path(subject)
        request = self.request
        key = self.fingerprint(subject)
        if outputs.is_done(path, key):
            return False
        # Without its sidecar a subject counts as unfinished until the new files are written.
        layouts.sidecar_of(path).unlink(missing_ok=True)
        _require_one_scan(runs, request.session)
        result = subject_fc(runs, self.atlas, request)
        self.remarks.extend((f"sub-{subject}", warning) for warning in result.warnings)
        if request.report:
            page = self.pages.subject_page(result, self.atlas)
            write_text(request.out / f"sub-{outputs.bids_label(subject)}.html", page)
        # The FC sidecar is written last: it marks the subject as done.
        outputs.write_subject(request.out, result, self.atlas, key, request.source)
        return True

    def make_all(self, subjects: Sequence[str]) -> Outcome:
        """Make the files of all subjects, in ``request.n_cpus`` processes.

        Raises
        ------
        DataError
            If the system killed a process.
        """
        n_cpus = min(self.request.n_cpus, len(subjects))
        if n_cpus < 2:
            return people.walk(subjects, self.make)
        arguments = (self.request, self.atlas, self.sources, self.pages.__name__)
        with ProcessPoolExecutor(
            n_cpus,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=arguments,
        ) as pool:
            try:
                results = pool.map(_make_in_worker, subjects)
                return people.walk(subjects, self.make, self._noted(results))
            except BrokenProcessPool:
                raise DataError(
                    "a process was killed; there may not be enough memory for so many processes.",
                    where=self.request.out,
                    do="Run the same again with a smaller --n-cpus; finished subjects are kept.",
                ) from None

    def _noted(
        self, results: Iterable[tuple[bool | Failure, list[tuple[str, str]]]]
    ) -> Iterator[bool | Failure]:
        """Yield the results of `_make_in_worker` and store the remarks that come with them."""
        for result, remarks in results:
            self.remarks.extend(remarks)
            yield result

    def group(self, known: People) -> Outcome:
        """Write the tables, the page and the file of all FC from the files of the participant level.

        Parameters
        ----------
        known : mapping of subject to row
            Table of participants.

        Returns
        -------
        Outcome
            Subjects with finished FC, as ``kept``.

        Raises
        ------
        ConfigError
            If single participants are requested.
        DataError
            If OUT holds no FC of these files with these settings.
        """
        if self.request.participant_label:
            raise ConfigError(
                "--participant-label has no effect at the group level, which takes all subjects.",
                do="Leave it out.",
            )
        done = [
            subject
            for subject in sorted(self.sources)
            if outputs.is_done(self.path(subject), self.fingerprint(subject))
        ]
        self.refuse_overwriting(
            sorted(self.sources),
            "Pass the options of the participant level at the group level, too.",
        )
        if not done:
            raise DataError(
                f"holds no FC of atlas {self.atlas.name}.",
                where=self.request.out,
                do="Run the participant level first: fcforge fc IN OUT participant.",
            )
        outcome = Outcome((), tuple(done), ())
        rows = self.finish(known, outcome)
        path = outputs.write_cohort(self.request.out, rows, self.atlas)
        say(f"FC of {counted(len(done), 'subject')} is in {path}")
        if missing := sorted(self.sources.keys() - set(done)):
            say(
                f"{counted(len(missing), 'subject')} without FC: {abbreviated(missing)}"
            )
        return outcome

    def finish(self, known: People, outcome: Outcome) -> pd.DataFrame:
        """Write participants.tsv, the list of failures and the group page from the files on disk.

        Parameters
        ----------
        known : mapping of subject to row
            Table of participants.
        outcome : Outcome
            Result of this call.

        Returns
        -------
        DataFrame
            Rows of participants.tsv.
        """
        for line in people.by_reason(self.remarks):
            say(line)
        out = self.request.out
        failed = outputs.write_failed(out, outcome)
        files = {subject: self.path(subject) for subject in sorted(self.sources)}
        rows = people.participant_table(out, files, known)
        if len(rows):
            outputs.write_participants(out, rows)
        tool = ""
        with suppress(DataError):  # a damaged description does not undo what was made
            tool = layouts.made_by(self.request.source)
        first = next(iter(self.sources.values()))[0]
        reports = [
            report
            for path in files.values()
            for report in layouts.read_json(layouts.sidecar_of(path)).get("Runs", ())
        ]
        for message in people.mixed_trs(rows):
            say(message)
        methods = describe_methods(
            self.request, self.atlas, first, tool, reports, failed, len(rows)
        )
        write_text(out / "methods.md", f"# Methods\n\n{methods}\n")
        quality = outputs.group_quality(out, files, rows, self.atlas)
        if self.request.report:
            page = self.pages.group_page(rows, failed, methods, quality)
            write_text(out / "group.html", page)
            say(f"the quality of all subjects is in {out / 'group.html'}")
        say(f"a methods paragraph for your paper is in {out / 'methods.md'}")
        return rows


_worker: list[_Maker] = []  # the maker of this process, if it is one of several


def _start_worker(
    request: FCRequest, atlas: Atlas, sources: Mapping[str, list[Source]], pages: str
) -> None:
    """Make the `_Maker` of a worker process; `pages` is the name of its module."""
    _worker[:] = [_Maker(request, atlas, sources, import_module(pages))]


def _make_in_worker(subject: str) -> tuple[bool | Failure, list[tuple[str, str]]]:
    """Make one subject's files in a worker process.

    Returns
    -------
    result : bool or Failure
        From `people.attempt`.
    remarks : list of (str, str)
        From `_Maker.remarks`.
    """
    (maker,) = _worker
    maker.remarks.clear()
    return people.attempt(maker.make, subject), list(maker.remarks)


def _require_one_scan(sources: Sequence[Source], session: str) -> None:
    """Raise `DataError` if a subject has files that are not runs of the same kind of scan.

    Parameters
    ----------
    sources : sequence of Source
        Files of one subject. Their names may differ in run and phase direction only, and with
        `session` "all" in the session.
    session : str
        Option ``--session``.
    """
    joinable = {"dir", "run", "ses"} if session == "all" else {"dir", "run"}
    for first, second in combinations(sources, 2):
        differing = {key for key, _ in first.entities.items() ^ second.entities.items()}
        if not differing or differing - joinable:
            raise DataError(
                f"{first.path.name} and {second.path.name} are not two runs of one scan.",
                do="Choose one: --select with a part of its name, --session-label LABEL (--session all "
                "joins sessions), or --bids-filter-file.",
            )


def _resolve_atlas(request: FCRequest, sources: Sequence[Source]) -> Atlas:
    """Load the requested atlas; for series that another tool made, only names of ROIs are needed."""
    if request.dense:
        return cifti.load_parcellation(Path(request.atlas))
    if any(source.kind == "scan" for source in sources):
        return load_atlas(request.atlas, lut=request.atlas_lut)
    if is_aal(request.atlas):
        return aal116()
    name = outputs.bids_label(request.atlas)
    if request.atlas_lut is not None:
        names_by_label, _ = read_lut(request.atlas_lut)
        return names_only(name, tuple(names_by_label.values()))
    columns = series.parse_columns(request.series_columns)
    for source in sources:  # the first readable one; its subject reports a damaged one
        with suppress(DataError):
            values, names = (
                cifti.read_parcel_matrix(source.path)
                if source.kind == "matrix"
                else series.read_series(source.path, request.variable)
            )
            numbers = range(1, values[:, columns].shape[1] + 1)
            roi_names = names[columns] or tuple(f"ROI_{i}" for i in numbers)
            return names_only(name, roi_names)
    raise DataError("no time series could be read.", where=sources[0].path.parent)


def describe_methods(
    request: FCRequest,
    atlas: Atlas,
    source: Source,
    made_by: str,
    reports: Sequence[Mapping[str, Any]],
    failed: Sequence[Failure],
    n_done: int,
) -> str:
    """Describe in words for a paper how the FC was made.

    Parameters
    ----------
    request : FCRequest
    atlas : Atlas
    source : Source
        One of the runs; all were left by the same tool.
    made_by : str
        Name and version that the input folder gives, "" where it gives none.
    reports : sequence of mapping
        Steps applied to each run, as the sidecars of FC list them (``Runs``).
    failed : sequence of Failure
        Subjects without FC.
    n_done : int
        Number of subjects with FC.

    Returns
    -------
    str
        A paragraph, made of the sentences of methods.toml that apply.
    """
    regressed = source.has_confounds and request.denoising.parameters
    own_preprocessing = made_by.startswith("fcforge preprocess")
    counts = Counter(failure.criterion for failure in failed)
    scrubbed = sum(report.get("VolumesScrubbed", 0) for report in reports)
    # By the key of a sentence in methods.toml: whether it applies. The order is that of the paragraph.
    keys = {
        "fcforge" if own_preprocessing else source.tool: True,
        "aroma": request.aroma and source.has_confounds,
        "dropped": request.drop,
        "rois": True,
        _signal_sentence(atlas): source.kind == "scan",
        "uncovered": source.kind == "scan",
        "regressed" if regressed else "detrended": not source.denoised,
        "scrubbed": scrubbed,
        "band": not source.denoised and _bands(reports),
        "matrix" if source.kind == "matrix" else "fc": True,
        "empty_rois": True,
        "too_few_dof": not source.denoised,
        "too_short": source.denoised and counts["too_few_dof"],
        "no_data": counts["no_data"],
        "error": counts["error"],
        "done": True,
        "software": True,
    }
    sentences = "".join(f" {SENTENCES[key]}" for key, holds in keys.items() if holds)
    options = request.denoising.parameters.items()
    values = {
        "tool": made_by or TOOL_NAMES.get(source.tool, source.tool),
        "confounds": ", ".join(f"{name} = {value}" for name, value in options),
        "bands": _bands(reports),
        "scrubbed": scrubbed,
        "atlas_work": _atlas_work(atlas),
        "n_done": n_done,
        "total": n_done + len(failed),
        "min_volumes": request.min_dof + 2,
    }
    excluded = {
        name: counted(counts[name], "subject")
        for name in ("no_data", "empty_rois", "too_few_dof", "error")
    }
    return sentences.strip().format(
        request=request, atlas=atlas, **values, **excluded, **outputs.software()
    )


def _signal_sentence(atlas: Atlas) -> str:
    """Return the key of the sentence in methods.toml on how the signal of a ROI was computed."""
    if atlas.parcellation is not None:
        return "parcels"
    return "maps" if atlas.probabilistic else "labels"


def _bands(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the pass bands of the runs in words, "" if none was filtered.

    The band can differ between runs: where fMRIPrep's cosine confounds were regressed, they are the
    high-pass, and the filter has only an upper end.

    Parameters
    ----------
    reports : sequence of mapping
        As for `describe_methods`.
    """
    bands = Counter(
        tuple(report.get("ButterworthHz", (None, None))) for report in reports
    )
    texts = []
    for (low, high), n_runs in bands.most_common():
        ends = [f"above {low:g} Hz"] if low else []
        ends += [f"below {high:g} Hz"] if high else []
        text = " and ".join(ends) or "without limit"
        texts.append(text if len(bands) == 1 else f"{text} in {counted(n_runs, 'run')}")
    return "; ".join(texts) if any(map(any, bands)) else ""


def _atlas_work(atlas: Atlas) -> str:
    """Return the work to cite for an atlas, in brackets; "" where it is unknown."""
    name = atlas.name.lower()
    for pattern, work in ATLAS_WORKS.items():
        if re.fullmatch(pattern, name):
            return f"; {work}"
    return ""
