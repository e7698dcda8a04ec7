"""A reference to a registered model, method, generator or dataset: its name and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Component:
    """A reference to a model, method, generator or dataset: its name and its settings.

    Attributes
    ----------
    name : str
        Registered name, or ``"module:object"``.
    params : mapping
        Settings that differ from the defaults, by name.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Return the hash of the name: a mapping has none, and equal components share a name."""
        return hash(self.name)
