"""The methods paragraph of a paper, from what `fcforge fc` was asked for and found."""

import tomllib
from importlib.resources import files

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.options import FCRequest
from fcforge.imaging.outputs import software
from fcforge.imaging.sources import Source

WORDS: dict[str, str] = tomllib.loads(
    files("fcforge.imaging").joinpath("methods.toml").read_text("utf-8")
)


def describe_methods(
    request: FCRequest,
    atlas: Atlas,
    source: Source,
    made_by: str,
    done: tuple[int, int],
) -> str:
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
    chosen = request.denoising.parameters if source.has_confounds else {}
    parts = chosen.get("strategy", ())
    above = 0 if "high_pass" in parts else request.high_pass
    own = made_by.startswith("fcforge preprocess")
    keys = {
        "fcforge" if own else source.tool: True,
        "dropped": request.drop,
        "rois": True,
        "maps" if atlas.probabilistic else "labels": source.kind == "scan",
        "uncovered": source.kind == "scan",
        "regressed" if chosen else "detrended": not source.denoised,
        "band": not source.denoised and (above or request.low_pass),
        "too_few": not source.denoised,
        "fc": True,
        "software": True,
    }
    said = "".join(f" {WORDS[key]}" for key, holds in keys.items() if holds)
    tool = made_by or source.tool
    confounds = ", ".join(f"{name} = {value}" for name, value in chosen.items())
    given = {"tool": tool, "confounds": confounds, "above": above, "done": done}
    return said.strip().format(asked=request, atlas=atlas, **given, **software())
