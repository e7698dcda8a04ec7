"""A start with its papers: who the public people are, and what is expected of every scan."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fcforge import __version__
from fcforge.capsule import judging, ledger
from fcforge.consortium.few_start import (
    Start,
    StartSettings,
    make_start,
    rounded,
    rounded_number,
)
from fcforge.errors import CapsuleError, ConfigError
from fcforge.releases.features import log_features, n_rois_of_features
from fcforge.sites.check import require_valid, without_twins
from fcforge.sites.cohort import NUMBERED, Cohort
from fcforge.sites.confounds import Confounds, as_numbers, fit_on_cohort
from fcforge.speed import one_thread

Covariates = Mapping[str, np.ndarray]
CLASSES = ("control", "patient")
SIZE_LIMIT = 1.5  # a scan may lie so much further out than any public one
LIKENESS = (
    0.5  # and be so much less like the public mean than the least alike public one
)
SITES_APART = 4.0  # a site's mean may differ so much more from the public mean than a public site's
ALIKE_SITES = (
    0.8  # more is never asked: ABIDE's sites have .89 and more, ROIs out of place < .45
)
BEYOND = 0.5  # a covariate may lie so much of the public range outside of it


@dataclass(frozen=True, eq=False)
class PublicStart:
    """A start, its confound step and its papers.

    Attributes
    ----------
    arrays : Start
    confounds : Confounds or None
    papers : mapping
        Plain facts: sites, people, classes, ROI names, settings, expected accuracy.
    """

    arrays: Start
    confounds: Confounds | None
    papers: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over arrays, confounds and papers: the start's name."""
        hashed = hashlib.sha256(ledger.canonical(dict(self.papers)))
        for name, array in sorted(self.tensors().items()):
            hashed.update(f"{name}{tuple(array.shape)}".encode())
            hashed.update(array.numpy().astype("<f4").tobytes())
        return hashed.hexdigest()

    def tensors(self) -> dict[str, torch.Tensor]:
        """All arrays as float32, which holds their 12 or 24 bits exactly."""
        found = self.arrays.arrays()
        if self.confounds is not None:
            for name in ("centre", "coefficients"):
                found[f"confounds.{name}"] = getattr(self.confounds, name)
        return {name: torch.from_numpy(array).float() for name, array in found.items()}

    @property
    def n_rois(self) -> int:
        """Number of ROIs of every scan."""
        return int(self.papers["n_rois"])

    @property
    def removes(self) -> tuple[str, ...]:
        """Confounds that are taken out of every scan."""
        return self.confounds.names if self.confounds else ()

    def public_among(self, ids: Iterable[str]) -> list[str]:
        """Those of some people who are among the public ones, by id."""
        return sorted(set(ids) & {*self.papers["ids"], *self.papers["left_out"]})

    def features(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Features (n, p) of scans (n, R, R), confounds removed."""
        found = log_features(fc, self.arrays.shrink)
        if self.confounds is None:
            return found
        return found - self.confounds.effect(covariates)

    def wrong_covariates(self, covariates: Covariates, n: int) -> list[str]:
        """What is wrong with the covariates of each of n people; empty where nothing is.

        One may be missing, or far outside the public people's: age in months, sex counted 0 and 1
        where the start has 1 and 2, motion in another unit would be removed as if they were meant.
        """
        ranges, told = self.papers["ranges"], []
        every = {
            k: as_numbers(k, covariates.get(k, np.full(n, np.nan)))
            for k in self.removes
        }
        for i in range(n):
            own = {name: values[i] for name, values in every.items()}
            why = " or ".join(
                name for name, value in own.items() if not np.isfinite(value)
            )
            why = why and f"has no {why}, which the start removes"
            for name, value in own.items() if not why else ():
                low, high = ranges[name]
                if abs(value - (low + high) / 2) > (0.5 + BEYOND) * (high - low):
                    why = f"its {name} {value:.4g} is far outside the public people's "
                    why += f"({low:.4g} to {high:.4g})"
            told.append(why)
        return told

    def strangeness(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Distances (n,) from the public people, each with the limit 1, by what is odd then."""
        size = np.sqrt((self.arrays.standardise(features) ** 2).mean(1))
        alike = likeness(features, self.arrays.mean)
        limits = self.papers["limits"]
        unlike = (1 - alike) / (1 - limits["likeness"])
        return {
            "lies further out than the public people's scans": size / limits["size"],
            "has another pattern than the public people's scans": unlike,
            "its left and right look swapped": self.side(features),
        }

    def side(self, features: np.ndarray) -> np.ndarray:
        """Beyond 1 where left and right are swapped, (n,)."""
        n_edges = self.n_rois * (self.n_rois - 1) // 2
        mean = torch.from_numpy(self.arrays.mean[:n_edges])
        upper = torch.from_numpy(features[:, :n_edges])
        return judging.side_distance(mean, upper).numpy()


def likeness(features: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Correlation (n,) of the edges among each scan's features with those of the public mean.

    The diagonal stands apart: with it, a scan whose ROIs all do the same would look familiar.
    """
    n_edges = len(mean) - n_rois_of_features(len(mean))
    edges = features[:, :n_edges]
    a = edges - edges.mean(1, keepdims=True)
    b = mean[:n_edges] - mean[:n_edges].mean()
    size = np.linalg.norm(a, axis=1) * np.linalg.norm(b)
    return (a @ b) / np.maximum(size, 1e-12)


def make_public(
    cohort: Cohort,
    sites: Sequence[str] | None = None,
    remove: Sequence[str] = (),
    settings: StartSettings = StartSettings(),  # noqa: B008 (frozen)
) -> PublicStart:
    """Start from public people; the same people give the same start on every machine.

    Parameters
    ----------
    cohort : Cohort
        Public people with their diagnoses.
    sites : sequence of str, optional
        Which of its sites are public; all where none is named.
    remove : sequence of str
        Covariates whose effect is taken out of every scan, e.g. mean_fd, age, sex.
    settings : StartSettings
    """
    cohort = cohort.select_sites(sites) if sites else cohort
    require_valid(cohort, to_split=False)
    order = np.lexsort(
        (cohort.subject_id, cohort.site)
    )  # rows in any order: the same start
    cohort, twice = without_twins(cohort.select(order))
    with one_thread():
        return _made(cohort, tuple(remove), settings, twice)


def _made(
    cohort: Cohort, remove: tuple[str, ...], settings: StartSettings, twice: list[str]
) -> PublicStart:
    confounds = None
    features = log_features(cohort.fc, settings.shrink)
    if remove:
        fitted = fit_on_cohort(cohort, remove, settings.shrink)
        centre = rounded(fitted.centre)
        coefficients = rounded(fitted.coefficients)
        confounds = Confounds(remove, centre, coefficients, settings.shrink)
        features = features - confounds.effect(cohort.covariates)
    y = cohort.y
    start = make_start(features, y, cohort.site.tolist(), settings)
    spread = {name: np.asarray(cohort.covariates[name]) for name in remove}
    papers = {
        **_facts(cohort, twice),
        "removes": list(remove),
        "ranges": {
            name: [rounded_number(v.min()), rounded_number(v.max())]
            for name, v in spread.items()
        },
        "settings": asdict(settings),
        "limits": _limits(start, features, cohort),
        "unseen_site": _unseen(features, y, cohort, settings),
    }
    return PublicStart(start, confounds, papers)


def _facts(cohort: Cohort, twice: list[str]) -> dict[str, Any]:
    """Who the public people are."""
    return {
        "fcforge": __version__,
        "dataset": str(cohort.provenance.get("dataset", cohort.name)),
        "people_sha256": cohort.content_sha256(),
        "left_out": twice,  # look like another of the public people
        "ids": sorted(
            cohort.subject_id.tolist()
        ),  # of public people: nobody else may be one
        "people": len(cohort),
        "patients": int(cohort.y.sum()),
        "sites": {name: int((cohort.site == name).sum()) for name in cohort.site_names},
        "n_rois": cohort.n_rois,
        "roi_names": list(cohort.roi_names),
        "classes": list(CLASSES if cohort.classes == NUMBERED else cohort.classes),
    }


def _limits(start: Start, features: np.ndarray, cohort: Cohort) -> dict[str, float]:
    """How far out, how unlike a scan and how unlike a site (its mean scan) may be."""
    size = float(np.sqrt((start.standardise(features) ** 2).mean(1)).max())
    alike, site, names = (
        float(likeness(features, start.mean).min()),
        0.3,
        cohort.site_names,
    )
    if len(names) > 1:
        here = [cohort.site == name for name in names]
        apart = [
            1 - likeness(features[h].mean(0)[None], features[~h].mean(0)).item()
            for h in here
        ]
        site = min(ALIKE_SITES, max(0.3, 1 - SITES_APART * max(apart)))
    found = {"size": SIZE_LIMIT * size, "likeness": LIKENESS * alike, "site": site}
    return {name: rounded_number(value) for name, value in found.items()}


def _unseen(
    features: np.ndarray, y: np.ndarray, cohort: Cohort, settings: StartSettings
) -> dict[str, Any]:
    """How good the public head is at a public site it has not seen: leave one site out."""
    score = np.full(len(y), np.nan)
    for name in cohort.site_names:
        here = cohort.site == name
        rest, fewest = ~here, min(int((y[~here] == c).sum()) for c in (0, 1))
        if fewest >= 5 and int(rest.sum()) >= settings.axes + 4:
            sites = cohort.site[rest].tolist()
            left = make_start(features[rest], y[rest], sites, settings)
            score[here] = left.score(left.standardise(features[here]))
    known = np.isfinite(score)
    if not known.any():
        return {"people": 0, "accuracy": None, "auroc": None, "majority": None}
    found = judging.quality(score[known], y[known])
    rates = {k: round(found[k], 3) for k in ("accuracy", "auroc", "majority")}
    return {"people": int(known.sum()), **rates}


def from_parts(
    tensors: Mapping[str, torch.Tensor], papers: Mapping[str, Any]
) -> PublicStart:
    """Start from what a file holds; wrong names, shapes or numbers raise `CapsuleError`."""
    found = {name: array.double().numpy() for name, array in tensors.items()}
    centre = found.pop("confounds.centre", None)
    coefficients = found.pop("confounds.coefficients", None)
    removes = tuple(papers.get("removes", ()))
    try:
        numbers: dict[str, Any] = {k: v.item() for k, v in found.items() if not v.ndim}
        start = Start(**{**found, **numbers})
        settings = StartSettings(**papers["settings"])
    except TypeError as error:
        raise CapsuleError(
            f"the start holds other arrays than it should ({error})."
        ) from error
    except ConfigError as error:
        raise CapsuleError(
            f"the start's settings cannot be used: {error.what}"
        ) from error
    _check_shapes(start, int(papers["n_rois"]))
    made = [start.n_axes, start.shrink, start.pull]
    if not np.allclose(
        [settings.axes, settings.shrink, settings.pull], made, rtol=1e-6
    ):
        raise CapsuleError(
            "the start's settings are not those its arrays were made with."
        )
    if bool(removes) != (centre is not None) or (centre is None) != (
        coefficients is None
    ):
        raise CapsuleError("the start's confound step does not fit its description.")
    confounds = None
    if centre is not None and coefficients is not None:
        if coefficients.shape != (len(centre), len(start.mean)):
            raise CapsuleError("the start's confound coefficients have another shape.")
        confounds = Confounds(removes, centre, coefficients, settings.shrink)
    return PublicStart(start, confounds, papers)


def _check_shapes(start: Start, n_rois: int) -> None:
    p, q = n_rois * (n_rois + 1) // 2, start.n_axes if start.axes.ndim == 2 else -1
    wanted = {
        "mean": (p,),
        "scale": (p,),
        "weight": (p,),
        "bias": (),
        "axes": (p, q),
        "second": (q + 1, q + 1),
        "clip": (),
        "persons": (q,),
        "sites": (q,),
        "temperature": (),
        "factors": (len(start.factors), p),
        "shrink": (),
        "pull": (),
    }
    for name, array in start.arrays().items():
        if tuple(array.shape) != wanted[name]:
            raise CapsuleError(
                f"the start's array '{name}' has the shape {tuple(array.shape)}."
            )
    positive = [start.clip, start.temperature, start.pull, start.scale.min()]
    if not all(float(v) > 0 for v in positive):
        raise CapsuleError(
            "the start has a clip, scale, pull or temperature that is not positive."
        )
