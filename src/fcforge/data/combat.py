r"""ComBat: empirical-Bayes shift and scale of every edge at a site.

.. math:: z_{ijv} = \alpha_v + \sigma_v(\gamma_{iv} + \delta_{iv} e_{ijv})

for subject j of site i at edge v. The priors of a site, :math:`\gamma_{iv} \sim N(\bar\gamma_i,
\tau_i^2)` and :math:`\delta^2_{iv} \sim` inverse gamma, are taken over its own edges. Equal to
neuroCombat's parametric mode (the tests say how closely).

References
----------
Johnson, Li and Rabinovic 2007 (Biostatistics); Fortin et al. 2018 (NeuroImage).
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.names import check_names

How = Literal["combat", "demean"]
Unseen = Literal["refuse", "estimate"]
CONVERGED = 1e-4
MOST_STEPS = 500


def site_effect(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the shift :math:`\gamma^*` and squared scale :math:`\delta^{*2}` of one site, both (E,).

    Alternates the two posterior means

    .. math::

        \gamma^* = \frac{n\tau^2\hat\gamma + \delta^{*2}\bar\gamma}{n\tau^2 + \delta^{*2}}, \qquad
        \delta^{*2} = \frac{b + \frac12\sum_j (z_j - \gamma^*)^2}{a + \frac n2 - 1}

    until no edge changes by more than `CONVERGED` of its value.

    Parameters
    ----------
    standard : ndarray of shape (n, E)
        The site's edges, standardised by the reference.
    """
    n = len(standard)
    shift = standard.mean(0)
    scale = no_zeros(standard.var(0) * n / max(n - 1, 1))
    if len(shift) < 2 or shift.var() == 0 or scale.var() == 0:
        return shift, scale  # one edge, or all alike: nothing to borrow from the others
    centre = shift.mean()
    spread = shift.var(ddof=1)
    a, b = _inverse_gamma(scale)
    squares = (standard**2).sum(0)
    total = standard.sum(0)
    gamma = shift
    delta2 = scale
    for _ in range(MOST_STEPS):
        new = (n * spread * shift + delta2 * centre) / (n * spread + delta2)
        about = squares - 2 * new * total + n * new**2
        new2 = (0.5 * about + b) / (n / 2 + a - 1)
        change = max(_largest_change(new, gamma), _largest_change(new2, delta2))
        gamma = new
        delta2 = new2
        if change < CONVERGED:
            break
    return gamma, delta2


def _inverse_gamma(scale: np.ndarray) -> tuple[float, float]:
    """Return the parameters a and b of the inverse gamma that fits the squared scales."""
    mean = scale.mean()
    variance = scale.var(ddof=1)
    a = (2 * variance + mean**2) / variance
    b = (mean * variance + mean**3) / variance
    return a, b


def _largest_change(new: np.ndarray, old: np.ndarray) -> float:
    """Return the largest relative change of an edge."""
    size = np.maximum(np.abs(old), 1e-12)
    return float((np.abs(new - old) / size).max())


@dataclass(frozen=True)
class SiteEffects:
    r"""Shifts and scales of sites about a common level.

    .. math:: z' = \ell + \sigma \frac{(z - \ell) / \sigma - \gamma_i}{\delta_i}, \qquad
              \ell = \alpha + d^\top B

    with d a subject's covariates, whose effect is kept.

    Attributes
    ----------
    sites : tuple of str
    level, sigma : ndarray of shape (E,)
        :math:`\alpha, \sigma`.
    slopes : ndarray of shape (k, E)
        B.
    gamma, delta : ndarray of shape (sites, E)
    how : {"combat", "demean"}
        "demean" only shifts, by plain means.
    """

    sites: tuple[str, ...]
    level: np.ndarray
    sigma: np.ndarray
    slopes: np.ndarray
    gamma: np.ndarray
    delta: np.ndarray
    how: How

    @classmethod
    def fit(
        cls,
        z: np.ndarray,
        site: np.ndarray,
        d: np.ndarray,
        y: np.ndarray | None,
        how: How,
    ) -> "SiteEffects":
        """Estimate the effects of the sites on z (n, E); the effect of covariates is kept.

        Parameters
        ----------
        z : ndarray of shape (n, E)
        site : ndarray of shape (n,), str
        d : ndarray of shape (n, k)
            Covariates.
        y : ndarray of shape (n,) or None
            Diagnoses (0 or 1), whose effect is then kept, too: the level is midway between the
            classes, so that a site's share of patients does not move it. Without them this is
            neuroCombat.
        how : {"combat", "demean"}
        """
        check_names("harmonisation", [how], get_args(How))
        sites = tuple(sorted(set(site.tolist())))
        is_member = site[:, None] == np.array(sites, dtype=object)
        member = is_member.astype(float)
        kept = d if y is None else np.column_stack([d, y - 0.5])
        beta = _coefficients(np.column_stack([member, kept]), z)
        means = beta[: len(sites)]
        slopes = beta[len(sites) :]
        level = member.mean(0) @ means
        left = z - kept @ slopes
        variance = ((left - member @ means) ** 2).mean(0)
        sigma = np.sqrt(no_zeros(variance))
        standard = (left - level) / sigma
        effects = [_effect(standard[site == name], how, name) for name in sites]
        gamma, delta = (np.stack(part) for part in zip(*effects, strict=True))
        return cls(sites, level, sigma, slopes[: d.shape[1]], gamma, delta, how)

    def remove(
        self, z: np.ndarray, d: np.ndarray, site: str, unseen: Unseen = "refuse"
    ) -> np.ndarray:
        """Return edges z (n, E) of subjects of one site without its effect; no diagnosis is needed.

        Parameters
        ----------
        z, d : ndarray of shape (n, E) and (n, k)
        site : str
        unseen : {"refuse", "estimate"}
            Whether an unknown effect is an error, or is estimated from these subjects.
        """
        level = self.level + d @ self.slopes
        standard = (z - level) / self.sigma
        if site in self.sites:
            place = self.sites.index(site)
            gamma = self.gamma[place]
            delta = self.delta[place]
        elif unseen == "estimate":
            gamma, delta = _effect(standard, self.how, site)
        else:
            raise DataError(
                f"site '{site}' was not among those learned ({', '.join(self.sites)}).",
                do="Set unseen to 'estimate'.",
            )
        return level + self.sigma * (standard - gamma) / delta


def _coefficients(design: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the least-squares coefficients of z (n, E) on a design (n, k) of full rank."""
    beta, _, rank, _ = np.linalg.lstsq(design, z, rcond=None)
    if rank < design.shape[1]:
        raise DataError(
            "effects of sites cannot be separated from those of the covariates or the diagnosis.",
            where="harmonisation",
            do="Keep fewer of them, or leave out sites where one of them is always the same.",
        )
    return beta


def _effect(standard: np.ndarray, how: How, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift and scale of a site, both (E,)."""
    if len(standard) < 2:
        message = f"site '{site}' has one subject: its effect cannot be estimated."
        raise DataError(message)
    if how == "demean":
        return standard.mean(0), np.ones(standard.shape[1])
    gamma, delta2 = site_effect(standard)
    return gamma, np.sqrt(delta2)


def no_zeros(x: np.ndarray) -> np.ndarray:
    """Return scales with 1 in place of zeros, since a constant edge has no scale."""
    return np.where(x > 1e-12, x, 1.0)
