"""The methods paragraph of a paper, from what `fcforge fc` was asked for and found."""

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.options import FCRequest
from fcforge.imaging.outputs import software
from fcforge.imaging.sources import Source, read_json


@lru_cache(maxsize=1)
def words() -> dict[str, dict[str, str]]:
    """Sentences by layout, names of tools, works by atlas, regressors in words, and the works."""
    return tomllib.loads(files("fcforge.imaging").joinpath("methods.toml").read_text("utf-8"))


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
    name = made_by or words()["names"].get(tool, tool)
    done_before = read_json(source.sidecar).get("Steps", {}).items() if tool == "fcforge" else ()
    known = (f"{step} {how['Tool']}" for step, how in done_before if isinstance(how, dict))
    steps = ", ".join(words()["steps"].get(key, key) for key in known) or "its sidecars say how"
    sentences = [words()["tools"][tool].format(made_by=name, steps=steps)]
    if source.kind == "scan":
        sentences.append(_signals(request, atlas))
    else:
        sentences.append(f"Series are of {atlas.n_rois} ROIs ({_named(atlas)}).")
    if not source.denoised:
        sentences += _denoising(request, confounds=source.tool == "fmriprep")
    sentences.append(_connectivity(request, source, *done))
    text, keys = _numbered(" ".join(sentences))
    found = software()
    versions = ", ".join(f"{k} {found[k]}" for k in ("nilearn", "nibabel", "scipy", "numpy"))
    said = f"Software: fcforge {found['fcforge']} with {versions}."
    return Methods(text, said, tuple(words()["works"][key] for key in keys))


def _named(atlas: Atlas) -> str:
    plain = re.sub(r"[^a-z0-9]", "", atlas.name.lower())
    known = words()["atlases"].items()
    cited = [f" [{work}]" for name, work in known if re.match(rf"{name}(\d|sub|$)", plain)]
    return f"{atlas.name}{''.join(cited)}"


def _signals(request: FCRequest, atlas: Atlas) -> str:
    how = "the mean over its voxels with a signal, inside the brain mask where there was one"
    if atlas.probabilistic:
        how = "the least-squares weight of its map in every volume"
    dropped = f"The first {request.drop} volumes were left out. " if request.drop else ""
    rois = f"{atlas.n_rois} ROIs ({_named(atlas)})"
    return f"{dropped}The signal of each of {rois} was {how}."


def _denoising(request: FCRequest, *, confounds: bool) -> list[str]:
    denoise = request.denoising
    chosen = denoise.parameters.get("strategy", ()) if confounds else ()
    known = dict(words()["regressors"])
    if denoise.parameters.get("wm_csf") == "full":
        known["wm_csf"] += " with derivatives and squares"
    named = ", ".join(known[part] for part in chosen if part in known)
    taken = f"regressed on {named} [wang2024]" if named else "not regressed on confounds"
    said = [f"Series were detrended and {taken}, by nilearn [abraham2014]."]
    if "ica_aroma" in chosen:
        said.insert(0, "Of the scans those denoised by ICA-AROMA [pruim2015] were used.")
    if "scrub" in chosen:
        limits = [denoise.parameters[k] for k in ("fd_threshold", "std_dvars_threshold", "scrub")]
        said.append(
            "Volumes with a framewise displacement above {:g} mm [power2012] or standardised DVARS "
            "above {:g}, and stretches of fewer than {} volumes between them, were left out "
            "[power2014].".format(*limits)
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
