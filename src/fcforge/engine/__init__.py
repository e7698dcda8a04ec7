"""The engine: trains lanes at a site, evaluates them on every site."""

from fcforge.engine.lift import Evaluator, Job, shapes
from fcforge.engine.loop import lanes_that_fit, learn_site, pretrain, start_lane

__all__ = ["Evaluator", "Job", "lanes_that_fit"]
__all__ += ["learn_site", "pretrain", "shapes", "start_lane"]
