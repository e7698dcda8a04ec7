"""Cumulative training: after each site a fresh network is trained on all sites so far."""

from dataclasses import dataclass

from fcforge.methods.shared.union import OnUnion


@dataclass(frozen=True)
class Cumulative(OnUnion):
    """Training of a fresh network on all sites so far, after each site."""

    name = "cumulative"
    title = "Cumulative"
