"""Joint training: one network, trained once on all sites together."""

from dataclasses import dataclass

from fcforge.methods.shared.union import OnUnion


@dataclass(frozen=True)
class Joint(OnUnion):
    """Training of one network on all sites of the dataset; every stage shows that network."""

    name = "joint"
    title = "Joint"
    depends_on = "all"
