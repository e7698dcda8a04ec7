"""What an exchange says about scans, and how good it is on people; either model, one protocol."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.core.formatting import no_formula, printable
from fcforge.core.target import Target
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.folder import Kind
from fcforge.data.scan_checks import wrong_rois
from fcforge.data.scans import Paths, Scan, find_scans
from fcforge.evaluation.explanation import Explanation, explain_model
from fcforge.evaluation.resampling import measure
from fcforge.evaluation.temperature import probability
from fcforge.imaging.atlas import Atlas
from fcforge_consortium.base_model.quality import answers_of, truth_of
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.people import people_in
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.records.exchange import Exchange

UNUSABLE = "cannot be used"
BATCH = 256  # scans scored at once: memory is of these, however many a file holds
STRANGE = "unlike anything seen"
ABSTAINED = "abstained"
OK = "ok"


@dataclass(frozen=True)
class Prediction:
    """One scan.

    Attributes
    ----------
    subject : str
        File name, or the subject's id in a dataset file or in the table of `fcforge fc`.
    status : {"ok", "unlike anything seen", "abstained", "cannot be used"}
    probability : float or None
        Calibrated P(patient); None unless the status is ok.
    strangeness : float or None
        Distance from what was seen; the limit is 1. None where it cannot be measured.
    note : str
        What is wrong with a scan that cannot be used, what made it strange, or that a number
        lies outside the limits.
    own : float or None
        The probability by the hospital's own threshold, where it was given.
    answers : mapping of str to float
        Instead of `probability` the probability of each of more than two classes, or the number.
    """

    subject: str
    status: str
    probability: float | None = None
    strangeness: float | None = None
    note: str = ""
    own: float | None = None
    answers: Mapping[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dict; other answers than a probability stand in its place."""
        said = asdict(self)
        answers = said.pop("answers")
        if answers:
            del said["probability"], said["own"]
        return said | answers


def predict(
    exchange: Exchange,
    where: Paths,
    kind: Kind = "auto",
    threshold: Threshold | None = None,
) -> list[Prediction]:
    """Predict one file, several files or all files of a folder (that of `fcforge fc`, too).

    A file holds one scan (FC or ROI time series: .npy .npz .csv .tsv .txt .1D .mat) or a dataset
    (.npz with ``fc_upper`` or ``fc`` of many subjects). A scan that cannot be used is reported
    in its place and does not stop the others.

    Parameters
    ----------
    exchange : Exchange
    where : path or sequence of paths
    kind : {"auto", "fc", "timeseries"}
    threshold : Threshold, optional
        The hospital's own; its probability is reported beside.
    """
    model = exchange.model
    scans = find_scans(where, kind, model.n_rois)
    if threshold is not None:
        model.require_two_classes("a threshold is")
        threshold.require_site(scan.site for scan in scans)
    nothing = dict.fromkeys(_answer_names(exchange.root.policy.target))
    rows = []
    usable = []
    for place, scan in enumerate(scans):
        problem = scan.problem or wrong_rois(scan.roi_names, model.roi_names)
        rows.append(Prediction(scan.subject, UNUSABLE, note=problem, answers=nothing))
        if not problem:
            usable.append(place)
    for first in range(0, len(usable), BATCH):
        places = usable[first : first + BATCH]
        answers = _answers(exchange, [scans[k] for k in places], threshold)
        for place, answer in zip(places, answers, strict=True):
            rows[place] = answer
    return rows


def _answers(
    exchange: Exchange, scans: Sequence[Scan], own: Threshold | None
) -> list[Prediction]:
    fc = np.stack([scan.fc for scan in scans if scan.fc is not None])
    found = exchange.model.score(fc, covariates_of(exchange, scans))
    target = exchange.root.policy.target
    said = answers_of(target, found.odds)
    names = _answer_names(target)
    at_home = np.full(len(said), np.nan)
    if own is not None:
        at_home = probability(own.odds(found.odds))
    rows = []
    for i, scan in enumerate(scans):
        each = [_rounded(value) for value in np.atleast_1d(said[i])]
        p = None if names else each[0]
        strange = _rounded(found.strangeness[i], 3)
        why = found.why[i]
        status = OK
        if why:
            status = ABSTAINED if strange is None else STRANGE
        own_p = _rounded(at_home[i])
        answers = dict(zip(names, each, strict=False))
        known = (p, strange, why or _beyond(target, said[i]), own_p, answers)
        rows.append(Prediction(scan.subject, status, *known))
    return rows


def _beyond(target: Target, answer: np.ndarray) -> str:
    """A note beside a number that nobody who was learned can have; it is not cut."""
    low, high = target.limits
    if target.kind != "number" or low <= answer <= high:
        return ""
    return f"{target.name} outside {low:g} to {high:g}, where everybody learned lies"


def _answer_names(target: Target) -> tuple[str, ...]:
    """What answers are called; none where P(patient) is the only one."""
    if target.kind == "two classes":
        return ()
    return tuple(f"p_{name}" for name in target.classes) or (target.name,)


def covariates_of(exchange: Exchange, scans: Sequence[Scan]) -> dict[str, np.ndarray]:
    """What the model needs to know of scans beside the FC; NaN where a value is missing."""
    found = {}
    for name in exchange.model.needs:
        values = [scan.covariates.get(name, np.nan) for scan in scans]
        found[name] = np.array(values)
    return found


def _rounded(value: float, digits: int = 4) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def as_csv(rows: Sequence[Prediction], exchange: Exchange) -> str:
    """Predictions as CSV, with the sites the exchange has learned in the last column.

    `own_probability` is there where a hospital's own threshold was given.
    """
    named = [{"own_probability": row.own, **row.to_json()} for row in rows]
    own = ["own_probability"] if any(row.own is not None for row in rows) else []
    said = _answer_names(exchange.root.policy.target) or ("probability", *own)
    names = ["subject", "status", *said, "strangeness", "note"]
    table = pd.DataFrame(named, columns=names)
    table["sites_learned"] = " ".join(exchange.model.sites)
    for name in ("subject", "note", "sites_learned"):
        table[name] = [no_formula(printable(text)) for text in table[name]]
    safe = table.rename(columns=no_formula)
    return safe.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Prediction], exchange: Exchange) -> str:
    """Predictions as JSON with the exchange's id, sites and temperature."""
    policy = exchange.root.policy
    two = policy.target.kind == "two classes"
    said = {
        "exchange": exchange.id,
        "disorder": policy.disorder,
        "sites_learned": list(exchange.model.sites),
        "probability_of": policy.patient if two else str(policy.target),
        "temperature": round(exchange.model.temperature, 4),
        "predictions": [row.to_json() for row in rows],
    }
    return json.dumps(said, indent=1)


def explain_scans(
    exchange: Exchange,
    where: Paths,
    rows: Sequence[Prediction],
    kind: Kind = "auto",
    atlas: Atlas | None = None,
) -> Explanation:
    """Explain the rows of `predict` for the same files: of scans that got an answer, no others."""
    model = exchange.model
    read = zip(find_scans(where, kind, model.n_rois), rows, strict=True)
    scans = [scan for scan, row in read if row.status == OK]
    if not scans:
        raise DataError("no scan got an answer, so there is nothing to explain.")
    fc = np.stack([scan.fc for scan in scans if scan.fc is not None])
    subjects = [scan.subject for scan in scans]
    covariates = covariates_of(exchange, scans)
    positive = exchange.root.policy.patient
    return explain_model(model, fc, covariates, subjects, atlas, positive=positive)


# -- people whose diagnoses are known --------------------------------------------------------------
@dataclass(frozen=True)
class Evaluation:
    """Metrics of an exchange on one group of people.

    Attributes
    ----------
    people, patients, abstained : int
        Predicted people, those among them who are no controls, people it abstained from.
    learned : int
        Of the people, how many this hospital has given before (its private record says so).
    majority : float or None
        Share of the largest class: what guessing reaches; None of a number.
    rows : mapping of title to mapping of metric to Estimate
        The exchange, its baselines, the site's own threshold where it was given.
    notes : tuple of str
    warning : str
        Said where the diagnoses seem to be swapped; else empty.
    """

    people: int
    patients: int
    abstained: int
    learned: int
    majority: float | None
    rows: Mapping[str, Mapping[str, Estimate]]
    notes: tuple[str, ...] = ()
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        rows: dict[str, dict[str, list[float]]] = {}
        for title, row in self.rows.items():
            rows[title] = {name: found.to_json() for name, found in row.items()}
        return {**self.__dict__, "rows": rows, "notes": list(self.notes)}


def evaluate(
    exchange: Exchange, cohort: Cohort, private: Ledger | None = None
) -> Evaluation:
    """Evaluate an exchange on people whose diagnoses are known; nothing is learned or written.

    People who were given before are counted and told: a model that has seen them flatters.
    """
    model = exchange.model
    every = cohort.target.kind != "more classes"  # else a hospital may lack one
    require_valid(cohort, n_rois=model.n_rois, to_split=every)
    exchange.require_fit(cohort)
    rows = {"exchange": model.score(cohort.fc, cohort.covariates).odds}
    for title, other in model.baselines().items():
        rows[title] = other.score(cohort.fc, cohort.covariates).odds
    notes = list(model.familiar(cohort))
    learned = int(private.holds(people_in(cohort)).sum()) if private else 0
    if learned:
        flatters = f"{learned} of these people were given before: too good to be true."
        notes.append(flatters)
    own = private.threshold if private else None
    if own is not None and model.target.kind == "two classes":
        own.require_site(cohort.site_names)
        rows["own threshold"] = own.odds(rows["exchange"])
        notes += own.stale(exchange.id)
    elif private and model.target.kind == "two classes":
        notes.append(
            "no own threshold is kept; `fcforge consortium threshold` fits one."
        )
    return _summed(cohort, rows, learned, notes)


def _summed(
    cohort: Cohort, rows: Mapping[str, np.ndarray], learned: int, notes: list[str]
) -> Evaluation:
    """Metrics of calibrated scores per row, over the people nobody abstained from."""
    finite = [np.isfinite(odds).reshape(len(cohort), -1) for odds in rows.values()]
    here = np.concatenate(finite, 1).all(1)
    if not here.any():
        do = "See why, one by one, with `fcforge consortium predict`."
        raise DataError("the exchange abstains from every one of these people.", do=do)
    kept = cohort.select(here)
    found = {title: _measured(kept, odds[here]) for title, odds in rows.items()}
    counts = np.bincount(kept.y).tolist() if cohort.target.classes else []
    two = cohort.target.kind == "two classes"
    return Evaluation(
        people=len(kept),
        patients=sum(counts[1:]),
        abstained=int((~here).sum()),
        learned=learned,
        majority=max(counts) / len(kept) if counts else None,
        rows=found,
        notes=tuple(notes),
        warning=_turned(found["exchange"]["auroc"]) if two else "",
    )


def _measured(people: Cohort, odds: np.ndarray) -> Mapping[str, Estimate]:
    """Metrics of calibrated scores of some people."""
    ids = [f"{s}/{i}" for s, i in zip(people.site, people.subject_id, strict=True)]
    truth = truth_of(people.target, people.y)
    return measure(answers_of(people.target, odds), truth, ids)


def _turned(auroc: Estimate) -> str:
    """What to say where the AUROC is below chance with all of its interval."""
    if not auroc.high < 0.5:  # NaN where it abstained from a whole class
        return ""
    found = f"{auroc.value:.2f} (interval {auroc.low:.2f} to {auroc.high:.2f}; chance is 0.5)"
    return (
        f"WARNING: patients and controls seem to be swapped. The AUROC is {found}: the exchange "
        "calls the controls of these data patients. Check which diagnosis means patient in the "
        "data (1, or --positive VALUE). If it is right, do not use it for these people."
    )
