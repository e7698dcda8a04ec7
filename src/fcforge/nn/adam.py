"""Adam as a pure function of parameters, gradients and its own state; it works under vmap.

For the arithmetic all parameters are concatenated, sorted by name, into one vector of length P. A
network of two dozen small tensors then costs a dozen operations a step instead of hundreds. On a GPU
each operation is a kernel launch, which costs more than the computation.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.nn import fused
from fcforge.nn.tensors import Params

# the defaults of torch.optim.Adam
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-8


def flatten(params: Params) -> Tensor:
    """Concatenate all tensors into one vector (P,), sorted by name."""
    return torch.cat([params[k].reshape(-1) for k in sorted(params)])


def unflatten(flat: Tensor, like: Params) -> Params:
    """Split a vector (P,) of `flatten` into tensors with the names and shapes of `like`."""
    names = sorted(like)
    parts = torch.split(flat, [like[k].numel() for k in names])
    shaped = {
        k: part.reshape(like[k].shape) for k, part in zip(names, parts, strict=True)
    }
    return {k: shaped[k] for k in like}


def clip_factor(gradient: Tensor, limit: float) -> Tensor:
    r"""Return the factor :math:`\min(1, c / (\|g\|_2 + 10^{-6}))` that clips gradients as torch does.

    Parameters
    ----------
    gradient : Tensor of shape (P,)
    limit : float
        Largest norm c after clipping.
    """
    norm = torch.sqrt(gradient.square().sum())
    return (limit / (norm + 1e-6)).clamp(max=1.0)


class Adam(NamedTuple):
    """State of Adam.

    Attributes
    ----------
    m, v : Tensor of shape (P,)
        Running means of the gradients and of their squares (first and second moments).
    t : Tensor, scalar
        Number of steps taken.
    factor : Tensor, scalar
        Factor of the learning rate; 1 unless a method restarts Adam at another rate.
    """

    m: Tensor
    v: Tensor
    t: Tensor
    factor: Tensor

    @classmethod
    def start(cls, params: Params) -> "Adam":
        """Return the state before the first step."""
        zeros = torch.zeros_like(flatten(params))
        one = torch.ones((), device=zeros.device)
        return cls(zeros, zeros.clone(), torch.zeros_like(one), one)

    def restart(self, factor: float) -> "Adam":
        """Return the state before a first step at `factor` times the learning rate."""
        m, v, t = (torch.zeros_like(part) for part in self[:3])
        return Adam(m, v, t, torch.full_like(self.factor, factor))

    def step(
        self,
        params: Params,
        grads: Params,
        *,
        lr: float,
        weight_decay: float = 0.0,
        clip: float = math.inf,
    ) -> tuple[Params, "Adam"]:
        """Take one step with L2 weight decay, as ``torch.optim.Adam`` does (tested against it).

        Parameters
        ----------
        params, grads : dict of Tensor
            Parameters and their gradients, by the same names.
        lr : float
            Learning rate.
        weight_decay : float
            Added to the gradients as ``weight_decay * params`` after clipping.
        clip : float
            Largest norm of the gradients; infinity leaves them as they are.

        Returns
        -------
        params : dict of Tensor
            New parameters.
        state : Adam
            New state.
        """
        t = self.t + 1
        # The bias corrections 1 - beta^t of both moments are folded into two scalars: the learning rate
        # divided by the first, and the factor of sqrt(v), one over the root of the second.
        # (expm1: in float32, 1 - 0.999 is off by 5e-5)
        rate = self.factor * (lr / -torch.expm1(t * math.log(BETA1)))
        root = torch.rsqrt(-torch.expm1(t * math.log(BETA2)))
        gradient = flatten(grads)
        p = flatten(params)
        no_clip = math.isinf(clip)
        if fused.fits(p):
            shrink = torch.ones_like(t) if no_clip else clip_factor(gradient, clip)
            new, m, v = fused.adam(
                (p, gradient, self.m, self.v),
                (shrink, rate, root),
                weight_decay,
                BETA1,
                BETA2,
                EPS,
            )
            return unflatten(new, params), Adam(m, v, t, self.factor)
        if not no_clip:
            gradient = gradient * clip_factor(gradient, clip)
        g = torch.add(gradient, p, alpha=weight_decay)
        m = torch.lerp(self.m, g, 1 - BETA1)
        v = torch.addcmul(self.v * BETA2, g, g, value=1 - BETA2)
        new = p - rate * m / (v.sqrt() * root + EPS)
        return unflatten(new, params), Adam(m, v, t, self.factor)


class FusedAdam:
    """Adam in place, all parameters in one pass of torch's kernel; for a CPU and plain autograd.

    Equal to ``torch.optim.Adam(fused=True)``, whose first step imports a compiler for a second.

    Parameters
    ----------
    params : dict of Tensor
        Leaves that require gradients.
    lr : float
        Learning rate.
    clip : float
        Largest norm of all gradients together; 0 leaves them as they are.
    """

    def __init__(self, params: Params, lr: float, clip: float = 0.0) -> None:
        self.params = list(params.values())
        self.lr = lr
        self.clip = clip
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.t = [torch.zeros(()) for _ in self.params]

    def step(self, loss: Tensor) -> None:
        """Take one step down a loss."""
        grads = torch.autograd.grad(loss, self.params, materialize_grads=True)
        if self.clip:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            factor = (self.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(grads, factor)
        with torch.no_grad():
            torch._foreach_add_(self.t, 1.0)
            torch._fused_adam_(
                self.params,
                list(grads),
                self.m,
                self.v,
                [],
                self.t,
                lr=self.lr,
                beta1=BETA1,
                beta2=BETA2,
                weight_decay=0.0,
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )
