"""The arrays that a method's state may have in a chain: names, shapes, types and bounds.

`fcforge` describes the state of a method by its type alone. A chain's file comes from another hospital,
so that shapes and bounds are *declared* here and compared before anything is computed with the file. The
table `BY_METHOD` at the end has the methods whose state changes its shapes from site to site; every other
method must keep the shapes that it starts with.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcforge.methods.analytic import Analytic
from fcforge.methods.base import Lane, Method, Model
from fcforge.methods.packnet import PackNet
from fcforge.methods.shared.anchor import Anchored
from fcforge.methods.shared.synthetic_memory import SyntheticMemory
from fcforge.methods.shared.union import OnUnion
from fcforge.replay.memory import empty_memory
from fcforge.replay.state import named


class Declared(NamedTuple):
    """Declaration of one array: the shape, type and bounds that it must have.

    Attributes
    ----------
    shape : tuple of int or None
        None stands for any length.
    dtype : torch.dtype
    low, high : float
        Bounds of its numbers; NaN and infinity are never allowed.
    triangular : bool
        Whether the array must be zero below the diagonal, as a matrix square root of second moments is.
        Rows of real subjects, which must not travel in its place, are not.
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32
    low: float = -math.inf
    high: float = math.inf
    triangular: bool = False

    def complaint(self, value: Tensor) -> str:
        """Return the first violation as the predicate of an error message, or ""."""
        if value.dtype != self.dtype:
            return f"is of type {value.dtype}, not {self.dtype}"
        same = value.dim() == len(self.shape) and all(
            wanted in (None, n)
            for wanted, n in zip(self.shape, value.shape, strict=True)
        )
        if not same:
            lengths = ("any" if n is None else str(n) for n in self.shape)
            shape = " x ".join(lengths) or "one number"
            return f"has shape {tuple(value.shape)}, not {shape}"
        if not bool(torch.isfinite(value).all()):
            return "holds NaN or infinity"
        if (
            value.numel()
            and not self.low <= float(value.min()) <= float(value.max()) <= self.high
        ):
            return f"has numbers outside {self.low:g} to {self.high:g}"
        if self.triangular and bool(torch.tril(value, -1).any()):
            return "is not triangular, as the root of a matrix of moments is"
        return ""


Declarations = dict[str, Declared]


def alike(tensors: Mapping[str, Tensor]) -> Declarations:
    """Declare arrays of the same shapes and types as some tensors."""
    return {name: Declared(tuple(v.shape), v.dtype) for name, v in tensors.items()}


@dataclass(frozen=True)
class Situation:
    """Inputs of a declaration: method, model, state before the first site, number of sites.

    Attributes
    ----------
    method : Method
    model : Model
    lane : Lane
        The lane before the first site, on torch's "meta" device, which holds shapes and no numbers.
    sites : int
        Number of sites learned.
    """

    method: Any
    model: Model
    lane: Lane
    sites: int

    @property
    def fresh(self) -> Declarations:
        """Declare the arrays that the state has before the first site."""
        return alike(named(self.lane.state))


def declared_state(
    method: Method, model: Model, lane: Lane, sites: int
) -> Declarations:
    """Declare every array of a method's state after some sites, by its stored name.

    Parameters
    ----------
    method : Method
    model : Model
    lane : Lane
        A lane with a network of the model; only shapes are read.
    sites : int
        Number of sites learned.
    """
    meta = {
        name: value.to("meta")
        for name, value in lane._replace(state=()).named().items()
    }
    start = method.start(model, Lane.from_named(meta))
    situation = Situation(method, model, start, sites)
    for cls, declare in BY_METHOD.items():
        if isinstance(method, cls):
            return _bounded(declare(situation), situation)
    return _bounded(situation.fresh, situation)


def _bounded(declarations: Declarations, situation: Situation) -> Declarations:
    """Add the bounds of labels and of site numbers to the arrays of memories.

    Parameters
    ----------
    declarations : dict of str to Declared
        Arrays of the state by stored name; those of memories are changed in place.
    situation : Situation
    """
    n_outputs = situation.model.n_outputs
    label = (-1, 1) if n_outputs == 1 else (0, n_outputs - 1)
    bounds = {
        "memory.y": label,
        "held_out.y": label,
        "memory.site": (-1, situation.sites - 1),
    }
    for name in bounds.keys() & declarations:
        low, high = bounds[name]
        declarations[name] = declarations[name]._replace(low=low, high=high)
    return declarations


def _anchored(situation: Situation) -> Declarations:
    """Declare importance and anchor of every parameter."""
    params = situation.lane.params
    return alike(
        {
            f"{part}/{k}": v
            for part in ("importance", "anchor")
            for k, v in params.items()
        }
    )


def _on_union(situation: Situation) -> Declarations:
    """Declare the untrained network, and the subjects of all sites."""
    return situation.fresh | {"rows": Declared((None,), torch.int64, low=0)}


def _packnet(situation: Situation) -> Declarations:
    """Declare the owners of the weights, and one place per site."""
    declarations = situation.fresh
    for name in [name for name in declarations if name.startswith("owner/")]:
        owner = declarations[name]
        declarations[name] = owner._replace(low=0, high=situation.sites)
    return declarations | {"sites": Declared((situation.sites,), torch.int64)}


def _analytic(situation: Situation) -> Declarations:
    """Declare the root of the moments: at most as many rows as columns."""
    width = situation.lane.state.root.shape[1]
    return {"root": Declared((None, width), torch.float64, triangular=True)}


def _synthetic_memory(situation: Situation) -> Declarations:
    """Declare the arrays of a memory of synthetic subjects.

    They are the candidates of every site (synthetic subjects, of which some are replayed), held-out
    subjects that measure forgetting, the choice of candidates that are replayed now, and the state of the
    bandit of every site ("hcts."), which learns how many of them to replay.
    """
    method: SyntheticMemory = situation.method
    model = situation.model
    sites = situation.sites
    n = sites * method.candidates_per_site(sites)
    held_out = 0
    if method.sampling == "hcts":
        held_out = sites * method.proxies_per_site(sites)
    memory = empty_memory(n, model.readout_size, "meta", model.n_outputs)
    declarations = {f"memory.{k}": v for k, v in alike(memory._asdict()).items()}
    declarations |= {
        "held_out.rows": Declared((held_out,), torch.int64),
        "held_out.y": Declared((held_out,), torch.int64),
        "choice.active": Declared((None,), torch.int64, low=0, high=n - 1),
        "choice.quota": Declared((sites,), torch.int64, low=0, high=method.memory),
    }
    if method.hcts.draws_by_share:
        declarations["choice.share"] = Declared((sites,), low=0)
    for name, one in situation.fresh.items():
        if name.startswith("hcts."):
            declarations[name] = one._replace(shape=(sites, *one.shape[1:]))
    return declarations


BY_METHOD: Mapping[type[Method], Callable[[Situation], Declarations]] = {
    Anchored: _anchored,
    OnUnion: _on_union,
    PackNet: _packnet,
    Analytic: _analytic,
    SyntheticMemory: _synthetic_memory,
}
