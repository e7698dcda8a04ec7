"""The methods, one short file each. To add one, write its file: `METHODS` finds the class.

`build_learner` joins a method to its model and holds them against each other.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import Tensor

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.registry import Registry, registered
from fcforge.core.settings import build
from fcforge.core.spec import LearnerSpec
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.generators import GENERATORS, make_generator
from fcforge.methods.base import Batch, Lane, Learner, Method, Replay
from fcforge.models import MODELS
from fcforge.models.attribution import Scorer

METHODS: Registry[type[Method]] = registered(__name__, Method)

__all__ = ["METHODS", "Batch", "Lane", "Learner", "Method", "Replay"]
__all__ += ["build_learner", "make_method", "require_kind", "scorer_of"]


def make_method(component: Component) -> Method:
    """Method by name with its hyper-parameters; a wrong name or setting says what is known."""
    return build("method", component, METHODS)


def build_learner(
    spec: LearnerSpec, n_rois: int, has_start: bool = True, target: Target = TWO_CLASSES
) -> Learner:
    """Method and model of a learner, checked against each other, a start and the target."""
    method = make_method(spec.method)
    where = f"learner '{spec.title}'"
    _require_parts(spec, method, has_start, where)
    usual = {"features": method.features} if method.features else {}
    named = replace(spec.model, params={**usual, **spec.model.params})
    size = {"n_rois": n_rois, "n_outputs": target.outputs}
    model = build("model", named, MODELS, **size)
    parts: list[Any] = [method, model]
    if spec.generator is not None:
        parts.append(GENERATORS[spec.generator.name])
    for part in parts:
        require_kind(target, part.learns, f"{part.kind} '{part.name}'", where)
    method.check_model(model)
    return Learner(method, model)


def _require_parts(
    spec: LearnerSpec, method: Method, has_start: bool, where: str
) -> None:
    """Raise `ConfigError` where the method has another model, no generator or no start."""
    if method.models and spec.model.name not in method.models:
        works = f"method '{method.name}' works on model {' or '.join(method.models)}"
        do = f"Set model = '{method.models[0]}'."
        raise ConfigError(f"{works}, not '{spec.model.name}'.", where=where, do=do)
    drawn = False
    if spec.generator is not None:
        make_generator(spec.generator)  # a wrong name or setting shows before training
        drawn = GENERATORS[spec.generator.name].needs_public
    elif method.needs_generator:
        what = (
            f"method '{method.name}' replays synthetic subjects and needs a generator."
        )
        do = "Add generator = 'corr_gauss' (or see `fcforge list generators`)."
        raise ConfigError(what, where=where, do=do)
    if not (has_start and spec.start) and (method.needs_public or drawn):
        what = f"it draws on a public start, and {'this row' if has_start else 'the run'} has none."
        do = "Add a [start] table that names the public sites."
        raise ConfigError(what, where=where, do=do)


def require_kind(
    target: Target, able: Collection[str], what: str, where: str = ""
) -> None:
    """Raise `ConfigError` where something cannot learn a target of this kind."""
    if target.kind not in able:
        given = f"{target.name}, {target.kind}"
        raise ConfigError(
            f"{what} learns {' or '.join(able)}; the target is {given}.",
            where=where,
            do="Leave it out, or change target or classes of [dataset]; a method that learns "
            "every kind is 'analytic'.",
        )


def scorer_of(learner: Learner, lane: Lane, temperature: float = 1.0) -> Scorer:
    """Log odds of a lane in float64 on the CPU, to be explained; of a number the number."""
    tensors = {name: value.cpu() for name, value in lane.named().items()}
    for name, value in tensors.items():
        tensors[name] = value.double() if value.is_floating_point() else value
    exact = Lane.from_named(tensors, learner.method.State)

    def score(fc: Tensor) -> Tensor:
        u = learner.method.logits(learner.model, exact, learner.model.prepare(fc))
        if u.shape[1] == 1:
            return u[:, 0]
        return (u[:, 1] - u[:, 0]) / temperature

    plain = type(learner.method).logits is Method.logits
    return Scorer.of(learner.model, score, plain=plain)
