"""ABIDE I of the Preprocessed Connectomes Project (PCP), in the folders of nilearn's fetcher.

nilearn fetches the 1,035 subjects with a file name in the phenotypic file, 871 of which all raters
passed. The PCP's bucket of files also has DPARSF series of 67 of the other 77 rows (FILE_ID
``no_filename``), under the usual names. The paper's 529 people of four sites include them. This
module therefore fetches the series itself, by name, into the folders where nilearn expects them.

`rebuild` makes the data files behind the published tables from these series. fcforge ships no data:
FC is computed here, and the list of subjects is compared with the published one.
"""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.files import whole_file, write_bytes
from fcforge.core.formatting import abbreviated, counted, listed
from fcforge.core.names import check_names, look_up
from fcforge.data.cohort import Cohort
from fcforge.data.edges import upper_from_fc
from fcforge.data.faults import Fault
from fcforge.data.participants import Listed, Participant, Reading, assemble
from fcforge.imaging.atlas import aal116
from fcforge.imaging.matrix_files import read_table
from fcforge.imaging.people import Row
from fcforge.imaging.series import pearson_fc, read_series

# Sites as in the phenotypic file, where three of them are in two parts.
SITE_IDS = listed(
    "CALTECH, CMU, KKI, LEUVEN_1, LEUVEN_2, MAX_MUN, NYU, OHSU, OLIN, PITT, SBL, SDSU, STANFORD, "
    "TRINITY, UCLA_1, UCLA_2, UM_1, UM_2, USM, YALE"
)
PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
BUCKET = "https://s3.amazonaws.com/fcp-indi/data/Projects/ABIDE_Initiative"
COVARIATES = {"age": "AGE_AT_SCAN", "sex": "SEX", "mean_fd": "func_mean_fd"}
# Marks by which all raters passed a scan: nilearn's `quality_checked`.
PASSED = {f"qc_{part}_rater_2": ["OK", "maybe"] for part in ("anat", "func")}
PASSED |= {key: ["OK"] for key in ("qc_rater_1", "qc_anat_rater_3", "qc_func_rater_3")}
UNLISTED = "no_filename"  # FILE_ID of rows without a file name
TRIES = 3  # attempts at a download
Derivative = Literal[
    "rois_aal",
    "rois_cc200",
    "rois_cc400",
    "rois_dosenbach160",
    "rois_ez",
    "rois_ho",
    "rois_tt",
]
Pipeline = Literal["cpac", "ccs", "dparsf", "niak"]
Quality = Literal["checked", "all", "every"]
wait = time.sleep


class DownloadError(DataError):
    """Error of a public file that could not be fetched."""


def load_abide(
    path: str | Path,
    *,
    sites: Sequence[str] | Literal["all"] = ("NYU", "UCLA", "UM", "USM"),
    derivative: Derivative = "rois_aal",
    pipeline: Pipeline = "cpac",
    band_pass: bool = True,
    global_signal: bool = False,
    quality: Quality = "checked",
    merge: bool = True,
    download: bool = False,
) -> Cohort:
    """Load ABIDE I subjects as FC.

    Parameters
    ----------
    path : path
        Folder that holds (or, with `download`, will hold) nilearn's ``ABIDE_pcp``.
    sites : sequence of str, or "all"
        Sites to load, in this order.
    derivative : str
        ROI set of the PCP, e.g. ``rois_aal``.
    pipeline : {"cpac", "ccs", "dparsf", "niak"}
    band_pass, global_signal : bool
        Whether the series are band-pass filtered, and whether the global signal is removed.
    quality : {"checked", "all", "every"}
        Subjects passed by every rater (871), subjects with a file name in the phenotypic file
        (1,035), or all rows (1,112). DPARSF has series of most rows without a file name (see
        `_names`).
    merge : bool
        Whether UM_1 and UM_2 are one site, as are the two parts of UCLA and of LEUVEN.
    download : bool
        Whether missing files are fetched, subject by subject. Existing files are not fetched again.

    Returns
    -------
    Cohort
        Label 1 = ASD (DX_GROUP 1). Covariates age, sex (1 male, 2 female), mean_fd, n_volumes.
    """
    path = Path(path).expanduser()
    root = path.parent if path.name == "ABIDE_pcp" else path
    method = f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"
    files = _Files(root / "ABIDE_pcp", f"{pipeline}/{method}", derivative)
    names = () if sites == "all" else sites
    people = _people(_phenotypes(files.root, download), quality, merge, names)
    if download:
        files.fetch(people)
    return files.cohort(people, download)


def _read_url(url: str) -> bytes:
    """Return the content of a URL."""
    with urlopen(url, timeout=60) as answer:
        return answer.read()


def _download(url: str) -> bytes | None:
    """Return the content of a URL, or None if the bucket has no such file.

    Any other trouble raises `DownloadError` after `TRIES` attempts.
    """
    reason = ""
    for attempt in range(TRIES):
        try:
            return _read_url(url)
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code in (403, 404):
                return None
            reason = repr(getattr(error, "reason", error))
            wait(2.0**attempt)
    raise _not_fetched(url, reason)


def _not_fetched(url: str, reason: str) -> DownloadError:
    """Return the error for a URL that could not be fetched."""
    folder, _, name = url.rpartition("/")
    hint = "Connect to the internet and run the same again: files already fetched are kept."
    message = f"the download of {name} from {folder} failed ({reason})."
    return DownloadError(message, do=hint)


def _phenotypes(folder: Path, download: bool) -> Sequence[Row]:
    """Return the rows of the phenotypic file; fetch it first if it is missing and `download`."""
    file = folder / PHENOTYPES
    if download and not file.exists():
        url = f"{BUCKET}/{PHENOTYPES}"
        data = _download(url)
        if data is None:
            raise _not_fetched(url, "no such file, or it may not be read")
        write_bytes(file, data)
    if not file.exists():
        hint = "Give the folder that nilearn downloaded into, or set download = true."
        raise DataError("no phenotypic file.", where=file, do=hint)
    return read_table(file)


def _people(
    table: Sequence[Row], quality: str, merge: bool, sites: Sequence[str] = ()
) -> list[Participant]:
    """Return the people of the phenotypic file that `load_abide` is to load.

    Parameters
    ----------
    table : sequence of Row
        Rows of the phenotypic file.
    quality, merge
        As in `load_abide`.
    sites : sequence of str
        Sites to keep, in this order; empty for all, in the order of the table.

    Returns
    -------
    list of Participant
        Each has the possible names of its series as `file` (see `_names`).
    """
    names = _names(table)
    people = []
    for row in table:
        site = row["SITE_ID"]
        if merge:
            site = re.sub(r"_\d$", "", site)
        if _is_included(row, quality):
            subject = row["SUB_ID"]
            y = int(row["DX_GROUP"] == "1")
            extra = {name: row[column] for name, column in COVARIATES.items()}
            people.append(Participant(subject, site, y, names[subject], extra=extra))
    check_names("ABIDE site", sites, {person.site for person in people})
    if not sites:
        return people
    of_sites = [person for person in people if person.site in sites]
    return sorted(of_sites, key=lambda person: sites.index(person.site))


def _is_included(row: Row, quality: str) -> bool:
    """Return whether a row passes the quality control of `load_abide`'s setting `quality`."""
    passed = all(row[rater] in marks for rater, marks in PASSED.items())
    has_file_name = quality == "every" or row["FILE_ID"] != UNLISTED
    return has_file_name and (passed or quality != "checked")


def _names(table: Sequence[Row]) -> dict[str, str]:
    """Return the names that the series of each subject may have, joined by blanks.

    The phenotypic file names the series of most subjects (FILE_ID). That of a row without a file name
    is called by the site's prefix and the subject's id: ``USM_0050432``. MAX_MUN has four scanners
    and four prefixes, so that there are four candidates: ``MaxMun_a_0051320`` to
    ``MaxMun_d_0051320``.

    Returns
    -------
    dict of subject id to str
    """
    prefixes: dict[str, set[str]] = {row["SITE_ID"]: set() for row in table}
    for row in table:
        if row["FILE_ID"] != UNLISTED:
            prefixes[row["SITE_ID"]].add(row["FILE_ID"].rpartition("_")[0])
    names_of = {}
    for row in table:
        subject = row["SUB_ID"]
        site_prefixes = sorted(prefixes[row["SITE_ID"]])
        candidates = [f"{prefix}_{subject:0>7}" for prefix in site_prefixes]
        unlisted = row["FILE_ID"] == UNLISTED
        names_of[subject] = " ".join(candidates) if unlisted else row["FILE_ID"]
    return names_of


@dataclass(frozen=True)
class _Files:
    """Files of the series of one kind, on disk and in the bucket of the PCP.

    Attributes
    ----------
    root : Path
        nilearn's folder ``ABIDE_pcp``.
    kind : str
        Pipeline and denoising, e.g. ``cpac/filt_noglobal``.
    derivative : str
        ROI set, e.g. ``rois_aal``.
    """

    root: Path
    kind: str
    derivative: str

    def name(self, series: str) -> str:
        """Return the file name of a series, e.g. ``NYU_0050952_rois_aal.1D``."""
        return f"{series}_{self.derivative}.1D"

    def of(self, person: Participant) -> Path | None:
        """Return the file of a subject under one of its names; None if there is none."""
        folder = self.root / self.kind
        paths = [folder / self.name(series) for series in person.file.split()]
        return next((path for path in paths if path.exists()), None)

    def cohort(self, people: Sequence[Participant], require_all: bool) -> Cohort:
        """Return the cohort of the people who have a file.

        Parameters
        ----------
        people : sequence of Participant
        require_all : bool
            Whether each person without a file is an error. Otherwise one warning counts them.
        """
        # With `require_all`, `read` reports those without a file.
        present = [person for person in people if require_all or self.of(person)]
        faults = []
        if n_missing := len(people) - len(present):
            folder = self.root / self.kind
            message = f"{n_missing} listed subjects have no file in {folder}."
            hint = "They are left out; set download = true to fetch them."
            faults = [Fault("warning", message, hint)]
        return assemble("abide", Listed(present, faults), self.read, self.root)

    def read(self, person: Participant) -> Reading:
        """Return a person's FC, computed from the series on disk."""
        path = self.of(person)
        if path is None:
            raise DataError(f"{person.file} is listed, but has no file.")
        series, names = read_series(path)
        if self.derivative == "rois_aal":
            names = aal116().roi_names
        return Reading(pearson_fc(series, names), {"n_volumes": len(series)}, names)

    def fetch(self, people: Sequence[Participant]) -> None:
        """Fetch the missing series; those that the bucket does not have stay missing.

        A damaged file is reported when it is read.
        """
        missing = [person for person in people if self.of(person) is None]
        for person in missing:
            for series in person.file.split():  # one name, or all candidates (`_names`)
                name = f"{self.kind}/{self.derivative}/{self.name(series)}"
                data = _download(f"{BUCKET}/Outputs/{name}")
                if data is not None:
                    write_bytes(self.root / self.kind / self.name(series), data)


# -- published files -------------------------------------------------------------------------------
FOUR = ("NYU", "UM_1", "UM_2", "USM", "UCLA_1", "UCLA_2")  # the paper's four sites
# Arrays of a published file, by name: the column that each holds, and its number type.
STORED = {
    "subject_id": ("subject_id", "i4"),
    "n_timepoints": ("n_volumes", "i2"),
    "n_flat_roi": ("n_flat", "i2"),
    "age": ("age", "f4"),
    "sex": ("sex", "i1"),
    "mean_fd": ("mean_fd", "f4"),
}
DPARSF = {"pipeline": "dparsf", "global_signal": True, "quality": "every"}


class Published(NamedTuple):
    """Description of a data file behind published tables, by which it can be made again.

    Attributes
    ----------
    about : str
        Its content in words.
    people : int
        Number of subjects.
    subjects_sha256 : str
        Hash of the subjects' ids, by the function of this name.
    settings : mapping
        Settings of `load_abide` that load these subjects.
    """

    about: str
    people: int
    subjects_sha256: str
    settings: Mapping[str, Any]


_CHECKED = "0d7c5fb405b0396801f05064b9f7a189a389e09afee33f20608a4db163bde395"
PUBLISHED = {
    "abide-871": Published(
        "ABIDE I, C-PAC, no global signal regression, passed by all raters",
        871,
        _CHECKED,
        {"sites": "all"},
    ),
    "abide-871-cc200": Published(
        "abide-871 with the ROIs of CC200",
        871,
        _CHECKED,
        {"sites": "all", "derivative": "rois_cc200"},
    ),
    "abide-529": Published(
        "the paper's four sites, DPARSF, global signal regressed, no quality control",
        529,
        "3ab28cab3bc77435cd3caeeb7d43e2ac4a13a3c6e41c8c63fb6fa6a247eb477d",
        {"sites": FOUR, **DPARSF},
    ),
    "abide-1098": Published(
        "all of ABIDE I as in abide-529",
        1098,
        "ab838b2769e83d4ee7ef8dbee3ae337da6c7e24508bf5d75758bef3240af05a3",
        {"sites": "all", **DPARSF},
    ),
}


def subjects_sha256(subject_ids: Iterable[str]) -> str:
    """Return the SHA-256 of subject ids, sorted and written one per line."""
    return hashlib.sha256("\n".join(sorted(subject_ids)).encode()).hexdigest()


def rebuild(
    name: str, out: Path, cache: Path | None = None, **options: Any
) -> list[str]:
    """Make one of the `PUBLISHED` data files from the PCP's series.

    Parameters
    ----------
    name : str
        Key of `PUBLISHED`, e.g. ``"abide-529"``.
    out : Path
        The .npz to write.
    cache : Path, optional
        Folder of the series, by default nilearn's. Files in it are not fetched again.
    **options
        Further settings of `load_abide`.

    Returns
    -------
    list of str
        Differences from the published list of subjects, in words; empty if there are none.
    """
    from nilearn.datasets import get_data_dirs

    published = look_up("published file", name, PUBLISHED)
    cache = cache or Path(get_data_dirs()[0])
    settings = {"download": True, "merge": False, **published.settings, **options}
    cohort = load_abide(cache, **settings)
    if not len(cohort):
        reasons = abbreviated([str(fault) for fault in cohort.faults], 1)
        raise DataError(f"nobody could be fetched: {reasons}", where=cache)
    save(cohort, out)
    if subjects_sha256(cohort.subject_id.tolist()) == published.subjects_sha256:
        return []
    differences = [f"{len(cohort)} subjects, {published.people} in the published file"]
    unread = [fault.subject for fault in cohort.faults if fault.subject]
    if unread:
        differences.append(
            f"{counted(len(unread), 'subject')} without series: {abbreviated(unread)}"
        )
    return differences


def save(cohort: Cohort, out: Path) -> None:
    """Write a cohort in the format of the published files: upper triangles in 16 bits."""
    # An ROI without signal has FC 0 with all others, and 1 with itself.
    flat = (np.abs(cohort.fc).sum(axis=2) == 1).sum(axis=1)
    columns = {**cohort.covariates, "subject_id": cohort.subject_id, "n_flat": flat}
    arrays: dict[str, Any] = {
        "fc_upper": upper_from_fc(cohort.fc).astype(np.float16),
        "label": cohort.y.astype(np.int8),
        "site": cohort.site,
        "roi_names": np.array(cohort.roi_names, dtype=str),
    }
    for name, (column, kind) in STORED.items():
        arrays[name] = columns[column].astype(kind)
    if cohort.roi_names == aal116().roi_names:
        arrays["roi_ids"] = np.array(aal116().codes, dtype=np.int32)
    with whole_file(out) as part, part.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
