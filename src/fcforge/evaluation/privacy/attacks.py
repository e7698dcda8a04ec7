"""Membership and identity attacks on released records, statistics and sums.

Those on records take Fisher-z edges: targets x (n, p), released records S (m, p), and the
attacker's own reference Ref (r, p), people of the same population who were certainly not trained
on. A higher score means "was trained on".
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray as Array

TINY = 1e-12
RIDGE = 1e-8
COMPONENTS = 30
Alike = Callable[[Array, Array], Array]
SAMPLE = "likelihood ratio, reference sample"
KNOWN = "likelihood ratio, site known"


def distances(a: Array, b: Array, **how: Any) -> Array:
    """Return distances (n, m) between the rows of a and b, as `scipy.spatial.distance.cdist`."""
    from scipy.spatial.distance import cdist  # slow to import

    return cdist(a, b, **how)


def correlations(a: Array, b: Array) -> Array:
    """Return Pearson correlations (n, m) between the rows of a and b."""

    def unit(x: Array) -> Array:
        x = x - x.mean(1, keepdims=True)
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        return x / np.maximum(norm, TINY)

    return unit(a) @ unit(b).T


def nearest_distance(x: Array, records: Array) -> Array:
    """Return log of the distance to the closest record, floored at a millionth of the typical one."""
    d = distances(x, records)
    typical = max(float(np.median(d)), TINY)
    return np.log(np.maximum(d.min(1), 1e-6 * typical))


def distance_ratio(x: Array, records: Array, reference: Array) -> Array:
    r"""Return calibrated distance, :math:`-\log\, d(x, S) / d(x, \mathrm{Ref})`.

    Dividing by the distance to people not trained on takes out that some people are near
    everybody (Chen et al., GAN-Leaks, CCS 2020).
    """
    return nearest_distance(x, reference) - nearest_distance(x, records)


def kde_log_density(x: Array, points: Array) -> Array:
    r"""Return Gaussian kernel density with Scott's bandwidth, as ``scipy.stats.gaussian_kde``.

    .. math:: p(x) = \frac1m \sum_j N(x; s_j, h^2 \Sigma), \quad h = m^{-1/(d+4)}

    with :math:`\Sigma` the covariance of the points (plus a billionth of its mean variance, so
    that a generator that always says the same does not stop the audit).
    """
    from scipy.special import logsumexp

    m, d = points.shape
    bandwidth = m ** (-2.0 / (d + 4))  # squared
    cov = np.atleast_2d(np.cov(points.T)) * bandwidth
    mean_variance = np.trace(cov) / d
    cov[np.diag_indices(d)] += 1e-9 * max(mean_variance, TINY)
    apart = distances(x, points, metric="mahalanobis", VI=np.linalg.inv(cov))
    volume = d * np.log(2 * np.pi) + np.linalg.slogdet(cov).logabsdet
    constant = np.log(m) + 0.5 * volume
    return logsumexp(-0.5 * apart**2, axis=1) - constant


def domias(x: Array, records: Array, reference: Array) -> Array:
    r"""Return DOMIAS, :math:`\log p_S(x) - \log p_{Ref}(x)`, densities by KDE.

    Both densities are taken on the principal axes of the released records, the space in which
    a generator repeats its subjects.

    References
    ----------
    van Breugel, Sun, Qian, van der Schaar, Membership inference attacks against synthetic data
    through overfitting detection, AISTATS 2023.
    """
    centre = records.mean(0)
    _, sizes, axes = np.linalg.svd(records - centre, full_matrices=False)
    rank = int((sizes**2 > 1e-9 * sizes[0] ** 2).sum())
    few = 2 * min(len(reference), len(records)) // 3
    axes = axes[: max(1, min(COMPONENTS, few, rank))].T
    target = (x - centre) @ axes
    theirs = kde_log_density(target, (reference - centre) @ axes)
    return kde_log_density(target, (records - centre) @ axes) - theirs


def class_mean(y: Array, records: Array, records_y: Array) -> Array:
    """Return the mean record of each target's class, (n, p); of all records where that class is missing."""
    means = []
    for c in (0, 1):
        own = records[records_y == c]
        means.append((own if len(own) else records).mean(0))
    return np.stack(means)[y]


def mean_shift(
    x: Array,
    y: Array,
    records: Array,
    records_y: Array,
    reference: Array,
    reference_y: Array,
) -> Array:
    r"""Score the summary-statistic attack, :math:`\langle x - \tfrac12(m_S + m_R),\, m_S - m_R\rangle`.

    Only the released class mean is used: with 6670 edges and a hundred people even a mean says
    who is in it (Homer et al., PLoS Genetics 2008).
    """
    released = class_mean(y, records, records_y)
    own = class_mean(y, reference, reference_y)
    halfway = 0.5 * (released + own)
    return ((x - halfway) * (released - own)).sum(1)


def other_scan(half: Array, records: Array, reference: Array) -> Array:
    """Return fingerprint membership: highest correlation with a record, less that with a reference.

    What all people share (the reference's mean FC) is taken out first; on ABIDE that raises the
    AUC against a copying generator from 0.92 to 0.95.
    """
    mean = reference.mean(0)
    known = correlations(half - mean, records - mean).max(1)
    return known - correlations(half - mean, reference - mean).max(1)


def linked(known: Array, x: Array, records: Array, alike: Alike) -> Array:
    """Return whether what is known of person i leads through the best record to x_i; (n,) of 0 and 1.

    This is what a link needs: the record at hand points at one person, and at the right one. Known
    is the scan trained on, or another of the same person: with `correlations`, identification by
    argmax over edges (Finn et al., Nat. Neurosci. 2015).
    """
    best = alike(known, records).argmax(1)
    back = alike(records[best], x).argmax(1)
    return (back == np.arange(len(x))).astype(float)


def nearness(a: Array, b: Array) -> Array:
    """Return distances (n, m) between the rows of a and b, the nearest the largest."""
    return -distances(a, b)


def leverage(rows: Array, root: Array) -> Array:
    r"""Attack on released second moments: :math:`-\log\, a^\top (M + \lambda I)^{-1} a`.

    A person who was added to :math:`M = \sum a a^\top` has leverage at most 1; with fewer people
    than features everyone else lies outside the span of M and has a huge one.

    Parameters
    ----------
    rows : ndarray of shape (n, q)
    root : ndarray of shape (m, q)
        R with R'R = M; lambda is `RIDGE` times the largest eigenvalue of M.
    """
    _, single, axes = np.linalg.svd(root, full_matrices=False)
    values = single**2
    along = rows @ axes.T
    floor = RIDGE * max(float(values.max()), TINY)
    outside = (rows * rows).sum(1) - (along * along).sum(1)
    outside = np.maximum(outside, 0.0)
    total = (along * along / (values + floor)).sum(1) + outside / floor
    return -np.log(np.maximum(total, TINY))


def alignment(x: Array, rows: Array, reference: Array) -> Array:
    """Return the largest |correlation| of x less the reference mean with any released row of edges."""
    return np.abs(correlations(x - reference.mean(0), rows)).max(1)


def shadow(features: Array, member: Array) -> Array:
    r"""Return shadow-model attack: likelihood ratio of "trained on" against "not", per person.

    Every world in turn is the target, all others are its shadows: for person i and feature f,
    means :math:`\mu_{in}, \mu_{out}` over the shadows with and without i, variances pooled over
    people (few shadows), :math:`\Lambda = \sum_f \log N(\phi; \mu_{in}, s_{in}^2) -
    \log N(\phi; \mu_{out}, s_{out}^2)` (Carlini et al., LiRA, IEEE S&P 2022).

    Parameters
    ----------
    features : ndarray of shape (K, n, f)
        Statistics of every person against every world's release.
    member : ndarray of shape (K, n)

    Returns
    -------
    ndarray of shape (K, n)
    """
    out = np.empty(member.shape)
    for target in range(len(member)):
        rest = np.arange(len(member)) != target
        out[target] = _ratio(features[target], features[rest], member[rest] == 1)
    return out


def _ratio(own: Array, shadows: Array, inside: Array) -> Array:
    """Return the log likelihood ratio (n,) of `own` (n, f) given shadows (K, n, f) and who was inside."""
    n_in = inside.sum(0)[:, None]
    n_out = (~inside).sum(0)[:, None]
    sum_in = (shadows * inside[..., None]).sum(0)
    sum_out = (shadows * ~inside[..., None]).sum(0)
    mean_in = sum_in / np.maximum(n_in, 1)
    mean_out = sum_out / np.maximum(n_out, 1)
    both = (n_in > 0) & (n_out > 0)
    gaps = np.where(both, mean_in - mean_out, 0.0)
    gap = gaps.sum(0) / max(int(both.sum()), 1)
    # a person never (or always) among the shadows' members gets the others' typical shift
    mean_in = np.where(n_in > 0, mean_in, mean_out + gap)
    mean_out = np.where(n_out > 0, mean_out, mean_in - gap)
    likely = _log_density(own, mean_in, shadows, inside)
    return likely - _log_density(own, mean_out, shadows, ~inside)


def _log_density(own: Array, mean: Array, shadows: Array, mask: Array) -> Array:
    """Return the log density (n,) of `own` (n, f) about a mean (n, f), up to a constant.

    The variance is that of the shadows (K, n, f) under `mask` (K, n), pooled over people.
    """
    count = mask.sum(0)[:, None]
    freedom = max(int(np.maximum(count - 1, 0).sum()), 1)
    deviation = (shadows - mean) * mask[..., None]
    spread = (deviation**2).sum((0, 1)) / freedom
    everybody = shadows.reshape(-1, shadows.shape[-1])
    floor = 1e-6 * everybody.var(0) + TINY
    variance = (spread + floor) * (1 + 1 / np.maximum(count, 1))
    exponent = -0.5 * (own - mean) ** 2 / variance
    return (exponent - 0.5 * np.log(variance)).sum(1)


# -- on sums ---------------------------------------------------------------------------------------
# The attacker holds a person's scan and diagnosis, so knows what that person would have added (a
# row v), and asks whether it is in the sum. All take the sums of K releases (`totals`, (K, d)), how
# many people each has (`members`, (K,)) and the rows (n, d) of n people, and give scores (K, n).
def within_span(totals: Array, rows: Array, reference: Array) -> tuple[Array, ...]:
    """Return all three in coordinates of the subjects' span, if that is smaller.

    What lies off the span is noise that no row touches: every inner product with a person stays.
    """
    people = np.concatenate([rows, reference])
    if people.shape[1] <= len(people):
        return totals, rows, reference
    basis = np.linalg.qr(people.T)[0]
    return totals @ basis, rows @ basis, reference @ basis


def sample_known(
    totals: Array, members: Array, rows: Array, reference: Array, noise: float
) -> Array:
    r"""Return the likelihood ratio of an attacker with m people of the same hospital who are not in it.

    Mean and (shrunk, Ledoit & Wolf 2004) covariance are theirs; the sum of n people varies about
    n times their mean by :math:`n (1 + n / m) \Sigma + \sigma^2 I`, their own mean being uncertain.
    """
    from sklearn.covariance import ledoit_wolf

    n = float(members.mean())
    spread = n * (1 + n / len(reference)) * ledoit_wolf(reference)[0]
    given = (totals, members, rows)
    return likelihood_ratio(*given, reference.mean(0), spread, noise)


def site_known(totals: Array, members: Array, rows: Array, noise: float) -> Array:
    r"""Return the likelihood ratio of an attacker who knows the rows of all N people, but not which n are in.

    The worst case short of knowing who else is in: true mean and covariance, and the sum of a
    random part of N people varies by :math:`n (1 - n / N) \Sigma + \sigma^2 I` only.
    """
    n = float(members.mean())
    spread = n * (1 - n / len(rows)) * np.cov(rows.T)
    return likelihood_ratio(totals, members, rows, rows.mean(0), spread, noise)


def likelihood_ratio(
    totals: Array, members: Array, rows: Array, mean: Array, spread: Array, noise: float
) -> Array:
    r"""Return the log likelihood ratio of "v is in the sum" against "somebody else is", sums being Gaussian.

    .. math:: \Lambda = (v - \mu)^\top V^{-1} (T - n \mu) - \tfrac12 (v - \mu)^\top V^{-1} (v - \mu)

    Parameters
    ----------
    totals, members, rows : ndarray
        T, n and v.
    mean : ndarray of shape (d,)
        mu.
    spread : ndarray of shape (d, d)
        V without the noise.
    noise : float
        Its standard deviation.
    """
    d = len(spread)
    covariance = spread + noise**2 * np.eye(d)
    ridge = 1e-9 * max(float(np.trace(covariance)) / d, TINY)
    own = (rows - mean).T
    solved = np.linalg.solve(covariance + ridge * np.eye(d), own)
    return (totals - np.outer(members, mean)) @ solved - 0.5 * (own * solved).sum(0)


def sum_shift(
    totals: Array,
    members: Array,
    rows: Array,
    y: Array,
    reference: Array,
    reference_y: Array,
) -> Array:
    r"""Score the summary-statistic attack, :math:`\langle v - m_y,\; T / n - m \rangle`.

    The released mean's shift from the reference mean m, along what sets a person apart from the
    reference of the same diagnosis (Homer et al., PLoS Genetics 2008).
    """
    own = class_mean(y, reference, reference_y)
    return (totals / members[:, None] - reference.mean(0)) @ (rows - own).T


def loss_drop(residual: Array, coordinates: Array, step: Array) -> Array:
    r"""Return how much better the released head fits a person than the public head did.

    :math:`r^2 - (r - u^\top \beta)^2` with r the public head's residual of a person (n,), u the
    coordinates (n, d) and :math:`\beta` the steps from the public head (K, d).
    """
    return residual**2 - (residual - step @ coordinates.T) ** 2
