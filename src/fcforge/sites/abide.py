"""ABIDE I as preprocessed by the PCP, through nilearn's own fetcher, offline or online.

The fetcher gives the 1,035 subjects that the phenotypic file names a file of, 871 of them passed
by all raters. Of the other 77 rows (FILE_ID ``no_filename``) the PCP's bucket has DPARSF series of
67 under the usual names; with them there are the paper's 529 people of four sites.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.error import HTTPError
from urllib.request import urlopen

from fcforge.components import check_names
from fcforge.errors import DataError
from fcforge.imaging.atlas import aal116
from fcforge.imaging.series import pearson_fc, read_series
from fcforge.sites.cohort import Cohort, Fault, paper_site
from fcforge.sites.participants import Participant, Reading, assemble
from fcforge.writing import write_bytes

if TYPE_CHECKING:
    import pandas as pd

# The paper numbers the 17 merged sites in alphabetical order.
_SITES = "CALTECH CMU KKI LEUVEN MAX_MUN NYU OHSU OLIN PITT SBL SDSU STANFORD TRINITY UCLA UM"
PAPER_SITES = dict(enumerate([*_SITES.split(), "USM", "YALE"], start=1))
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
OUTPUTS = "https://s3.amazonaws.com/fcp-indi/data/Projects/ABIDE_Initiative/Outputs"
ATLASES = (
    "rois_aal",
    "rois_cc200",
    "rois_cc400",
    "rois_dosenbach160",
    "rois_ez",
    "rois_ho",
    "rois_tt",
)
COVARIATES = {"age": "AGE_AT_SCAN", "sex": "SEX", "mean_fd": "func_mean_fd"}
# nilearn's `quality_checked`
PASSED = {f"qc_{part}_rater_2": ["OK", "maybe"] for part in ("anat", "func")}
PASSED |= {key: ["OK"] for key in ("qc_rater_1", "qc_anat_rater_3", "qc_func_rater_3")}
UNLISTED = "no_filename"
TRIES = 3
GIVE_UP = 3
Quality = Literal["checked", "all", "every"]
Fetch = Callable[..., Any]
Get = Callable[[str], bytes]
wait = time.sleep


def load_abide(
    path: str | Path,
    *,
    sites: Sequence[str | int] | Literal["all"] = ("NYU", "UCLA", "UM", "USM"),
    derivative: str = "rois_aal",
    pipeline: str = "cpac",
    band_pass: bool = True,
    global_signal: bool = False,
    quality: Quality = "checked",
    merge: bool = True,
    download: bool = False,
    fetch: Fetch | None = None,
    get: Get | None = None,
) -> Cohort:
    """ABIDE I subjects as FC.

    Parameters
    ----------
    path : path
        Folder that holds (or, with `download`, will hold) nilearn's ``ABIDE_pcp``.
    sites : sequence of str or int, or "all"
        Site names, or the paper's numbers (6 = NYU, 14 = UCLA, 15 = UM, 16 = USM), or "all".
    derivative, pipeline, band_pass, global_signal
        What the PCP computed: ``rois_aal`` or another ROI set, ``cpac`` / ``ccs`` / ``dparsf`` /
        ``niak``, filtered or not, global signal removed or not.
    quality : {"checked", "all", "every"}
        Subjects passed by every rater (871), all that the phenotypic file names a file of (1,035),
        or every row: of those without a file name DPARSF has series all the same (see
        `_names`).
    merge : bool
        UM_1 and UM_2 are one site, as are UCLA's and LEUVEN's.
    download : bool
        Fetch what is missing, subject by subject; what is there is not fetched again.
    fetch, get : callable, optional
        In place of ``nilearn.datasets.fetch_abide_pcp`` and of the one that reads a URL.

    Returns
    -------
    Cohort
        Label 1 = ASD (DX_GROUP 1). Covariates age, sex (1 male, 2 female), mean_fd, n_volumes.
    """
    check_names("ABIDE pipeline", [pipeline], PIPELINES)
    check_names("ABIDE derivative", [derivative], ATLASES)
    check_names("quality", [quality], ("checked", "all", "every"))
    path = Path(path).expanduser()
    root = path.parent if path.name == "ABIDE_pcp" else path
    method = f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"
    files = _Files(root / "ABIDE_pcp", pipeline, method, derivative)
    asked = {
        "pipeline": pipeline,
        "band_pass_filtering": band_pass,
        "global_signal_regression": global_signal,
        "derivatives": [derivative],
        "quality_checked": quality == "checked",
    }
    ask = partial(fetch or _nilearn, data_dir=str(root), verbose=0, **asked)
    table = _phenotypes(files.root, ask if download else None)
    names = None
    if sites != "all":
        names = [paper_site(site, PAPER_SITES, "ABIDE") for site in sites]
    people = _people(table, quality, merge, names)
    series = _names(table)
    if download:
        listed = frozenset(table["FILE_ID"])
        lost = _Fetcher(files, listed, ask, get or _read_url).fetch(people, series)
    else:
        lost = {}
        people, faults = _those_with_a_file(people, series, files)
    reader = partial(_read, files, series, lost)
    cohort = assemble("abide", people, reader, [] if download else faults)
    wanted = [name for name in dict.fromkeys(names or ()) if name in cohort.site_names]
    cohort = cohort.select_sites(wanted) if wanted else cohort
    about = {"pipeline": pipeline, "method": method, "atlas": derivative}
    return cohort.stamped(path=str(root), quality=quality, **about)


def _nilearn(**settings: Any) -> Any:
    from nilearn.datasets import fetch_abide_pcp

    return fetch_abide_pcp(**settings)


def _read_url(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        return answer.read()


@dataclass(frozen=True)
class _Files:
    """Where nilearn keeps one kind of series, and where the PCP has them."""

    root: Path
    pipeline: str
    method: str
    derivative: str

    @property
    def folder(self) -> Path:
        return self.root / self.pipeline / self.method

    def of(self, names: Sequence[str]) -> Path | None:
        """The file of a subject under one of its names, if it is there."""
        return next((path for path in map(self.path, names) if path.exists()), None)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}_{self.derivative}.1D"

    def url(self, name: str) -> str:
        place = f"{OUTPUTS}/{self.pipeline}/{self.method}/{self.derivative}"
        return f"{place}/{self.path(name).name}"


def _phenotypes(folder: Path, ask: Fetch | None) -> "pd.DataFrame":
    """The phenotypic file, with ids as text."""
    import pandas as pd

    file = folder / PHENOTYPES
    if ask is None and not folder.is_dir():
        do = "Give the folder nilearn downloaded into, or set download = true."
        raise DataError("no folder ABIDE_pcp here.", where=folder.parent, do=do)
    if ask and not file.exists():
        ask(n_subjects=0)
    if not file.exists():
        raise DataError("no phenotypic file.", where=file, do="Set download = true.")
    return pd.read_csv(file).astype({"SUB_ID": str})


def _people(
    table: "pd.DataFrame", quality: str, merge: bool, sites: Sequence[str] | None
) -> list[Participant]:
    """Rows of the phenotypic file that are wanted."""
    if quality != "every":
        table = table[table["FILE_ID"] != UNLISTED]
    for column, marks in PASSED.items() if quality == "checked" else ():
        table = table[table[column].isin(marks)]
    at = table["SITE_ID"]
    if merge:
        at = at.str.replace(r"_\d$", "", regex=True)
    check_names("ABIDE site", sites or (), set(at))
    people = []
    for row, site in zip(table.to_dict("records"), at, strict=True):
        if sites is None or site in sites:
            extra = {name: row[column] for name, column in COVARIATES.items()}
            y = int(row["DX_GROUP"] == 1)
            people.append(Participant(row["SUB_ID"], site, y, extra=extra))
    return people


def _names(table: "pd.DataFrame") -> dict[str, tuple[str, ...]]:
    """Names that the series of each subject may have.

    A row without a file name has one of those of its site: ``USM_0050432``, and of MAX_MUN, which
    has four scanners, ``MaxMun_a_0051320`` to ``MaxMun_d_0051320``.
    """
    prefixes: dict[str, set[str]] = {}
    for site, name in zip(table["SITE_ID"], table["FILE_ID"], strict=True):
        if name != UNLISTED:
            prefixes.setdefault(site, set()).add(name.rpartition("_")[0])
    found = {}
    for subject, site, name in table[["SUB_ID", "SITE_ID", "FILE_ID"]].to_numpy():
        usual = tuple(f"{p}_{subject:0>7}" for p in sorted(prefixes.get(site, ())))
        found[subject] = usual if name == UNLISTED else (name,)
    return found


def _those_with_a_file(
    people: list[Participant], series: Mapping[str, Sequence[str]], files: _Files
) -> tuple[list[Participant], list[Fault]]:
    """Everybody whose series is there, and one warning for the others."""
    there = [person for person in people if files.of(series[person.subject_id])]
    gone = len(people) - len(there)
    what = f"{gone} listed subjects have no file in {files.folder}."
    do = "They are left out; set download = true to fetch them."
    return there, [Fault("warning", what, do)] if gone else []


def _read(
    files: _Files,
    series: Mapping[str, Sequence[str]],
    lost: Mapping[str, DataError],
    person: Participant,
) -> Reading:
    if person.subject_id in lost:
        raise lost[person.subject_id]
    path = files.of(series[person.subject_id])
    if path is None:
        raise DataError("is listed, but has no file.", where=files.folder)
    found = read_series(path)
    aal = files.derivative == "rois_aal"
    names = aal116().roi_names if aal else found.names
    fc = pearson_fc(found.values, names)
    return Reading(fc, {"n_volumes": len(found.values)}, names)


@dataclass(frozen=True)
class _Fetcher:
    """Fetches series that are missing: listed ones through nilearn, the others by their URL."""

    files: _Files
    listed: frozenset[str]
    ask: Fetch
    get: Get

    def fetch(
        self, people: Sequence[Participant], series: Mapping[str, Sequence[str]]
    ) -> dict[str, DataError]:
        """Why some could not be had; a damaged one is named when it is read."""
        names = {person.subject_id: series[person.subject_id] for person in people}
        gone = [who for who, own in names.items() if self.files.of(own) is None]
        listed = [names[who][0] for who in gone if names[who][0] in self.listed]
        if listed:  # all in one call: each reads the table anew
            with contextlib.suppress(ValueError, OSError):
                self.ask(FILE_ID=listed)
        lost: dict[str, DataError] = {}
        failed = 0  # subjects in a row that the network lost
        for who in gone:
            if self.files.of(names[who]) is not None:
                continue
            if failed == GIVE_UP:
                what = f"{names[who][0]} was not tried: the network failed {GIVE_UP} times running."
                lost[who] = DataError(what)
                continue
            reason = self._one(names[who])
            failed = failed + 1 if reason else 0
            if self.files.of(names[who]) is None:
                what = f"{names[who][0]} could not be fetched ({reason or 'it is not there'})."
                do = "Run the same again: what is there is kept."
                lost[who] = DataError(what, do=do)
        return lost

    def _one(self, names: Sequence[str]) -> str:
        """Fetch the series of one subject; what failed of the network, "" where nothing did."""
        reason = ""
        for attempt in range(TRIES):
            try:
                for name in names:
                    self._try(name)
                    if self.files.of([name]) is not None:
                        break
                return ""
            except OSError as error:
                reason = type(error).__name__
                wait(2.0**attempt)
        return reason

    def _try(self, name: str) -> None:
        if name in self.listed:
            with contextlib.suppress(ValueError):  # np.loadtxt's: the file is damaged
                self.ask(FILE_ID=[name])
            return
        with contextlib.suppress(HTTPError):  # no such file
            content = self.get(self.files.url(name))
            write_bytes(self.files.path(name), content)
