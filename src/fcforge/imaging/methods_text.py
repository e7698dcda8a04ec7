"""The methods paragraph of a paper, from what `fcforge fc` was asked for and found."""

import re
import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

from fcforge.imaging.atlas import Atlas
from fcforge.imaging.options import FCRequest
from fcforge.imaging.outputs import software
from fcforge.imaging.sources import Source, read_json, sidecar_of
from fcforge.text import printable

# Sentences, names of tools, works by atlas, regressors in words, and the works.
WORDS: dict[str, dict[str, str]] = tomllib.loads(
    files("fcforge.imaging").joinpath("methods.toml").read_text("utf-8")
)


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
    request: FCRequest,
    atlas: Atlas,
    source: Source,
    made_by: str,
    done: tuple[int, int],
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
    name = made_by or WORDS["names"].get(tool, tool)
    before = WORDS["tools"][tool].format(made_by=name, steps=_steps(source))
    keys, values = _made(request, atlas, source)
    values |= {"n_done": done[0], "total": done[1]}
    if not source.denoised:
        left = f"left with fewer than {request.min_dof} degrees of freedom"
        values["few_dof"] = f", or {left} by denoising"
        more, what = _denoising(request, confounds=source.has_confounds)
        keys += more
        values |= what
    said = [WORDS["sentences"][key].format(**values) for key in (*keys, "fc")]
    text, cited = _numbered(" ".join([before, *said]))
    return Methods(text, _used(), tuple(WORDS["works"][key] for key in cited))


def _made(
    request: FCRequest, atlas: Atlas, source: Source
) -> tuple[list[str], dict[str, Any]]:
    """Sentences about how series were made, and what all sentences may say."""
    values: dict[str, Any] = {**vars(request), "uncovered": "", "few_dof": ""}
    values["rois"] = f"{atlas.n_rois} ROIs ({_named(atlas)})"
    keys = ["dropped"] if request.drop else []
    if source.kind == "series":
        return [*keys, "series"], values
    least = f"{request.min_coverage:.0%}"
    values["uncovered"] = f" or of which less than {least} was covered"
    return [*keys, "maps" if atlas.probabilistic else "labels"], values


def _used() -> str:
    found = software()
    names = ("nilearn", "nibabel", "scipy", "numpy")
    versions = ", ".join(f"{name} {found[name]}" for name in names)
    return f"Software: fcforge {found['fcforge']} with {versions}."


def _steps(source: Source) -> str:
    """What fcforge preprocess did to a scan, as its sidecar says."""
    steps = read_json(sidecar_of(source.path)).get("Steps")
    said = steps.items() if isinstance(steps, dict) else ()
    known = (f"{step} {how.get('Tool')}" for step, how in said if isinstance(how, dict))
    return (
        ", ".join(WORDS["steps"].get(key, printable(key)) for key in known)
        or "its sidecars say how"
    )


def _named(atlas: Atlas) -> str:
    plain = re.sub(r"[^a-z0-9]", "", atlas.name.lower())
    known = WORDS["atlases"].items()
    cited = [
        f" [{work}]" for name, work in known if re.match(rf"{name}(\d|sub|$)", plain)
    ]
    return f"{atlas.name}{''.join(cited)}"


def _denoising(
    request: FCRequest, *, confounds: bool
) -> tuple[list[str], dict[str, Any]]:
    """Sentences about denoising, and what they say."""
    denoise = request.denoising
    chosen = denoise.parameters.get("strategy", ()) if confounds else ()
    known = dict(WORDS["regressors"])
    if denoise.parameters.get("wm_csf") == "full":
        known["wm_csf"] += " with derivatives and squares"
    regressors = ", ".join(known[part] for part in chosen if part in known)
    low = None if "high_pass" in chosen else denoise.high_pass
    ends = ((low, "above"), (denoise.low_pass, "below"))
    band = " and ".join(f"{side} {hz:g} Hz" for hz, side in ends if hz)
    true = {
        "aroma": "ica_aroma" in chosen,
        "regressed": regressors,
        "detrended": not regressors,
    }
    true |= {"scrubbed": "scrub" in chosen, "band": band}
    values = {"regressors": regressors, "band": band, **denoise.parameters}
    return [key for key, holds in true.items() if holds], values


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
