"""The methods, one file each, and their pairing with models.

`METHODS` finds the class of every file in this package and of every entry point of the group
``fcforge.methods``. `build_learner` pairs a method with its model and checks that they fit.

A lane is one training run: one learner, order of sites and seed.
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
from fcforge.models import make_model
from fcforge.models.attribution import Scorer

METHODS: Registry[type[Method]] = registered(__name__, Method)

__all__ = ["METHODS", "Batch", "Lane", "Learner", "Method", "Replay"]
__all__ += ["build_learner", "make_method", "require_kind", "scorer_of"]


def make_method(component: Component) -> Method:
    """Build the method that a config names; an unknown name or setting raises `ConfigError`."""
    return build("method", component, METHODS)


def build_learner(
    spec: LearnerSpec,
    n_rois: int,
    has_base_model: bool = True,
    target: Target = TWO_CLASSES,
) -> Learner:
    """Build the method and the model of a learner, and check that all parts fit.

    Parameters
    ----------
    spec : LearnerSpec
        Method, model and generator with their settings, as a config states them.
    n_rois : int
        Number of ROIs of the FC matrices.
    has_base_model : bool
        Whether the run has public subjects with a base model. False makes parts that need them raise an
        error; True also where this was checked earlier, as for a stored run.
    target : Target
        What is predicted. The method, the model and the generator must all be able to learn it.

    Returns
    -------
    Learner

    Raises
    ------
    ConfigError
        If a name or a setting is unknown, or a part cannot work with the others.
    """
    method = make_method(spec.method)
    where = f"learner '{spec.title}'"
    _require_parts(spec, method, has_base_model, where)
    # a method may prefer certain features of an edge model; the config's own setting goes first
    default = {"features": method.features} if method.features else {}
    component = replace(spec.model, params={**default, **spec.model.params})
    model = make_model(component, n_rois, target.outputs)
    parts: list[Any] = [method, model]
    if spec.generator is not None:
        parts.append(GENERATORS[spec.generator.name])
    for part in parts:
        require_kind(target, part.learns, f"{part.kind} '{part.name}'", where)
    method.check_model(model)
    return Learner(method, model)


def _require_parts(
    spec: LearnerSpec, method: Method, has_base_model: bool, where: str
) -> None:
    """Raise `ConfigError` if the method's model, generator or public subjects are missing.

    Public subjects are missing if the run has none, or if this learner opts out of the run's base
    model (``base_model = false`` in its row of the config).

    Parameters
    ----------
    spec : LearnerSpec
    method : Method
        The method of `spec`, built.
    has_base_model : bool
        Whether the run has public subjects with a base model.
    where : str
        Name of the learner, for the error message.
    """
    if method.models and spec.model.name not in method.models:
        works = f"method '{method.name}' works on model {' or '.join(method.models)}"
        hint = f"Set model = '{method.models[0]}'."
        raise ConfigError(f"{works}, not '{spec.model.name}'.", where=where, do=hint)
    generator_needs_public = False
    if spec.generator is not None:
        make_generator(spec.generator)  # a wrong name or setting shows before training
        generator_needs_public = GENERATORS[spec.generator.name].needs_public
    elif method.needs_generator:
        raise ConfigError(
            f"method '{method.name}' replays synthetic subjects and needs a generator.",
            where=where,
            do="Add generator = 'fcm_vae', the paper's, or 'corr_gauss', which fits in a second.",
        )
    needs_public = method.needs_public or generator_needs_public
    if needs_public and not (has_base_model and spec.base_model):
        # a row is a learner of the config
        lacking = "this row" if has_base_model else "the run"
        raise ConfigError(
            f"it needs a base model, and {lacking} has none.",
            where=where,
            do="Add a [base_model] table that names the public sites.",
        )


def require_kind(
    target: Target, able: Collection[str], part: str, where: str = ""
) -> None:
    """Raise `ConfigError` if a method, model or generator cannot learn a target.

    Parameters
    ----------
    target : Target
        What is to be predicted.
    able : collection of str
        Kinds of target that the part can learn.
    part : str
        Kind and name of the part, such as "model 'gcn'", for the error message.
    where : str
        Name of the learner, for the error message.
    """
    if target.kind not in able:
        raise ConfigError(
            f"{part} learns {' or '.join(able)}; the target is {target.name}, {target.kind}.",
            where=where,
            do="Leave it out, or change target or classes of [dataset]; a method that learns "
            "every kind is 'analytic'.",
        )


def scorer_of(learner: Learner, lane: Lane, temperature: float = 1.0) -> Scorer:
    """Return a lane's score function for explanations, in float64 on the CPU.

    Parameters
    ----------
    learner : Learner
    lane : Lane
        Trained by the learner.
    temperature : float
        Divisor of the log odds by which a calibration makes them neither too sure nor too unsure.

    Returns
    -------
    Scorer
        Its score is the log odds of two classes, or the predicted number.
    """
    exact = lane.in_double_precision()

    def score(fc: Tensor) -> Tensor:
        """Return the scores (n,) of FC matrices (n, R, R)."""
        inputs = learner.model.prepare(fc)
        logits = learner.method.logits(learner.model, exact, inputs)
        if logits.shape[1] == 1:
            return logits[:, 0]
        return (logits[:, 1] - logits[:, 0]) / temperature

    # `plain` only if the method's scores are the model's own logits: PackNet, for one, chooses among
    # several networks, which is not linear
    plain = type(learner.method).logits is Method.logits
    return Scorer.of(learner.model, score, plain=plain)
