"""A registered model, method, generator or dataset by name, with its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Component:
    """A registered thing by name with its parameters: model, method, generator or dataset."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
