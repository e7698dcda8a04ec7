"""What a command can be asked, as a dataclass: every option once, with its help and bounds.

The command line is made from the fields (`fcforge.cli`), and Python fills the same dataclass.
Nothing heavy is imported here, nor may it be where requests are defined.
"""

from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fcforge.errors import ConfigError, unknown_name


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """Field of a request.

    Parameters
    ----------
    default
        Without one the option must be given.
    help : str
        What ``--help`` says.
    **more
        ``min`` and ``max``, both allowed; ``metavar`` makes a positional argument; ``flag`` is
        the option's name where it is not the field's.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class Request:
    """Dataclass of options that refuses values outside the bounds or choices of a field."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), localns={"Path": Path})
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            known = get_args(hints[one.name]) if get_origin(hints[one.name]) is Literal else ()
            if known and value not in known:
                raise unknown_name(one.name, str(value), known)
            if value is not None:
                _check_bounds(one.name, value, one.metadata.get("min"), one.metadata.get("max"))


def _check_bounds(name: str, value: Any, low: float | None, high: float | None) -> None:
    if (low is None or value >= low) and (high is None or value <= high):
        return
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    raise ConfigError(f"{name} = {value} is not {' and '.join(bounds)}.")
