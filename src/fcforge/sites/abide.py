"""ABIDE I as preprocessed by the PCP, through nilearn's own fetcher, offline or online.

The fetcher gives 1,035 subjects with a file, 871 of them passed by all raters; the paper counts
1,099. Those extra subjects are not in the PCP's ROI files, so nobody can have them from there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fcforge.components import check_names
from fcforge.errors import DataError, unknown_name
from fcforge.imaging.connectivity import pearson_fc
from fcforge.sites.cohort import Cohort, Finding, as_text, paper_site

if TYPE_CHECKING:
    import pandas as pd

# The paper numbers the 17 merged sites in alphabetical order.
PAPER_SITES = {
    1: "CALTECH", 2: "CMU", 3: "KKI", 4: "LEUVEN", 5: "MAX_MUN", 6: "NYU", 7: "OHSU", 8: "OLIN",
    9: "PITT", 10: "SBL", 11: "SDSU", 12: "STANFORD", 13: "TRINITY", 14: "UCLA", 15: "UM",
    16: "USM", 17: "YALE",
}  # fmt: skip
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
ATLASES = ("rois_aal", "rois_cc200", "rois_cc400", "rois_dosenbach160", "rois_ez", "rois_ho",
           "rois_tt")  # fmt: skip
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
    root = _root(Path(path), download)
    folder = root / "ABIDE_pcp" / pipeline / _method(band_pass, global_signal)
    check_names("ABIDE pipeline", [pipeline], PIPELINES)
    check_names("ABIDE derivative", [derivative], ATLASES)
    fetcher = _Fetcher(
        fetch or _nilearn_fetch(),
        {
            "data_dir": str(root),
            "pipeline": pipeline,
            "band_pass_filtering": band_pass,
            "global_signal_regression": global_signal,
            "derivatives": [derivative],
            "quality_checked": quality == "checked",
            "verbose": 0,
        },
    )
    table = _phenotypes(root, quality, download, fetcher)
    table = table.assign(site=[_site_name(s, merge) for s in table["SITE_ID"]])
    if sites != "all":
        names = [paper_site(site, PAPER_SITES, "ABIDE") for site in sites]
        check_names("ABIDE site", names, set(table["site"]))
        table = table[table["site"].isin(names)]
    here = [(folder / f"{f}_{derivative}.1D").exists() for f in table["FILE_ID"]]
    listed = table if download else table[here]
    series, rows, findings = fetcher.series(listed, derivative)
    if not download and not all(here):
        findings.insert(0, _absent(table[~np.array(here)], folder))
    cohort = _cohort(series, rows, findings, folder, derivative)
    if sites != "all":
        wanted = [n for n in dict.fromkeys(names) if n in cohort.site_names]
        cohort = cohort.select_sites(wanted) if wanted else cohort
    return cohort.stamped(
        path=str(root), pipeline=pipeline, method=folder.name, atlas=derivative, quality=quality
    )


def _root(path: Path, download: bool) -> Path:
    path = path.expanduser()
    root = path.parent if path.name == "ABIDE_pcp" else path
    if not download and not (root / "ABIDE_pcp").is_dir():
        raise DataError(
            "no folder ABIDE_pcp here.",
            where=str(root),
            do="Give the folder nilearn downloaded into, or set download = true.",
        )
    root.mkdir(parents=True, exist_ok=True)
    return root


def _method(band_pass: bool, global_signal: bool) -> str:
    return f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"


def _nilearn_fetch() -> Callable[..., Any]:
    from nilearn.datasets import fetch_abide_pcp

    return fetch_abide_pcp


class _Fetcher:
    """Calls nilearn's fetcher for exactly the subjects wanted, so that nothing else is fetched."""

    def __init__(self, fetch: Callable[..., Any], settings: dict[str, Any]) -> None:
        self.fetch, self.settings = fetch, settings
        self.lost = 0  # fetches in a row that the network lost

    wait = staticmethod(time.sleep)

    def series(
        self, table: pd.DataFrame, derivative: str
    ) -> tuple[list[np.ndarray], list[pd.Series], list[Finding]]:
        """Time series and phenotypic row of each subject; a finding for each that failed."""
        series: list[np.ndarray] = []
        rows: list[pd.Series] = []
        findings: list[Finding] = []
        ready = self._all(table, derivative)
        for _, row in table.iterrows():
            name = str(row["FILE_ID"])
            try:
                values = _checked(ready[name], name) if ready else self._one(name, derivative)
            except DataError as error:
                subject, site = str(row["SUB_ID"]), str(row["site"])
                findings.append(Finding("error", error.what, error.do, subject, site))
                continue
            series.append(values)
            rows.append(row)
        return series, rows, findings

    def _all(self, table: pd.DataFrame, derivative: str) -> dict[str, np.ndarray]:
        """Every series in one call (each call reads the table anew), {} if any fails."""
        try:
            bunch = self.fetch(**self.settings, FILE_ID=table["FILE_ID"].tolist())
        except (ValueError, OSError):
            return {}
        return dict(zip(bunch["phenotypic"]["FILE_ID"], bunch[derivative], strict=True))

    def _one(self, file_id: str, derivative: str) -> np.ndarray:
        if self.lost >= GIVE_UP:
            raise DataError(f"{file_id} was not tried: the network failed {GIVE_UP} times running.")
        for attempt in range(TRIES):
            try:
                bunch = self.fetch(**self.settings, FILE_ID=[file_id])
                self.lost = 0
                return _checked(bunch[derivative][0], file_id)
            except ValueError as error:  # np.loadtxt on a damaged file
                reason = str(error).splitlines()[0]
                raise DataError(
                    f"{file_id}_{derivative}.1D is truncated or damaged ({reason}).",
                    do="Delete it and fetch it again.",
                ) from None
            except OSError as error:  # requests' and urllib's errors are OSErrors
                if attempt == TRIES - 1:
                    self.lost += 1
                    raise DataError(
                        f"{file_id} could not be fetched ({type(error).__name__}).",
                        do="Run the same again: what is there is kept.",
                    ) from None
                self.wait(2.0**attempt)
        raise DataError(f"{file_id} could not be fetched.")


def _checked(values: np.ndarray, file_id: str) -> np.ndarray:
    if values.ndim != 2 or len(values) < 5:
        raise DataError(f"{file_id}: a time series of shape {values.shape} is no run.")
    return values


def _phenotypes(root: Path, quality: str, download: bool, fetcher: _Fetcher) -> pd.DataFrame:
    """Rows of the phenotypic file, filtered as nilearn's `quality_checked` does."""
    import pandas as pd

    if quality not in ("checked", "all"):
        raise unknown_name("quality", quality, ["checked", "all"])
    file = root / "ABIDE_pcp" / PHENOTYPES
    if download and not file.exists():
        fetcher.fetch(**fetcher.settings, n_subjects=0)
    if not file.exists():
        raise DataError("no phenotypic file.", where=str(file), do="Set download = true.")
    table = pd.read_csv(file)
    table = table[table["FILE_ID"] != "no_filename"]
    if quality == "checked":
        keep = table["qc_rater_1"].eq("OK")
        keep &= table["qc_anat_rater_2"].isin(["OK", "maybe"])
        keep &= table["qc_func_rater_2"].isin(["OK", "maybe"])
        keep &= table["qc_anat_rater_3"].eq("OK") & table["qc_func_rater_3"].eq("OK")
        table = table[keep]
    return table


def _site_name(site: str, merge: bool) -> str:
    return re.sub(r"_\d$", "", site) if merge else site


def _absent(table: pd.DataFrame, folder: Path) -> Finding:
    example = str(table["FILE_ID"].iloc[0])
    return Finding(
        "warning",
        f"{len(table)} listed subjects have no file in {folder} (e.g. {example}).",
        "They are left out; set download = true to fetch them.",
    )


def _cohort(
    series: list[np.ndarray],
    rows: list[pd.Series],
    findings: list[Finding],
    folder: Path,
    derivative: str,
) -> Cohort:
    if not series:
        return Cohort(
            name="abide",
            fc=np.empty((0, 0, 0), dtype=np.float32),
            y=np.empty(0, dtype=np.int64),
            site=as_text([]),
            subject_id=as_text([]),
            findings=tuple(findings),
        )
    names = _roi_names(folder / f"{rows[0]['FILE_ID']}_{derivative}.1D", derivative)
    width = series[0].shape[1]
    matrices, kept, volumes = [], [], []
    for values, row in zip(series, rows, strict=True):
        try:
            if values.shape[1] != width:
                raise DataError(f"has {values.shape[1]} ROIs, others {width}.")
            matrices.append(pearson_fc(values, names))
            kept.append(row)
            volumes.append(float(len(values)))
        except DataError as error:
            subject, site = str(row["SUB_ID"]), str(row["site"])
            findings.append(Finding("error", error.what, error.do, subject, site))
    return Cohort(
        name="abide",
        fc=np.array(matrices, dtype=np.float32).reshape(-1, width, width),
        y=np.array([int(row["DX_GROUP"] == 1) for row in kept], dtype=np.int64),
        site=as_text([row["site"] for row in kept]),
        subject_id=as_text([row["SUB_ID"] for row in kept]),
        roi_names=names,
        covariates={
            "age": _numbers(kept, "AGE_AT_SCAN"),
            "sex": _numbers(kept, "SEX"),
            "mean_fd": _numbers(kept, "func_mean_fd"),
            "n_volumes": np.array(volumes),
        },
        findings=tuple(findings),
    )


def _roi_names(file: Path, derivative: str) -> tuple[str, ...]:
    from fcforge.imaging.atlas import aal116_table
    from fcforge.imaging.series import read_series

    if derivative == "rois_aal":
        return tuple(aal116_table()["name"])
    return read_series(file).names if file.exists() else ()


def _numbers(rows: Sequence[pd.Series], column: str) -> np.ndarray:
    values = np.array([float(row[column]) for row in rows])
    return np.where(values == -9999, np.nan, values)
