r"""Harmonisation at arrival: a site's edges are brought to those of the first site of the order.

Everything happens in Fisher z and uses training parts only (train and val, never test). The
first site is the fixed reference: it is left as it is, and every later site is moved to it with
statistics of its own training part, when it arrives. So nothing of a later site reaches an
earlier one, no stage has to be repeated, and what has to travel between hospitals is one mean
(and one spread) per edge of the first site.

``site_demean``: :math:`z' = z - \bar z_{site} + \bar z_{first}`; needs no diagnosis.
``combat``: location and scale with ComBat's empirical Bayes, the diagnoses of the training part
keeping a site's share of patients out of the estimates. A subject's own diagnosis is never used
to harmonise it: classic ComBat with the class as covariate does so, and hands the answer to the
classifier.

A site that has not been learned yet is harmonised in the same way before it is scored, but without
its diagnoses: zero-shot cells of a harmonised run are those of a hospital that has some scans of
its own to harmonise with, not of one that has a single patient.

Shifted edges need not be a correlation matrix any more; eigenvalues below zero are then raised to
zero and the diagonal is scaled back to one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fcforge.errors import unknown_name
from fcforge.sites.cohort import fc_from_upper, upper_from_fc
from fcforge.sites.combat import site_effect
from fcforge.types import FCBatch, Site

Harmonisation = Literal["none", "site_demean", "combat"]
LIMIT = 0.9999  # as graphs.fisher_z


def to_z(fc: np.ndarray) -> np.ndarray:
    """Fisher-z edges: (n, R, R) -> (n, E), float64."""
    return np.arctanh(np.clip(upper_from_fc(fc).astype(np.float64), -LIMIT, LIMIT))


def to_fc(z: np.ndarray) -> np.ndarray:
    """Correlation matrices of Fisher-z edges: (n, E) -> (n, R, R), float32, no eigenvalue < 0."""
    fc = fc_from_upper(np.tanh(z))
    if not len(fc):
        return fc
    value, vector = np.linalg.eigh(fc.astype(np.float64))
    bad = np.flatnonzero(value[:, 0] < -1e-6)
    if len(bad):
        root = vector[bad] * np.sqrt(np.maximum(value[bad], 0.0))[:, None, :]
        root /= np.linalg.norm(root, axis=2, keepdims=True)
        fixed = np.clip(root @ root.transpose(0, 2, 1), -1.0, 1.0)
        fixed[:, np.arange(fc.shape[1]), np.arange(fc.shape[1])] = 1.0
        fc[bad] = (fixed + fixed.transpose(0, 2, 1)) / 2
    return fc


@dataclass(frozen=True)
class Transform:
    r"""What happens to every subject of a site: :math:`z' = s \odot z + c`, both (E,).

    Knows neither the subject's split nor its diagnosis.
    """

    scale: np.ndarray
    shift: np.ndarray

    def __call__(self, fc: np.ndarray) -> np.ndarray:
        """Harmonised FC (n, R, R)."""
        return to_fc(self.scale * to_z(fc) + self.shift)


def fit_demean(z: np.ndarray, first: np.ndarray) -> Transform:
    """Move the mean of a site's training edges z (n, E) to that of the first site's."""
    return Transform(np.ones(z.shape[1]), first.mean(0) - z.mean(0))


def centre_classes(z: np.ndarray, y: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Residuals (n, E) about class means, location (E,) and the number of means.

    The location is the mean of the class means, so that a site with more patients is not moved
    by them; without `y` it is the plain mean.
    """
    groups = [np.ones(len(z), bool)] if y is None else [y == c for c in np.unique(y)]
    means = np.stack([z[rows].mean(0) for rows in groups])
    residual = z.copy()
    for rows, mean in zip(groups, means, strict=True):
        residual[rows] -= mean
    return residual, means.mean(0), len(groups)


def fit_combat(
    z: np.ndarray, first: np.ndarray, y: np.ndarray | None = None, y_first: np.ndarray | None = None
) -> Transform:
    r"""ComBat of an arriving site to the first one.

    With :math:`\alpha, \sigma` of the first site and the arriving site's
    :math:`\gamma^*, \delta^*` of `site_effect`,

    .. math:: z' = \alpha + \sigma \frac{(z - \alpha) / \sigma - \gamma^*}{\delta^*}.

    Without classes this is neuroCombat's ``ref_batch``.

    Parameters
    ----------
    z, first : ndarray of shape (n, E) and (m, E)
        Training edges of the arriving and of the first site.
    y, y_first : ndarray, optional
        Their diagnoses; given, the difference between the classes is kept.
    """
    residual, alpha, _ = centre_classes(first, y_first)
    sigma = np.sqrt((residual**2).mean(0))
    sigma = np.where(sigma > 1e-12, sigma, 1.0)
    own, location, n_means = centre_classes(z, y)
    gamma, delta2 = site_effect((own + location - alpha) / sigma, n_means)
    delta = np.sqrt(delta2)
    return Transform(1 / delta, alpha - (alpha + sigma * gamma) / delta)


def harmonise_sites(
    sites: Mapping[str, Site], how: Harmonisation, first: str = "", labelled: bool = True
) -> dict[str, Site]:
    """Sites of an order that begins with `first`, harmonised to it.

    Without a first site (the untrained network) or with "none", the sites as they are.
    `labelled` lets ComBat use the diagnoses of training subjects (see `fit_combat`).
    """
    if how not in ("none", "site_demean", "combat"):
        raise unknown_name("harmonisation", how, ("none", "site_demean", "combat"))
    if how == "none" or not first:
        return dict(sites)
    z0, y0 = _training(sites[first])
    out = {}
    for name, site in sites.items():
        if name != first:
            z, y = _training(site)
            labels = (y, y0) if labelled else (None, None)
            move = fit_demean(z, z0) if how == "site_demean" else fit_combat(z, z0, *labels)
            site = _moved(site, move, f"{how} to {first}")
        out[name] = site
    return out


def _training(site: Site) -> tuple[np.ndarray, np.ndarray]:
    part = site.learning(with_val=True)
    return to_z(part.fc.numpy()), part.y.numpy()


def _moved(site: Site, move: Transform, note: str) -> Site:
    def moved(batch: FCBatch) -> FCBatch:
        return FCBatch.from_numpy(move(batch.fc.numpy()), batch.y.numpy())

    return replace(
        site,
        train=moved(site.train),
        val=moved(site.val),
        test=moved(site.test),
        provenance={**site.provenance, "harmonised": note},
    )
