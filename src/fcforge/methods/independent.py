"""Independent: a fresh network for every site, nothing shared. Read its diagonal only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fcforge.methods.base import Method


@dataclass(frozen=True)
class Independent(Method):
    """Each site alone: what a hospital reaches without the consortium."""

    name: ClassVar[str] = "independent"
    title: ClassVar[str] = "Independent"
    source: ClassVar[str] = "reference: single-site training"
    depends_on: ClassVar[Literal["order", "set", "site", "all"]] = "site"
