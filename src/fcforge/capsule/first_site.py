"""Learn a site as ``fcforge learn`` asks: the first site of a chain chooses, later ones follow."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.capsule.contents import Capsule, ChainSettings, settings_for, template_of
from fcforge.capsule.keys import read_private
from fcforge.capsule.learning import LearnOptions, learn
from fcforge.capsule.opening import Trust
from fcforge.capsule.requests import LearnRequest
from fcforge.components import check_names, look_up
from fcforge.errors import ConfigError
from fcforge.methods import METHODS
from fcforge.runner.config import load_experiment
from fcforge.runner.experiment import Experiment
from fcforge.sites import Cohort, load_dataset
from fcforge.sites.cohort import NUMBERED
from fcforge.types import Component, FCBatch, LearnerSpec, Training

ALIKE = ("allow_real_subjects", "overwrite", "epsilon", "accept")  # called so in a request, too


def learn_site(request: LearnRequest, **told: Any) -> Capsule:
    """Learn one site and seal the next capsule.

    The first site (no `state`) fixes the settings: those of a config (one of its learners), or of
    a method, model and generator by name. Later sites follow the capsule, and saying something
    else is an error. `told` are the callables of `LearnOptions`: agree, progress, say.
    """
    odd = [name for name in request.release if name not in ("epsilon", "accept_labels")]
    if odd:
        raise ConfigError(
            f"--{odd[0].replace('_', '-')} is for releases around a public start.",
            do="Give such a capsule as --state (`fcforge start` makes it).",
        )
    data = {"path": str(request.data), "kind": request.kind, "positive": request.positive}
    cohort = load_dataset(Component("folder", {**data, "sites": [request.site]}))
    settings, template = _settings(request, cohort)
    if "say" in told:
        told["say"](
            f"learning site '{request.site}' ({len(cohort)} subjects, {cohort.n_rois} ROIs)"
        )
    options = LearnOptions(
        key=read_private(request.sign) if request.sign is not None else None,
        trust=Trust.of(request.trust, request.signature_required),
        template=request.template or template,
        public=_public(request),
        **{name: getattr(request, name) for name in ALIKE},
        **told,
    )
    return learn(
        request.state, request.site, cohort, request.out, settings=settings, options=options
    )


def _public(request: LearnRequest) -> FCBatch | None:
    """The public people that a first site is harmonised to, where they are named."""
    if request.harmonise_to is None:
        return None
    options = {"path": str(request.harmonise_to), "kind": request.kind}
    people = load_dataset(Component("folder", {**options, "positive": request.positive}))
    return FCBatch.from_numpy(people.fc, people.y)


def _settings(
    request: LearnRequest, cohort: Cohort
) -> tuple[ChainSettings | None, str | Path | None]:
    """What a first site chooses, and its template; a later one may not choose."""
    chosen = request.chosen
    if request.state is None:
        experiment = load_experiment(request.config) if request.config is not None else None
        template = template_of(_learner(experiment, chosen))
        return first_settings(cohort, experiment, chosen), template
    if chosen:
        raise ConfigError(
            f"--{next(iter(chosen)).replace('_', '-')} was given together with --state.",
            do="Only the first site of a chain chooses; later ones follow the capsule.",
        )
    return None, None


def first_settings(
    cohort: Cohort, experiment: Experiment | None, given: Mapping[str, Any]
) -> ChainSettings:
    """Settings of a new chain, from a config's learner or from names."""
    training = experiment.training if experiment is not None else Training()
    if "epochs" in given:
        training = replace(training, epochs=given["epochs"])
    rest: dict[str, Any] = {"training": training, "roi_names": cohort.roi_names}
    rest["classes"] = (0, 1) if cohort.classes == NUMBERED else cohort.classes
    if experiment is not None:
        if experiment.leaks.active():
            raise ConfigError("a capsule is never made with a leak on.", do="Remove [leaks].")
        rest |= {
            "seed": experiment.seeds[0],
            "protocol": experiment.protocol,
            "test_fraction": experiment.test_fraction,
            "val_fraction": experiment.val_fraction,
            "harmonise": experiment.harmonise,
        }
    own = ("seed", "held_out", "calibrate", "harmonise")
    rest |= {k: given[k] for k in own if k in given}
    if "calibrate" in rest:
        check_names("calibration", [rest["calibrate"]], ("inner_val", "synthetic", "none"))
    return settings_for(_learner(experiment, given), cohort.n_rois, **rest)


def _learner(experiment: Experiment | None, given: Mapping[str, Any]) -> LearnerSpec:
    return _by_name(given) if experiment is None else _of_config(experiment, given)


def _by_name(given: Mapping[str, Any]) -> LearnerSpec:
    """Learner of ``--method``, ``--model`` and ``--generator``."""
    if "learner" in given:
        raise ConfigError("--learner was given without --config.", do="Use --method.")
    if "method" not in given:
        raise ConfigError(
            "the first site needs a method.",
            do="Give --method (see `fcforge list methods`) or --config.",
        )
    method = look_up("method", given["method"], METHODS)
    model = given.get("model") or next(iter(method.models), "gcn")
    generator = Component(given["generator"]) if "generator" in given else None
    return LearnerSpec(Component(given["method"]), Component(model), generator)


def _of_config(experiment: Experiment, given: Mapping[str, Any]) -> LearnerSpec:
    """Learner of a config: its only one, or the one of that title."""
    for key in ("method", "model", "generator"):
        if key in given:
            raise ConfigError(f"--{key} was given together with --config.", do="Use --learner.")
    names = {spec.title: spec for spec in experiment.learners}
    if "learner" not in given and len(names) > 1:
        raise ConfigError(
            f"the config has {len(names)} learners.",
            do=f"Choose one with --learner: {', '.join(names)}.",
        )
    return look_up("learner", given.get("learner", next(iter(names))), names)
