"""A learner from its spec: method, model and generator, checked against each other."""

from typing import TypeGuard

from torch import Tensor

from fcforge.engine import Learner
from fcforge.errors import ConfigError
from fcforge.generators import GENERATORS, make_generator
from fcforge.methods import Lane, Method, make_method
from fcforge.models import make_model
from fcforge.models.attribution import Scorer
from fcforge.types import Component, LearnerSpec


def build_learner(spec: LearnerSpec, n_rois: int, has_start: bool = True) -> Learner:
    """Method and model of a learner, checked against each other and against having a start."""
    method = make_method(spec.method)
    if method.models and spec.model.name not in method.models:
        raise ConfigError(
            f"method '{method.name}' works on model {' or '.join(method.models)}, "
            f"not '{spec.model.name}'.",
            where=f"learner '{spec.title}'",
            do=f"Set model = '{method.models[0]}'.",
        )
    if method.needs_generator and spec.generator is None:
        raise ConfigError(
            f"method '{method.name}' replays synthetic subjects and needs a generator.",
            where=f"learner '{spec.title}'",
            do="Add generator = 'corr_gauss' (or see `fcforge list generators`).",
        )
    wants = [method] + ([GENERATORS[spec.generator.name]] if _known(spec.generator) else [])
    if not (has_start and spec.start) and any(part.needs_start for part in wants):
        raise ConfigError(
            f"it draws on a public start, and {'this row' if has_start else 'the run'} has none.",
            where=f"learner '{spec.title}'",
            do="Add a [start] table that names the public sites.",
        )
    if spec.generator is not None:
        make_generator(spec.generator)  # a wrong name or setting shows before anything is trained
    model = make_model(spec.model, n_rois)
    method.check_model(model)
    return Learner(method, model)


def scorer_of(learner: Learner, lane: Lane, temperature: float = 1.0) -> Scorer:
    """Log odds of a lane in float64 on the CPU, to be explained."""
    parts = ({k: v.cpu() for k, v in part.items()} for part in lane)
    exact = Lane(
        *({k: v.double() if v.is_floating_point() else v for k, v in p.items()} for p in parts)
    )

    def score(fc: Tensor) -> Tensor:
        u = learner.method.logits(learner.model, exact, learner.model.prepare(fc))
        return (u[:, 1] - u[:, 0]) / temperature

    plain = type(learner.method).logits is Method.logits
    return Scorer.of(learner.model, score, plain=plain)


def _known(generator: Component | None) -> TypeGuard[Component]:
    return generator is not None and generator.name in GENERATORS
