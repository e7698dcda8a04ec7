"""Adam as a pure function, with gradient-norm clipping."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.models.base import Params


class Adam(NamedTuple):
    """First and second moments and the number of steps taken."""

    m: Params
    v: Params
    t: Tensor


def adam_start(params: Params) -> Adam:
    """Moments at zero."""
    device = next(iter(params.values())).device
    zeros = {k: torch.zeros_like(p) for k, p in params.items()}
    return Adam(zeros, dict(zeros), torch.zeros((), device=device))


def clip_by_norm(grads: Params, limit: float) -> Params:
    r"""Scale all gradients by :math:`\min(1, c / (\|g\|_2 + 10^{-6}))`, as torch does."""
    # by name: a lane read from a store has its parameters in another order, and sums round
    norm = torch.sqrt(sum(grads[k].square().sum() for k in sorted(grads)))  # type: ignore[arg-type]
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * scale for k, g in grads.items()}


def adam_step(
    params: Params,
    grads: Params,
    opt: Adam,
    *,
    lr: float,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Params, Adam]:
    """One step of Adam with L2 weight decay (``torch.optim.Adam``, tested against it)."""
    t = opt.t + 1
    # bias corrections folded into two scalars: one fused pass per tensor
    # (expm1: in float32, 1 - 0.999 is off by 5e-5)
    rate = lr / -torch.expm1(t * math.log(beta1))
    root = torch.rsqrt(-torch.expm1(t * math.log(beta2)))
    new, m, v = {}, {}, {}
    for k, p in params.items():
        g = torch.add(grads[k], p, alpha=weight_decay)
        m[k] = torch.lerp(opt.m[k], g, 1 - beta1)
        v[k] = torch.addcmul(opt.v[k] * beta2, g, g, value=1 - beta2)
        new[k] = p - rate * m[k] / (v[k].sqrt() * root + eps)
    return new, Adam(m, v, t)
