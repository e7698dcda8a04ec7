"""Switches for the three ways in which the authors' code lets test data into training."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from fcforge.core.settings import Checked


@dataclass(frozen=True)
class Leaks(Checked):
    """The three ways the authors' code lets test data in; all off unless measured on purpose."""

    kind: ClassVar[str] = "leaks"
    select_on_test: bool = False
    context_on_test: bool = False
    generator_sees_test: bool = False

    def active(self) -> tuple[str, ...]:
        """Return the names of the switches that are on."""
        return tuple(k for k, v in asdict(self).items() if v)
