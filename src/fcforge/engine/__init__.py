"""The engine: trains lanes at a site, evaluates them on every site."""

from fcforge.engine.evaluate import Evaluator
from fcforge.engine.lift import shapes
from fcforge.engine.loop import Job, Learner, learn_site, start_lane

__all__ = ["Evaluator", "Job", "Learner", "learn_site", "shapes", "start_lane"]
