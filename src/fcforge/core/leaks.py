"""Switches for the three ways in which the authors' code lets test data into training."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from fcforge.core.settings import Checked


@dataclass(frozen=True)
class Leaks(Checked):
    """The three ways in which the authors' code lets test data in; off unless measured on purpose.

    Attributes
    ----------
    select_on_test : bool
        Keep the epoch with the highest accuracy on the site's test subjects.
    context_on_test : bool
        Measure the forgetting that steers the sampler (HCTS) on past sites' test subjects.
    generator_sees_test : bool
        Fit the generator on a random 80 % of the whole site, test subjects included.
    """

    kind: ClassVar[str] = "leaks"
    select_on_test: bool = False
    context_on_test: bool = False
    generator_sees_test: bool = False

    def active(self) -> tuple[str, ...]:
        """Return the names of the switches that are on."""
        return tuple(name for name, is_on in asdict(self).items() if is_on)
