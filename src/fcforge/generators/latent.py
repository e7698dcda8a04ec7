"""Latent variables z of variational auto-encoders: divergence from the prior, and z given y.

Shapes: n subjects, d_z latent units. y is the diagnosis, or a standardised trait.
"""

from torch import Tensor

from fcforge.nn.tensors import Params


def kl_per_unit(mu: Tensor, log_var: Tensor) -> Tensor:
    """Return the divergence KL(N(mu, exp(log_var)) || N(0, 1)) of every subject and unit.

    Both arguments and the result have the shape (n, d_z).
    """
    return 0.5 * (mu.square() + log_var.exp() - 1.0 - log_var)


def latent_given_y(p: Params, y: Tensor, noise: Tensor, floor: float) -> Tensor:
    r"""Draw latent variables z given y by Bayes' rule.

    The prior is z ~ N(0, I) and a linear head predicts y | z ~ N(b + w'z, s^2). So z | y is normal with

    .. math:: \Sigma = I - \frac{w w'}{s^2 + |w|^2}, \quad m = \frac{w (y - b)}{s^2 + |w|^2}

    as covariance and mean. Sigma has a rank-one square root, so no matrix is inverted.

    Parameters
    ----------
    p : dict of Tensor
        ``head.weight`` w (1, d_z), ``head.bias`` b (1,) and ``log_sigma_y`` = log s.
    y : Tensor of shape (n,)
    noise : Tensor of shape (n, d_z)
        Standard normal.
    floor : float
        Lower bound of s.

    Returns
    -------
    Tensor of shape (n, d_z)
    """
    w = p["head.weight"][0]
    b = p["head.bias"][0]
    var = p["log_sigma_y"].exp().clamp_min(floor).square()
    size = w.norm().clamp_min(1e-12)
    unit = w / size
    total = var + size.square()
    along = noise @ unit
    shift = size * (y - b) / total + ((var / total).sqrt() - 1.0) * along
    return noise + shift[:, None] * unit
