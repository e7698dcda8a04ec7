"""Prediction of scans and evaluation on people with known diagnoses, for every kind of model."""

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
BATCH = 256  # scans scored at once, which bounds the memory for files with many scans
STRANGE = "unlike anything seen"
ABSTAINED = "abstained"
OK = "ok"


@dataclass(frozen=True)
class Prediction:
    """The prediction of one scan.

    Attributes
    ----------
    subject : str
        File name, or the subject's id in a dataset file or in the table of `fcforge fc`.
    status : {"ok", "unlike anything seen", "abstained", "cannot be used"}
    probability : float or None
        Calibrated P(patient); None unless the status is ok.
    strangeness : float or None
        Distance from the scans that were learned, with the limit 1; None if it cannot be measured.
    note : str
        Why the scan cannot be used or is unusual, or that a number lies outside its limits.
    own : float or None
        Probability by the hospital's own threshold, if one is used.
    answers : mapping of str to float
        Probability of each class if there are more than two, or the number, in place of
        `probability`.
    """

    subject: str
    status: str
    probability: float | None = None
    strangeness: float | None = None
    note: str = ""
    own: float | None = None
    answers: Mapping[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, in which `answers` replace the probability if there are any."""
        values = asdict(self)
        answers = values.pop("answers")
        if answers:
            del values["probability"], values["own"]
        return values | answers


def predict(
    exchange: Exchange,
    where: Paths,
    kind: Kind = "auto",
    threshold: Threshold | None = None,
) -> list[Prediction]:
    """Predict the scans of one file, of several files or of a folder (also one that `fcforge fc` wrote).

    A file holds one scan (FC or ROI time series: .npy .npz .csv .tsv .txt .1D .mat) or a dataset
    (.npz with ``fc_upper`` or ``fc`` of many subjects). A scan that cannot be used is reported
    in its place; the others are predicted nevertheless.

    Parameters
    ----------
    exchange : Exchange
    where : path or sequence of paths
        Files or folders of scans.
    kind : {"auto", "fc", "timeseries"}
        What the files hold; "auto" recognises it.
    threshold : Threshold, optional
        The hospital's own threshold; its probability is reported too.

    Returns
    -------
    list of Prediction
        One per scan, in order.
    """
    model = exchange.model
    scans = find_scans(where, kind, model.n_rois)
    if threshold is not None:
        model.require_two_classes("a threshold is")
        threshold.require_site(scan.site for scan in scans)
    no_answers = dict.fromkeys(_answer_names(exchange.root.policy.target))  # None each
    rows = []
    usable = []
    for place, scan in enumerate(scans):
        problem = scan.problem or wrong_rois(scan.roi_names, model.roi_names)
        row = Prediction(scan.subject, UNUSABLE, note=problem, answers=no_answers)
        rows.append(row)  # replaced below for a usable scan
        if not problem:
            usable.append(place)
    for first in range(0, len(usable), BATCH):
        places = usable[first : first + BATCH]
        answers = _answers(exchange, [scans[k] for k in places], threshold)
        for place, answer in zip(places, answers, strict=True):
            rows[place] = answer
    return rows


def _answers(
    exchange: Exchange, scans: Sequence[Scan], threshold: Threshold | None
) -> list[Prediction]:
    """Return the predictions of usable scans.

    Parameters
    ----------
    exchange : Exchange
    scans : sequence of Scan
    threshold : Threshold or None
        The hospital's own threshold.
    """
    fc = np.stack([scan.fc for scan in scans if scan.fc is not None])
    scores = exchange.model.score(fc, covariates_of(exchange, scans))
    target = exchange.root.policy.target
    predicted = answers_of(target, scores.odds)
    names = _answer_names(target)
    local = np.full(len(predicted), np.nan)
    if threshold is not None:
        local = probability(threshold.odds(scores.odds))
    rows = []
    for i, scan in enumerate(scans):
        values = [_rounded(value) for value in np.atleast_1d(predicted[i])]
        strange = _rounded(scores.strangeness[i], 3)
        why = scores.why[i]
        status = OK
        if why:
            status = ABSTAINED if strange is None else STRANGE
        row = Prediction(
            scan.subject,
            status,
            probability=None if names else values[0],
            strangeness=strange,
            note=why or _outside_limits(target, predicted[i]),
            own=_rounded(local[i]),
            # empty for two classes, which have no names of answers but one value
            answers=dict(zip(names, values, strict=False)),
        )
        rows.append(row)
    return rows


def _outside_limits(target: Target, answer: np.ndarray) -> str:
    """Return a note about a predicted number outside the target's limits, which is not clipped."""
    low, high = target.limits
    if target.kind != "number" or low <= answer <= high:
        return ""
    return f"{target.name} outside {low:g} to {high:g}, the range of the people who were learned"


def _answer_names(target: Target) -> tuple[str, ...]:
    """Return the names of answers other than P(patient); none for two classes."""
    if target.kind == "two classes":
        return ()
    return tuple(f"p_{name}" for name in target.classes) or (target.name,)


def covariates_of(exchange: Exchange, scans: Sequence[Scan]) -> dict[str, np.ndarray]:
    """Return the covariates (n,) of scans that the model needs; NaN where a value is missing.

    Parameters
    ----------
    exchange : Exchange
    scans : sequence of Scan
    """
    covariates = {}
    for name in exchange.model.needs:
        values = [scan.covariates.get(name, np.nan) for scan in scans]
        covariates[name] = np.array(values)
    return covariates


def _rounded(value: float, digits: int = 4) -> float | None:
    """Return a rounded number; None for NaN and infinity."""
    return round(float(value), digits) if np.isfinite(value) else None


def as_csv(rows: Sequence[Prediction], exchange: Exchange) -> str:
    """Return predictions as CSV; the last column lists the sites that the model has learned.

    The column `own_probability` is present if a hospital's own threshold was used.

    Parameters
    ----------
    rows : sequence of Prediction
    exchange : Exchange
    """
    named = [{"own_probability": row.own, **row.to_json()} for row in rows]
    local_columns = (
        ["own_probability"] if any(row.own is not None for row in rows) else []
    )
    answers = _answer_names(exchange.root.policy.target) or (
        "probability",
        *local_columns,
    )
    names = ["subject", "status", *answers, "strangeness", "note"]
    table = pd.DataFrame(named, columns=names)
    table["sites_learned"] = " ".join(exchange.model.sites)
    for name in ("subject", "note", "sites_learned"):
        table[name] = [no_formula(printable(text)) for text in table[name]]
    safe = table.rename(columns=no_formula)
    return safe.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Prediction], exchange: Exchange) -> str:
    """Return predictions as JSON with the file's id, sites and temperature.

    Parameters
    ----------
    rows : sequence of Prediction
    exchange : Exchange
    """
    policy = exchange.root.policy
    two = policy.target.kind == "two classes"
    summary = {
        "exchange": exchange.id,
        "disorder": policy.disorder,
        "sites_learned": list(exchange.model.sites),
        "probability_of": policy.patient if two else str(policy.target),
        "temperature": round(exchange.model.temperature, 4),
        "predictions": [row.to_json() for row in rows],
    }
    return json.dumps(summary, indent=1)


def explain_scans(
    exchange: Exchange,
    where: Paths,
    rows: Sequence[Prediction],
    kind: Kind = "auto",
    atlas: Atlas | None = None,
) -> Explanation:
    """Explain the predictions of those scans that have an answer.

    Parameters
    ----------
    exchange : Exchange
    where, kind
        As for `predict`.
    rows : sequence of Prediction
        Result of `predict` for the same files.
    atlas : Atlas, optional
        Names and networks of the ROIs.

    Returns
    -------
    Explanation
    """
    model = exchange.model
    read = zip(find_scans(where, kind, model.n_rois), rows, strict=True)
    scans = [scan for scan, row in read if row.status == OK]
    if not scans:
        raise DataError("no scan has an answer, so there is nothing to explain.")
    fc = np.stack([scan.fc for scan in scans if scan.fc is not None])
    subjects = [scan.subject for scan in scans]
    covariates = covariates_of(exchange, scans)
    positive = exchange.root.policy.patient
    return explain_model(model, fc, covariates, subjects, atlas, positive=positive)


# -- people whose diagnoses are known --------------------------------------------------------------
@dataclass(frozen=True)
class Evaluation:
    """Metrics of a file's model on one group of people.

    Attributes
    ----------
    people, patients : int
        People with a prediction, and those among them who are not controls.
    abstained : int
        People without a prediction.
    learned : int
        People who were contributed before, according to the hospital's ledger.
    majority : float or None
        Accuracy of predicting the largest class; None for a number.
    rows : mapping of title to mapping of metric to Estimate
        The model, its baselines, and the hospital's own threshold if there is one.
    notes : tuple of str
    warning : str
        A warning that diagnoses seem to be swapped; empty otherwise.
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
        """Return a plain dict."""
        rows: dict[str, dict[str, list[float]]] = {}
        for title, row in self.rows.items():
            rows[title] = {name: value.to_json() for name, value in row.items()}
        return {**self.__dict__, "rows": rows, "notes": list(self.notes)}


def evaluate(
    exchange: Exchange, cohort: Cohort, ledger: Ledger | None = None
) -> Evaluation:
    """Evaluate a file's model on people with known diagnoses; nothing is learned or written.

    People who were contributed before are counted in a note, because they bias the result upwards.

    Parameters
    ----------
    exchange : Exchange
    cohort : Cohort
    ledger : Ledger, optional
        The hospital's ledger, with its threshold and the people who were contributed.

    Returns
    -------
    Evaluation
    """
    model = exchange.model
    # of more than two classes, a hospital may lack some
    needs_all_classes = cohort.target.kind != "more classes"
    require_valid(cohort, n_rois=model.n_rois, to_split=needs_all_classes)
    exchange.require_fit(cohort)
    rows = {"exchange": model.score(cohort.fc, cohort.covariates).odds}
    for title, other in model.baselines().items():
        rows[title] = other.score(cohort.fc, cohort.covariates).odds
    notes = [*model.absent(), *model.familiar(cohort)]
    learned = int(ledger.holds(people_in(cohort)).sum()) if ledger else 0
    if learned:
        notes.append(
            f"{learned} of these people were contributed before: the result is too optimistic."
        )
    threshold = ledger.threshold if ledger else None
    if threshold is not None and model.target.kind == "two classes":
        threshold.require_site(cohort.site_names)
        rows["own threshold"] = threshold.odds(rows["exchange"])
        notes += threshold.stale(exchange.id)
    elif ledger and model.target.kind == "two classes":
        notes.append(
            "the ledger has no threshold; `fcforge consortium threshold` fits one."
        )
    return _summary(cohort, rows, learned, notes)


def _summary(
    cohort: Cohort, rows: Mapping[str, np.ndarray], learned: int, notes: list[str]
) -> Evaluation:
    """Return the metrics of every model over the people for whom all of them have a score.

    Parameters
    ----------
    cohort : Cohort
    rows : mapping of title to ndarray of shape (n,) or (n, K)
        Calibrated scores of each model; NaN where it abstains.
    learned : int
        People who were contributed before.
    notes : list of str
    """
    finite = [np.isfinite(odds).reshape(len(cohort), -1) for odds in rows.values()]
    scored = np.concatenate(finite, 1).all(1)
    if not scored.any():
        hint = "`fcforge consortium predict` shows the reason for each scan."
        raise DataError("the model abstains from all of these people.", do=hint)
    kept = cohort.select(scored)
    metrics = {title: _metrics(kept, odds[scored]) for title, odds in rows.items()}
    counts = np.bincount(kept.y).tolist() if cohort.target.classes else []
    two = cohort.target.kind == "two classes"
    return Evaluation(
        people=len(kept),
        patients=sum(counts[1:]),
        abstained=int((~scored).sum()),
        learned=learned,
        majority=max(counts) / len(kept) if counts else None,
        rows=metrics,
        notes=tuple(notes),
        warning=_swapped_warning(metrics["exchange"]["auroc"]) if two else "",
    )


def _metrics(people: Cohort, odds: np.ndarray) -> Mapping[str, Estimate]:
    """Return metrics with intervals of the calibrated scores of people."""
    ids = [f"{s}/{i}" for s, i in zip(people.site, people.subject_id, strict=True)]
    truth = truth_of(people.target, people.y)
    return measure(answers_of(people.target, odds), truth, ids)


def _swapped_warning(auroc: Estimate) -> str:
    """Return a warning if the whole interval of the AUROC is below chance; empty otherwise."""
    if not auroc.high < 0.5:  # NaN where it abstained from a whole class
        return ""
    value = f"{auroc.value:.2f} (interval {auroc.low:.2f} to {auroc.high:.2f}; chance is 0.5)"
    return (
        f"WARNING: patients and controls seem to be swapped. The AUROC is {value}: the model "
        "predicts the controls of these data as patients. Check which diagnosis means patient in "
        "the data (1, or --positive VALUE). If it is right, do not use the model for these people."
    )
