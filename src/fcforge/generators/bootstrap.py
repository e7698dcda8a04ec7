"""Bootstrap: training subjects drawn again, the reference that leaks everything."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.base import RNG, FCBatch, Generator


class BootstrapState(NamedTuple):
    """The site's training subjects: FC (n, R, R) and diagnoses (n,)."""

    fc: Tensor
    y: Tensor


@dataclass(frozen=True)
class Bootstrap(Generator):
    """Generator that draws training subjects of the requested class with replacement.

    The upper end of every fidelity scale and of every privacy risk: its state *is* the site.
    """

    name = "bootstrap"
    state_type = BootstrapState
    learns = ("two classes", "more classes")
    releases = "real subjects"
    min_subjects = 1

    def learn(self, batch: FCBatch, rng: RNG) -> BootstrapState:
        """Keep the subjects."""
        return BootstrapState(batch.fc.clone(), batch.y.clone())

    def draw(self, model: BootstrapState, y: Tensor, rng: RNG) -> Tensor:
        """Draw a random training subject of each requested class."""
        index = torch.zeros_like(y)
        for label in y.unique():
            pool = (model.y == label).nonzero().flatten()
            places = y == label
            drawn = torch.randint(len(pool), (int(places.sum()),), generator=rng)
            index[places] = pool[drawn.to(y.device)]
        return model.fc[index]
