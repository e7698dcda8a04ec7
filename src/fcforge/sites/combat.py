r"""ComBat: empirical-Bayes location and scale of every edge at every site that shares data.

.. math:: z_{ijv} = \alpha_v + x_{ij}^\top\beta_v + \sigma_v(\gamma_{iv} + \delta_{iv} e_{ijv})

for subject j of site i at edge v. The priors of a site, :math:`\gamma_{iv} \sim N(\bar\gamma_i,
\tau_i^2)` and :math:`\delta^2_{iv} \sim` inverse gamma, are taken over its own edges. Equal to
neuroCombat's parametric mode (the tests say how closely).

References
----------
Johnson, Li and Rabinovic 2007 (Biostatistics); Fortin et al. 2018 (NeuroImage).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcforge.errors import DataError, unknown_name

CONVERGED = 1e-4
MOST_STEPS = 500


@dataclass(frozen=True)
class Combat:
    """Estimates of `combat_fit`: all that is needed to harmonise further subjects of its sites.

    Attributes
    ----------
    sites : tuple of str
    mean : ndarray of shape (E,)
        alpha, the mean of the site means weighted by site size.
    sd : ndarray of shape (E,)
        sigma, pooled over sites.
    beta : ndarray of shape (k, E)
        Effects of the covariates that are preserved.
    gamma, delta2 : ndarray of shape (n_sites, E)
        Shift in units of sigma, and scale squared.
    """

    sites: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    delta2: np.ndarray


def combat_fit(
    z: np.ndarray, site: Sequence[str] | np.ndarray, covariates: np.ndarray | None = None
) -> Combat:
    """Estimate ComBat on training subjects of all sites at once (the classic form).

    Parameters
    ----------
    z : ndarray of shape (n, E)
        Fisher-z edges. Training subjects only: whoever is tested must not be among them.
    site : sequence of str, length n
    covariates : ndarray of shape (n, k), optional
        Numbers whose effect is to be kept, e.g. the diagnosis as 0 and 1.
    """
    z, site = np.asarray(z, dtype=np.float64), np.asarray(site)
    names = tuple(dict.fromkeys(site.tolist()))
    member = np.array([site == name for name in names])  # (n_sites, n)
    if member.sum(1).min() < 2:
        few = names[int(member.sum(1).argmin())]
        raise DataError("has fewer than two subjects.", where=f"site '{few}'", do="Leave it out.")
    kept = np.zeros((len(z), 0)) if covariates is None else np.asarray(covariates, dtype=np.float64)
    design = np.hstack([member.T, kept])
    effects, _, rank, _ = np.linalg.lstsq(design, z, rcond=None)
    if rank < design.shape[1]:
        raise DataError(
            "a covariate cannot be told from the sites (e.g. one class per site).",
            do="Leave the covariate out.",
        )
    share = member.sum(1) / len(z)
    mean, beta = share @ effects[: len(names)], effects[len(names) :]
    sd = _no_zeros(np.sqrt(((z - design @ effects) ** 2).mean(0)))
    standard = (z - mean - kept @ beta) / sd
    found = [site_effect(standard[rows]) for rows in member]
    gamma, delta2 = (np.stack(part) for part in zip(*found, strict=True))
    return Combat(names, mean, sd, beta, gamma, delta2)


def combat_apply(
    model: Combat,
    z: np.ndarray,
    site: Sequence[str] | np.ndarray,
    covariates: np.ndarray | None = None,
) -> np.ndarray:
    """Harmonise subjects of sites that were fitted, shape (n, E) like `z`.

    A model fitted with covariates wants them again. Giving the diagnosis of a test subject here
    hands the answer to the classifier; `fcforge.sites.harmonise` never does.

    Raises
    ------
    DataError
        For a site that was not fitted (neuroHarmonize returns NaN), or missing covariates.
    """
    for name in dict.fromkeys(np.asarray(site).tolist()):
        if name not in model.sites:
            error = unknown_name("site", name, model.sites)
            raise DataError(
                f"ComBat knows nothing of site '{name}'.",
                do=f"Fit it with training subjects of that site. {error.do}",
            )
    k = len(model.beta)
    kept = np.zeros((len(z), 0)) if covariates is None else np.asarray(covariates, dtype=np.float64)
    if kept.shape != (len(z), k):
        raise DataError(f"covariates have shape {kept.shape}, fitted were {k} per subject.")
    row = np.array([model.sites.index(s) for s in np.asarray(site).tolist()], dtype=int)
    fixed = model.mean + kept @ model.beta
    standard = (np.asarray(z, dtype=np.float64) - fixed) / model.sd
    return (standard - model.gamma[row]) / np.sqrt(model.delta2[row]) * model.sd + fixed


def site_effect(standard: np.ndarray, n_means: int = 1) -> tuple[np.ndarray, np.ndarray]:
    r"""Shift :math:`\gamma^*` and squared scale :math:`\delta^{*2}` of one site, both (E,).

    Alternates the two posterior means

    .. math::

        \gamma^* = \frac{n\tau^2\hat\gamma + \delta^{*2}\bar\gamma}{n\tau^2 + \delta^{*2}}, \qquad
        \delta^{*2} = \frac{b + \frac12\sum_j (z_j - \gamma^*)^2}{a + \frac n2 - 1}

    until no edge changes by more than `CONVERGED` of its value.

    Parameters
    ----------
    standard : ndarray of shape (n, E)
        The site's edges, standardised by the reference.
    n_means : int
        Means that were taken out of the site's own variance (2 when classes were centred).
    """
    n = len(standard)
    shift = standard.mean(0)
    scale = _no_zeros(standard.var(0, ddof=0) * n / max(n - n_means, 1))
    if len(shift) < 2 or shift.var() == 0 or scale.var() == 0:
        return shift, scale  # one edge, or all alike: nothing to borrow from the others
    centre, spread = shift.mean(), shift.var(ddof=1)
    m, v = scale.mean(), scale.var(ddof=1)
    a, b = (2 * v + m**2) / v, (m * v + m**3) / v
    squares, total = (standard**2).sum(0), standard.sum(0)
    gamma, delta2 = shift, scale
    for _ in range(MOST_STEPS):
        new = (n * spread * shift + delta2 * centre) / (n * spread + delta2)
        about = squares - 2 * new * total + n * new**2
        new2 = (0.5 * about + b) / (n / 2 + a - 1)
        change = max(_change(new, gamma), _change(new2, delta2))
        gamma, delta2 = new, new2
        if change < CONVERGED:
            break
    return gamma, delta2


def _change(new: np.ndarray, old: np.ndarray) -> float:
    return float((np.abs(new - old) / np.maximum(np.abs(old), 1e-12)).max())


def _no_zeros(x: np.ndarray) -> np.ndarray:
    """A flat edge has no scale: leave it as it is (1)."""
    return np.where(x > 1e-12, x, 1.0)
