"""Scores behind paper/results/four_hospitals.csv: how they are stored and summarised.

``paper/results/four_hospitals.npz`` holds what `four_hospitals.py` computed for every seed; the
spreadsheet follows from this file alone, without the data (`summary`). No id and no FC is stored.
As in `scores.py` a subject is its place in the sorted list of the data file's ids; ABIDE is a public
list, so this hides nobody.

F counts the data files and R the rows of the table. n is the number of subjects of the four
hospitals and m the number of subjects that a seed tests. The hospitals have 15 sets that are not
empty: those of one, two, three and four, each in the order of ``itertools.combinations``.

============= ======================= ==============================================================
array         shape                   content
============= ======================= ==============================================================
``about``     bytes                   JSON: format, commit, command, machine, files, sites, rows
``place_F``   (n,)                    place of each subject in the sorted list of the file's ids
``site_F``    (n,)                    hospital of each subject, as its place in ``about.sites``
``y_F``       (n,)                    diagnosis, 1 for patients
``tested_F``  (seeds, n)              1 for subjects that the seed tests
``ranks_F_R`` (sum of m, 15, draws)   signed rank of each tested subject's score, one byte
============= ======================= ==============================================================

Subjects are in the order of the file, and seeds follow one another. A signed rank belongs to the model
after one set of hospitals has contributed and to one draw of the noise. It is the rank of the score
among the tested subjects of the subject's own hospital, less a constant by which 1 is the lowest
score above the threshold. Equal scores have equal ranks. Accuracy and AUROC of each hospital follow
exactly: a subject is called a patient if its signed rank is positive.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scores import UNREADABLE

from fcforge.core.errors import DataError
from fcforge.evaluation.metrics import cell_values

FORMAT = 1
PUBLIC = "base model alone"
NAMES = ("aaa", "auroc", "aaa_gain", "auroc_gain")


@dataclass(frozen=True)
class FileScores:
    """Scores of the subjects of one data file.

    Parameters
    ----------
    place : ndarray of shape (n,)
        Places in the sorted list of the file's ids.
    site : ndarray of shape (n,)
        Hospital, as its place in the list of hospitals.
    y : ndarray of shape (n,)
        Diagnosis.
    tested : ndarray of shape (seeds, n), bool
        Subjects that each seed tests.
    ranks : mapping of str to ndarray of shape (sum of m, sets, draws)
        Signed ranks by title of the row.
    """

    place: np.ndarray
    site: np.ndarray
    y: np.ndarray
    tested: np.ndarray
    ranks: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Stored:
    """Content of four_hospitals.npz: scores by data file, and facts about the run."""

    sites: tuple[str, ...]
    files: Mapping[str, FileScores]
    about: Mapping[str, Any]


def sets_of(sites: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all sets of hospitals that are not empty, small ones first."""
    sizes = range(1, len(sites) + 1)
    return [chosen for k in sizes for chosen in itertools.combinations(sites, k)]


def signed_ranks(scores: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Return ranks within hospitals of scores (m, ...), so that positive scores begin at 1.

    Parameters
    ----------
    scores : ndarray of shape (m, ...)
        Scores of the tested subjects; above zero means patient.
    site : ndarray of shape (m,)
        Their hospitals.

    Returns
    -------
    ndarray of int8, of the shape of the scores
    """
    columns = scores.reshape(len(scores), -1)
    ranks = np.zeros(columns.shape, dtype=np.int64)
    for name in np.unique(site):
        here = site == name
        for k, column in enumerate(columns[here].T):
            values, place = np.unique(column, return_inverse=True)
            ranks[here, k] = place - (values <= 0).sum() + 1
    if np.abs(ranks).max(initial=0) > np.iinfo(np.int8).max:
        raise ValueError("a rank is too large to be stored in one byte.")
    return ranks.astype(np.int8).reshape(scores.shape)


# -- file ------------------------------------------------------------------------------------------
def pack(stored: Stored) -> dict[str, np.ndarray]:
    """Return the arrays of the file, ``about`` first."""
    first = next(iter(stored.files.values()))
    facts = {
        **stored.about,
        "format": FORMAT,
        "files": list(stored.files),
        "sites": list(stored.sites),
        "rows": list(first.ranks),
    }
    text = json.dumps(facts, sort_keys=True).encode()
    arrays = {"about": np.frombuffer(text, dtype=np.uint8)}
    for f, scores in enumerate(stored.files.values()):
        arrays[f"place_{f}"] = scores.place.astype(np.uint16)
        arrays[f"site_{f}"] = scores.site.astype(np.uint8)
        arrays[f"y_{f}"] = scores.y.astype(np.uint8)
        arrays[f"tested_{f}"] = scores.tested.astype(np.uint8)
        for r, title in enumerate(facts["rows"]):
            arrays[f"ranks_{f}_{r}"] = scores.ranks[title]
    return arrays


def unpack(arrays: Mapping[str, np.ndarray]) -> Stored:
    """Return what was packed; a ValueError or KeyError if the arrays do not belong together."""
    about = json.loads(arrays["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, not {FORMAT}")
    sites = tuple(about["sites"])
    files = {}
    for f, name in enumerate(about["files"]):
        ranks = {t: arrays[f"ranks_{f}_{r}"] for r, t in enumerate(about["rows"])}
        place, site, y = (arrays[f"{key}_{f}"] for key in ("place", "site", "y"))
        tested = arrays[f"tested_{f}"].astype(bool)
        if not len(place) == len(site) == len(y) == tested.shape[1]:
            raise ValueError(f"the subjects of {name} do not belong together")
        wanted = (tested.sum(), len(sets_of(sites)))
        if any(r.shape[:2] != wanted or r.dtype != np.int8 for r in ranks.values()):
            raise ValueError(f"the ranks of {name} do not fit its subjects")
        files[name] = FileScores(
            place, site.astype(np.int64), y.astype(np.int64), tested, ranks
        )
    return Stored(sites, files, about)


def read_scores(path: Path) -> Stored:
    """Read four_hospitals.npz."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return unpack({name: archive[name] for name in archive.files})
    except UNREADABLE as error:
        raise DataError(
            f"not a file of scores of four hospitals, damaged, or of another version of fcforge ({error}).",
            where=str(path),
            do="Take it from the repository again.",
        ) from error


# -- numbers ---------------------------------------------------------------------------------------
def values_of(scores: FileScores, title: str, sites: Sequence[str]) -> np.ndarray:
    """Return AAA over all orders and AUROC after all hospitals, averaged over draws (seeds, 2)."""
    ends = np.cumsum(scores.tested.sum(1))[:-1]
    values = []
    for tested, ranks in zip(
        scores.tested, np.split(scores.ranks[title], ends), strict=True
    ):
        site, y = scores.site[tested], scores.y[tested]
        _, n_sets, n_draws = ranks.shape
        right = np.empty((len(sites), n_sets, n_draws))
        auroc = np.empty((len(sites), n_draws))
        for k in range(len(sites)):
            here = site == k
            patient = (y[here] == 1)[:, None, None]
            right[k] = ((ranks[here] > 0) == patient).mean(0)
            last = ranks[here, -1].T.astype(float)
            auroc[k] = cell_values(last, y[here], "auroc")
        aaa = over_orders(right, sites)
        values.append([aaa.mean(), auroc.mean(0).mean()])
    return np.array(values)


def over_orders(right: np.ndarray, sites: Sequence[str]) -> np.ndarray:
    """Return AAA (draws,) over all orders from accuracies (hospitals, sets, draws).

    Over all orders each size of set is equally often a stage, and each set of one size equally often
    that stage.
    """
    sets = sets_of(sites)
    seen = [
        right[[sites.index(s) for s in chosen], k].mean(0)
        for k, chosen in enumerate(sets)
    ]
    by_size = [
        np.mean([v for v, s in zip(seen, sets, strict=True) if len(s) == size], axis=0)
        for size in range(1, len(sites) + 1)
    ]
    return np.mean(by_size, axis=0)


def interval(values: np.ndarray) -> list[float]:
    """Return the mean and its 95 % interval over seeds."""
    middle = float(values.mean())
    reach = float(1.96 * values.std(ddof=1) / len(values) ** 0.5)
    return [middle, middle - reach, middle + reach]


def summary(stored: Stored) -> list[dict[str, object]]:
    """Return all rows of the spreadsheet."""
    rows = []
    for file, scores in stored.files.items():
        values = {t: values_of(scores, t, stored.sites) for t in scores.ranks}
        for title, each in values.items():
            both = np.concatenate([each, each - values[PUBLIC]], 1)
            row: dict[str, object] = {"file": file, "row": title, "seeds": len(each)}
            for key, column in zip(NAMES, both.T, strict=True):
                ends = (key, f"{key}_low", f"{key}_high")
                row |= dict(zip(ends, interval(column), strict=True))
            rows.append(row)
    return rows
