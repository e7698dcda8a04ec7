r"""Membership attacks on a release: a sum of what people contributed, with noise.

The attacker holds a person's scan and diagnosis, so knows what that person would have added
(a row v), and asks whether it is in the sum. All functions take the sums of K releases
(`totals`, (K, d)), how many people each has (`members`, (K,)), and the rows of n people ((n, d)),
and give scores (K, n): a higher score means "was in it".
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from fcforge.privacy import attacks

SAMPLE = "likelihood ratio, reference sample"
KNOWN = "likelihood ratio, site known"


def within_span(totals: Array, rows: Array, reference: Array) -> tuple[Array, ...]:
    """All three in coordinates of the people's span, where there are fewer people than numbers.

    What lies off the span is noise that no row touches: every inner product with a person stays.
    """
    people = np.concatenate([rows, reference])
    if people.shape[1] <= len(people):
        return totals, rows, reference
    basis = np.linalg.qr(people.T)[0]
    return totals @ basis, rows @ basis, reference @ basis


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

    total: Array
    mean: Array
    covariance: Array


def from_reference(reference: Array, members: Array, noise: float) -> Expectation:
    r"""Expectation of an attacker with m people of the same hospital who are not in the release.

    Mean and (shrunk, Ledoit & Wolf 2004) covariance are theirs; the sum of n people varies about
    n times their mean by :math:`n (1 + n / m) \Sigma + \sigma^2 I`, their own mean being uncertain.
    """
    from sklearn.covariance import ledoit_wolf

    n = float(members.mean())
    spread = n * (1 + n / len(reference)) * ledoit_wolf(reference)[0]
    return _expected(reference.mean(0), members, spread, noise)


def from_everybody(rows: Array, members: Array, noise: float) -> Expectation:
    r"""Expectation of an attacker who knows the rows of all N people, but not which n are in.

    The worst case short of knowing who else is in: true mean and covariance, and the sum of a
    random part of N people varies by :math:`n (1 - n / N) \Sigma + \sigma^2 I` only.
    """
    n = float(members.mean())
    spread = n * (1 - n / len(rows)) * np.cov(rows.T)
    return _expected(rows.mean(0), members, spread, noise)


def _expected(mean: Array, members: Array, spread: Array, noise: float) -> Expectation:
    covariance = spread + noise**2 * np.eye(len(mean))
    return Expectation(np.outer(members, mean), mean, covariance)


def likelihood_ratio(totals: Array, rows: Array, expected: Expectation) -> Array:
    r"""Log likelihood ratio of "v is in the sum" against "somebody else is", sums being Gaussian.

    .. math:: \Lambda = (v - \mu)^\top V^{-1} (T - E T) - \tfrac12 (v - \mu)^\top V^{-1} (v - \mu)
    """
    deviation = rows - expected.mean
    d = len(expected.mean)
    ridge = 1e-9 * max(float(np.trace(expected.covariance)) / d, attacks.TINY)
    covariance = expected.covariance + ridge * np.eye(d)
    solved = np.linalg.solve(covariance, deviation.T)
    return (totals - expected.total) @ solved - 0.5 * (deviation.T * solved).sum(0)


def class_mean(
    totals: Array,
    rows: Array,
    y: Array,
    reference: Array,
    reference_y: Array,
    members: Array,
) -> Array:
    r"""Summary-statistic attack, :math:`\langle v - m_y,\; T / n - m \rangle`.

    The released mean's shift from the reference mean m, along what sets a person apart from the
    reference of the same diagnosis (Homer et al., PLoS Genetics 2008).
    """
    own = attacks.class_mean(y, reference, reference_y)
    return (totals / members[:, None] - reference.mean(0)) @ (rows - own).T


def leverage(totals: Array, rows: Array, ridge: float = 1e-8) -> Array:
    r"""Leverage in one released row: :math:`-\log\, v^\top (T T^\top + \lambda I)^{-1} v`.

    `attacks.leverage` of the root :math:`T^\top`, for many releases at once: small for whoever
    lies along the sum.
    """
    return np.stack([attacks.leverage(rows, total[None], ridge) for total in totals])


def loss_drop(residual: Array, coordinates: Array, step: Array) -> Array:
    r"""How much better the released head fits a person than the public head did.

    :math:`r^2 - (r - u^\top \beta)^2` with r the public head's residual of a person (n,), u the
    coordinates (n, d) and :math:`\beta` the steps from the public head (K, d).
    """
    return residual**2 - (residual - step @ coordinates.T) ** 2


def loss(residual: Array, coordinates: Array, step: Array) -> Array:
    r"""Squared loss of the released head, negative: :math:`-(r - u^\top \beta)^2`."""
    return -((residual - step @ coordinates.T) ** 2)
