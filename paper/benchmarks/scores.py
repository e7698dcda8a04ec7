r"""Scores that travel: all that a table needs of a run folder, in one small file without people.

``paper/results/NAME.npz`` holds what every learner said of every test subject after every stage. A
subject is its place in the sorted list of the data file's ids (`places`), whose SHA-256 is in
``fcforge.data.abide``; no id and no FC is in it. That hides nobody of a public list, and does
not pretend to: do not publish such a file of people who are to stay unknown. A score is one byte
that keeps the order, the ties and the side of 0.5, so that accuracy, balanced accuracy and AUROC
are exact, and the probability to about 0.01 on average (in cells of an overconfident network far
less: their scores crowd at 0 and 1, and moving them apart can cost 0.3):

.. math:: q = \pm\left\lceil m\,\frac{|z|}{|z| + c}\cdot\frac{z_m + c}{z_m} \right\rceil,
          \quad z = \operatorname{logit} p, \quad z_m = z_0 2^{-k / 8},

:math:`m = 63, c = 2, z_0 = \operatorname{logit}(1 - 10^{-8})`, k a further byte of the cell: the
largest with which all its |z| are below :math:`z_m`. Different scores of a cell are moved apart
where they would share a number. Test parts of more than 60 subjects take two bytes (m = 32767).
All that was said of one subject lies together: it is alike, and packs well.

Predictions of a number are kept in thousandths of its unit, those of more than two classes as
probabilities in steps of 1e-8.

Two scans that look like one person are scored as one: where one of them was trained on, the other
is not scored, and of two in test the first is (`scored`).
"""

import json
import math
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

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.files import whole_file
from fcforge.core.result import RunResult
from fcforge.data.datasets import load_dataset
from fcforge.evaluation.pooled import select_subjects
from fcforge.experiments.config import Experiment
from fcforge.experiments.config_files import resolve_data

FORMAT = 3
# Scans that look like one person (edges correlate above 0.9): who is left out by experiments run
# since, and the places of both in the sorted list of the file's ids.
DUPLICATE_SCANS = {
    "abide1_aal116_dparsf.npz": {
        "50286": (202, 209),
        "50602": (468, 470),
        "50808": (617, 620),
    },
    "abide1_aal116.npz": {"50602": (368, 370)},
}
LARGEST_LOGIT = float(logit(1 - 1e-8))
BEND = 2.0
ONE_BYTE = 60  # most subjects of a test part whose scores fit one byte each
LARGEST = {np.dtype(np.int8): 63, np.dtype(np.int16): 32767}  # m
UNREADABLE = (
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
GRADES = 8  # steps in which the largest logit of a cell is halved
# Steps per unit of stored predictions of a number, and of stored probabilities of several classes.
STEPS = {"number": 1e3, "more classes": 1e8}
NOT_FINITE = np.iinfo(np.int32).min


def largest_logit(grade: np.ndarray | int) -> np.ndarray:
    """The most that |z| can be in a cell of that grade."""
    return LARGEST_LOGIT * 2.0 ** (-np.asarray(grade, dtype=np.float64) / GRADES)


def encode(p: np.ndarray, kind: type = np.int8) -> tuple[np.ndarray, int]:
    """Whole numbers of one cell's scores (n,): same order, same ties, 0 for exactly 0.5; grade k.

    The least number of the type stands for a score that is not finite.
    """
    p = np.asarray(p, dtype=np.float64)
    top = LARGEST[np.dtype(kind)]
    known = np.isfinite(p)
    z = np.zeros(p.shape)
    with np.errstate(divide="ignore"):
        z[known] = np.minimum(np.abs(logit(p[known])), LARGEST_LOGIT)
    steps = GRADES * np.log2(LARGEST_LOGIT / max(z.max(initial=0.0), 1e-9))
    grade = min(int(steps), 255)
    whole = largest_logit(grade)
    size = np.ceil(top * z / (z + BEND) * (whole + BEND) / whole * (1 - 1e-12))
    codes = np.where(known, 0, np.iinfo(kind).min).astype(np.int64)
    for sign, side in ((1, p > 0.5), (-1, p < 0.5)):
        if side.any():
            codes[side] = sign * _apart(sign * p[side], size[side], top)
    return codes.astype(kind), grade


def _apart(distance: np.ndarray, size: np.ndarray, top: int) -> np.ndarray:
    """`size` (n,) made strictly increasing in `distance`, from 1 to `top`; ties stay ties."""
    _, first, place = np.unique(distance, return_index=True, return_inverse=True)
    steps = np.arange(len(first))
    rising = np.maximum.accumulate(np.maximum(size[first], 1) - steps) + steps
    return np.minimum(rising, top - steps[::-1])[place]


def decode(codes: np.ndarray, grade: np.ndarray | int) -> np.ndarray:
    """P(patient) of encoded scores, float64, with the grades of their cells."""
    known = codes != np.iinfo(codes.dtype).min
    q = np.where(known, codes, 0).astype(np.float64)
    whole = largest_logit(grade)
    share = (np.abs(q) - 0.5) / LARGEST[codes.dtype] * whole / (whole + BEND)
    p = expit(np.sign(q) * BEND * share / (1 - share))
    return np.where(known, p, np.nan)


def encode_values(values: np.ndarray, kind: str) -> np.ndarray:
    """Return predictions of a number or of several classes as whole steps, int32."""
    steps = np.asarray(values, dtype=np.float64) * STEPS[kind]
    known = np.isfinite(steps)
    if np.abs(steps[known]).max(initial=0.0) >= -NOT_FINITE:
        raise ValueError("a prediction is too large to be stored.")
    return np.where(known, np.round(np.where(known, steps, 0)), NOT_FINITE).astype(
        np.int32
    )


def decode_values(steps: np.ndarray, kind: str) -> np.ndarray:
    """Return the predictions that `encode_values` stored, float64."""
    return np.where(steps == NOT_FINITE, np.nan, steps / STEPS[kind])


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
    target_kind = runs[0].kind
    experiment = without_folders(data["experiment"])
    titles = [learner["title"] for learner in experiment["learners"]]
    machines = {
        title: dict(group[0].environment) for title, group in table.groups.items()
    }
    facts = {
        "format": FORMAT,
        "kind": target_kind,
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

    kind = np.int8 if largest <= ONE_BYTE else np.int16
    if target_kind == "two classes":
        codes, grades, stages = _codes(runs, sites, seeds, kind)
        scores = {"codes": codes, "grades": grades}
    else:
        values, stages = _values(runs, sites, seeds)
        scores = {"values": values}
    return {
        "about": np.frombuffer(
            json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8
        ),
        **scores,
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
    share = np.array([r.train_mean[site] for r, site in cells])
    kind = np.float32 if runs[0].kind == "number" else np.uint8
    return {
        "test_person": np.array(named, dtype=np.uint16),
        "test_y": np.concatenate([r.y[site] for r, site in cells]).astype(kind),
        "test_count": np.array(counts, dtype=np.uint16).reshape(shape),
        "train_positive": share.reshape(*shape, *share.shape[1:]),
    }


def _codes(
    runs: list[RunResult], sites: list[str], seeds: list[int], kind: type
) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Encoded scores and grades, seed by seed, and the numbers of each run's stages.

    Of a seed the scores are (n_test, n_stages), the grades (n_sites, n_stages), each flat. A stage
    that several orders begin with is held once; a seed's stages are numbered from 0.
    """
    distinct, stages = _distinct_stages(runs, sites, seeds)
    codes = []
    grades = []
    for of_seed in distinct.values():
        here = [[encode(c, kind) for c in cells] for cells in of_seed]
        columns = [np.concatenate([c for c, _ in cells]) for cells in here]
        codes.append(np.stack(columns, axis=1).ravel())
        grades.append(np.array([[g for _, g in cells] for cells in here]).T.ravel())
    return np.concatenate(codes), np.concatenate(grades).astype(np.uint8), stages


def _values(
    runs: list[RunResult], sites: list[str], seeds: list[int]
) -> tuple[np.ndarray, list[list[int]]]:
    """Return stored predictions, seed by seed (n_stages, n_test) or (n_stages, n_test, K), and stages."""
    distinct, stages = _distinct_stages(runs, sites, seeds)
    kind = runs[0].kind
    stored = [
        encode_values(np.concatenate(cells), kind).ravel()
        for of_seed in distinct.values()
        for cells in of_seed
    ]
    return np.concatenate(stored), stages


def _distinct_stages(
    runs: list[RunResult], sites: list[str], seeds: list[int]
) -> tuple[dict[int, list[list[np.ndarray]]], list[list[int]]]:
    """Return the different stages of every seed, scores by site, and the numbers of each run's."""
    distinct: dict[int, list[list[np.ndarray]]] = {seed: [] for seed in seeds}
    known: dict[tuple[int, bytes], int] = {}
    stages: list[list[int]] = []
    for r in runs:
        here = distinct[r.spec.seed]
        stages.append([])
        for t in range(len(r.spec.order) + 1):
            cells = [(r.scores[s][t - 1] if t else r.initial[s]) for s in sites]
            name = r.spec.seed, b"".join(c.tobytes() for c in cells)
            if name not in known:
                known[name] = len(here)
                here.append(cells)
            stages[-1].append(known[name])
    return distinct, stages


def without_folders(about: Any) -> Any:
    """JSON with the names of files, not the folders of whoever ran it."""
    if isinstance(about, Mapping):
        return {k: without_folders(v) for k, v in about.items()}
    if isinstance(about, list):
        return [without_folders(v) for v in about]
    return (
        Path(about).name
        if isinstance(about, str) and Path(about).is_absolute()
        else about
    )


def duplicate_scans(experiment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of subjects of an experiment that look like one person, both of them in it."""
    params = experiment["dataset"]["params"]
    known = DUPLICATE_SCANS.get(Path(str(params.get("path", ""))).name, {})
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
    return select_subjects([run], lambda _, who: who not in gone)[0]


def unpack(
    arrays: Mapping[str, np.ndarray], as_run: bool = False
) -> tuple[Finished, dict[str, Any]]:
    """The table that was packed, and what was told about it; `as_run`: with duplicate scans."""
    about = json.loads(arrays["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, not {FORMAT}")
    sites, seeds = about["sites"], about["seeds"]
    experiment = replace(Experiment.from_json(about["experiment"]), seeds=tuple(seeds))
    titles = [learner.title for learner in experiment.learners]
    every = experiment.specs(sites, about["data_sha256"])
    specs = {(s.learner.title, s.seed, s.order): s for s in every}
    kind = about.get("kind", "two classes")
    tested = [_tested(arrays, sites, k) for k in range(len(seeds))]
    scores = _by_seed(arrays, kind)
    pairs = [] if as_run else duplicate_scans(about["experiment"])
    groups: dict[str, list[RunResult]] = {}
    for k, learner in enumerate(arrays["run_learner"]):
        title, seed = titles[learner], int(arrays["run_seed"][k])
        order = tuple(sites[i] for i in arrays["run_order"][k] if i >= 0)
        stages = arrays["run_stages"][k][: len(order) + 1]
        cells = _cells(scores[seed][stages], tested[seed]["y"])
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


def _by_seed(arrays: Mapping[str, np.ndarray], kind: str) -> list[np.ndarray]:
    """Return the scores of every seed, (n_stages, n_test), of more than two classes (n_stages, n_test, K)."""
    results = []
    code = grade = 0  # where a seed's begin
    classes = arrays["train_positive"].shape[2:]
    for k, counts in enumerate(arrays["test_count"].astype(int)):
        n = arrays["run_stages"][arrays["run_seed"] == k].max() + 1
        if kind != "two classes":
            shape = n, int(counts.sum()), *classes
            stored = arrays["values"][code : code + math.prod(shape)]
            results.append(decode_values(stored, kind).reshape(shape))
            code += stored.size
            continue
        codes = arrays["codes"][code : code + counts.sum() * n].reshape(-1, n)
        grades = arrays["grades"][grade : grade + len(counts) * n].reshape(-1, n)
        results.append(decode(codes, np.repeat(grades, counts, axis=0)).T)
        code += codes.size
        grade += grades.size
    return results


def _cells(stages: np.ndarray, y: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores of a run's stages (T + 1, n_test) by site."""
    cuts = np.cumsum([len(results) for results in y.values()])[:-1]
    return dict(zip(y, np.split(stages, cuts, axis=1), strict=True))


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
    numeric = arrays["test_y"].dtype.kind == "f"
    kind = np.float64 if numeric else np.int64
    return {
        "y": {s: arrays["test_y"][part].astype(kind) for s, part in parts.items()},
        "subject_ids": {s: tuple(map(str, places)) for s, places in numbers.items()},
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
    """A table of ``paper/results/`` as its runs, and what was told about it (`unpack`)."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return unpack({name: archive[name] for name in archive.files}, as_run)
    except UNREADABLE as error:
        raise DataError(
            f"not a table of scores, damaged, or of another version of fcforge ({error}).",
            where=str(path),
            do="Take it from the repository again.",
        ) from error
