"""Independent training: each site alone."""

from dataclasses import dataclass

from fcforge.methods.base import EVERY_TARGET, Method


@dataclass(frozen=True)
class Independent(Method):
    """Training at each site alone, as without a consortium.

    Only the diagonal of its results means something: the score at the site just learned.
    """

    name = "independent"
    learns = EVERY_TARGET
    title = "Independent"
    source = "reference: single-site training"
    depends_on = "site"
