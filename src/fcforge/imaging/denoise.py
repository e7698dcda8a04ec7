"""Denoising of ROI series: regression of confounds and band-pass, with nilearn's names of methods.

Denoising is linear in the signal, so denoising 116 ROI means gives the same as averaging denoised voxels, at
a thousandth of the cost. nilearn's `NiftiLabelsMasker` does the same.
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import abbreviated, counted
from fcforge.core.names import unknown_name
from fcforge.imaging.cifti import ending_of
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.series import empty_rois

# Arguments of nilearn's `load_confounds` for each component of a method. Thresholds are explicit, because
# nilearn's defaults changed between versions (fd_threshold 0.2 -> 0.5, std_dvars_threshold 3 -> 1.5).
COMPONENTS: dict[str, dict[str, Any]] = {
    "motion": {"motion": "full"},
    "high_pass": {},
    "wm_csf": {"wm_csf": "basic"},
    "global_signal": {"global_signal": "basic"},
    "compcor": {"compcor": "anat_combined", "n_compcor": "all"},
    "ica_aroma": {"ica_aroma": "full"},
    "scrub": {"scrub": 5, "std_dvars_threshold": 1.5},
    "non_steady_state": {},
}
# nilearn's presets: their components, and arguments that differ from those above.
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("", {}),
    "simple": ("high_pass+motion+wm_csf", {}),
    "scrubbing": ("high_pass+motion+wm_csf+scrub", {"wm_csf": "full"}),
    "compcor": ("high_pass+motion+compcor", {}),
    "ica_aroma": ("high_pass+wm_csf+ica_aroma", {}),
}
Confounds = tuple[
    pd.DataFrame | None, np.ndarray | None
]  # a table, and the volumes kept
NONE: Confounds = (None, None)
Band = tuple[float | None, float | None]  # lower and upper end in Hz
# Columns with framewise displacement (FD) in the tables of fMRIPrep and HALFpipe, and of XCP-D
FD_COLUMNS = ("framewise_displacement", "filtered_framewise_displacement", "fd_power")
MIN_TO_FILTER = 34  # smallest number of volumes that the Butterworth filter accepts
# of nilearn's message on columns that a confounds table lacks
_MISSING_PARTS = re.compile(r"parameters are missing: .*\[(['a-z_, ]+)\]")
_QUOTE = "'"
TOO_FEW = "The scan moved too much, or is too short for this --denoise: choose another."


class Denoise(NamedTuple):
    """Method by which nuisance signal is removed, and the pass band.

    Attributes
    ----------
    name : str
        A preset of nilearn's ``load_confounds_strategy``, or components joined by ``+``.
    parameters : mapping
        Arguments of nilearn's ``load_confounds``; empty for "none".
    band : (float or None, float or None)
        Lower and upper end of a Butterworth filter in Hz.
    """

    name: str
    parameters: Mapping[str, Any]
    band: Band


def make_denoise(name: str, band: Band, fd_threshold: float) -> Denoise:
    """Return the denoising method of a name with its arguments.

    Parameters
    ----------
    name : str
        A preset (``simple``, ``scrubbing``, ``compcor``, ``ica_aroma``, ``none``) or components
        joined by ``+``, e.g. ``motion+wm_csf+global_signal``.
    band : (float or None, float or None)
        Lower and upper end of the pass band in Hz.
    fd_threshold : float
        Framewise displacement in mm above which scrubbing removes a volume.

    Raises
    ------
    ConfigError
        If the method is unknown or the band is empty.
    """
    high_pass, low_pass = band
    if high_pass and low_pass and high_pass >= low_pass:
        raise ConfigError(f"the band-pass {high_pass:g}-{low_pass:g} Hz is empty.")
    components, changes = PRESETS.get(name, (name, {}))
    parts = components.split("+") if components else []
    parameters: dict[str, Any] = (
        {"strategy": tuple(parts), "demean": True} if parts else {}
    )
    for part in parts:
        if part not in COMPONENTS:
            raise unknown_name("denoise method", part, {*PRESETS, *COMPONENTS})
        parameters |= COMPONENTS[part]
    parameters |= changes
    if "scrub" in parts:
        parameters["fd_threshold"] = fd_threshold
    return Denoise(name, parameters, band)


def fmriprep_confounds(bold: Path, denoise: Denoise, drop: int = 0) -> Confounds:
    """Read the confounds that a denoising method needs, from the table beside an fMRIPrep scan.

    Parameters
    ----------
    bold : Path
        The scan.
    denoise : Denoise
    drop : int
        Number of volumes at the start that are left out.

    Returns
    -------
    confounds : DataFrame of shape (n_volumes, n_confounds), or None
    sample_mask : ndarray of int, or None
        Numbers of the volumes that scrubbing keeps, counted from 0 after `drop`; None keeps all.

    Raises
    ------
    DataError
        If the table of confounds, or a column that the method needs, is missing or has gaps.
    """
    if not denoise.parameters:
        return NONE
    from nilearn.interfaces.fmriprep import load_confounds

    try:
        with warnings.catch_warnings():
            # "All volumes were marked as motion outliers": `clean_series` makes it an error.
            warnings.filterwarnings("ignore", "All volumes", RuntimeWarning)
            # nilearn knows .nii.gz alone; it looks beside the name and does not open the scan.
            plain = bold.suffix == ".nii" and not ending_of(bold)
            name = str(bold) + (".gz" if plain else "")
            confounds, kept = load_confounds(name, **denoise.parameters)
    except (ValueError, KeyError, OSError, pd.errors.ParserError) as error:
        reason = re.sub(r"\s+", " ", str(error)).strip()
        if "ould not find associated confound file" in reason:
            reason = "no *_desc-confounds_timeseries.tsv beside the scan."
        if parts := _MISSING_PARTS.search(reason):
            reason = f"the table has no columns of {parts[1].replace(_QUOTE, '')}."
        raise DataError(
            f"missing confounds: {reason[:160]}",
            do=f"Method '{denoise.name}' needs them; or choose --denoise none.",
        ) from None
    kept = None if kept is None else kept[kept >= drop] - drop
    confounds = confounds.iloc[drop:].reset_index(drop=True)
    gaps = ~np.isfinite(confounds.to_numpy(dtype=float))
    if gaps.any():
        names = abbreviated(confounds.columns[gaps.any(axis=0)], 3)
        raise DataError(
            f"confounds have no value in {counted(int(gaps.any(axis=1).sum()), 'volume')} ({names}).",
            do="Make the table again, or choose a --denoise without them.",
        )
    return confounds, kept


def framewise_displacement(table: Path) -> np.ndarray | None:
    """Read framewise displacement in mm (n_volumes,) from a table of confounds or motion.

    None if the table has no such column.
    """
    values, names = read_matrix_file(table)
    if table.suffix != ".tsv":  # DPABI and C-PAC: one number per line
        return values[:, 0]
    for name in FD_COLUMNS:
        if name in names:
            return values[:, names.index(name)]
    return None


def clean_series(
    series: np.ndarray,
    denoise: Denoise,
    tr: float | None,
    confounds_and_mask: Confounds = NONE,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Detrend series, regress confounds out of them and filter them.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    denoise : Denoise
    tr : float or None
        Repetition time in seconds; needed for a band-pass.
    confounds_and_mask : (DataFrame or None, ndarray or None)
        Confounds and numbers of the volumes to keep, as `fmriprep_confounds` returns them.

    Returns
    -------
    cleaned : ndarray of shape (n_kept_volumes, n_rois)
        Columns without signal are NaN.
    report : dict
        Steps for the sidecar: confounds regressed, band, volumes kept, degrees of freedom.

    Raises
    ------
    DataError
        If volumes are too few, or the band needs a TR that is unknown or too long.
    """
    confounds, sample_mask = confounds_and_mask
    names = [] if confounds is None else list(confounds.columns)
    # fMRIPrep's high-pass: with it the filter has no lower end.
    cosines = any(name.startswith("cosine") for name in names)
    high_pass, low_pass = denoise.band
    band = (None if cosines else high_pass, low_pass)
    n_kept = len(series) if sample_mask is None else len(sample_mask)
    _require_band(band, tr)
    dof = degrees_of_freedom(n_kept, len(names), tr, band)
    if (any(band) and n_kept < MIN_TO_FILTER) or dof < 1:
        after_scrubbing = " left after scrubbing" if n_kept < len(series) else ""
        problem = (
            f"{n_kept} volumes{after_scrubbing} are too few for {len(names)} confounds"
        )
        raise DataError(f"{problem} and this band-pass.", do=TOO_FEW)
    report = {
        "Denoising": "detrended, and what follows, by fcforge",
        "Method": denoise.name if names else "none",
        "LoadConfounds": dict(denoise.parameters) if names else {},
        "Confounds": names,
        "ButterworthHz": band,
        "VolumesKept": n_kept,
        "VolumesScrubbed": len(series) - n_kept,
        "DegreesOfFreedom": round(dof, 1),
    }
    return _clean(series, n_kept, confounds_and_mask, band, tr), report


def _clean(
    series: np.ndarray,
    n_kept: int,
    confounds_and_mask: Confounds,
    band: Band,
    tr: float | None,
) -> np.ndarray:
    """Denoise the columns that have a signal with nilearn; the others become NaN.

    Parameters
    ----------
    series, confounds_and_mask, tr
        As for `clean_series`.
    n_kept : int
        Number of volumes that are kept.
    band : (float or None, float or None)
        Lower and upper end of the filter in Hz.

    Returns
    -------
    ndarray of shape (n_kept, n_rois)
    """
    from nilearn.signal import clean

    good = ~empty_rois(series)
    out = np.full((n_kept, series.shape[1]), np.nan)
    if good.any():
        confounds, sample_mask = confounds_and_mask
        out[:, good] = clean(
            np.ascontiguousarray(series[:, good], dtype=np.float64),
            detrend=True,
            standardize=None,
            confounds=confounds,
            sample_mask=sample_mask,
            high_pass=band[0],
            low_pass=band[1],
            t_r=tr,
        )
    return out


def degrees_of_freedom(
    n_volumes: int, n_confounds: int, tr: float | None, band: Band
) -> float:
    r"""Return residual degrees of freedom of a series after detrending, filtering and regression.

    .. math:: \nu = n \cdot \frac{f_2 - f_1}{1 / (2\,TR)} - k - 2

    for n volumes, k confounds and a band from f1 to f2; 2 stands for the mean and the trend. A band of the
    spectrum holds a proportional share of the independent values of a series. Without an upper end it
    reaches to the Nyquist frequency 1 / (2 TR).

    Parameters
    ----------
    n_volumes, n_confounds : int
        n and k.
    tr : float or None
        Repetition time in seconds; None where nothing is filtered.
    band : (float or None, float or None)
        Lower and upper end of the filter in Hz.

    Examples
    --------
    >>> round(degrees_of_freedom(200, 26, 2.0, (0.01, 0.1)), 1)
    44.0
    """
    share = 1.0
    f1, f2 = band
    if tr is not None:
        nyquist = 0.5 / tr
        share = (min(f2 or nyquist, nyquist) - (f1 or 0.0)) / nyquist
    return n_volumes * share - n_confounds - 2


def _require_band(band: Band, tr: float | None) -> None:
    """Raise `DataError` if a pass band cannot be filtered with a repetition time in seconds."""
    if any(band) and tr is None:
        raise DataError(
            "the band-pass needs the TR, which is unknown.", do="Give it: --tr SECONDS."
        )
    low_pass = band[1]
    if low_pass and tr and low_pass >= 0.5 / tr:
        raise DataError(
            f"a low-pass of {low_pass:g} Hz needs a TR below {0.5 / low_pass:g} s, not {tr:g} s.",
            do="Lower --low-pass, or 0 for none.",
        )
