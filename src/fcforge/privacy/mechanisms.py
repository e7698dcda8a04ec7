r"""Differential privacy: noise mechanisms, their accountant, and what may be public.

A release is (epsilon, delta)-private when adding or removing one person changes the probability
of any outcome by at most a factor :math:`e^\epsilon`, up to :math:`\delta`. Everything here is in
units of the sensitivity: a noise multiplier s means noise of standard deviation s times the most
that one person can change the released sum (L2).

The guarantee needs noise nobody can draw again: a seeded generator whose seed travels with the
capsule gives none (`secret_rng`). Floating-point attacks on Gaussian noise (Mironov 2012) are not
defended against.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.matrix_files import read_npz

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Noise = Literal["secret", "seeded"]
EPSILON, DELTA = 1.0, 1e-3  # of a release, where nothing else is said
ORDERS = (*range(2, 64), 72, 80, 96, 128, 192, 256, 512)


def epsilon_of(mechanism: str, epsilon: float) -> float | None:
    """Epsilon of a release, or None where its sums are exact (mechanism "none")."""
    return epsilon if mechanism == "gaussian" else None


def check_budget(epsilon: float, delta: float, where: str) -> None:
    """Raise `ConfigError` on a budget that means nothing."""
    if not (epsilon > 0 and 0 < delta < 1):
        raise ConfigError(
            f"epsilon {epsilon} and delta {delta} are not a privacy budget.",
            where=where,
            do="epsilon is above 0, delta between 0 and 1 (below 1 / number of subjects).",
        )


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def gaussian_delta(sigma: float, epsilon: float) -> float:
    r"""Exact delta of one Gaussian release with noise multiplier sigma.

    .. math:: \delta = \Phi\left(\tfrac{1}{2\sigma} - \epsilon\sigma\right)
              - e^\epsilon \Phi\left(-\tfrac{1}{2\sigma} - \epsilon\sigma\right)

    References
    ----------
    Balle & Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018.
    """
    near, far = (_normal_cdf(side / sigma - epsilon * sigma) for side in (0.5, -0.5))
    return near - (math.exp(min(epsilon, 700.0)) * far if far > 0 else 0.0)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Smallest noise multiplier of one (epsilon, delta)-private Gaussian release."""
    check_budget(epsilon, delta, "Gaussian mechanism")
    return _bisect(lambda sigma: gaussian_delta(sigma, epsilon) <= delta, 1e-9, 1e6)


def ceiling_of(epsilon: float | None, delta: float) -> float:
    """AUC that no attack on one person exceeds at this budget; None: exact sums."""
    return 1.0 if epsilon is None else ceiling(gaussian_sigma(epsilon, delta))


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
    return 1.0 if sigma == 0 else _normal_cdf(1.0 / (math.sqrt(2.0) * sigma))


def _bisect(good: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest value (to 1e-6 relative, never below it) for which the monotone `good` holds."""
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def rdp_of_step(rate: float, sigma: float, order: int) -> float:
    r"""Renyi divergence of one Poisson-subsampled Gaussian step, at an integer order a.

    .. math:: \frac{1}{a-1} \log \sum_{i=0}^{a} \binom{a}{i} q^i (1-q)^{a-i}
              \exp\frac{i^2 - i}{2\sigma^2}

    References
    ----------
    Mironov, Talwar & Zhang, Renyi differential privacy of the sampled Gaussian mechanism, 2019.
    """
    if rate == 0.0:
        return 0.0
    if rate >= 1.0:
        return order / (2 * sigma**2)
    terms = [
        math.lgamma(order + 1)
        - math.lgamma(i + 1)
        - math.lgamma(order - i + 1)
        + i * math.log(rate)
        + (order - i) * math.log1p(-rate)
        + (i * i - i) / (2 * sigma**2)
        for i in range(order + 1)
    ]
    top = max(terms)
    return (top + math.log(sum(math.exp(t - top) for t in terms))) / (order - 1)


def spent(
    rate: float, sigma: float, steps: int, delta: float, orders: Sequence[int] = ORDERS
) -> float:
    r"""Epsilon of `steps` subsampled Gaussian steps (DP-SGD).

    Divergences add up over steps; the best order is turned into (epsilon, delta) by
    :math:`\epsilon = \rho_a - \frac{\log\delta + \log a}{a - 1} + \log\frac{a-1}{a}`
    (Canonne, Kamath & Steinke 2020), as Opacus does.

    Parameters
    ----------
    rate : float
        Probability of each person to be in a step's batch.
    sigma : float
        Noise multiplier.
    """
    if steps == 0:
        return 0.0
    found = []
    for a in orders:
        total = steps * rdp_of_step(rate, sigma, a)
        found.append(
            total - (math.log(delta) + math.log(a)) / (a - 1) + math.log1p(-1 / a)
        )
    return max(0.0, min(found))


def sigma_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Smallest noise multiplier with which `steps` steps spend at most `epsilon`."""
    check_budget(epsilon, delta, "DP-SGD")
    return _bisect(lambda sigma: spent(rate, sigma, steps, delta) <= epsilon, 0.05, 1e5)


def clip_rows(rows: Tensor, bound: float) -> Tensor:
    """Rows (n, q) shortened to L2 norm at most `bound`; shorter ones are left as they are."""
    return rows * (bound / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp(
        max=1.0
    )


def noisy_moments(
    rows: Tensor, bound: float, sigma: float, rng: torch.Generator
) -> Tensor:
    r"""Second moments :math:`\sum_i a_i a_i^\top` of clipped rows, with Gaussian noise.

    One person changes the sum by :math:`\|a a^\top\|_F = \|a\|^2 \le` bound^2. A symmetric
    matrix is a vector of its diagonal and sqrt(2) times its upper triangle with the same norm;
    independent noise on that vector has standard deviation s on the diagonal, s / sqrt(2) off it.
    """
    import torch

    a = clip_rows(rows, bound)
    g = torch.randn(a.shape[1], a.shape[1], generator=rng, dtype=torch.float64).to(a)
    return a.mT @ a + sigma * bound**2 * 0.5 * (g + g.mT)


def clipped_sum(grads: dict[str, Tensor], bound: float) -> dict[str, Tensor]:
    """Sum over subjects of gradients shortened to joint L2 norm at most `bound`."""
    import torch

    norm = (
        torch.stack([g.flatten(1).square().sum(1) for g in grads.values()])
        .sum(0)
        .sqrt()
    )
    factor = (bound / norm.clamp_min(1e-30)).clamp(max=1.0)
    return {k: torch.tensordot(factor, g, dims=1) for k, g in grads.items()}


def noisy_gradient(
    grads: dict[str, Tensor],
    bound: float,
    sigma: float,
    size: float,
    rng: torch.Generator,
) -> dict[str, Tensor]:
    """(clipped sum + N(0, (sigma bound)^2)) / expected batch size: one DP-SGD step's gradient."""
    import torch

    total = clipped_sum(grads, bound)
    return {
        k: (g + sigma * bound * torch.randn(g.shape, generator=rng, device=g.device))
        / size
        for k, g in total.items()
    }


def secret_rng(noise: Noise, rng: torch.Generator) -> torch.Generator:
    """Generator of the noise: the system's entropy, or `rng` where nothing is to be released."""
    import torch

    if noise not in ("secret", "seeded"):
        raise ConfigError(
            f"noise '{noise}' is not known.", do="Use 'secret' or 'seeded'."
        )
    return (
        torch.Generator().manual_seed(secrets.randbits(63))
        if noise == "secret"
        else rng
    )


def read_template(path: str, names: Sequence[str], n_edges: int) -> dict[str, Tensor]:
    """Public mean and axes, made by `fcforge.privacy.template` from people outside the study."""
    import torch

    try:
        arrays = read_npz(path)
        found = {name: np.asarray(arrays[name], dtype=np.float32) for name in names}
    except (DataError, KeyError, ValueError) as error:
        reason = error.what if isinstance(error, DataError) else error
        raise DataError(
            f"is not a public template ({reason}).",
            where=path,
            do="Make one with fcforge.privacy.template.write_template.",
        ) from error
    if any(array.shape[-1] != n_edges for array in found.values() if array.ndim == 2):
        raise DataError(
            f"is of another atlas: these scans have {n_edges} edges.", where=path
        )
    return {name: torch.from_numpy(array) for name, array in found.items()}
