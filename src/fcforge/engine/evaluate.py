"""The evaluator: the only code that reads a test split, and it only reads it."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fcforge.engine.lift import Learner
from fcforge.methods.base import Lane
from fcforge.models.base import Inputs
from fcforge.types import Site


class Evaluator:
    """Scores lanes on the test splits of one seed's sites, learned or not.

    Parameters
    ----------
    sites : mapping of name to Site
    learner : Learner
    device : torch.device or str
    """

    def __init__(
        self, sites: Mapping[str, Site], learner: Learner, device: torch.device | str = "cpu"
    ) -> None:
        self._learner = learner
        self._tests: dict[str, tuple[Inputs, Tensor]] = {
            name: (learner.model.prepare(site.test.fc.to(device)), site.test.y.to(device))
            for name, site in sites.items()
        }

    def scores(self, lane: Lane) -> dict[str, np.ndarray]:
        """P(patient) (n_test,) of every test subject of every site."""
        method, model = self._learner.method, self._learner.model
        with torch.no_grad():
            return {
                name: torch.softmax(method.site_logits(model, lane, inputs, name), -1)[:, 1]
                .float()
                .cpu()
                .numpy()
                for name, (inputs, _) in self._tests.items()
            }

    def peek(self, site: str) -> tuple[Inputs, Tensor]:
        """Test split of one site, for the `select_on_test` leak alone."""
        return self._tests[site]
