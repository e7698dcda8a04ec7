"""Scores of trained lanes. No other code of `training` reads a test split."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fcforge.core.subjects import Site
from fcforge.methods.base import Lane, Learner, prediction
from fcforge.nn.tensors import Inputs


class Evaluator:
    """Test splits of all sites of one seed, prepared for one learner.

    Parameters
    ----------
    sites : mapping of name to Site
        All sites, learned yet or not.
    learner : Learner
    device : torch.device or str
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        learner: Learner,
        device: torch.device | str = "cpu",
    ) -> None:
        self._learner = learner
        self._tests: dict[str, tuple[Inputs, Tensor]] = {}
        for name, site in sites.items():
            inputs = learner.model.prepare(site.test.fc.to(device))
            self._tests[name] = inputs, site.test.y.to(device)

    def scores(self, lane: Lane) -> dict[str, np.ndarray]:
        """Return the predictions for every test subject, by site (`methods.base.prediction`)."""
        method = self._learner.method
        model = self._learner.model
        scores = {}
        with torch.no_grad():
            for name, (inputs, _) in self._tests.items():
                logits = method.logits(model, lane, inputs)
                scores[name] = prediction(logits).float().cpu().numpy()
        return scores

    def peek(self, site: str) -> tuple[Inputs, Tensor]:
        """Return inputs and labels of one site's test split, for the `select_on_test` leak only."""
        return self._tests[site]


def class_scores(learner: Learner, lane: Lane, fc: Tensor) -> np.ndarray:
    """Return the uncalibrated scores of scans by a lane.

    Parameters
    ----------
    learner : Learner
    lane : Lane
    fc : Tensor of shape (n, R, R)
        FC of n subjects, R ROIs.

    Returns
    -------
    ndarray of shape (n,) or (n, K)
        Log odds of patient; for K > 2 classes the log probability of each; where the target is a number,
        that number on the scale on which it was learned (`Target`).
    """
    with torch.no_grad():
        inputs = learner.model.prepare(fc)
        logits = learner.method.logits(learner.model, lane, inputs).double()
    if logits.shape[1] == 1:
        return logits[:, 0].numpy()
    if logits.shape[1] > 2:
        return logits.log_softmax(1).numpy()
    return (logits[:, 1] - logits[:, 0]).numpy()
