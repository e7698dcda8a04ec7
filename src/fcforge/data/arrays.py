"""Arrays of a Python session as a file of the dataset ``folder``, and errors that name their rows.

Shapes: n subjects, R ROIs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import counted, whole
from fcforge.core.labels import is_missing
from fcforge.data.checks import GIVE_KIND, NAMED, SHOWN, WIDEN, check_cohort
from fcforge.data.cohort import Cohort
from fcforge.data.faults import grouped
from fcforge.data.participants import NAME_THEM, SEVERAL

# how a fault of a subject begins that does not lie in X
ARRAY_OF = {
    "has no diagnosis": "y",
    "unknown diagnosis": "y",
    "unknown label": "y",
    "no site": "site",
    "subject id": "subject_id",
}
# advice for configs and the command line, and the same for Python
IN_PYTHON = {
    re.escape(
        NAME_THEM
    ): "Name both groups: dataset={'positive': VALUE, 'negative': VALUE}; others are left out.",
    re.escape(
        SEVERAL
    ): "More than two groups: dataset={'classes': ['HC', 'SZ', 'BP']}, controls first.",
    re.escape(GIVE_KIND): "give dataset={'kind': 'fisher_z'}.",
    re.escape(
        WIDEN
    ): "Widen dataset={'limits': ...}, or leave the subject out of all arrays.",
    r"Fill it in, or leave such people out: .*": (
        "Leave the subject out of all arrays, or give dataset={'drop_unlabelled': True}."
    ),
    r"A run refuses such a pair in training and test: .*": "Leave one of them out of all arrays.",
    r"In \[dataset\]: leave_out = .*": (
        "Leave one of them out of all arrays, or give dataset={'allow_duplicates': True}."
    ),
    r"leave the subject out: leave_out = .* in \[dataset\], or .*": (
        "leave the subject out of all arrays."
    ),
    r"leave one of the two out: leave_out = .*? in \[dataset\]\.": (
        "leave one of the two out of all arrays."
    ),
    r"allow_unlike_sites = true in \[dataset\]": "dataset={'allow_unlike_sites': True}",
    r"--set 'dataset\.merge=.*": "give both the same name in site.",
    r" A square time series\? kind='timeseries'\.": "",
    " " + re.escape(NAMED): "",
}


def write_arrays(
    path: Path, fc: Any, y: Any, site: Any, subject_id: Sequence[Any] | None
) -> list[str]:
    """Write arrays as an .npz that the dataset ``folder`` reads, and return the subjects' ids.

    Parameters
    ----------
    path : Path
    fc : array of shape (n, R, R)
        FC matrices.
    y, site : array of shape (n,)
        Diagnosis and site of every subject.
    subject_id : sequence of n ids, optional
        By default the subjects are numbered from 1.

    Raises
    ------
    ConfigError
        If an array has another shape.
    DataError
        If X holds no numbers, or a subject has no site.
    """
    if y is None or site is None:
        raise ConfigError(
            "arrays need y and site.",
            do="Call run(X, y, site, learners=[...]) with one entry per subject.",
        )
    matrices = _matrices(fc)
    ids = range(1, len(matrices) + 1) if subject_id is None else subject_id
    columns = {
        "y": _column(y),
        "site": _column(site),
        "subject_id": np.array([whole(str(k)) for k in ids]),
    }
    for name, column in columns.items():
        if column.shape != matrices.shape[:1]:
            raise ConfigError(
                f"{name} has shape {column.shape}, but X has {counted(len(matrices), 'subject')}.",
                do="Give one entry per subject.",
            )
    names = [whole(str(name)) for name in columns["site"].tolist()]
    for row, name in enumerate(names):
        if is_missing(name):
            raise DataError(
                f"site[{row}] is {np.asarray(site, dtype=object)[row]!r}, which is not the name of a site.",
                do="Name everybody's site, by a text or a number.",
            )
    columns["site"] = np.array(names)
    columns["label"] = columns.pop("y")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, allow_pickle=False, fc=matrices, **columns)
    return columns["subject_id"].tolist()


def _matrices(fc: Any) -> np.ndarray:
    """Return FC matrices as numbers (n, R, R), or raise an error that names the first odd one."""
    shapes = [np.shape(matrix) for matrix in fc]
    if not shapes:
        raise DataError("X holds no subject.", do="Give FC matrices (n, R, R).")
    odd = [row for row, shape in enumerate(shapes) if shape != shapes[0]]
    if odd:
        raise DataError(
            f"X[{odd[0]}] has shape {shapes[odd[0]]}, but X[0] has {shapes[0]}.",
            do="Give everybody a matrix of the same ROIs.",
        )
    try:
        matrices = np.asarray(fc, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"X holds no numbers ({error}).", do="Give FC matrices."
        ) from error
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise DataError(
            f"X has shape {matrices.shape}, but FC matrices have shape (n, R, R).",
            do="Make matrices of time series by nilearn.connectome.ConnectivityMeasure"
            "(kind='correlation'), and of edges by nilearn.connectome.vec_to_sym_matrix; "
            "ForgeClassifier takes all three.",
        )
    return matrices


def _column(values: Any) -> np.ndarray:
    """Return an array of numbers or texts; missing entries among objects become empty texts."""
    column = np.asarray(values)
    if column.dtype.kind != "O":
        return column
    texts = [
        "" if value is None or str(value) == "<NA>" else str(value)
        for value in column.ravel().tolist()
    ]
    return np.array(texts, dtype=str).reshape(column.shape)


def require_valid_arrays(cohort: Cohort, ids: Sequence[str]) -> None:
    """Raise one `DataError` that lists the first errors of arrays by array and row, if there are any.

    Parameters
    ----------
    cohort : Cohort
        The arrays as the dataset ``folder`` has read them.
    ids : sequence of str
        Ids of the subjects, row by row.
    """
    row_of = {name: row for row, name in reversed([*enumerate(ids)])}
    errors = []
    for fault in check_cohort(cohort):
        if fault.severity != "error":
            continue
        subject = fault.subject
        if subject in row_of:
            array = next(
                (a for text, a in ARRAY_OF.items() if fault.what.startswith(text)), "X"
            )
            subject = f"{array}[{row_of[subject]}]"
        what = _with_rows(fault.what, row_of)
        errors.append(
            replace(fault, what=what, do=_in_python(fault.do), subject=subject)
        )
    if errors:
        lines = []
        for fault in grouped(errors):
            place = fault.subject or (f"site '{fault.site}'" if fault.site else "")
            text = f"{place}: {fault.what}" if place else fault.what
            lines.append(f"\n  - {text} {fault.do}".rstrip())
        more = f"\n  ... and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        raise DataError(
            f"the arrays have {counted(len(lines), 'error')}:{''.join(lines[:SHOWN])}{more}\n",
            do="Nothing was trained.",
        )


@contextmanager
def naming_rows(path: Path, ids: Sequence[str]) -> Iterator[None]:
    """Replace the file by "the arrays", and subjects by rows of X, in every `DataError` of the block.

    Parameters
    ----------
    path : Path
        File that `write_arrays` wrote.
    ids : sequence of str
        Ids of the subjects, row by row.
    """
    try:
        yield
    except DataError as error:
        row_of = {name: row for row, name in enumerate(ids)}
        where = error.where.replace(str(path), "the arrays")
        what = _with_rows(error.what, row_of)
        raise DataError(what, where=where, do=_in_python(error.do)) from error


def in_words_of_arrays(line: str, ids: Sequence[str]) -> str:
    """Return a line of `data_warnings` with rows of X for subjects and advice for Python.

    Parameters
    ----------
    line : str
    ids : sequence of str
        Ids of the subjects, row by row.
    """
    row_of = {name: row for row, name in enumerate(ids)}
    return _in_python(_with_rows(line, row_of))


def _with_rows(text: str, row_of: Mapping[str, int]) -> str:
    """Return a message with rows of X in place of subjects that it quotes."""

    def row(match: re.Match[str]) -> str:
        """Return the rows of quoted subjects; the text itself if there are no such subjects."""
        names = [name for name in match.groups() if name is not None]
        if any(name not in row_of for name in names):
            return match[0]
        return " and ".join(f"X[{row_of[name]}]" for name in names)

    return re.sub(r"(?:the scan of )?subjects? '([^']*)'(?: and '([^']*)')?", row, text)


def _in_python(advice: str) -> str:
    """Return advice with arguments of `fcforge.run` in place of settings and options."""
    for pattern, python in IN_PYTHON.items():
        advice = re.sub(pattern, python, advice)
    return advice
