"""The head of a linear model, in units of the edges."""

from typing import Any

import numpy as np

from fcforge.graphs import EDGE_SCALE, centre_edges, from_edges
from fcforge.methods.base import Method
from fcforge.models.edge import Linear
from fcforge.runner.learners import build_learner


def head_of(capsule: Any, *, in_z: bool) -> tuple[np.ndarray, float]:
    """Weight of every edge (R, R), zero on the diagonal, and bias of the patients' log odds.

    Parameters
    ----------
    capsule : Capsule
    in_z : bool
        Per Fisher z; else per what the model sees, z / 0.2.

    Raises
    ------
    AttributeError
        Where the log odds are not linear in Fisher-z edges.
    """
    settings = getattr(capsule, "settings", None)  # a consortium has none
    learner = build_learner(settings.learner, settings.n_rois, False) if settings else None
    seen = getattr(learner.model, "features", "") if learner else ""
    linear = learner is not None and type(learner.model) is Linear and seen in ("z", "centred")
    if learner is None or not linear or type(learner.method).logits is not Method.logits:
        raise AttributeError(
            "only a linear model of Fisher-z edges has coef_ and intercept_; this one does not "
            "score edges linearly."
        )
    params = capsule.lane.params
    weight = (params["head.0.weight"][1] - params["head.0.weight"][0]).double()[None]
    weight = centre_edges(weight) if seen == "centred" else weight
    bias = params["head.0.bias"][1] - params["head.0.bias"][0]
    scale = capsule.temperature * (EDGE_SCALE if in_z else 1.0)
    return from_edges(weight / scale, 0.0)[0].numpy(), float(bias) / capsule.temperature
