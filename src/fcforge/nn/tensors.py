"""Collections of tensors: parameters, inputs, and typed states with names for their leaves."""

from collections.abc import Sequence
from typing import Any, get_type_hints

import torch
from torch import Tensor

Params = dict[str, Tensor]
Inputs = dict[str, Tensor]
# random key of dropout, an int32 scalar; None: nothing is dropped
Key = Tensor | None


def moved(params: Params, device: torch.device | str) -> Params:
    """Return the same tensors on `device`."""
    return {k: v.to(device) for k, v in params.items()}


def stacked(params: Sequence[Params]) -> Params:
    """Stack tensors of the same names along a new first dimension, as many lanes have them."""
    return {k: torch.stack([p[k] for p in params]) for k in params[0]}


def to_named(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of nested NamedTuples and dictionaries by the path of their fields.

    Files of fitted generators have these names. Files of methods' states have others, with a slash before
    the key of a dictionary: `fcforge.replay.state.named`.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     count: Tensor
    ...     weights: dict[str, Tensor]
    >>> list(to_named(Pair(torch.ones(1), {"a.bias": torch.ones(1)})))
    ['count', 'weights.a.bias']
    """
    if isinstance(tree, Tensor):
        return {prefix.removesuffix("."): tree}
    items = tree.items() if isinstance(tree, dict) else tree._asdict().items()
    named: dict[str, Tensor] = {}
    for name, value in items:
        named |= to_named(value, f"{prefix}{name}.")
    return named


def from_named(kind: Any, named: dict[str, Tensor], prefix: str = "") -> Any:
    """Return the nested state whose tensors `to_named` has named.

    Parameters
    ----------
    kind : type
        ``Tensor``, a dictionary of tensors, or a NamedTuple class whose annotations are such types.
    named : dict of Tensor
        Tensors by the path of their fields. Names that do not begin with `prefix` are ignored.
    prefix : str
        Beginning of the names that belong to this part.

    Returns
    -------
    kind
        An instance of `kind`.

    Raises
    ------
    KeyError
        If a tensor is missing.
    """
    if kind is Tensor:
        return named[prefix.removesuffix(".")]
    if not hasattr(kind, "_fields"):
        inside = {k: v for k, v in named.items() if k.startswith(prefix)}
        return {k.removeprefix(prefix): v for k, v in inside.items()}
    hints = get_type_hints(kind)
    parts = {k: from_named(hints[k], named, f"{prefix}{k}.") for k in kind._fields}
    return kind(**parts)
