"""B-SNIP: access by application, no public layout; so a participants table and a folder.

The folder may hold FC, ROI time series, or the output of ``fcforge fc``. Schizophrenia against
controls, as in the paper; schizoaffective and bipolar probands and relatives are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fcforge.sites.cohort import Cohort, Fault
from fcforge.sites.folder import load_folder
from fcforge.sites.reading import Kind

LABELS = {
    "HC": 0, "NC": 0, "Normal Control": 0, "Healthy Control": 0,
    "SZ": 1, "SZP": 1, "Schizophrenia": 1, "Schizophrenia Proband": 1,
}  # fmt: skip
_UNKNOWN = "unknown diagnosis"


def load_bsnip(
    path: str | Path,
    *,
    sites: Sequence[str] | None = None,
    kind: Kind = "auto",
    labels: Mapping[str, int] | None = None,
    pattern: str = "",
    variable: str | None = None,
    n_rois: int | None = None,
) -> Cohort:
    """B-SNIP subjects as FC.

    Parameters
    ----------
    path : path
        Folder with ``participants.tsv`` (participant_id, site, diagnosis) and one file per
        subject; see `load_folder` for `kind`, `pattern`, `variable` and `n_rois`.
    sites : sequence of str, optional
        Site names as in the table; never taken for numbers.
    labels : mapping of str to int, optional
        Further diagnosis values, on top of HC / NC (0) and SZ / SZP (1).

    Returns
    -------
    Cohort
        Label 1 = schizophrenia.
    """
    known = {**LABELS, **(labels or {})}
    cohort = load_folder(
        path, kind=kind, labels=known, pattern=pattern, variable=variable, n_rois=n_rois
    )
    others = [f for f in cohort.faults if _UNKNOWN in f.what]
    faults = [f for f in cohort.faults if _UNKNOWN not in f.what]
    if others:
        names = ", ".join(sorted({f.what.split("'")[1] for f in others}))
        what = f"{len(others)} subjects are neither controls nor schizophrenia ({names})."
        faults.append(Fault("warning", what, "They are left out; see labels."))
    cohort = replace(cohort, name="bsnip", faults=tuple(faults))
    return (cohort if sites is None else cohort.select_sites(sites)).stamped(dataset="bsnip")
