r"""Membership attacks on a release: a sum of what people contributed, with noise.

The attacker holds a person's scan and diagnosis, so knows what that person would have added
(a row v), and asks whether it is in the sum. All functions take the sums of K releases
(`totals`, (K, d)), how many people each has (`members`, (K,)), and the rows of n people ((n, d)),
and give scores (K, n): a higher score means "was in it".
"""

import math
from dataclasses import dataclass

import numpy as np

from fcforge.privacy.attacks import TINY

SAMPLE = "likelihood ratio, reference sample"
KNOWN = "likelihood ratio, site known"


@dataclass(frozen=True)
class Expectation:
    """What an attacker expects of a release before looking at anybody.

    Attributes
    ----------
    total : ndarray of shape (K, d)
        Expected sum of each release.
    mean : ndarray of shape (d,)
        Mean row of a person.
    covariance : ndarray of shape (d, d)
        Of the sum about `total`, noise included.
    """

    total: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def from_reference(reference: np.ndarray, members: np.ndarray, noise: float) -> Expectation:
    r"""Expectation of an attacker with m people of the same hospital who are not in the release.

    Mean and (shrunk, Ledoit & Wolf 2004) covariance are theirs; the sum of n people varies about
    n times their mean by :math:`n (1 + n / m) \Sigma + \sigma^2 I`, their own mean being uncertain.
    """
    from sklearn.covariance import ledoit_wolf

    mean, n = reference.mean(0), float(members.mean())
    spread = n * (1 + n / len(reference)) * ledoit_wolf(reference)[0]
    return Expectation(np.outer(members, mean), mean, spread + noise**2 * np.eye(len(mean)))


def from_everybody(rows: np.ndarray, members: np.ndarray, noise: float) -> Expectation:
    r"""Expectation of an attacker who knows the rows of all N people, but not which n are in.

    The worst case short of knowing who else is in: true mean and covariance, and the sum of a
    random part of N people varies by :math:`n (1 - n / N) \Sigma + \sigma^2 I` only.
    """
    mean, n = rows.mean(0), float(members.mean())
    spread = n * (1 - n / len(rows)) * np.cov(rows.T)
    return Expectation(np.outer(members, mean), mean, spread + noise**2 * np.eye(len(mean)))


def likelihood_ratio(totals: np.ndarray, rows: np.ndarray, expected: Expectation) -> np.ndarray:
    r"""Log likelihood ratio of "v is in the sum" against "somebody else is", sums being Gaussian.

    .. math:: \Lambda = (v - \mu)^\top V^{-1} (T - E T) - \tfrac12 (v - \mu)^\top V^{-1} (v - \mu)
    """
    deviation = rows - expected.mean
    ridge = 1e-9 * max(float(np.trace(expected.covariance)) / len(expected.mean), TINY)
    solved = np.linalg.solve(expected.covariance + ridge * np.eye(len(expected.mean)), deviation.T)
    return (totals - expected.total) @ solved - 0.5 * (deviation.T * solved).sum(0)


def class_mean(
    totals: np.ndarray,
    rows: np.ndarray,
    y: np.ndarray,
    reference: np.ndarray,
    reference_y: np.ndarray,
    members: np.ndarray,
) -> np.ndarray:
    r"""Summary-statistic attack, :math:`\langle v - m_y,\; T / n - m \rangle`.

    The released mean's shift from the reference mean m, along what sets a person apart from the
    reference of the same diagnosis (Homer et al., PLoS Genetics 2008).
    """
    own = np.stack([_mean_of(reference, reference_y == label) for label in (0, 1)])
    return (totals / members[:, None] - reference.mean(0)) @ (rows - own[y]).T


def _mean_of(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return rows[chosen].mean(0) if chosen.any() else rows.mean(0)


def leverage(totals: np.ndarray, rows: np.ndarray, ridge: float = 1e-8) -> np.ndarray:
    r"""Leverage in one released row: :math:`-\log\, v^\top (T T^\top + \lambda I)^{-1} v`.

    `attacks.leverage` of the root :math:`T^\top`, for many releases at once: small for whoever
    lies along the sum.
    """
    length = np.maximum((totals**2).sum(1, keepdims=True), TINY)
    along = (totals @ rows.T) ** 2 / length
    outside = np.maximum((rows**2).sum(1) - along, 0.0)
    total = along / (length * (1 + ridge)) + outside / (ridge * length)
    return -np.log(np.maximum(total, TINY))


def loss_drop(residual: np.ndarray, coordinates: np.ndarray, step: np.ndarray) -> np.ndarray:
    r"""How much better the released head fits a person than the public head did.

    :math:`r^2 - (r - u^\top \beta)^2` with r the public head's residual of a person (n,), u the
    coordinates (n, d) and :math:`\beta` the steps from the public head (K, d).
    """
    return residual**2 - (residual - step @ coordinates.T) ** 2


def loss(residual: np.ndarray, coordinates: np.ndarray, step: np.ndarray) -> np.ndarray:
    r"""Squared loss of the released head, negative: :math:`-(r - u^\top \beta)^2`."""
    return -((residual - step @ coordinates.T) ** 2)


def ceiling(sigma: float) -> float:
    r"""AUC that no attack exceeds under a Gaussian mechanism: :math:`\Phi(1 / (\sqrt2 \sigma))`.

    Reached by an attacker who knows everybody else in the release exactly, against a person who
    contributes as much as anybody may; sigma is the noise in units of the sensitivity
    (Dong, Roth & Su, Gaussian differential privacy, 2022).

    Examples
    --------
    >>> round(ceiling(1.0), 4), ceiling(0.0)
    (0.7602, 1.0)
    """
    return 1.0 if sigma == 0 else 0.5 * math.erfc(-1.0 / (2.0 * sigma))
