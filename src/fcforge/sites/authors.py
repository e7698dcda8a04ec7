"""Files of the FORGE and BrainIB authors: their .pt and .mat, read without running anything.

A .pt file is a pickle: loaded as the authors do (``weights_only=False``) it can run any code of
whoever made it. Here torch's restricted reader admits tensors, numpy arrays, lists, dicts and
numbers; anything else is refused by name.
"""

import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from fcforge.errors import DataError, at
from fcforge.imaging.matrix_files import DAMAGED, MemoryBudget, read_mat
from fcforge.sites.cohort import Cohort, as_text

_LABELS = re.compile(r"labels_(\d+)")
Part = tuple[str, list[Any], Any]  # a site's name, matrices and labels


def load_authors(
    path: str | Path,
    *,
    names: Sequence[str] | None = None,
    site: Sequence[str] | None = None,
) -> Cohort:
    """Subjects in a FORGE .pt or a BrainIB .mat.

    Parameters
    ----------
    path : path
        ``.pt``: a list of ``{roi_list, adj_list, labels}``, one per site, or a dict with
        ``roi_list_1, labels_1, roi_list_2, ...``. ``.mat``: `label` and `graph_struct` with the
        field ``ROI``. The stored adjacency is not used: graphs are built from FC, alike for all.
    names : sequence of str, optional
        Site names for a .pt, in order; ``site1, site2, ...`` without.
    site : sequence of str, optional
        Site of every subject of a .mat, which has none; one site ``all`` without.

    Returns
    -------
    Cohort
        The stored diagonal is replaced by 1; what it was is in the provenance.
    """
    file = Path(path).expanduser()
    with at(file):
        if not file.is_file():
            raise DataError("no such file.")
        if file.suffix not in (".mat", ".pt", ".pth"):
            raise DataError(f"'{file.suffix}' is neither .pt nor .mat.")
        mat = file.suffix == ".mat"
        parts = _brainib(file) if mat else _forge_sites(read_pt(file), names)
        fc = np.concatenate([_fc(matrices) for _, matrices, _ in parts])
        y = np.concatenate([_labels(labels) for *_, labels in parts])
        own = [name for name, matrices, _ in parts for _ in matrices]
        sites = as_text(own if site is None else site)
        if not len(fc) == len(y) == len(sites):
            raise DataError(f"{len(fc)} matrices, {len(y)} labels, {len(sites)} sites.")
    diagonal = float(np.abs(np.diagonal(fc, axis1=1, axis2=2)).mean())
    fc[:, np.arange(fc.shape[1]), np.arange(fc.shape[1])] = 1.0
    ids = as_text([f"{s}-{i:04d}" for i, s in enumerate(sites, 1)])
    cohort = Cohort("authors", fc, y, sites, ids)
    return cohort.stamped(path=str(file), stored_diagonal=diagonal)


def read_pt(path: Path) -> Any:
    """Content of a .pt file, without executing it.

    Raises
    ------
    DataError
        The file asks for anything but tensors, numpy arrays and plain containers.
    """
    import torch
    from torch.serialization import safe_globals

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            MemoryBudget(path).take(size)
            # torch does not verify the checksums: a flipped bit would go unseen
            if bad := archive.testzip():
                raise ValueError(f"checksum of {bad} does not fit")
        with safe_globals(_numpy_parts()), warnings.catch_warnings():
            # torch muses about odd pickles before refusing them
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        asked = f"it asks for {name[1]}" if name else "it is not data alone"
        raise DataError(
            f"refused: {asked}, which could run code.",
            do="Have its owner save tensors, arrays, lists and dicts only, or an .npz.",
        ) from None
    except DAMAGED as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"not a readable .pt file ({reason[:80]}).") from None


def _numpy_parts() -> list[Any]:
    """What a pickled numpy array is made of, under numpy's old and new module names."""
    from numpy._core import multiarray

    rebuild = multiarray._reconstruct
    scalar = multiarray.scalar
    allowed: list[Any] = [np.ndarray, np.dtype]
    for core in ("numpy.core.multiarray", "numpy._core.multiarray"):
        allowed += [(rebuild, f"{core}._reconstruct"), (scalar, f"{core}.scalar")]
    return allowed + [
        type(np.dtype(kind))
        for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "?", "O")
    ]


def _forge_sites(content: Any, names: Sequence[str] | None) -> list[Part]:
    fields = ("roi_list", "labels")
    if isinstance(content, Mapping):
        found = (_LABELS.fullmatch(str(key)) for key in content)
        numbers = sorted(int(match[1]) for match in found if match)
        several = [{f: content.get(f"{f}_{n}") for f in fields} for n in numbers]
        content = several or [content]
    parts = content if isinstance(content, list | tuple) else []
    if not parts or not all(
        isinstance(part, Mapping) and all(part.get(f) is not None for f in fields)
        for part in parts
    ):
        raise DataError(
            "no roi_list and labels of every site in it.",
            do="Expected a list of {roi_list, adj_list, labels} or roi_list_1, labels_1, ...",
        )
    known = names or [f"site{i}" for i in range(1, len(parts) + 1)]
    if len(known) != len(parts):
        raise DataError(f"{len(parts)} sites, but {len(known)} names.")
    sites = []
    for name, part in zip(known, parts, strict=True):
        sites.append((name, list(part["roi_list"]), part["labels"]))
    return sites


def _brainib(path: Path) -> list[Part]:
    data = read_mat(path)
    if not {"label", "graph_struct.ROI"} <= data.keys():
        raise DataError(
            f"not a BrainIB file (it has: {', '.join(sorted(data)) or 'nothing'}).",
            do="It has `label` and `graph_struct` with field ROI.",
        )
    return [("all", data["graph_struct.ROI"], data["label"].ravel())]


def _fc(matrices: Sequence[Any]) -> np.ndarray:
    arrays = [np.squeeze(np.asarray(m, dtype=np.float32)) for m in matrices]
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1 or (shape := next(iter(shapes))) != (shape[0],) * 2:
        raise DataError(f"ROI matrices of shapes {sorted(shapes)[:3]}.")
    return np.stack(arrays)


def _labels(labels: Any) -> np.ndarray:
    numbers = [np.asarray(v).reshape(()).item() for v in labels]
    values = np.array(numbers, dtype=float)
    out = np.where(values == -1, 0, values).astype(np.int64)
    if not np.isin(out, (0, 1)).all():
        raise DataError(f"labels {sorted(set(values.tolist()))[:5]}, not 0 / 1.")
    return out
