"""Bootstrap: real training subjects drawn again, the reference that discloses everything."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.base import RNG, FCBatch, Generator


class BootstrapState(NamedTuple):
    """The site's n training subjects: FC (n, R, R) of R ROIs and diagnoses (n,)."""

    fc: Tensor
    y: Tensor


@dataclass(frozen=True)
class Bootstrap(Generator):
    """Generator that draws training subjects of the requested class with replacement.

    Its state *is* the site's data. It marks the upper end of every scale of fidelity and of every
    scale of privacy risk.
    """

    name = "bootstrap"
    state_type = BootstrapState
    learns = ("two classes", "more classes")
    learns_columns = True
    releases = "real subjects"
    min_subjects = 1

    def learn(self, batch: FCBatch, rng: RNG) -> BootstrapState:
        """Store a copy of the subjects."""
        return BootstrapState(batch.fc.clone(), batch.y.clone())

    def draw(self, model: BootstrapState, y: Tensor, rng: RNG) -> Tensor:
        """Return FC (n, R, R) of random training subjects with the diagnoses y (n,)."""
        rows = torch.zeros_like(y)
        for label in y.unique():
            candidates = (model.y == label).nonzero().flatten()
            wanted = y == label
            drawn = torch.randint(len(candidates), (int(wanted.sum()),), generator=rng)
            rows[wanted] = candidates[drawn.to(y.device)]
        return model.fc[rows]
