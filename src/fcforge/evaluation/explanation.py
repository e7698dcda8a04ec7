r"""Why a model said so: which edges, ROIs and networks moved each scan's score.

What is shown is what *this model* used. It is not a proof that an edge has to do with the illness;
whether another sample of people would give the same edges is told by `Stability`.

With :math:`z = \mathrm{artanh}(C)` of a scan's FC and :math:`z'` of a reference scan, edge e
contributes to the score f

.. math:: c_e = (z_e - z'_e) \int_0^1 \frac{\partial f}{\partial z_e}
          \big(z' + a (z - z')\big) \, da, \qquad \sum_e c_e = f(z) - f(z').

Where f is linear in z this is :math:`w_e (z_e - z'_e)`, and one gradient is exact. Elsewhere
(matrix-log features, networks) the integral is Gauss-Legendre quadrature. A graph model looks only
at edges above a threshold, so its score jumps where an edge crosses it on the way: such a jump
belongs to the edge that crosses, and is shared by those that cross within the same of many steps.

Contributions are for the patients' class, whatever the two classes are called: positive ones
speak for it.

References
----------
Sundararajan, Taly, Yan (2017), Axiomatic attribution for deep networks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy import ndarray as Array

from fcforge.base_model.features import log_features, one_blas_thread
from fcforge.core.constants import LOG_SCALE
from fcforge.core.errors import DataError
from fcforge.core.files import write_text
from fcforge.core.formatting import no_formula, printable
from fcforge.core.randomness import numpy_rng
from fcforge.data.cohort import fc_from_upper, upper_from_fc
from fcforge.data.scan_checks import fisher_z, wrong_rois
from fcforge.imaging.atlas import Atlas, atlas_of_names, names_only
from fcforge_consortium.model import Covariates, Model

AGREED = 0.7  # share of trainings on random halves that must agree about an edge
FALSE = 1.0  # edges that may look stable by chance, on average
DELETED = 0.01  # share of the edges that the deletion test sets to the reference
DRAWS = 20  # random choices of as many edges that it compares with
SAME = 1e-9  # eigenvalues nearer than this count as one
NOBODY = "a scan without any connectivity"


class Attribution(NamedTuple):
    """What each edge added to the score of n scans; E = R (R - 1) / 2 edges, row by row.

    Attributes
    ----------
    contribution : ndarray of shape (n, E)
    slope : ndarray of shape (n, E)
        Mean gradient on the way: positive where a stronger edge raises the score.
    score : ndarray of shape (n,)
    base : float
        Score of the reference.
    """

    contribution: Array
    slope: Array
    score: Array
    base: float


class Scored(Protocol):
    """A score that can be taken apart; a network's is `fcforge.models.attribution.Scorer`."""

    @property
    def steps(self) -> int:
        """Gradients on the way from the reference; 1 where the score is linear in Fisher z."""

    @property
    def kept(self) -> Callable[[Array], Array] | None:
        """Which edges (m, E) the model sees, where it has a threshold."""

    def score(self, fc: Array) -> Array:
        """Log odds (n,) of scans (n, R, R)."""

    def slopes(self, z: Array) -> Array:
        """Gradients (m, E) at Fisher-z edges (m, E)."""


def slope_at(model: Scored, fc: Array) -> Array:
    """Gradient (E,) by each Fisher-z edge at one scan (R, R): a linear model's weights."""
    return model.slopes(fisher_z(fc[None]))[0]


def attribute(model: Scored, fc: Array, reference: Array) -> Attribution:
    """Contributions of every edge of scans (n, R, R) against a reference scan (R, R)."""
    begin = fisher_z(reference[None])[0]
    way = fisher_z(fc) - begin
    slope = np.zeros_like(way)
    jumps = np.zeros_like(way)
    place, weight = np.polynomial.legendre.leggauss(model.steps)
    for scan, step in enumerate(way):
        if model.kept is None:
            points = begin + (place[:, None] + 1) / 2 * step
            slope[scan] = weight / 2 @ model.slopes(points)
        else:
            slope[scan], jumps[scan] = _with_jumps(model, model.kept, begin, step)
    base = float(model.score(reference[None])[0])
    return Attribution(way * slope + jumps, slope, model.score(fc), base)


def _with_jumps(
    model: Scored, seen: Callable[[Array], Array], begin: Array, way: Array
) -> tuple[Array, Array]:
    """Mean gradient (E,), and what edges add (E,) by crossing the threshold."""
    share = np.linspace(0, 1, model.steps + 1)[:, None]
    points = begin + share * way
    slopes = model.slopes((points[1:] + points[:-1]) / 2)
    r = np.tanh(points)
    jump = np.diff(model.score(fc_from_upper(r))) - slopes @ way / model.steps
    crossing = np.diff(seen(r).astype(np.int8), axis=0) != 0
    each = jump / crossing.sum(1).clip(min=1)
    return slopes.mean(0), each @ crossing


@dataclass(frozen=True)
class LogHead:
    r"""Log odds that are linear in the matrix logarithm, as those around a public start are.

    With :math:`C` = FC, :math:`M = (1 - a) C + a I = V \,\mathrm{diag}(v)\, V^\top` and the weights
    as a symmetric matrix :math:`W`, the score is :math:`\langle W, \log M\rangle + b` and

    .. math:: \frac{\partial}{\partial M} = V \big( (V^\top W V) \circ L \big) V^\top, \quad
        L_{ij} = \frac{\log v_i - \log v_j}{v_i - v_j}, \quad L_{ii} = 1 / v_i

    (Daleckii and Krein), which holds for repeated eigenvalues, too.

    Attributes
    ----------
    weight : ndarray of shape (R (R + 1) / 2,)
        Of `log_features`.
    bias, shrink : float
    """

    steps: ClassVar[int] = 16
    kept: ClassVar[None] = None
    weight: Array
    bias: float
    shrink: float

    def score(self, fc: Array) -> Array:
        """Log odds (n,) of scans (n, R, R)."""
        return log_features(fc, self.shrink) @ self.weight + self.bias

    def slopes(self, z: Array) -> Array:
        """Gradients (m, E) at Fisher-z edges (m, E)."""
        r = np.tanh(z)
        fc = fc_from_upper(r)
        shrunk = (1 - self.shrink) * fc + self.shrink * np.eye(fc.shape[-1])
        with one_blas_thread():
            value, vector = np.linalg.eigh(shrunk)
            turned = np.swapaxes(vector, -1, -2)
            inside = turned @ self._weights(fc.shape[-1]) @ vector
            gradient = vector @ (inside * _log_slopes(value)) @ turned
        # an edge stands twice in the matrix; its Fisher z changes it by 1 - r^2
        return 2 * (1 - self.shrink) * upper_from_fc(gradient) * (1 - r**2)

    def _weights(self, n_rois: int) -> Array:
        """The weights as a symmetric matrix: its product with the logarithm is the score."""
        n_edges = n_rois * (n_rois - 1) // 2
        found = fc_from_upper(self.weight[None, :n_edges] / 2, 0.0)[0]
        return (found + np.diag(self.weight[n_edges:] / 2**0.5)) / LOG_SCALE


def _log_slopes(value: Array) -> Array:
    """Divided differences (n, R, R) of the logarithm at eigenvalues (n, R), all positive."""
    log = np.log(value)
    apart = value[..., :, None] - value[..., None, :]
    same = np.abs(apart) < SAME
    higher = log[..., :, None] - log[..., None, :]
    rise = higher / np.where(same, 1.0, apart)
    return np.where(same, 1 / value[..., :, None], rise)


@dataclass(frozen=True)
class Deletion:
    """How far n scores move when k edges are set to the reference, in log odds.

    Attributes
    ----------
    k : int
    explained : ndarray of shape (n,)
        The k edges that pushed a score furthest the way it went.
    random : ndarray of shape (n, draws)
        Any k edges.
    """

    k: int
    explained: Array
    random: Array

    @classmethod
    def of(
        cls, model: Scored, fc: Array, reference: Array, found: Attribution
    ) -> "Deletion":
        """Test of an attribution: its top edges must matter more than any others."""
        here = upper_from_fc(fc)
        there = upper_from_fc(reference[None])[0]
        n_edges = len(there)
        k = max(1, round(DELETED * n_edges))
        rng = numpy_rng(0, "deletion test", k)
        moved = np.zeros((len(fc), DRAWS + 1))
        for scan in range(len(fc)):
            way = 1.0 if found.score[scan] >= found.base else -1.0
            top = np.argsort(-way * found.contribution[scan], kind="stable")[:k]
            random = [rng.permutation(n_edges)[:k] for _ in range(DRAWS)]
            changed = np.repeat(here[scan][None], DRAWS + 1, axis=0)
            for row, chosen in zip(changed, [top, *random], strict=True):
                row[chosen] = there[chosen]
            after = model.score(fc_from_upper(changed))
            moved[scan] = way * (found.score[scan] - after)
        return cls(k, moved[:, 0], moved[:, 1:])


@dataclass(frozen=True)
class Stability:
    r"""How often trainings on other people agree about an edge (stability selection).

    An edge is stable where at least 70 % of the trainings have it among their q strongest
    and give its weight the same sign. With :math:`q = \sqrt{(2 \cdot 0.7 - 1) E}` trainings on
    random halves find at most one edge stable by chance, on average.

    Attributes
    ----------
    same_sign, in_top : ndarray of shape (E,)
        Share of the trainings with the commoner sign; with the edge among the largest.
    weight : ndarray of shape (E,)
        Mean over the trainings of the gradient by the edge's Fisher z.
    n : int
        Trainings.

    References
    ----------
    Meinshausen and Buhlmann (2010), Stability selection.
    """

    same_sign: Array
    in_top: Array
    weight: Array
    n: int

    @classmethod
    def of(cls, weights: Array) -> "Stability":
        """Of the weights (k, E) of k trainings, at least two."""
        if len(weights) < 2:
            raise DataError(
                "stability needs at least two trainings.", do="Use more seeds."
            )
        size = np.abs(weights)
        square = (2 * AGREED - 1) * FALSE * size.shape[1]
        q = max(1, int(np.sqrt(square)))
        limit = np.sort(size, axis=1)[:, -q, None]
        positive = (weights > 0).mean(0)
        negative = (weights < 0).mean(0)
        sign = np.maximum(positive, negative)
        top = ((size >= limit) & (size > 0)).mean(0)
        return cls(sign, top, weights.mean(0), len(weights))

    @property
    def stable(self) -> Array:
        """Whether each edge is stable, (E,) bool."""
        return (self.same_sign >= AGREED) & (self.in_top >= AGREED)


@dataclass(frozen=True)
class Explanation:
    """What moved the scores of n scans; E edges of R ROIs, upper triangle row by row.

    ``base + contribution.sum(1)`` is `score` up to `gap`.

    Attributes
    ----------
    subjects : tuple of str
    contribution, slope, fc : ndarray of shape (n, E)
        What each edge added to the log odds; the mean gradient by its Fisher z (positive where a
        stronger edge raises the score); its correlation.
    score, base : ndarray of shape (n,)
        Calibrated log odds of `positive`; those of the reference scan.
    reference_fc : ndarray of shape (E,)
    reference : str
        Who the reference scan is.
    positive : str
        The class that positive contributions speak for.
    exact : bool
        A linear model's own terms; else integrated gradients.
    atlas : Atlas
        Names of the ROIs; networks and places where they are known.
    deletion : Deletion
        Whether the edges it names matter more than others.
    """

    subjects: tuple[str, ...]
    contribution: Array
    slope: Array
    fc: Array
    score: Array
    base: Array
    reference_fc: Array
    reference: str
    positive: str
    exact: bool
    atlas: Atlas
    deletion: Deletion

    @property
    def gap(self) -> Array:
        """What the contributions leave unexplained, (n,): rounding, quadrature, jumps."""
        return self.score - self.base - self.contribution.sum(1)

    @property
    def strength(self) -> Array:
        """Mean size of each edge's contribution (its slope's where there is no scan), (E,)."""
        shown = self.contribution if self.contribution.any() else self.slope
        return np.abs(shown).mean(0)

    def matrix(self, scan: int = 0, values: Array | None = None) -> Array:
        """Contributions of one scan (or any values (E,)) as a symmetric matrix (R, R)."""
        edges = self.contribution[scan] if values is None else values
        return fc_from_upper(edges[None], 0.0)[0]

    def rois(self, scan: int = 0) -> Array:
        """What each ROI added, (R,): half of each of its edges, so that the sum is the same."""
        return self.matrix(scan).sum(1) / 2

    def networks(self, scan: int = 0) -> pd.DataFrame:
        """What the edges within and between networks added; the upper triangle sums to all.

        One row and column per network (or lobe) of the atlas.
        """
        names = list(networks_of(self.atlas))
        if not names:
            do = "Explain with an atlas that has them, e.g. atlas=load_atlas('aal116')."
            raise DataError("the networks of these ROIs are not known.", do=do)
        total = by_network(self.atlas, self.matrix(scan))
        total[np.diag_indices_from(total)] /= 2  # an edge is two entries
        return pd.DataFrame(total, index=names, columns=names)

    def edges(self, scan: int = 0, n: int | None = None) -> pd.DataFrame:
        """The `n` edges (all, unless given) that moved one scan's score most, by number."""
        found = self.contribution[scan]
        order = np.argsort(-np.abs(found), kind="stable")[:n]
        first, second = np.triu_indices(self.atlas.n_rois, 1)
        named = np.array([no_formula(printable(name)) for name in self.atlas.roi_names])
        table = {
            "subject": no_formula(printable(self.subjects[scan])),
            "roi_a": named[first[order]],
            "roi_b": named[second[order]],
            "fc": self.fc[scan][order],
            "reference_fc": self.reference_fc[order],
            "contribution": found[order],
        }
        return pd.DataFrame(table, index=order)

    def to_csv(self, path: str | Path, n: int | None = None) -> None:
        """Write the tables of all scans as CSV, for its owner alone: edges of patients' scans."""
        tables = pd.concat([self.edges(k, n) for k in range(len(self.subjects))])
        text = tables.to_csv(index=False, float_format="%.6g")
        write_text(Path(path), text, private=True)


def networks_of(atlas: Atlas) -> tuple[str, ...]:
    """Networks in the order of their first ROI; none where the atlas does not know them."""
    return tuple(dict.fromkeys(atlas.systems)) if any(atlas.systems) else ()


def by_network(atlas: Atlas, matrix: Array) -> Array:
    """Sums (S, S) of a matrix (R, R) over the ROIs of each pair of networks."""
    names = networks_of(atlas)
    member = np.array(
        [[s == name for s in atlas.systems] for name in names], dtype=float
    )
    member = member.reshape(len(names), atlas.n_rois)
    return member @ matrix @ member.T


def explain_model(
    model: Model,
    fc: Array,
    covariates: Covariates,
    subjects: Sequence[str] = (),
    atlas: Atlas | None = None,
    reference: tuple[Array, str] | None = None,
) -> Explanation:
    """Explain what a model says of scans (n, R, R).

    They are held against `reference`, a scan (R, R) and who it is, by default the model's own.
    """
    scan, said = reference or model.reference()
    scored, offset = model.attribution(covariates)
    scans = np.asarray(fc, dtype=np.float64)
    against = np.asarray(scan, dtype=np.float64)
    found = attribute(scored, scans, against)
    base = np.full(len(scans), found.base) + offset
    moved = {**found._asdict(), "score": found.score + offset, "base": base}
    numbered = (f"scan {k + 1}" for k in range(len(scans)))
    return Explanation(
        **moved,
        subjects=tuple(subjects or numbered),
        fc=upper_from_fc(scans),
        reference_fc=upper_from_fc(against[None])[0],
        reference=said,
        positive=model.exchange.root.policy.patient,
        exact=scored.steps == 1,
        atlas=atlas_for(model.n_rois, model.roi_names, atlas),
        deletion=Deletion.of(scored, scans, against, found),
    )


def atlas_for(
    n_rois: int, roi_names: tuple[str, ...], given: Atlas | None = None
) -> Atlas:
    """The atlas a model's ROIs are shown on: the one given, AAL by its names, or names alone.

    116 ROIs without names may be any atlas. A given atlas must have the model's ROIs.
    """
    if given is None:
        names = roi_names or tuple(f"ROI {k + 1}" for k in range(n_rois))
        return atlas_of_names(roi_names) or names_only("unknown", names)
    wrong = ""
    if given.n_rois != n_rois:
        wrong = f"it has {given.n_rois} ROIs, the model {n_rois}."
    elif not given.is_called(roi_names):
        wrong = wrong_rois(given.roi_names, roi_names)
    if wrong:
        do = "Give the atlas that the model's scans were made with."
        raise DataError(wrong, where=f"atlas '{given.name}'", do=do)
    return given
