r"""ComBat: removal of the shift and scale that a site gives to every edge of FC.

The model of edge v of subject j at site i is

.. math:: z_{ijv} = \alpha_v + \sigma_v(\gamma_{iv} + \delta_{iv} e_{ijv})

with a common level :math:`\alpha` and scale :math:`\sigma`, and the site's shift :math:`\gamma` and
scale :math:`\delta`. The latter are empirical-Bayes estimates: their priors,
:math:`\gamma_{iv} \sim N(\bar\gamma_i, \tau_i^2)` and :math:`\delta^2_{iv} \sim` inverse gamma, are
fitted to all edges of the site. The result equals that of neuroCombat's parametric mode
(``tests/data/test_combat.py``).

Letters of shapes: n subjects, E edges, k covariates.

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
CONVERGED = 1e-4  # largest relative change in the last step of an iteration
MOST_STEPS = 500  # steps after which the iteration stops in any case


def site_effect(standard: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the shift :math:`\gamma^*` and squared scale :math:`\delta^{*2}` of one site.

    The two posterior means are computed in turn,

    .. math::

        \gamma^* = \frac{n\tau^2\hat\gamma + \delta^{*2}\bar\gamma}{n\tau^2 + \delta^{*2}}, \qquad
        \delta^{*2} = \frac{b + \frac12\sum_j (z_j - \gamma^*)^2}{a + \frac n2 - 1}

    until no edge changes by more than `CONVERGED` of its value. Here :math:`\hat\gamma` is the mean of
    the site's n subjects, :math:`\bar\gamma, \tau^2` are its mean and variance over edges, and a, b
    are the parameters of the inverse gamma. The iteration starts from the plain mean and variance of
    each edge (``gamma_hat`` and ``delta2_hat``).

    Parameters
    ----------
    standard : ndarray of shape (n, E)
        Edges of the site's subjects, standardised by the common level and scale.

    Returns
    -------
    shift, squared scale : ndarray of shape (E,)
    """
    n = len(standard)
    gamma_hat = standard.mean(0)
    delta2_hat = no_zeros(standard.var(0) * n / max(n - 1, 1))
    if len(gamma_hat) < 2 or gamma_hat.var() == 0 or delta2_hat.var() == 0:
        # One edge, or all alike: nothing to borrow from the others.
        return gamma_hat, delta2_hat
    gamma_bar = gamma_hat.mean()
    tau2 = gamma_hat.var(ddof=1)
    a, b = _inverse_gamma(delta2_hat)
    squares = (standard**2).sum(0)
    total = standard.sum(0)
    gamma = gamma_hat
    delta2 = delta2_hat
    for _ in range(MOST_STEPS):
        new_gamma = (n * tau2 * gamma_hat + delta2 * gamma_bar) / (n * tau2 + delta2)
        # sum over subjects of (z - gamma)^2
        deviation = squares - 2 * new_gamma * total + n * new_gamma**2
        new_delta2 = (0.5 * deviation + b) / (n / 2 + a - 1)
        change = max(
            _largest_change(new_gamma, gamma), _largest_change(new_delta2, delta2)
        )
        gamma = new_gamma
        delta2 = new_delta2
        if change < CONVERGED:
            break
    return gamma, delta2


def _inverse_gamma(delta2: np.ndarray) -> tuple[float, float]:
    """Return the parameters a and b of the inverse gamma with the moments of squared scales (E,)."""
    mean = delta2.mean()
    variance = delta2.var(ddof=1)
    a = (2 * variance + mean**2) / variance
    b = (mean * variance + mean**3) / variance
    return a, b


def _largest_change(new: np.ndarray, old: np.ndarray) -> float:
    """Return the largest relative change over edges, from `old` (E,) to `new` (E,)."""
    magnitude = np.maximum(np.abs(old), 1e-12)
    return float((np.abs(new - old) / magnitude).max())


@dataclass(frozen=True)
class SiteEffects:
    r"""Fitted shifts and scales of sites, which `remove` removes.

    .. math:: z' = \ell + \sigma \frac{(z - \ell) / \sigma - \gamma_i}{\delta_i}, \qquad
              \ell = \alpha + d^\top B

    for edges z of a subject with covariates d, whose effect is kept.

    Attributes
    ----------
    sites : tuple of str
    level, sigma : ndarray of shape (E,)
        :math:`\alpha, \sigma`.
    slopes : ndarray of shape (k, E)
        B.
    gamma, delta : ndarray of shape (number of sites, E)
    how : {"combat", "demean"}
        "demean" removes no scale, and takes the plain mean of each edge as the site's shift.
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
        """Estimate the effects of sites on edges.

        Parameters
        ----------
        z : ndarray of shape (n, E)
            Fisher-z edges.
        site : ndarray of shape (n,), str
            Site of each subject.
        d : ndarray of shape (n, k)
            Covariates, whose effect on the edges is kept.
        y : ndarray of shape (n,) or None
            Diagnoses (0 or 1), whose effect is then kept, too: the level is midway between the
            classes, so that a site's share of patients does not move it. Without them this is
            neuroCombat.
        how : {"combat", "demean"}
            As in the class.
        """
        check_names("harmonisation", [how], get_args(How))
        sites = tuple(sorted(set(site.tolist())))
        is_member = site[:, None] == np.array(sites, dtype=object)
        membership = is_member.astype(float)
        kept = d if y is None else np.column_stack([d, y - 0.5])
        beta = _coefficients(np.column_stack([membership, kept]), z)
        site_means = beta[: len(sites)]
        slopes = beta[len(sites) :]
        level = membership.mean(0) @ site_means
        without_kept = z - kept @ slopes
        variance = ((without_kept - membership @ site_means) ** 2).mean(0)
        sigma = np.sqrt(no_zeros(variance))
        standard = (without_kept - level) / sigma
        effects = [_effect(standard[site == name], how, name) for name in sites]
        gamma, delta = (np.stack(part) for part in zip(*effects, strict=True))
        # The slope of the diagnosis is left out, because `remove` is not told the diagnoses.
        return cls(sites, level, sigma, slopes[: d.shape[1]], gamma, delta, how)

    def remove(
        self, z: np.ndarray, d: np.ndarray, site: str, unseen: Unseen = "refuse"
    ) -> np.ndarray:
        """Return the edges of subjects of one site without the site's effect; needs no diagnoses.

        Parameters
        ----------
        z : ndarray of shape (n, E)
            Fisher-z edges.
        d : ndarray of shape (n, k)
            Covariates, as in `fit`.
        site : str
            The subjects' site.
        unseen : {"refuse", "estimate"}
            Whether a site that was not fitted is an error, or its effect is estimated from these
            subjects.

        Returns
        -------
        ndarray of shape (n, E)
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
                do="Set unseen to 'estimate', which estimates its effect from these subjects.",
            )
        return level + self.sigma * (standard - gamma) / delta


def _coefficients(design: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the least-squares coefficients (c, E) of edges z (n, E) on a design (n, c).

    Raises
    ------
    DataError
        If the columns of the design are not independent.
    """
    beta, _, rank, _ = np.linalg.lstsq(design, z, rcond=None)
    if rank < design.shape[1]:
        raise DataError(
            "the effects of sites cannot be separated from those of the covariates or the diagnosis.",
            where="harmonisation",
            do="Keep fewer of them, or leave out sites where one of them is always the same.",
        )
    return beta


def _effect(standard: np.ndarray, how: How, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift and scale of a site, both of shape (E,).

    Parameters
    ----------
    standard : ndarray of shape (n, E)
        Standardised edges of the site's subjects.
    how : {"combat", "demean"}
    site : str
        Name for the error message.
    """
    if len(standard) < 2:
        message = f"site '{site}' has one subject: its effect cannot be estimated."
        raise DataError(message)
    if how == "demean":
        return standard.mean(0), np.ones(standard.shape[1])
    gamma, delta2 = site_effect(standard)
    return gamma, np.sqrt(delta2)


def no_zeros(x: np.ndarray) -> np.ndarray:
    """Return scales with 1 in place of zeros, so that constant edges can be divided by them."""
    return np.where(x > 1e-12, x, 1.0)
