"""Options of `fcforge fc` and `fcforge preprocess`; no heavy library is imported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fcforge.core.options import Request, option
from fcforge.core.settings import above, at_least, limits, within
from fcforge.imaging.bids_filters import BIDSFilters, read_filters

if TYPE_CHECKING:
    from fcforge.imaging.denoise import Denoise


# Options that have an effect only where fcforge denoises.
DENOISING = ("denoise", "high_pass", "low_pass", "fd_threshold")


Kind = Literal["scan", "series", "matrix"]


class InputFile(Protocol):
    """An input file of one run, with what options depend on.

    `fcforge.imaging.layouts.Source` is the only implementation.
    """

    @property
    def path(self) -> Path:
        """Path of the scan or the time series."""
        ...

    @property
    def kind(self) -> Kind:
        """Whether the file is a scan, a table of time series or a connectivity matrix."""
        ...

    @property
    def denoised(self) -> bool:
        """Whether the tool that wrote the file has denoised it."""
        ...

    @property
    def entities(self) -> Mapping[str, str]:
        """BIDS entities of the name (``task-rest`` has the key task), by their short names."""
        ...

    def entity_values(self, *keys: str) -> tuple[str, ...]:
        """Return the values of some BIDS entities, "" where the name has none."""
        ...


@limits(tr=above(0))
@dataclass(frozen=True)
class ImagingRequest(Request):
    """Options that `fcforge fc` and `fcforge preprocess` share."""

    source: Path = option(metavar="IN", help="Folder with the scans or time series.")
    out: Path = option(metavar="OUT", help="Output folder.")
    participant_label: list[str] = option(
        [], "Subjects, with or without sub-: --participant-label 01 02.", several=True
    )
    tr: float | None = option(None, "Repetition time in seconds; overrides the files.")
    report: bool = option(True, "Write HTML quality pages.")
    work_dir: Path | None = option(
        None,
        "Folder for temporary files of preprocess; fc writes none.",
        flag="--work-dir -w",
    )


@limits(
    high_pass=at_least(0),
    low_pass=at_least(0),
    fd_threshold=at_least(0),
    drop=at_least(0),
    min_coverage=within(0, 1),
    max_empty=within(0, 1),
    min_dof=at_least(1),
    n_cpus=at_least(1),
)
@dataclass(frozen=True)
class FCRequest(ImagingRequest):
    """Options of `fcforge fc`, for `fcforge.imaging.app.fc_folder`."""

    level: Literal["participant", "group"] = option(
        "participant",
        "participant makes FC; group makes the tables, the page and one file of all FC from it.",
        metavar="LEVEL",
    )
    atlas: str = option(
        "AAL116",
        "AAL116, a name of nilearn's (Schaefer400, HarvardOxford, CC200, MSDL, DiFuMo256, ...), "
        "the path of a volume, the path of a CIFTI parcellation (.dlabel.nii) for dense series, "
        "or the name another tool gave its series.",
    )
    atlas_lut: Path | None = option(
        None,
        "Names of the ROIs: a table with index and name, or a FreeSurfer or Schaefer LUT.",
    )
    denoise: str = option(
        "simple",
        "none, simple, scrubbing, compcor, ica_aroma, or parts joined by +, such as "
        "motion+wm_csf+global_signal. Applied to scans of fMRIPrep and to plain scans only.",
    )
    high_pass: float = option(0.01, "Lower end of the band-pass in Hz, 0 for none.")
    low_pass: float = option(0.1, "Upper end of the band-pass in Hz, 0 for none.")
    fd_threshold: float = option(0.5, "Framewise displacement to scrub at, mm.")
    layout: Literal[
        "auto",
        "fmriprep",
        "xcpd",
        "cpac",
        "dpabi",
        "halfpipe",
        "hcp",
        "nifti",
        "series",
    ] = option("auto", "Tool that wrote the folder; auto finds out.")
    participants: Path | None = option(None, "Table with id, site and diagnosis.")
    task: str = option("", "BIDS task; rest where there are several.")
    session: str = option("", "BIDS session; all joins a subject's sessions.")
    session_label: list[str] = option(
        [], "Sessions to take, with or without ses-.", several=True
    )
    bids_filter_file: Path | None = option(
        None,
        'JSON of BIDS entities to take, as fMRIPrep\'s: {"bold": {"run": 1, "acquisition": null}}.',
    )
    skip_bids_validation: bool = option(
        False, "Do not compare the names of files with the folders they lie in."
    )
    n_cpus: int = option(1, "Processes; each holds one scan.")
    select: str = option("", "Part of the file name, such as space-MNI152NLin6Asym.")
    drop: int = option(0, "Volumes to drop at the start.")
    columns: str | None = option(
        None,
        "Columns of a time series, such as 1-116; of the table of participants by role, such as "
        "site=scanner_site,label=dx; or both, joined by a comma.",
    )
    variable: str | None = option(
        None, "Matrix to take of .mat and .npz files that hold several."
    )
    min_coverage: float = option(
        0.5, "Share of an ROI that must be covered; below it the ROI is empty."
    )
    max_empty: float = option(
        0.1, "Share of ROIs that may be empty before the subject fails."
    )
    min_dof: int = option(
        15, "Degrees of freedom that denoising must leave; below it the subject fails."
    )
    overwrite: bool = option(
        False,
        "Replace FC in OUT that was made from other files or with other settings.",
    )

    @cached_property
    def denoising(self) -> "Denoise":
        """Denoising method with its band and thresholds, for `fcforge.imaging.denoise`."""
        from fcforge.imaging.denoise import make_denoise

        band = (self.high_pass or None, self.low_pass or None)
        return make_denoise(self.denoise, band, self.fd_threshold)

    @property
    def dense(self) -> bool:
        """Whether the atlas is a CIFTI parcellation, so that scans are dense CIFTI series."""
        return self.atlas.endswith(".dlabel.nii")

    @property
    def aroma(self) -> bool:
        """Whether scans that ICA-AROMA has denoised are requested."""
        return "ica_aroma" in self.denoise.split("+")

    def settings_of(self, runs: Sequence[InputFile]) -> dict[str, Any]:
        """Return the settings that have an effect on the FC of these runs, for its sidecar and page.

        Parameters
        ----------
        runs : sequence of InputFile
        """
        names = ["drop", "max_empty"]
        kinds = {run.kind for run in runs}
        names += ["min_coverage"] if "scan" in kinds else []
        names += ["series_columns", "variable"] if "series" in kinds else []
        names += ["min_dof"] if kinds != {"matrix"} else []
        values = {name: getattr(self, name) for name in names}
        # `series_columns` is that part of the option `columns` which concerns series.
        return {name.removeprefix("series_"): value for name, value in values.items()}

    @property
    def series_columns(self) -> str | None:
        """Columns of time series in `columns`, such as "1-116"; None for all."""
        parts = [part.strip() for part in (self.columns or "").split(",")]
        return ",".join(part for part in parts if part and "=" not in part) or None

    @property
    def table_columns(self) -> dict[str, str]:
        """Columns of the table of participants in `columns`, by role."""
        pairs = [part.partition("=") for part in (self.columns or "").split(",")]
        return {role.strip(): name.strip() for role, equals, name in pairs if equals}

    def unused_options(self, runs: Sequence[InputFile]) -> list[str]:
        """Return the options that the user gave and that have no effect on these runs.

        Options that ask for nothing (``--denoise none``, ``--high-pass 0``) are not listed.

        Parameters
        ----------
        runs : sequence of InputFile

        Returns
        -------
        list of str
            Options as typed, such as ``--denoise``.
        """
        used = {*self.settings_of(runs)}
        if not all(run.denoised for run in runs):
            used.update(DENOISING)
        given = {**self.given(), "columns": self.series_columns}
        names = (*DENOISING, "min_dof", "min_coverage", "columns", "variable")
        return [
            f"--{name.replace('_', '-')}"
            for name in names
            if name not in used and given.get(name) not in (None, "none", 0)
        ]

    def takes(self, source: InputFile) -> bool:
        """Return whether the options accept a file; an option that is an empty string accepts any."""
        task, session = source.entity_values("task", "ses")
        in_session = self.session.removeprefix("ses-") in ("", "all", session)
        if self.session_label:
            in_session &= session in self.sessions
        in_task = self.task in ("", task)
        named = self.select in source.path.name
        return in_task and in_session and named and self.filters.takes(source.entities)

    @property
    def sessions(self) -> list[str]:
        """Labels of `session_label` without the prefix ``ses-``."""
        return [label.removeprefix("ses-") for label in self.session_label]

    @cached_property
    def filters(self) -> BIDSFilters:
        """Entities that the filter file asks for."""
        if self.bids_filter_file is None:
            return BIDSFilters({})
        return read_filters(self.bids_filter_file)


@limits(drop=at_least(0))
@dataclass(frozen=True)
class PreprocessRequest(ImagingRequest):
    """Options of `fcforge preprocess`, for `fcforge.imaging.raw.pipeline.preprocess_folder`."""

    drop: int = option(
        5, "First volumes to leave out, while the magnetisation settles."
    )
    sdc: bool = option(
        False, "Correct distortion with a reverse-phase image, by FSL's topup."
    )
    route: Literal["auto", "pip", "fsl"] = option(
        "auto",
        "FSL and SPM12 where installed (auto), never (pip), or insisted on (fsl).",
    )

    @property
    def recorded(self) -> Mapping[str, Any]:
        """Settings that change the result, for sidecars and the fingerprint."""
        names = ("drop", "tr", "sdc", "route")
        return {name: getattr(self, name) for name in names}
