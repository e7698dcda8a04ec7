r"""Scores that travel: all that a table needs of a run folder, in one small file without people.

``results/NAME.npz`` holds what every learner said of every test subject after every stage. A
subject is its place in the sorted list of the data file's ids (`places`), whose SHA-256 is in
``fcforge.sites.published``; no id and no FC is in it. That hides nobody of a public list, and does
not pretend to: do not publish such a file of people who are to stay unknown. A score is one byte
that keeps the order, the ties and the side of 0.5, so that accuracy, balanced accuracy and AUROC
are exact, and the probability to about 0.005:

.. math:: q = \pm\left\lceil m\,\frac{|z|}{|z| + c}\cdot\frac{z_m + c}{z_m} \right\rceil,
          \quad z = \operatorname{logit} p,

:math:`m = 127, c = 2, z_m = \operatorname{logit}(1 - 10^{-8})`, different scores of a cell being
moved apart where they would share a number. Test parts of more than 100 subjects take two bytes.

Two scans that look like one person are scored as one: where one of them was trained on, the other
is not scored, and of two in test the first is (`scored`).
"""

import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np
from paper_tables import Finished
from scipy.special import expit, logit

from fcforge.errors import DataError
from fcforge.runner.config_files import resolve_data
from fcforge.runner.experiment import Experiment
from fcforge.sites import load_dataset
from fcforge.stats.people import among
from fcforge.types import Component, RunResult
from fcforge.writing import whole_file

FORMAT = 2
# Scans that look like one person (edges correlate above 0.9): who is left out by experiments run
# since, and the places of both in the sorted list of the file's ids.
LOOK_ALIKES = {
    "abide1_aal116_dparsf.npz": {
        "50286": (202, 209),
        "50602": (468, 470),
        "50808": (617, 620),
    },
    "abide1_aal116.npz": {"50602": (368, 370)},
}
LARGEST_LOGIT = float(logit(1 - 1e-8))
BEND = 2.0
ONE_BYTE = 100  # most subjects of a test part whose scores fit one byte each
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
)
_SCALE = (LARGEST_LOGIT + BEND) / LARGEST_LOGIT


def encode(p: np.ndarray, kind: type = np.int8) -> np.ndarray:
    """Whole numbers of one cell's scores (n,): same order, same ties, 0 for exactly 0.5.

    The least number of the type stands for a score that is not finite.
    """
    p, limits = np.asarray(p, dtype=np.float64), np.iinfo(kind)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.minimum(np.abs(logit(p)), LARGEST_LOGIT)
    size = np.ceil(limits.max * z / (z + BEND) * _SCALE * (1 - 1e-12))
    codes = np.where(np.isfinite(p), 0, limits.min).astype(np.int64)
    for sign, side in ((1, p > 0.5), (-1, p < 0.5)):
        if side.any():
            codes[side] = sign * _apart(sign * p[side], size[side], limits.max)
    return codes.astype(kind)


def _apart(distance: np.ndarray, size: np.ndarray, top: int) -> np.ndarray:
    """`size` (n,) made strictly increasing in `distance`, from 1 to `top`; ties stay ties."""
    _, first, place = np.unique(distance, return_index=True, return_inverse=True)
    steps = np.arange(len(first))
    rising = np.maximum.accumulate(np.maximum(size[first], 1) - steps) + steps
    return np.minimum(rising, top - steps[::-1])[place]


def decode(codes: np.ndarray) -> np.ndarray:
    """P(patient) of encoded scores, float64; `encode` gives the same numbers back."""
    limits = np.iinfo(codes.dtype)
    q = codes.astype(np.float64)
    share = (np.abs(q) - 0.5) / limits.max / _SCALE
    p = expit(np.sign(q) * BEND * share / (1 - share))
    return np.where(codes == limits.min, np.nan, p)


def places(dataset: Component) -> dict[str, int]:
    """Place of everybody of a data set in the sorted list of its ids, tested or not."""
    path = str(dataset.params.get("path", ""))
    if path.endswith(".npz"):
        with np.load(
            resolve_data(f"$FCFORGE_DATA/{Path(path).name}", Path(__file__).parent)
        ) as file:
            ids = file["subject_id"].astype(str)
    else:
        ids = load_dataset(dataset).subject_id
    return {who: place for place, who in enumerate(sorted(ids.tolist()))}


def pack(
    table: Finished, data: Mapping[str, Any], numbers: Mapping[str, int], **about: Any
) -> dict[str, np.ndarray]:
    """Arrays of a finished table.

    Parameters
    ----------
    table : Finished
    data : mapping
        Of the run folder's ``experiment.json``.
    numbers : mapping
        Subjects' numbers by id (`places`).
    **about
        What else to keep as JSON, e.g. the commit.
    """
    runs = [r for group in table.groups.values() for r in group]
    sites, seeds = list(data["sites"]), sorted({r.spec.seed for r in runs})
    people = _people(runs, sites, seeds, numbers)
    largest = int(people["test_count"].max())
    experiment = without_folders(data["experiment"])
    titles = [learner["title"] for learner in experiment["learners"]]
    machines = {
        title: dict(group[0].environment) for title, group in table.groups.items()
    }
    facts = {
        "format": FORMAT,
        "experiment": experiment,
        "sites": sites,
        "seeds": seeds,
        "data_sha256": data["data_sha256"],
        "keeps": dict(table.keeps),
        "missing": list(table.missing),
        "machines": machines,
        **about,
    }
    longest = max(len(r.spec.order) for r in runs)

    def padded(rows: list[Any], kind: type, width: int = longest) -> np.ndarray:
        return np.array(
            [[*row, *[-1] * (width - len(row))] for row in rows], dtype=kind
        )

    codes, stages = _codes(runs, sites, np.int8 if largest <= ONE_BYTE else np.int16)
    return {
        "about": np.frombuffer(
            json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8
        ),
        "codes": codes,
        "run_stages": padded(stages, np.int32, longest + 1),
        "run_learner": np.array(
            [titles.index(r.spec.learner.title) for r in runs], np.uint16
        ),
        "run_seed": np.array([seeds.index(r.spec.seed) for r in runs], dtype=np.uint16),
        "run_order": padded(
            [[sites.index(s) for s in r.spec.order] for r in runs], np.int16
        ),
        "run_memory": padded([r.memory_bytes for r in runs], np.int64),
        "run_seconds": padded([np.round(r.seconds, 3) for r in runs], np.float32),
        **people,
    }


def _people(
    runs: list[RunResult],
    sites: list[str],
    seeds: list[int],
    numbers: Mapping[str, int],
) -> dict[str, np.ndarray]:
    """Test subjects of every (seed, site), one after the other: number, diagnosis, count."""
    of_seed = {r.spec.seed: r for r in runs}
    cells = [(of_seed[seed], site) for seed in seeds for site in sites]
    named = [numbers[i] for r, site in cells for i in r.subject_ids[site]]
    shape = len(seeds), len(sites)
    counts = [len(r.y[site]) for r, site in cells]
    share = [r.train_mean[site] for r, site in cells]
    return {
        "test_person": np.array(named, dtype=np.uint16),
        "test_y": np.concatenate([r.y[site] for r, site in cells]).astype(np.uint8),
        "test_count": np.array(counts, dtype=np.uint16).reshape(shape),
        "train_positive": np.array(share).reshape(shape),
    }


def _codes(
    runs: list[RunResult], sites: list[str], kind: type
) -> tuple[np.ndarray, list[list[int]]]:
    """Encoded scores of all sites, stage by stage, each kind of stage once; where a run's begin."""
    parts: list[np.ndarray] = []
    known: dict[bytes, int] = {}
    begins: list[list[int]] = []
    end = 0
    for r in runs:
        begins.append([])
        for t in range(len(r.spec.order) + 1):
            cells = [(r.scores[s][t - 1] if t else r.initial[s]) for s in sites]
            # a seed's test subjects are its own: equal bytes of two seeds would be chance
            name = b"".join([str(r.spec.seed).encode(), *(c.tobytes() for c in cells)])
            if name not in known:
                known[name] = end
                parts.append(np.concatenate([encode(c, kind) for c in cells]))
                end += len(parts[-1])
            begins[-1].append(known[name])
    return np.concatenate(parts), begins


def without_folders(told: Any) -> Any:
    """JSON with the names of files, not the folders of whoever ran it."""
    if isinstance(told, Mapping):
        return {k: without_folders(v) for k, v in told.items()}
    if isinstance(told, list):
        return [without_folders(v) for v in told]
    return (
        Path(told).name if isinstance(told, str) and Path(told).is_absolute() else told
    )


def look_alikes(experiment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of subjects of an experiment that look like one person, both of them in it."""
    params = experiment["dataset"]["params"]
    known = LOOK_ALIKES.get(Path(str(params.get("path", ""))).name, {})
    gone = params.get("leave_out", ())
    return [(str(a), str(b)) for who, (a, b) in known.items() if who not in gone]


def scored(run: RunResult, pairs: Iterable[tuple[str, str]]) -> RunResult:
    """A run without the scores of whoever looks like somebody it was trained on.

    A twin in training would make the test measure memory; of two in test one counts.
    """
    tested = {who for ids in run.subject_ids.values() for who in ids}
    gone: set[str] = set()
    for first, second in pairs:
        gone |= {second} if {first, second} <= tested else {first, second}
    if not gone & tested:
        return run
    return among([run], lambda _, who: who not in gone)[0]


def unpack(
    arrays: Mapping[str, np.ndarray], as_run: bool = False
) -> tuple[Finished, dict[str, Any]]:
    """The table that was packed, and what was told about it; `as_run`: with look-alikes."""
    about = json.loads(arrays["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, not {FORMAT}")
    sites, seeds = about["sites"], about["seeds"]
    experiment = replace(Experiment.from_json(about["experiment"]), seeds=tuple(seeds))
    titles = [learner.title for learner in experiment.learners]
    every = experiment.specs(sites, about["data_sha256"])
    specs = {(s.learner.title, s.seed, s.order): s for s in every}
    tested = [_tested(arrays, sites, k) for k in range(len(seeds))]
    scores = decode(arrays["codes"])
    pairs = [] if as_run else look_alikes(about["experiment"])
    groups: dict[str, list[RunResult]] = {}
    for k, learner in enumerate(arrays["run_learner"]):
        title, seed = titles[learner], int(arrays["run_seed"][k])
        order = tuple(sites[i] for i in arrays["run_order"][k] if i >= 0)
        cells = _cells(
            scores, arrays["run_stages"][k][: len(order) + 1], tested[seed]["y"]
        )
        result = RunResult(
            spec=specs[title, seeds[seed], order],
            sites=tuple(sites),
            scores={s: c[1:] for s, c in cells.items()},
            initial={s: c[0] for s, c in cells.items()},
            memory_bytes=arrays["run_memory"][k][: len(order)],
            seconds=arrays["run_seconds"][k][: len(order)],
            environment=about["machines"][title],
            **tested[seed],
        )
        groups.setdefault(title, []).append(scored(result, pairs))
    return Finished(groups, about["keeps"], tuple(about["missing"])), about


def _cells(
    scores: np.ndarray, begins: np.ndarray, y: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Scores of a run by site, (T + 1, n_test), from where its stages begin."""
    cuts = np.cumsum([len(found) for found in y.values()])
    stages = np.stack([scores[b : b + cuts[-1]] for b in begins])
    return dict(zip(y, np.split(stages, cuts[:-1], axis=1), strict=True))


def _tested(
    arrays: Mapping[str, np.ndarray], sites: list[str], seed: int
) -> dict[str, Any]:
    """Diagnoses, numbers and training prevalence of one seed's test subjects."""
    counts = arrays["test_count"].astype(int)
    begin = int(counts[:seed].sum())
    cuts = begin + np.cumsum([0, *counts[seed]])
    parts = {s: slice(*cuts[i : i + 2]) for i, s in enumerate(sites)}
    numbers = {s: arrays["test_person"][part].tolist() for s, part in parts.items()}
    positive = dict(zip(sites, arrays["train_positive"][seed].tolist(), strict=True))
    return {
        "y": {s: arrays["test_y"][part].astype(np.int64) for s, part in parts.items()},
        "subject_ids": {s: tuple(map(str, found)) for s, found in numbers.items()},
        "train_mean": positive,
    }


def write_table(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write packed arrays; equal arrays give equal bytes."""
    with (
        whole_file(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_LZMA) as archive,
    ):
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)


def read_table(path: Path, as_run: bool = False) -> tuple[Finished, dict[str, Any]]:
    """A table of ``results/`` as its runs, and what was told about it (`unpack`)."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return unpack({name: archive[name] for name in archive.files}, as_run)
    except _UNREADABLE as error:
        raise DataError(
            f"not a table of scores, damaged, or of another version of fcforge ({error}).",
            where=str(path),
            do="Take it from the repository again.",
        ) from error
