"""What either kind of capsule says about scans, why it does, and how good it is on people.

The consortium abstains from a scan that is unlike the public people's, and from one that lacks a
covariate which the start removes: a guess there would look like an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcforge.capsule import prediction, sealing
from fcforge.capsule.contents import Capsule, Sites, require_fit
from fcforge.capsule.home import Home, Threshold
from fcforge.capsule.judging import probability
from fcforge.capsule.prediction import Judged, Prediction, Predictor
from fcforge.consortium import few_vector as vector
from fcforge.consortium import files, learning
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import Covariates
from fcforge.errors import DataError, at
from fcforge.exchange import explanation
from fcforge.exchange.explanation import Attribution, LogHead, Scored
from fcforge.imaging.atlas import Atlas
from fcforge.models.attribution import Scorer, attribute, slope_at
from fcforge.releases.features import from_log_features
from fcforge.runner import learners
from fcforge.sites.check import require_valid
from fcforge.sites.cohort import Cohort
from fcforge.sites.harmonise import Unseen
from fcforge.sites.reading import Kind, Where, find_scans
from fcforge.speed import one_thread
from fcforge.stats.table import measure
from fcforge.types import Estimate

Either = Capsule | Consortium


def judge(group: Consortium, fc: np.ndarray, covariates: Covariates) -> Judged:
    """Log odds of scans (n, R, R) with their covariates, each (n,).

    Parameters
    ----------
    group : Consortium
    fc : ndarray of shape (n, R, R)
    covariates : mapping of name to ndarray of shape (n,)
        NaN where a value is missing.
    """
    n = len(fc)
    why = group.start.wrong_covariates(covariates, n)
    here = np.array([not reason for reason in why], dtype=bool)
    odds, strange = np.full(n, np.nan), np.full(n, np.nan)
    if here.any():
        known = {k: v[here] for k, v in covariates.items()}
        x = group.start.features(fc[here], known)
        apart = group.start.strangeness(x)
        every = np.stack([*apart.values()])
        strange[here] = every.max(0)
        worst = every.argmax(0)
        odds[here] = learning.scores(group, x)
        for i, which in zip(np.flatnonzero(here), worst, strict=True):
            if strange[i] > 1:
                why[i], odds[i] = [*apart][which], np.nan
    return Judged(odds, strange, tuple(why))


def predictor(
    model: Either, site: Sites = None, unseen: Unseen = "refuse"
) -> Predictor:
    """Either kind of capsule as what it predicts with; a harmonised one is told the site."""
    if isinstance(model, Capsule):
        return prediction.predictor(model, site, unseen)
    start, papers = model.start, model.start.papers
    return Predictor(
        model.digest,
        model.sites or tuple(papers["sites"]),
        papers["classes"],
        float(start.arrays.temperature),
        start.n_rois,
        papers["roi_names"],
        lambda fc, covariates: judge(model, fc, covariates),
        start.removes,
    )


def open_either(path: str | Path, trust: sealing.Trust) -> Either:
    """Open a capsule of either kind, everything checked."""
    if files.is_consortium(path):
        return files.read_consortium(path, trust)
    return sealing.open_capsule(path, trust=trust)


def predict(
    group: Consortium,
    where: Where,
    threshold: Threshold | None = None,
    kind: Kind = "auto",
) -> list[Prediction]:
    """Predict with a consortium's head; see `fcforge.capsule.prediction.predict_scans`."""
    return prediction.predict_scans(predictor(group), where, kind, threshold)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a capsule on one group of people.

    Attributes
    ----------
    people, patients, abstained : int
        Predicted people, patients among them, people it abstained from.
    learned : int
        Of the people, how many are in a release of this hospital (its home file says so).
    majority : float
        Share of the larger class: what guessing reaches.
    rows : mapping of title to mapping of metric to Estimate
        The capsule, the public head alone, the site's threshold where it was given.
    notes : tuple of str
    warning : str
        Said where the diagnoses seem to be swapped; else empty.
    """

    people: int
    patients: int
    abstained: int
    learned: int
    majority: float
    rows: Mapping[str, Mapping[str, Estimate]]
    notes: tuple[str, ...] = ()
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        rows = {
            title: {m: [*asdict(v).values()] for m, v in row.items()}
            for title, row in self.rows.items()
        }
        return {**self.__dict__, "rows": rows, "notes": list(self.notes)}


def evaluate(
    model: Either,
    cohort: Cohort,
    home: Home = Home(),  # noqa: B008 (frozen)
    unseen: Unseen = "refuse",
) -> Evaluation:
    """Evaluate a capsule on people whose diagnoses are known; nothing is learned or written.

    People who were learned are counted and told: a model that has seen them flatters. `unseen` is
    that of `predictor`.
    """
    asked = predictor(model, cohort.site.tolist(), unseen)
    require_valid(cohort, n_rois=asked.n_rois)
    with at("the data"):
        require_fit(cohort, asked.roi_names, asked.classes)
    odds = asked.judge(cohort.fc, cohort.covariates).odds
    seen = len(home.seen(learning.people_of(cohort)))
    if isinstance(model, Capsule):
        return _summed(
            cohort, {"the capsule": odds}, seen, _known(model, cohort, home, seen)
        )
    rows, notes = {"consortium": odds}, list[str]()
    if model.releases:
        alone = Consortium(model.start)
        rows["public head alone"] = judge(alone, cohort.fc, cohort.covariates).odds
    if home.threshold is not None:
        home.threshold.require_site(cohort.site_names)
        rows["own threshold"] = home.threshold.odds(odds)
        notes += home.threshold.stale(model.digest)
    public = model.start.public_among(cohort.subject_id.tolist())
    for n, where in ((len(public), "among the public ones"), (seen, "in a release")):
        notes += [f"{n} of these people are {where}: too good to be true."] if n else []
    return _summed(cohort, rows, seen, notes)


def _known(capsule: Capsule, cohort: Cohort, home: Home, seen: int) -> list[str]:
    """What to say of people whom a chain has learned, or may have: only receipts tell who."""
    told = {receipt.site for receipt in home.receipts}
    here = [s for s in capsule.sites if s in set(cohort.site.tolist()) - told]
    notes = (
        [f"{seen} of these people were learned: too good to be true."] if seen else []
    )
    if here:
        n, names = int(np.isin(cohort.site, here).sum()), " and ".join(here)
        notes.append(
            f"{n} of these people are of {names}, where it learned: too good to be true if they "
            "are those it learned. --local RECEIPT (the .receipt.json of `learn`) tells."
        )
    return notes


def _summed(
    cohort: Cohort, rows: Mapping[str, np.ndarray], learned: int, notes: list[str]
) -> Evaluation:
    """Metrics of log odds (n,) per row, over the people nobody abstained from."""
    here = np.all([np.isfinite(odds) for odds in rows.values()], axis=0)
    if not here.any():
        do = "See why, one by one, with `fcforge predict`."
        raise DataError("the capsule abstains from every one of these people.", do=do)
    kept = cohort.select(here)
    ids = [f"{s}/{i}" for s, i in zip(kept.site, kept.subject_id, strict=True)]
    found = {
        title: measure(probability(odds[here]), kept.y, ids)
        for title, odds in rows.items()
    }
    n, patients, abstained = len(kept), int(kept.y.sum()), int((~here).sum())
    most, told = max(patients, n - patients) / n, tuple(notes)
    return Evaluation(
        n, patients, abstained, learned, most, found, told, _turned(found)
    )


def _turned(rows: Mapping[str, Mapping[str, Estimate]]) -> str:
    """What to say where the capsule's AUROC is below chance with all of its interval."""
    auroc = next(iter(rows.values()))["auroc"]
    if not auroc.high < 0.5:  # NaN where it abstained from a whole class
        return ""
    found = f"{auroc.value:.2f} (interval {auroc.low:.2f} to {auroc.high:.2f}; chance is 0.5)"
    return (
        f"WARNING: patients and controls seem to be swapped. The AUROC is {found}: the capsule "
        "calls the controls of these data patients. Check which diagnosis means patient in the "
        "data (1, or --positive VALUE). If it is right, do not use this capsule for these people."
    )


@dataclass(frozen=True)
class LaneScore:
    """A chain's log odds, to be explained: arrays in, arrays out."""

    scorer: Scorer

    @property
    def exact(self) -> bool:
        """Whether contributions are the terms of a linear model."""
        return self.scorer.exact

    def score(self, fc: np.ndarray) -> np.ndarray:
        """Log odds (n,) of scans (n, R, R)."""
        with torch.no_grad():
            return self.scorer.score(torch.from_numpy(fc)).numpy()

    def attribute(self, fc: np.ndarray, reference: np.ndarray) -> Attribution:
        """Contributions of every edge of scans against a reference scan."""
        scans = torch.from_numpy(fc)
        found = attribute(self.scorer, scans, torch.from_numpy(reference))
        return Attribution(
            found.contribution.numpy(),
            found.slope.numpy(),
            found.score.numpy(),
            float(found.base),
        )

    def slope(self, fc: np.ndarray) -> np.ndarray:
        """Gradient (E,) by each Fisher-z edge at one scan (R, R)."""
        return slope_at(self.scorer, torch.from_numpy(fc)).numpy()


def scorer_of(model: Either) -> Scored:
    """Calibrated log odds of either kind of capsule, without what covariates add."""
    if isinstance(model, Capsule):
        learner = model.settings.build()
        return LaneScore(learners.scorer_of(learner, model.lane, model.temperature))
    arrays = model.start.arrays
    head = vector.on_features(arrays, model.head)
    weight = head.weight / arrays.temperature
    return LogHead(weight, head.bias / arrays.temperature, arrays.shrink)


def reference_of(model: Either) -> tuple[np.ndarray, str]:
    """The scan (R, R) that others are explained against, and who it is."""
    if isinstance(model, Consortium):
        arrays = model.start.arrays
        mean = from_log_features(arrays.mean[None], arrays.shrink)[0]
        return mean, "the mean of the public people"
    if len(model.held_out):
        fc = model.held_out.batch().fc.double().mean(0).numpy()
        return fc, "the mean of the capsule's synthetic subjects"
    return np.eye(model.settings.n_rois), explanation.NOBODY


def explain_model(
    model: Either,
    fc: np.ndarray,
    covariates: Covariates | None = None,
    subjects: Sequence[str] | None = None,
    atlas: Atlas | None = None,
    reference: tuple[np.ndarray, str] | None = None,
) -> explanation.Explanation:
    """Explain what either kind of capsule says of scans (n, R, R).

    They are held against `reference`, a scan and who it is, by default that of `reference_of`.
    What a start removes for age, sex or motion is the same for every edge pattern; it is part of
    each scan's `base`.
    """
    asked, offset = predictor(model), np.zeros(len(fc))
    if isinstance(model, Consortium) and model.start.confounds is not None:
        arrays, effect = (
            model.start.arrays,
            model.start.confounds.effect(covariates or {}),
        )
        removed = effect / arrays.scale
        offset = -(removed @ model.head.weight) / arrays.temperature
    scan, said = reference or reference_of(model)
    with one_thread():
        return explanation.explain(
            scorer_of(model),
            fc,
            scan,
            said=said,
            subjects=subjects,
            offset=offset,
            atlas=explanation.atlas_for(asked.n_rois, tuple(asked.roi_names), atlas),
            positive=str(asked.classes[1]),
        )


def explain_file(
    capsule: Either,
    scans: Sequence[Path],
    rows: Sequence[Prediction],
    kind: Kind = "auto",
    atlas: Atlas | None = None,
    site: str | None = None,
    unseen: Unseen = "refuse",
) -> explanation.Explanation:
    """Explain the predictions of `predict_scans`: of the scans that got one, and no others.

    `site` and `unseen` are those of `predictor`.
    """
    every = find_scans(scans, kind, predictor(capsule).n_rois)
    usable = [
        (s, row.status == "ok")
        for s, row in zip(every, rows, strict=True)
        if row.usable
    ]
    found, here = [scan for scan, ok in usable if ok], [ok for _, ok in usable]
    if not found:
        raise DataError("no scan got an answer, so there is nothing to explain.")
    fc = np.stack([scan.fc for scan, _ in usable if scan.fc is not None])
    ids = [scan.subject for scan in found]
    if isinstance(
        capsule, Capsule
    ):  # an estimated effect is that of all scans, as it was answered
        fc = capsule.moved(fc, site, unseen)
    removes = predictor(capsule).removes
    known = {k: np.array([scan.covariates[k] for scan in found]) for k in removes}
    return explain_model(capsule, fc[here], known, ids, atlas)
