"""What the figures of judged generators show, and the file they are kept in."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.writing import write_bytes


class Portrait(NamedTuple):
    """What the figures need of one row: an example of each class, means and spectrum.

    `systems` names the brain system of every ROI; empty where the atlas is not known.
    """

    control: np.ndarray
    patient: np.ndarray
    edge_mean: np.ndarray
    spectrum: np.ndarray
    systems: np.ndarray = np.empty(0, dtype=np.str_)


def write_portraits(path: Path, portraits: Mapping[str, Portrait]) -> None:
    """Keep what the figures show, for ``fcforge report --judge``."""
    arrays = {
        f"{i}|{name}|{field}": value
        if value.dtype.kind == "U"
        else value.astype(np.float32)
        for i, (name, p) in enumerate(portraits.items())
        for field, value in p._asdict().items()
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    write_bytes(path, stream.getvalue())


def read_portraits(path: Path) -> dict[str, Portrait]:
    """Inverse of `write_portraits`."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as found:
        for key in sorted(found.files, key=lambda k: int(k.split("|")[0])):
            _, name, field = key.split("|")
            parts.setdefault(name, {})[field] = found[key]
    return {name: Portrait(**fields) for name, fields in parts.items()}
