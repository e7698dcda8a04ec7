"""A registered model, method, generator or dataset by name, with its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Component:
    """A model, method, generator or dataset by name, with its settings.

    Attributes
    ----------
    name : str
        Registered name, or ``"module:object"``.
    params : mapping
        Settings that are given. All others have their defaults.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Return the hash of the name: a mapping has none, and equal components share a name."""
        return hash(self.name)
