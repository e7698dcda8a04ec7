"""Layers drawn from an explicit generator (torch.nn uses a global one), and their training."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Params = dict[str, Tensor]
RNG = torch.Generator
N_CLASSES = 2


def normal(*shape: int, rng: RNG, to: torch.device | None = None) -> Tensor:
    """Standard normal numbers drawn on the device of `rng`, and moved `to` another where given."""
    return torch.randn(*shape, generator=rng, device=rng.device).to(to or rng.device)


def uniform(*shape: int, rng: RNG) -> Tensor:
    """Numbers between 0 and 1 on the device of `rng`."""
    return torch.rand(*shape, generator=rng, device=rng.device)


def device_rng(rng: RNG, device: torch.device) -> RNG:
    """Generator on `device` continuing `rng`: `rng` itself on its own device."""
    if rng.device.type == device.type:
        return rng
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device=device).manual_seed(seed)


def linear_init(
    params: Params, name: str, n_in: int, n_out: int, rng: RNG, gain: float = 1.0
) -> None:
    """Put ``name.weight`` (n_out, n_in), uniform with variance gain^2 / (3 n_in), and a zero bias.

    Drawn on the CPU so that every device starts from the same numbers.
    """
    bound = gain / n_in**0.5
    params[f"{name}.weight"] = (2 * torch.rand(n_out, n_in, generator=rng) - 1) * bound
    params[f"{name}.bias"] = torch.zeros(n_out)


def linear(params: Params, name: str, x: Tensor) -> Tensor:
    """Affine map of the last dimension; linear where ``name.bias`` is not there."""
    return torch.nn.functional.linear(
        x, params[f"{name}.weight"], params.get(f"{name}.bias")
    )


def norm_init(params: Params, name: str, size: int) -> None:
    """Put layer-norm gain and bias of ``name``."""
    params[f"{name}.weight"] = torch.ones(size)
    params[f"{name}.bias"] = torch.zeros(size)


def norm(params: Params, name: str, x: Tensor) -> Tensor:
    """Layer norm over the last dimension."""
    weight = params[f"{name}.weight"]
    return torch.nn.functional.layer_norm(
        x, weight.shape, weight, params[f"{name}.bias"]
    )


def moved(params: Params, device: torch.device | str) -> Params:
    """The same numbers on `device`."""
    return {k: v.to(device) for k, v in params.items()}


def trainable(params: Params, device: torch.device) -> Params:
    """Leaf copies on `device` that require gradients."""
    return {k: v.to(device).requires_grad_() for k, v in params.items()}


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One descent step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def adam(params: Params, **settings: Any) -> torch.optim.Adam:
    """Adam over a parameter dict."""
    return torch.optim.Adam(list(params.values()), **settings)


def frozen(params: Params, prefix: str = "") -> Params:
    """Detached copies with `prefix` before every name: ready for a generator state."""
    return {f"{prefix}{k}": v.detach().clone() for k, v in params.items()}


def with_prefix(state: Params, prefix: str) -> Params:
    """The part of a state whose names start with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def stacked(params: Sequence[Params]) -> Params:
    """Parameters of all lanes along a first dimension."""
    return {k: torch.stack([p[k] for p in params]) for k in params[0]}


def unstacked(params: Params, n: int) -> list[Params]:
    """Inverse of `stacked` for `n` lanes."""
    return [{k: v[i] for k, v in params.items()} for i in range(n)]
