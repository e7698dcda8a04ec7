r"""ComBat: empirical-Bayes shift and scale of every edge at a site.

.. math:: z_{ijv} = \alpha_v + \sigma_v(\gamma_{iv} + \delta_{iv} e_{ijv})

for subject j of site i at edge v. The priors of a site, :math:`\gamma_{iv} \sim N(\bar\gamma_i,
\tau_i^2)` and :math:`\delta^2_{iv} \sim` inverse gamma, are taken over its own edges. Equal to
neuroCombat's parametric mode (the tests say how closely).

References
----------
Johnson, Li and Rabinovic 2007 (Biostatistics); Fortin et al. 2018 (NeuroImage).
"""

from __future__ import annotations

import numpy as np

CONVERGED = 1e-4
MOST_STEPS = 500


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
