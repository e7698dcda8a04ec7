"""The engine: trains lanes at a site, evaluates them on every site."""

from fcforge.engine.evaluate import Evaluator
from fcforge.engine.lift import shapes
from fcforge.engine.loop import Job, Learner, learn_site, pretrain, start_lane
from fcforge.engine.memory import lanes_that_fit

__all__ = [
    "Evaluator",
    "Job",
    "Learner",
    "lanes_that_fit",
    "learn_site",
    "pretrain",
    "shapes",
    "start_lane",
]
