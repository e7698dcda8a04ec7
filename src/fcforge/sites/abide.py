"""ABIDE I as preprocessed by the PCP, through nilearn's own fetcher, offline or online.

The fetcher gives 1,035 subjects with a file, 871 of them passed by all raters; the paper counts
1,099. Those extra subjects are not in the PCP's ROI files, so nobody can have them from there.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fcforge.components import check_names
from fcforge.errors import DataError
from fcforge.imaging.atlas import aal116
from fcforge.imaging.series import pearson_fc, read_series
from fcforge.sites.cohort import Cohort, Fault, paper_site
from fcforge.sites.participants import Participant, Reading, assemble

# The paper numbers the 17 merged sites in alphabetical order.
_NAMES = "CALTECH CMU KKI LEUVEN MAX_MUN NYU OHSU OLIN PITT SBL SDSU STANFORD TRINITY UCLA UM"
PAPER_SITES = dict(enumerate([*_NAMES.split(), "USM", "YALE"], start=1))
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
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
TRIES = 3
GIVE_UP = 3
Fetch = Callable[..., Any]
wait = time.sleep


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
    fetch: Fetch | None = None,
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
    path = Path(path).expanduser()
    root = path.parent if path.name == "ABIDE_pcp" else path
    if not download and not (root / "ABIDE_pcp").is_dir():
        do = "Give the folder nilearn downloaded into, or set download = true."
        raise DataError("no folder ABIDE_pcp here.", where=root, do=do)
    asked = {
        "pipeline": pipeline,
        "band_pass_filtering": band_pass,
        "derivatives": [derivative],
    }
    asked |= {
        "global_signal_regression": global_signal,
        "quality_checked": quality == "checked",
    }
    ask = (
        partial(fetch or _nilearn, data_dir=str(root), verbose=0, **asked)
        if download
        else None
    )
    names = (
        None if sites == "all" else [paper_site(s, PAPER_SITES, "ABIDE") for s in sites]
    )
    people = _people(
        root / "ABIDE_pcp" / PHENOTYPES, quality == "checked", merge, names, ask
    )
    method = f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"
    cohort = _cohort(people, root / "ABIDE_pcp" / pipeline / method, derivative, ask)
    wanted = [name for name in dict.fromkeys(names or ()) if name in cohort.site_names]
    about = {
        "pipeline": pipeline,
        "method": method,
        "atlas": derivative,
        "quality": quality,
    }
    return (cohort.select_sites(wanted) if wanted else cohort).stamped(
        path=str(root), **about
    )


def _nilearn(**settings: Any) -> Any:
    from nilearn.datasets import fetch_abide_pcp

    return fetch_abide_pcp(**settings)


def _people(
    file: Path,
    checked: bool,
    merge: bool,
    sites: Sequence[str] | None,
    ask: Fetch | None,
) -> list[Participant]:
    """Rows of the phenotypic file that are wanted and have a series."""
    import pandas as pd

    if ask and not file.exists():
        ask(n_subjects=0)
    if not file.exists():
        raise DataError("no phenotypic file.", where=file, do="Set download = true.")
    table = pd.read_csv(file)
    table = table[table["FILE_ID"] != "no_filename"]
    for column, marks in PASSED.items() if checked else ():
        table = table[table[column].isin(marks)]
    at = (
        table["SITE_ID"].str.replace(r"_\d$", "", regex=True)
        if merge
        else table["SITE_ID"]
    )
    check_names("ABIDE site", sites or (), set(at))
    return [
        Participant(
            str(row["SUB_ID"]),
            site,
            int(row["DX_GROUP"] == 1),
            str(row["FILE_ID"]),
            extra={name: row[column] for name, column in COVARIATES.items()},
        )
        for row, site in zip(table.to_dict("records"), at, strict=True)
        if sites is None or site in sites
    ]


def _cohort(
    people: list[Participant], folder: Path, derivative: str, ask: Fetch | None
) -> Cohort:
    """Everybody who has a file (or can be fetched)."""
    files = {p.file: folder / f"{p.file}_{derivative}.1D" for p in people}
    gone = [p.file for p in people if not files[p.file].exists()]
    faults = []
    lost = {}
    if gone and ask:
        lost = _fetch(ask, gone, files)
    elif gone:
        what = f"{len(gone)} listed subjects have no file in {folder} (e.g. {gone[0]})."
        do = "They are left out; set download = true to fetch them."
        faults = [Fault("warning", what, do)]
        people = [p for p in people if p.file not in gone]

    def read(person: Participant) -> Reading:
        if person.file in lost:
            raise lost[person.file]
        series = read_series(files[person.file])
        names = aal116().roi_names if derivative == "rois_aal" else series.names
        return Reading(
            pearson_fc(series.values, names), {"n_volumes": len(series.values)}, names
        )

    return assemble("abide", people, read, faults=faults)


def _fetch(
    ask: Fetch, gone: list[str], files: Mapping[str, Path]
) -> dict[str, DataError]:
    """Fetch series: all in one call (each call reads the table anew), then one by one.

    Returns why others could not be had. A damaged one is named when it is read.
    """
    lost = dict[str, DataError]()
    failed = 0  # subjects in a row that the network lost
    with contextlib.suppress(
        ValueError, OSError
    ):  # np.loadtxt's and the network's errors
        ask(FILE_ID=gone)
    for name in (name for name in gone if not files[name].exists()):
        reason = "it is not there"
        for attempt in range(TRIES if failed < GIVE_UP else 0):
            try:
                with contextlib.suppress(ValueError):
                    ask(FILE_ID=[name])
                failed = 0
                break
            except OSError as error:
                reason = type(error).__name__
                wait(2.0**attempt)
        else:
            failed += 1
        if failed > GIVE_UP:
            what = f"{name} was not tried: the network failed {GIVE_UP} times running."
            lost[name] = DataError(what)
        elif not files[name].exists():
            do = "Run the same again: what is there is kept."
            lost[name] = DataError(f"{name} could not be fetched ({reason}).", do=do)
    return lost
