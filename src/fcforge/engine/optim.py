"""Adam as a pure function, with gradient-norm clipping.

Parameters and gradients are laid end to end, by name, for the arithmetic: a network of two dozen
small tensors then costs a dozen operations a step instead of hundreds, which on a GPU is the
difference between computing and launching.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.models.base import Params


class Adam(NamedTuple):
    """First and second moments (P,) of all parameters, steps taken, factor of the rate."""

    m: Tensor
    v: Tensor
    t: Tensor
    factor: Tensor


def flatten(params: Params) -> Tensor:
    """All tensors end to end (P,), sorted by name: a lane read from a store has another order."""
    return torch.cat([params[k].reshape(-1) for k in sorted(params)])


def unflatten(flat: Tensor, like: Params) -> Params:
    """Inverse of `flatten`; names in the order of `like`."""
    names = sorted(like)
    parts = torch.split(flat, [like[k].numel() for k in names])
    shaped = {k: part.reshape(like[k].shape) for k, part in zip(names, parts, strict=True)}
    return {k: shaped[k] for k in like}


def adam_start(params: Params) -> Adam:
    """Moments at zero."""
    zeros = torch.zeros_like(flatten(params))
    one = torch.ones((), device=zeros.device)
    return Adam(zeros, zeros.clone(), torch.zeros_like(one), one)


def adam_restart(opt: Adam, factor: float) -> Adam:
    """Moments and steps at zero, from now on at `factor` times the rate."""
    m, v, t = (torch.zeros_like(part) for part in opt[:3])
    return Adam(m, v, t, torch.full_like(opt.factor, factor))


def clip_by_norm(flat: Tensor, limit: float) -> Tensor:
    r"""Scale all gradients (P,) by :math:`\min(1, c / (\|g\|_2 + 10^{-6}))`, as torch does."""
    norm = torch.sqrt(flat.square().sum())
    return flat * (limit / (norm + 1e-6)).clamp(max=1.0)


def adam_step(
    params: Params,
    grads: Params,
    opt: Adam,
    *,
    lr: float,
    weight_decay: float,
    clip: float = math.inf,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Params, Adam]:
    """One step of Adam with L2 weight decay (``torch.optim.Adam``, tested against it).

    The gradients are clipped to the norm `clip` first.
    """
    t = opt.t + 1
    # bias corrections folded into two scalars: one fused pass per tensor
    # (expm1: in float32, 1 - 0.999 is off by 5e-5)
    rate = opt.factor * (lr / -torch.expm1(t * math.log(beta1)))
    root = torch.rsqrt(-torch.expm1(t * math.log(beta2)))
    flat = flatten(grads)
    flat = flat if math.isinf(clip) else clip_by_norm(flat, clip)
    p = flatten(params)
    g = torch.add(flat, p, alpha=weight_decay)
    m = torch.lerp(opt.m, g, 1 - beta1)
    v = torch.addcmul(opt.v * beta2, g, g, value=1 - beta2)
    new = p - rate * m / (v.sqrt() * root + eps)
    return unflatten(new, params), Adam(m, v, t, opt.factor)
