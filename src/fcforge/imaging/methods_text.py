"""The methods paragraph of a paper, from what `fcforge fc` was asked for and found."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.options import FCRequest
from fcforge.imaging.outputs import software
from fcforge.imaging.sources import Source

# References stand by their keys in references.tsv; `describe_methods` numbers them.
TOOLS = {
    "fmriprep": "Scans had been preprocessed by {made_by} [esteban2019].",
    "xcpd": "Scans had been denoised by {made_by} [mehta2024].",
    "cpac": "ROI time series had been made and denoised by {made_by} [craddock2013].",
    "dpabi": "ROI time series had been made and denoised by DPABI / DPARSF [yan2016].",
    "halfpipe": "ROI time series had been made and denoised by {made_by} [waller2022].",
    "hcp": "Scans had been preprocessed by the minimal pipelines of the HCP [glasser2013].",
    "nifti": "Scans had been brought to MNI space before.",
    "series": "ROI time series had been made and denoised before.",
    "fcforge": "Raw scans had been brought to MNI space by fcforge preprocess: rigid realignment, "
    "slice timing where known, one affine registration of the mean functional image to the "
    "MNI152 template; T1-weighted images were not used.",
}
NAMES = {"fmriprep": "fMRIPrep", "xcpd": "XCP-D", "cpac": "C-PAC", "halfpipe": "HALFpipe"}
ATLASES = {
    "aal": "tzourio2002", "schaefer": "schaefer2018", "harvardoxford": "desikan2006",
    "cc": "craddock2012", "destrieux": "destrieux2010", "msdl": "varoquaux2011",
    "difumo": "dadi2020", "gordon": "gordon2016",
}  # fmt: skip
REGRESSORS = {
    "motion": "24 motion regressors (six parameters, derivatives and the squares of both "
    "[friston1996])",
    "wm_csf": "the mean signals of white matter and cerebrospinal fluid",
    "global_signal": "the global signal",
    "compcor": "the anatomical CompCor components [behzadi2007]",
    "high_pass": "discrete cosines slower than 128 s",
    "non_steady_state": "indicators of non-steady-state volumes",
}


class Methods(NamedTuple):
    """A paragraph, the versions of what was used, and the works cited in it, in order."""

    text: str
    software: str
    references: tuple[str, ...]

    def markdown(self) -> str:
        """The whole as a file; it may be copied without leave."""
        cited = "\n".join(f"{i}. {work}" for i, work in enumerate(self.references, 1))
        note = "Free to copy into a paper as it is (CC0)."
        parts = ("# Methods", self.text, self.software, "## References", cited, note)
        return "\n\n".join(parts) + "\n"


def describe_methods(
    request: FCRequest, atlas: Atlas, source: Source, made_by: str, done: tuple[int, int]
) -> Methods:
    """What was done, in words for a paper.

    Parameters
    ----------
    request : FCRequest
    atlas : Atlas
    source : Source
        One of the runs; all were left by the same tool.
    made_by : str
        Name and version that the input folder gives, "" where it gives none.
    done : (int, int)
        Subjects with FC, and all of them.
    """
    tool = "fcforge" if made_by.startswith("fcforge preprocess") else source.tool
    sentences = [TOOLS[tool].format(made_by=made_by or NAMES.get(tool, tool))]
    if source.kind == "scan":
        sentences.append(_signals(request, atlas))
    else:
        sentences.append(f"Series are of {atlas.n_rois} ROIs ({_named(atlas)}).")
    if not source.denoised:
        sentences += _denoising(request, confounds=source.tool == "fmriprep")
    sentences.append(_connectivity(request, source, *done))
    text, keys = _numbered(" ".join(sentences))
    works = dict(line.split("\t") for line in _table().splitlines())
    found = software()
    versions = ", ".join(f"{k} {found[k]}" for k in ("nilearn", "nibabel", "scipy", "numpy"))
    said = f"Software: fcforge {found['fcforge']} with {versions}."
    return Methods(text, said, tuple(works[key] for key in keys))


def _table() -> str:
    return files("fcforge.imaging").joinpath("references.tsv").read_text(encoding="utf-8")


def _named(atlas: Atlas) -> str:
    plain = re.sub(r"[^a-z0-9]", "", atlas.name.lower())
    key = next(
        (work for name, work in ATLASES.items() if re.match(rf"{name}(\d|sub|$)", plain)), ""
    )
    return f"{atlas.name} [{key}]" if key else atlas.name


def _signals(request: FCRequest, atlas: Atlas) -> str:
    how = "the mean over its voxels with a signal, inside the brain mask where there was one"
    if atlas.probabilistic:
        how = "the least-squares weight of its map in every volume"
    dropped = f"The first {request.drop} volumes were left out. " if request.drop else ""
    rois = f"{atlas.n_rois} ROIs ({_named(atlas)})"
    return f"{dropped}The signal of each of {rois} was {how} (nilearn [abraham2014])."


def _denoising(request: FCRequest, *, confounds: bool) -> list[str]:
    denoise = request.denoising
    chosen = denoise.parameters.get("strategy", ()) if confounds else ()
    words = [REGRESSORS[part] for part in chosen if part in REGRESSORS]
    if denoise.parameters.get("wm_csf") == "full":
        words = [w + " with derivatives and squares" if "matter" in w else w for w in words]
    taken = f"regressed on {', '.join(words)} [wang2024]" if words else "not regressed on confounds"
    said = [f"Series were detrended and {taken}."]
    if "ica_aroma" in chosen:
        said.insert(0, "Of the scans those denoised by ICA-AROMA [pruim2015] were used.")
    if "scrub" in chosen:
        limits = [denoise.parameters[k] for k in ("fd_threshold", "std_dvars_threshold", "scrub")]
        said.append(
            "Volumes with a framewise displacement above {:g} mm [power2012] or standardised DVARS "
            "above {:g}, and stretches of fewer than {} volumes between them, were left "
            "out.".format(*limits)
        )
    low = None if "high_pass" in chosen else denoise.high_pass
    ends = ((low, "above"), (denoise.low_pass, "below"))
    if band := " and ".join(f"{side} {hz:g} Hz" for hz, side in ends if hz):
        said.append(f"Frequencies {band} were kept (Butterworth filter of order 5).")
    return said


def _connectivity(request: FCRequest, source: Source, n_done: int, total: int) -> str:
    covered = f" or of which less than {request.min_coverage:.0%} was covered"
    empty = "without signal" + (covered if source.kind == "scan" else "")
    dof = f", or left with fewer than {request.min_dof} degrees of freedom by denoising"
    return (
        "Functional connectivity (FC) is the Pearson correlation between the series of two ROIs; "
        "several runs of a subject were z-scored one by one and joined. The FC of an ROI "
        f"{empty} was set to 0. Subjects with more than {request.max_empty:.0%} such ROIs"
        f"{'' if source.denoised else dof} were excluded; {n_done} of {total} have FC."
    )


def _numbered(text: str) -> tuple[str, list[str]]:
    """Keys of references replaced by numbers in order of appearance, and the keys.

    Examples
    --------
    >>> _numbered("b [power2012], a [aal2002], b again [power2012]")
    ('b [1], a [2], b again [1]', ['power2012', 'aal2002'])
    """
    keys: list[str] = list(dict.fromkeys(re.findall(r"\[([a-z]+\d{4})\]", text)))
    for number, key in enumerate(keys, 1):
        text = text.replace(f"[{key}]", f"[{number}]")
    return text, keys
