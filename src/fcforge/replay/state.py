"""Typed states of methods: their stored names, and the bank rows they hold.

A state is what a method remembers between steps and sites, for one lane (one learner, one order of
sites, one seed). It is a NamedTuple whose fields are tensors, dictionaries of tensors (`Params`) or
states again: a pytree that ``torch.func.vmap`` stacks over lanes. The names under which its tensors
are stored follow from its fields. The name of a field follows a dot, the key of a dictionary a
slash::

    class Anchor(NamedTuple):
        importance: Params                      # importance/conv0.weight
        memory: Memory                          # memory.rows, memory.y, ...
        teacher: Network | Absent = ABSENT      # teacher.params/conv0.weight, or nothing

Two annotations mark fields. `Rows` marks rows of the bank: they mean nothing outside their process
and are replaced by addresses wherever a state is stored. `RECOMPUTABLE` marks what anybody can
compute again, which is not counted as memory.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from torch import Tensor

from fcforge.nn.tensors import Params

S = TypeVar("S")
ROWS = "rows of the bank, -1 where a slot is empty"
RECOMPUTABLE = "not counted as memory"

Rows = Annotated[Tensor, ROWS]
Absent = tuple[()]
ABSENT: Absent = ()


class Network(NamedTuple):
    """Parameters and batch-norm statistics of a network."""

    params: Params
    stats: Params


class Leaf(NamedTuple):
    """One tensor of a state.

    Attributes
    ----------
    name : str
        Name under which the tensor is stored, such as ``memory.rows``.
    value : Tensor
    marks : tuple of str
        `ROWS` or `RECOMPUTABLE`, of its field or of one that it lies in.
    """

    name: str
    value: Tensor
    marks: tuple[str, ...]


@cache
def field_types(cls: Any) -> dict[str, Any]:
    """Return the types of a state's fields by name, in order, with their annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in getattr(cls, "_fields", ())}


def _type_and_marks(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """Split an annotated type into the type and its marks (`ROWS`, `RECOMPUTABLE`)."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return kind, tuple(marks)
    return hint, ()


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union of types; for another type that type alone."""
    # ``Union[A, B]`` and ``A | B`` are two kinds of objects
    is_union = get_origin(kind) is Union or type(kind).__name__ == "UnionType"
    return get_args(kind) if is_union else (kind,)


def leaves(state: Any, name: str = "", marks: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every tensor of a state with its stored name and marks.

    Parameters
    ----------
    state : NamedTuple, dict, Tensor or ()
    name : str
        Stored name of `state` within the whole state; empty for the whole.
    marks : tuple of str
        Marks of the field in which `state` lies.
    """
    if isinstance(state, Tensor):
        yield Leaf(name, state, marks)
    elif isinstance(state, dict):
        for key, value in state.items():
            yield Leaf(f"{name}/{key}", value, marks)
    else:
        for field, hint in field_types(type(state)).items():  # type: ignore[arg-type]
            _, own_marks = _type_and_marks(hint)
            inner = f"{name}.{field}" if name else field
            yield from leaves(getattr(state, field), inner, marks + own_marks)


def named(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a state by their stored names."""
    return {leaf.name: leaf.value for leaf in leaves(state)}


def from_named(cls: type[S], tensors: Mapping[str, Tensor]) -> S:
    """Return the state with these tensors; the inverse of `named`.

    Parameters
    ----------
    cls : type
        The NamedTuple of the state, or `tuple` for no state.
    tensors : mapping of str to Tensor
        All tensors of the state by their stored names.

    Returns
    -------
    state
        Dictionaries in it are sorted by name, whatever the order of `tensors`. Optional fields
        without a tensor are absent.

    Raises
    ------
    KeyError
        If a tensor is missing.
    """
    return _read(cls, "", tensors)


def _read(hint: Any, name: str, tensors: Mapping[str, Tensor]) -> Any:
    """Return the part of a state that is called `name` and has the type `hint`.

    Parameters
    ----------
    hint : type
        ``Tensor``, a dictionary of tensors, a NamedTuple of such types, or a union of one of these with
        `Absent`; it may be annotated with marks.
    name : str
        Stored name of the part; empty for the whole state.
    tensors : mapping of str to Tensor
        All tensors of the whole state by their stored names.
    """
    kinds = _alternatives(_type_and_marks(hint)[0])
    kind = next((k for k in kinds if k not in (Absent, tuple)), tuple)
    if kind is tuple:  # a state that can only be empty
        return ABSENT
    optional = Absent in kinds
    inside = [
        key for key in tensors if not name or key.startswith((f"{name}.", f"{name}/"))
    ]
    if optional and not inside and name not in tensors:
        return ABSENT
    if kind is Tensor:
        return tensors[name]
    if get_origin(kind) is dict:
        return {key[len(name) + 1 :]: tensors[key] for key in sorted(inside)}
    values = {
        field: _read(inner, f"{name}.{field}" if name else field, tensors)
        for field, inner in field_types(kind).items()
    }
    return kind(**values)


def rows_of(state: Any) -> dict[str, Tensor]:
    """Return the tensors that hold bank rows, by their stored names."""
    return {leaf.name: leaf.value for leaf in leaves(state) if ROWS in leaf.marks}


def replace_rows(state: S, change: Callable[[Tensor], Tensor]) -> S:
    """Return the state with `change` applied to every tensor of bank rows."""
    tensors = {}
    for leaf in leaves(state):
        tensors[leaf.name] = change(leaf.value) if ROWS in leaf.marks else leaf.value
    return from_named(type(state), tensors)


def counted(state: Any) -> list[Tensor]:
    """Return the tensors that count as memory beyond the remembered subjects: those without a mark."""
    return [leaf.value for leaf in leaves(state) if not leaf.marks]
