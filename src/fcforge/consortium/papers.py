"""The papers of a start, field by field: a file can hold these facts and nothing else."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from fcforge.errors import CapsuleError
from fcforge.releases.start import StartSettings

TEXT = 200  # longest text of a field
MAYBE = (float, None)
SHAPE: dict[str, Any] = {
    "fcforge": str,
    "dataset": str,
    "people_sha256": str,
    "left_out": [str],
    "people": int,
    "ids": [str],
    "patients": int,
    "sites": {str: int},
    "n_rois": int,
    "roi_names": [str],
    "classes": [str],
    "removes": [str],
    "ranges": {str: [float]},
    "settings": {f.name: (str, float) for f in fields(StartSettings)},
    "limits": {"size": float, "likeness": float, "site": float},
    "unseen_site": {"people": int, "accuracy": MAYBE, "auroc": MAYBE, "majority": MAYBE},
}


def fits(value: Any, shape: Any) -> bool:
    """Whether a JSON value has a shape: a type, [type], {str: type}, exact keys, or one of several.

    Examples
    --------
    >>> fits({"a": [1.5]}, {str: [float]}), fits({"a": True}, {"a": int}), fits(None, (int, None))
    (True, False, True)
    """
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(v, shape[0]) for v in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if str in shape:
            return all(fits(k, str) and fits(v, shape[str]) for k, v in value.items())
        return set(value) == set(shape) and all(fits(v, shape[k]) for k, v in value.items())
    if shape is None or isinstance(value, bool):
        return value is None and shape is None
    if shape is str:
        return isinstance(value, str) and len(value) <= TEXT and (value + "x").isprintable()
    number = isinstance(value, int if shape is int else (int, float))
    return number and math.isfinite(value) and abs(value) <= 1e9


def checked_papers(papers: Any) -> dict[str, Any]:
    """Papers of a start with exactly the fields they should have; else `CapsuleError`."""
    if not isinstance(papers, dict) or set(papers) != set(SHAPE):
        raise CapsuleError("the start's papers have a field too many or too few.")
    for name, shape in SHAPE.items():
        if not fits(papers[name], shape):
            raise CapsuleError(f"the start's papers: '{name}' cannot be used.")
    if not 2 <= papers["n_rois"] <= 2_000 or len(papers["roi_names"]) not in (0, papers["n_rois"]):
        raise CapsuleError("the start's papers: 'n_rois' and 'roi_names' do not fit.")
    ranges = papers["ranges"]
    pairs = all(len(pair) == 2 and pair[0] <= pair[1] for pair in ranges.values())
    if sorted(ranges) != sorted(papers["removes"]) or not pairs:
        raise CapsuleError("the start's papers: 'ranges' do not fit what is removed.")
    if not sum(papers["sites"].values()) == len(papers["ids"]) == papers["people"]:
        raise CapsuleError("the start's papers: its sites do not add up to its people.")
    limits = papers["limits"]
    if limits["size"] <= 0 or max(limits["likeness"], limits["site"]) >= 1:
        raise CapsuleError("the start's papers: 'limits' would let every scan pass.")
    return papers
