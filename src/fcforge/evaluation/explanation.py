"""Explanations of a model's scores: edges, ROIs and networks that moved each scan's score.

Shapes: n scans, R ROIs, E = R (R - 1) / 2 edges, S networks.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge.core.files import write_bytes, write_text
from fcforge.core.formatting import no_formula, printable
from fcforge.core.randomness import numpy_rng
from fcforge.data.edges import fc_from_upper, upper_from_fc
from fcforge.data.scan_checks import wrong_rois
from fcforge.evaluation.attribution import Attribution, ScoredModel, attribute
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.imaging.atlas import Atlas, atlas_of_names, names_only

DELETED = 0.01  # share of the edges that the deletion test sets to the reference
DRAWS = 20  # random choices of as many edges that it compares with
NOBODY = "a scan without any connectivity"


@dataclass(frozen=True)
class DeletionTest:
    """How far n scores move when k edges are set to the reference, in log odds.

    Attributes
    ----------
    k : int
        Number of edges that are deleted at once.
    explained : ndarray of shape (n,)
        Shift after deleting the k edges that contributed most in the direction of the score.
    random : ndarray of shape (n, draws)
        Shift after deleting k random edges.
    """

    k: int
    explained: Array
    random: Array

    @classmethod
    def of(
        cls, model: ScoredModel, fc: Array, reference: Array, attribution: Attribution
    ) -> "DeletionTest":
        """Test an attribution: its top edges must move a score more than random edges do.

        Parameters
        ----------
        model : ScoredModel
        fc : ndarray of shape (n, R, R)
            Explained scans.
        reference : ndarray of shape (R, R)
            Scan whose edges replace the deleted ones.
        attribution : Attribution
            Explanation of the scans.
        """
        scan_edges = upper_from_fc(fc)
        reference_edges = upper_from_fc(reference[None])[0]
        n_edges = len(reference_edges)
        k = max(1, round(DELETED * n_edges))
        rng = numpy_rng(0, "deletion test", k)
        shift = np.zeros((len(fc), DRAWS + 1))
        for scan in range(len(fc)):
            sign = 1.0 if attribution.score[scan] >= attribution.base else -1.0
            top = np.argsort(-sign * attribution.contribution[scan], kind="stable")[:k]
            random = [rng.permutation(n_edges)[:k] for _ in range(DRAWS)]
            changed = np.repeat(scan_edges[scan][None], DRAWS + 1, axis=0)
            for row, chosen in zip(changed, [top, *random], strict=True):
                row[chosen] = reference_edges[chosen]
            after = model.score(fc_from_upper(changed))
            shift[scan] = sign * (attribution.score[scan] - after)
        return cls(k, shift[:, 0], shift[:, 1:])


@dataclass(frozen=True)
class Explanation:
    """Explanation of the scores of n scans by their edges; E edges of R ROIs, upper triangle row by row.

    ``base + contribution.sum(1)`` is `score` up to `gap`.

    Attributes
    ----------
    subjects : tuple of str
    contribution : ndarray of shape (n, E)
        Contribution of each edge to the log odds.
    slope : ndarray of shape (n, E)
        Mean gradient by the edge's Fisher z, positive where a stronger edge raises the score.
    fc : ndarray of shape (n, E)
        Correlation of the edge.
    score, base : ndarray of shape (n,)
        Calibrated log odds of `positive` for each scan, and for the reference scan.
    reference_fc : ndarray of shape (E,)
        Edges of the reference scan.
    reference : str
        Description of the reference scan.
    positive : str
        The class that positive contributions speak for.
    exact : bool
        Whether contributions are the terms of a linear model; else they are integrated gradients.
    atlas : Atlas
        Names of the ROIs; networks and places where they are known.
    deletion : DeletionTest
        Whether the edges with the largest contributions matter more than others.
    stability : EdgeStability or None
        Agreement of trainings on other people about each edge.
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
    deletion: DeletionTest
    stability: EdgeStability | None = None

    @property
    def gap(self) -> Array:
        """Part of each score (n,) that contributions leave unexplained: rounding, quadrature, jumps."""
        return self.score - self.base - self.contribution.sum(1)

    @property
    def strength(self) -> Array:
        """Mean absolute contribution of each edge, (E,); mean absolute slope if all contributions are 0."""
        values = self.contribution if self.contribution.any() else self.slope
        return np.abs(values).mean(0)

    def matrix(self, scan: int = 0, values: Array | None = None) -> Array:
        """Return the contributions of one scan, or given `values` (E,), as a symmetric matrix (R, R)."""
        edges = self.contribution[scan] if values is None else values
        return fc_from_upper(edges[None], 0.0)[0]

    def rois(self, scan: int = 0) -> Array:
        """Return the contribution of each ROI (R,): half the sum over its edges."""
        return self.matrix(scan).sum(1) / 2

    def networks(self, scan: int = 0) -> pd.DataFrame:
        """Return one scan's contributions within and between networks.

        Returns
        -------
        DataFrame
            One row and column per network (or lobe) of the atlas. The upper triangle with the
            diagonal sums to the contributions of all edges.
        """
        names = list(networks_of(self.atlas))
        if not names:
            hint = (
                "Explain with an atlas that has them, e.g. atlas=load_atlas('aal116')."
            )
            raise DataError("the networks of these ROIs are not known.", do=hint)
        total = by_network(self.atlas, self.matrix(scan))
        total[np.diag_indices_from(total)] /= 2  # an edge is two entries
        return pd.DataFrame(total, index=names, columns=names)

    def edges(self, scan: int = 0, n: int | None = None) -> pd.DataFrame:
        """Return the `n` edges (by default all) that moved one scan's score most, strongest first.

        The index of the table is the number of the edge in the upper triangle.
        """
        contribution = self.contribution[scan]
        order = np.argsort(-np.abs(contribution), kind="stable")[:n]
        first, second = np.triu_indices(self.atlas.n_rois, 1)
        named = np.array([no_formula(printable(name)) for name in self.atlas.roi_names])
        table = {
            "subject": no_formula(printable(self.subjects[scan])),
            "roi_a": named[first[order]],
            "roi_b": named[second[order]],
            "fc": self.fc[scan][order],
            "reference_fc": self.reference_fc[order],
            "contribution": contribution[order],
        }
        if self.stability is not None:
            for name in ("same_sign", "in_top", "stable"):
                table[name] = getattr(self.stability, name)[order]
        return pd.DataFrame(table, index=order)

    def connectome(self, scan: int = 0, n: int = 30) -> tuple[Array, Array]:
        """Return the `n` strongest edges as a matrix, and the places of the ROIs.

        nilearn's ``plot_connectome`` and ``view_connectome`` take both as they are.

        Parameters
        ----------
        scan : int
        n : int
            Number of edges; the others are zero.

        Returns
        -------
        matrix : ndarray of shape (R, R)
            Contributions.
        places : ndarray of shape (R, 3)
            Coordinates in mm, MNI space.

        Examples
        --------
        >>> plot_connectome(*explanation.connectome())  # doctest: +SKIP
        """
        if not len(self.atlas.places):
            hint = "Give atlas=Atlas(name, roi_names, systems, xyz=...) or load_atlas(...)."
            raise DataError("the places of these ROIs are not known.", do=hint)
        strongest = self.contribution[scan].copy()
        strongest[np.argsort(-np.abs(strongest), kind="stable")[n:]] = 0.0
        return self.matrix(values=strongest), self.atlas.places

    def to_brainnet(self, path: str | Path, scan: int = 0, n: int = 30) -> None:
        """Write the `n` strongest edges for BrainNet Viewer: ``PATH.node`` and ``PATH.edge``.

        Parameters
        ----------
        path : path
            Name of both files without their endings.
        scan, n : int
            As in `connectome`. A node's colour is the number of its network, its size the sum of
            its edges' absolute contributions.
        """
        matrix, places = self.connectome(scan, n)
        names = list(networks_of(self.atlas))
        size = np.abs(matrix).sum(1)
        nodes = []
        for k, (x, y, z) in enumerate(places):
            colour = names.index(self.atlas.systems[k]) + 1 if names else 1
            # no blanks in a name, because blanks separate the columns of the file
            label = "_".join(printable(self.atlas.roi_names[k]).split())
            nodes.append(f"{x:.1f} {y:.1f} {z:.1f} {colour} {size[k]:.6g} {label}\n")
        edges = [" ".join(f"{value:.6g}" for value in row) + "\n" for row in matrix]
        for ending, lines in ((".node", nodes), (".edge", edges)):
            target = Path(path).with_name(Path(path).name + ending)
            write_text(target, "".join(lines), private=True)

    def to_npz(self, path: str | Path) -> None:
        """Write the contributions of all scans as matrices, for their owner alone.

        The file holds `subject` (n,), `contribution` (n, R, R), `roi_names` (R,) and
        `coordinates` (R, 3), the last without rows where the places are not known.
        """
        count = len(self.subjects)
        matrices = [self.matrix(scan) for scan in range(count)]
        data = io.BytesIO()
        np.savez_compressed(
            data,
            subject=np.array(self.subjects),
            contribution=np.stack(matrices),
            roi_names=np.array(self.atlas.roi_names),
            coordinates=np.asarray(self.atlas.places),
        )
        write_bytes(Path(path), data.getvalue(), private=True)

    def to_csv(self, path: str | Path, n: int | None = None) -> None:
        """Write the tables of all scans as CSV, for its owner alone: edges of patients' scans."""
        tables = pd.concat([self.edges(k, n) for k in range(len(self.subjects))])
        text = tables.to_csv(index=False, float_format="%.6g")
        write_text(Path(path), text, private=True)


@dataclass(frozen=True)
class ColumnExplanation:
    """Explanation of the scores of n subjects by the p columns of X, which are no edges.

    ``base + contribution.sum(1)`` is `score` up to `gap`.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    contribution : ndarray of shape (n, p)
        Contribution of each column to the score.
    slope : ndarray of shape (n, p)
        Mean gradient of the score by each column.
    values : ndarray of shape (n, p)
        The subjects' rows of X.
    reference : ndarray of shape (p,)
        Values that the subjects are compared with: the mean of the training subjects.
    score, base : ndarray of shape (n,)
        Scores of the subjects and of the reference.
    positive : str
        Class that positive contributions speak for.
    exact : bool
        Whether contributions are the terms of a linear model; else they are integrated gradients.
    """

    names: tuple[str, ...]
    contribution: Array
    slope: Array
    values: Array
    reference: Array
    score: Array
    base: Array
    positive: str
    exact: bool

    @property
    def gap(self) -> Array:
        """Part of each score (n,) that contributions leave unexplained: rounding and quadrature."""
        return self.score - self.base - self.contribution.sum(1)

    def columns(self, subject: int = 0, n: int | None = None) -> pd.DataFrame:
        """Return the `n` columns (by default all) that moved one subject's score most, strongest first."""
        size = np.abs(self.contribution[subject])
        order = np.argsort(-size, kind="stable")[:n]
        table = {
            "column": [self.names[k] for k in order],
            "value": self.values[subject][order],
            "reference": self.reference[order],
            "contribution": self.contribution[subject][order],
        }
        return pd.DataFrame(table, index=order)


def networks_of(atlas: Atlas) -> tuple[str, ...]:
    """Return networks in the order of their first ROI; none where the atlas does not know them."""
    return tuple(dict.fromkeys(atlas.systems)) if any(atlas.systems) else ()


def by_network(atlas: Atlas, matrix: Array) -> Array:
    """Return the sums of a matrix (R, R) over each pair of the atlas's S networks, shape (S, S)."""
    names = networks_of(atlas)
    member = np.array(
        [[s == name for s in atlas.systems] for name in names], dtype=float
    )
    member = member.reshape(len(names), atlas.n_rois)  # also without any network
    return member @ matrix @ member.T


class ExplainedModel(Protocol):
    """A model whose scores can be explained.

    Attributes
    ----------
    n_rois : int
        Number of ROIs of every scan.
    roi_names : tuple of str
        Empty where unknown.
    """

    @property
    def n_rois(self) -> int:
        """Number of ROIs of every scan."""

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Names of the ROIs; empty where unknown."""

    def reference(self) -> tuple[Array, str]:
        """Return the reference scan (R, R) and a description of it."""

    def attribution(
        self, covariates: Mapping[str, Array]
    ) -> tuple[ScoredModel, Array | float]:
        """Return the model of the edges' score, and the part of each score (n,) that covariates add."""


def explain_model(
    model: ExplainedModel,
    fc: Array,
    covariates: Mapping[str, Array],
    subjects: Sequence[str] = (),
    atlas: Atlas | None = None,
    reference: tuple[Array, str] | None = None,
    *,
    positive: str = "patient",
) -> Explanation:
    """Explain the scores of scans by the contributions of their edges.

    Parameters
    ----------
    model : ExplainedModel
    fc : ndarray of shape (n, R, R)
        Scans.
    covariates : mapping of name to ndarray of shape (n,)
    subjects : sequence of str, optional
        Names of the scans, by default "scan 1", "scan 2", ...
    atlas : Atlas, optional
        See `atlas_for`.
    reference : pair of ndarray of shape (R, R) and str, optional
        Scan that the others are compared with, and a description of it; by default the model's.
    positive : str
        Name of the class that positive contributions speak for.

    Returns
    -------
    Explanation
    """
    reference_scan, description = reference or model.reference()
    scored, offset = model.attribution(covariates)
    scans = np.asarray(fc, dtype=np.float64)
    against = np.asarray(reference_scan, dtype=np.float64)
    attribution = attribute(scored, scans, against)
    shifted = {
        **attribution._asdict(),
        "score": attribution.score + offset,
        "base": np.full(len(scans), attribution.base) + offset,
    }
    numbered = (f"scan {k + 1}" for k in range(len(scans)))
    return Explanation(
        **shifted,
        subjects=tuple(subjects or numbered),
        fc=upper_from_fc(scans),
        reference_fc=upper_from_fc(against[None])[0],
        reference=description,
        positive=positive,
        exact=scored.steps == 1,
        atlas=atlas_for(model.n_rois, model.roi_names, atlas),
        deletion=DeletionTest.of(scored, scans, against, attribution),
    )


def atlas_for(
    n_rois: int, roi_names: tuple[str, ...], given: Atlas | None = None
) -> Atlas:
    """Return the atlas on which a model's ROIs are shown.

    Parameters
    ----------
    n_rois : int
        Number of the model's ROIs.
    roi_names : tuple of str
        Their names; empty where unknown.
    given : Atlas, optional
        The user's atlas, which must have the model's ROIs.

    Returns
    -------
    Atlas
        The user's; without it AAL if the ROIs have its names, else an atlas of names alone.
        (116 ROIs without names may be any atlas.)

    Raises
    ------
    DataError
        If the given atlas has another number of ROIs, or other names.
    """
    if given is None:
        names = roi_names or tuple(f"ROI {k + 1}" for k in range(n_rois))
        return atlas_of_names(roi_names) or names_only("unknown", names)
    mismatch = ""
    if given.n_rois != n_rois:
        mismatch = f"it has {given.n_rois} ROIs, the model {n_rois}."
    elif not given.is_called(roi_names):
        mismatch = wrong_rois(given.roi_names, roi_names)
    if mismatch:
        hint = "Give the atlas that the model's scans were made with."
        raise DataError(mismatch, where=f"atlas '{given.name}'", do=hint)
    return given
