"""ABIDE I as preprocessed by the PCP, through nilearn's own fetcher, offline or online.

The fetcher gives 1,035 subjects with a file, 871 of them passed by all raters; the paper counts
1,099. Those extra subjects are not in the PCP's ROI files, so nobody can have them from there.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fcforge.components import check_names
from fcforge.errors import DataError
from fcforge.imaging.atlas import aal116
from fcforge.imaging.series import pearson_fc, read_series
from fcforge.sites.cohort import Cohort, Fault, paper_site
from fcforge.sites.participants import Participant, Reading, assemble

if TYPE_CHECKING:
    import pandas as pd

# The paper numbers the 17 merged sites in alphabetical order.
_NAMES = "CALTECH CMU KKI LEUVEN MAX_MUN NYU OHSU OLIN PITT SBL SDSU STANFORD TRINITY UCLA UM"
PAPER_SITES = dict(enumerate([*_NAMES.split(), "USM", "YALE"], start=1))
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
ATLASES = ("rois_aal", "rois_cc200", "rois_cc400", "rois_dosenbach160", "rois_ez", "rois_ho",
           "rois_tt")  # fmt: skip
COVARIATES = {"age": "AGE_AT_SCAN", "sex": "SEX", "mean_fd": "func_mean_fd"}
TRIES = 3
GIVE_UP = 3


def load_abide(
    path: str | Path,
    *,
    sites: Sequence[str | int] | Literal["all"] = ("NYU", "UCLA", "UM", "USM"),
    derivative: str = "rois_aal",
    pipeline: str = "cpac",
    band_pass: bool = True,
    global_signal: bool = False,
    quality: Literal["checked", "all"] = "checked",
    merge: bool = True,
    download: bool = False,
    fetch: Callable[..., Any] | None = None,
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
    quality : {"checked", "all"}
        Subjects passed by every rater (871), or all that have a file (1,035).
    merge : bool
        UM_1 and UM_2 are one site, as are UCLA's and LEUVEN's.
    download : bool
        Fetch what is missing, subject by subject; what is there is not fetched again.
    fetch : callable, optional
        In place of ``nilearn.datasets.fetch_abide_pcp``.

    Returns
    -------
    Cohort
        Label 1 = ASD (DX_GROUP 1). Covariates age, sex (1 male, 2 female), mean_fd, n_volumes.
    """
    check_names("ABIDE pipeline", [pipeline], PIPELINES)
    check_names("ABIDE derivative", [derivative], ATLASES)
    check_names("quality", [quality], ("checked", "all"))
    root = _root(Path(path), download)
    method = f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"
    fetcher = _Fetcher(root / "ABIDE_pcp" / pipeline / method, derivative, quality, fetch)
    table = _phenotypes(root, quality, fetcher if download else None)
    names = None if sites == "all" else [paper_site(s, PAPER_SITES, "ABIDE") for s in sites]
    cohort = _cohort(_people(table, merge, names), fetcher, download, names)
    about = {"pipeline": pipeline, "method": method, "atlas": derivative, "quality": quality}
    return cohort.stamped(path=str(root), **about)


def _root(path: Path, download: bool) -> Path:
    path = path.expanduser()
    root = path.parent if path.name == "ABIDE_pcp" else path
    if not download and not (root / "ABIDE_pcp").is_dir():
        do = "Give the folder nilearn downloaded into, or set download = true."
        raise DataError("no folder ABIDE_pcp here.", where=root, do=do)
    root.mkdir(parents=True, exist_ok=True)
    return root


class _Fetcher:
    """Calls nilearn's fetcher for exactly the subjects wanted, so that nothing else is fetched."""

    def __init__(
        self, folder: Path, derivative: str, quality: str, fetch: Callable[..., Any] | None
    ) -> None:
        from nilearn.datasets import fetch_abide_pcp

        self.folder, self.derivative, self.fetch = folder, derivative, fetch or fetch_abide_pcp
        self.settings = {
            "data_dir": str(folder.parents[2]),
            "pipeline": folder.parent.name,
            "band_pass_filtering": not folder.name.startswith("no"),
            "global_signal_regression": not folder.name.endswith("noglobal"),
            "quality_checked": quality == "checked",
            "derivatives": [derivative],
            "verbose": 0,
        }
        self.ready: dict[str, np.ndarray] = {}
        self.lost = 0  # fetches in a row that the network lost

    def file(self, person: Participant) -> Path:
        """Where the series of a subject lies, or will lie."""
        return self.folder / f"{person.file}_{self.derivative}.1D"

    wait = staticmethod(time.sleep)

    def fetch_all(self, file_ids: Sequence[str]) -> None:
        """Every series in one call (each call reads the table anew); none if any fails."""
        with contextlib.suppress(ValueError, OSError):
            bunch = self.fetch(**self.settings, FILE_ID=list(file_ids))
            found = zip(bunch["phenotypic"]["FILE_ID"], bunch[self.derivative], strict=True)
            self.ready = dict(found)

    def series(self, file_id: str) -> np.ndarray:
        """Time series of one subject, (n_volumes, n_rois)."""
        values = self.ready[file_id] if self.ready else self._one(file_id)
        if values.ndim != 2 or len(values) < 5:
            raise DataError(f"{file_id}: a time series of shape {values.shape} is not a run.")
        return values

    def _one(self, file_id: str) -> np.ndarray:
        if self.lost >= GIVE_UP:
            raise DataError(f"{file_id} was not tried: the network failed {GIVE_UP} times running.")
        for attempt in range(TRIES):
            try:
                bunch = self.fetch(**self.settings, FILE_ID=[file_id])
                self.lost = 0
                return bunch[self.derivative][0]
            except ValueError as error:  # np.loadtxt on a damaged file
                reason = str(error).splitlines()[0]
                what = f"{file_id}_{self.derivative}.1D is truncated or damaged ({reason})."
                raise DataError(what, do="Delete it and fetch it again.") from None
            except OSError as error:  # requests' and urllib's errors are OSErrors
                failure = type(error).__name__
            if attempt < TRIES - 1:
                self.wait(2.0**attempt)
        self.lost += 1
        what = f"{file_id} could not be fetched ({failure})."
        raise DataError(what, do="Run the same again: what is there is kept.")


def _phenotypes(root: Path, quality: str, fetcher: _Fetcher | None) -> pd.DataFrame:
    """Rows of the phenotypic file, filtered as nilearn's `quality_checked` does."""
    import pandas as pd

    file = root / "ABIDE_pcp" / PHENOTYPES
    if fetcher and not file.exists():
        fetcher.fetch(**fetcher.settings, n_subjects=0)
    if not file.exists():
        raise DataError("no phenotypic file.", where=file, do="Set download = true.")
    table = pd.read_csv(file)
    table = table[table["FILE_ID"] != "no_filename"]
    passed = {f"qc_{part}_rater_2": ["OK", "maybe"] for part in ("anat", "func")}
    passed |= {key: ["OK"] for key in ("qc_rater_1", "qc_anat_rater_3", "qc_func_rater_3")}
    for column, marks in passed.items() if quality == "checked" else ():
        table = table[table[column].isin(marks)]
    return table


def _people(table: pd.DataFrame, merge: bool, sites: list[str] | None) -> list[Participant]:
    people = [
        Participant(
            subject_id=str(row["SUB_ID"]),
            site=re.sub(r"_\d$", "", row["SITE_ID"]) if merge else row["SITE_ID"],
            y=int(row["DX_GROUP"] == 1),
            file=str(row["FILE_ID"]),
            extra={name: row[column] for name, column in COVARIATES.items()},
        )
        for row in table.to_dict("records")
    ]
    check_names("ABIDE site", sites or (), {p.site for p in people})
    return [p for p in people if sites is None or p.site in sites]


def _cohort(
    people: list[Participant], fetcher: _Fetcher, download: bool, sites: list[str] | None
) -> Cohort:
    """Everybody who has a file (or can be fetched), grouped by `sites` where they are named."""
    gone = [] if download else [p for p in people if not fetcher.file(p).exists()]
    people = [p for p in people if p not in gone]
    faults = []
    if gone:
        lost = f"{len(gone)} listed subjects have no file in {fetcher.folder}"
        do = "They are left out; set download = true to fetch them."
        faults = [Fault("warning", f"{lost} (e.g. {gone[0].file}).", do)]
    fetcher.fetch_all([p.file for p in people])
    names = aal116().roi_names if fetcher.derivative == "rois_aal" else ()
    if people and not names and fetcher.file(people[0]).exists():
        names = read_series(fetcher.file(people[0])).names

    def read(person: Participant) -> Reading:
        series = fetcher.series(person.file)
        return Reading(pearson_fc(series, names), {"n_volumes": len(series)}, names)

    cohort = assemble("abide", people, read, faults=faults)
    wanted = [name for name in dict.fromkeys(sites or ()) if name in cohort.site_names]
    return cohort.select_sites(wanted) if wanted else cohort
