"""TOML in, Experiment out; every mistake says what is known and the nearest name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from fcforge.components import look_up
from fcforge.errors import ConfigError, unknown_name
from fcforge.runner.config_files import ConfigFiles, merge, read_config, resolve_data
from fcforge.runner.experiment import Experiment
from fcforge.settings import checked, make
from fcforge.types import Component, Leaks, LearnerSpec, RunSpec, Training


class ConfigTable(BaseModel):
    """A table of a config: keys it does not know are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=False)


class ExperimentTable(ConfigTable):
    """``[experiment]``."""

    title: str = "fcforge experiment"
    seeds: list[int] = Field(default=[0], min_length=1)
    orders: Literal["all"] | int | list[list[str]] = "all"
    protocol: Literal["strict", "paper"] = "strict"
    test_fraction: float = Field(default=RunSpec.test_fraction, gt=0, lt=1)
    val_fraction: float = Field(default=RunSpec.val_fraction, ge=0, lt=1)
    harmonise: Literal["none", "site_demean", "combat"] = "none"

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds


class LeaksTable(ConfigTable):
    """``[leaks]``: off unless their effect is to be measured."""

    select_on_test: bool = False
    context_on_test: bool = False
    generator_sees_test: bool = False


class TrainingTable(ConfigTable):
    """``[training]``."""

    epochs: int = Field(default=100, ge=1)
    batch_size: int = Field(default=32, ge=2)
    lr: float | None = Field(default=None, gt=0)
    weight_decay: float = Field(default=2e-4, ge=0)
    clip: float = Field(default=1.0, gt=0)
    selection: Literal["fixed", "inner_val"] = "fixed"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"


class LearnerTable(ConfigTable):
    """``[[learner]]``: one row of the results table."""

    method: str | dict[str, Any]
    model: str | dict[str, Any] | None = None
    generator: str | dict[str, Any] | None = None
    title: str = ""
    training: dict[str, Any] = Field(default_factory=dict)

    @field_validator("training")
    @classmethod
    def _known_settings(cls, training: dict[str, Any]) -> dict[str, Any]:
        checked = TrainingTable.model_validate(training).model_dump()
        return {key: checked[key] for key in training}


class LearnerDefaults(ConfigTable):
    """``[learner_defaults]``: what a row takes that does not say it."""

    model: str | dict[str, Any] = "gcn"
    generator: str | dict[str, Any] | None = None  # of methods that need one


class ConfigFile(ConfigTable):
    """A whole config file.

    ``learners`` picks rows by title (of a base's list); ``[method.forge]``, ``[model.gcn]`` and
    ``[generator.fcm_vae]`` set what every row's component of that name is given, unless the row
    says otherwise.
    """

    experiment: ExperimentTable = Field(default_factory=ExperimentTable)
    dataset: dict[str, Any]
    training: TrainingTable = Field(default_factory=TrainingTable)
    leaks: LeaksTable = Field(default_factory=LeaksTable)
    learner: list[LearnerTable] = Field(min_length=1)
    learners: list[str] = Field(default_factory=list)
    learner_defaults: LearnerDefaults = Field(default_factory=LearnerDefaults)
    method: dict[str, dict[str, Any]] = Field(default_factory=dict)
    model: dict[str, dict[str, Any]] = Field(default_factory=dict)
    generator: dict[str, dict[str, Any]] = Field(default_factory=dict)


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Experiment of a config file with ``--set`` overrides; relative data paths start there."""
    return parse_experiment(read_config(path, settings), Path(path).resolve().parent)


def parse_experiment(files: ConfigFiles, folder: Path) -> Experiment:
    """Check a config against the tables and the registries.

    Parameters
    ----------
    files : ConfigFiles
    folder : Path
        Where a data path given by ``--set`` starts.
    """
    if "judge" in files.data:
        where = files.where()
        raise ConfigError(
            "this config judges generators.", where=where, do=f"Run `fcforge judge {where}`."
        )
    config = read_tables(ConfigFile, files)
    experiment = config.experiment
    orders = experiment.orders
    if config.training.selection == "inner_val" and experiment.val_fraction == 0:
        raise ConfigError(
            "selection = 'inner_val' chooses on a validation part, but val_fraction = 0.",
            where=files.where(("training", "selection")),
            do="Set val_fraction = 0.2, or selection = 'fixed'.",
        )
    return Experiment(
        dataset=resolve_dataset(config.dataset, files.where(("dataset",)), folder),
        learners=_learners(config, files),
        title=experiment.title,
        seeds=tuple(experiment.seeds),
        orders=tuple(map(tuple, orders)) if isinstance(orders, list) else orders,
        training=Training(**config.training.model_dump()),
        protocol=experiment.protocol,
        leaks=Leaks(**config.leaks.model_dump()),
        test_fraction=experiment.test_fraction,
        val_fraction=experiment.val_fraction,
        harmonise=experiment.harmonise,
    )


def _component(value: str | dict[str, Any], kind: str, where: str) -> Component:
    if isinstance(value, str):
        return Component(value)
    params = dict(value)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"a {kind} table needs a name.", where=where)
    try:
        return Component(name, json.loads(json.dumps(params)))
    except TypeError as error:  # TOML knows dates, settings do not
        raise ConfigError(f"{kind} '{name}': {error}.", where=where) from error


def _checked(component: Component, kind: str, known: Mapping[str, Any], where: str) -> Component:
    """The component, if its name is in a table and its settings can be used.

    `known` maps names to what is called with the settings: a dataclass or a function.
    """
    target = look_up(kind, component.name, known, where=where)
    place = f"{where}: {kind} '{component.name}'"
    (make if isinstance(target, type) else checked)(target, component.params, place)
    return component


def _as_in_paper(component: Component, cls: type[Any]) -> Component:
    """Protocol "paper": what has presets takes the paper's, unless the config says otherwise."""
    has_presets = getattr(cls, "presets", ()) or "preset" in {f.name for f in fields(cls)}
    if not has_presets or "preset" in component.params:
        return component
    return replace(component, params={**component.params, "preset": "paper"})


def resolve_dataset(table: dict[str, Any], where: str, folder: Path) -> Component:
    """Dataset a config names, with its path made absolute."""
    from fcforge.sites import DATASETS

    component = _component(table, "dataset", f"{where}: [dataset]")
    loaders = {name: entry.loader for name, entry in DATASETS.items()}
    params = dict(_checked(component, "dataset", loaders, f"{where}: [dataset]").params)
    if "path" in params:
        params["path"] = resolve_data(str(params["path"]), folder)
    return Component(component.name, params)


def _registries() -> dict[str, Mapping[str, type[Any]]]:
    from fcforge.generators import GENERATORS
    from fcforge.methods import METHODS
    from fcforge.models import MODELS

    return {"method": METHODS, "model": MODELS, "generator": GENERATORS}


def _learners(config: ConfigFile, files: ConfigFiles) -> tuple[LearnerSpec, ...]:
    """The rows of the results table: all of ``[[learner]]``, or those that ``learners`` names."""
    _check_named_settings(config, files)
    where = files.where(("learner",))
    rows = [_learner(t, config, f"{where}: learner {i}") for i, t in enumerate(config.learner)]
    titles = [row.title for row in rows]
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(
                f"two learners are called '{title}'.", where=where, do="Give each a title."
            )
    for title in config.learners:
        look_up("learner", title, dict.fromkeys(titles), where=files.where(("learners",)))
    return tuple(row for row in rows if not config.learners or row.title in config.learners)


def _check_named_settings(config: ConfigFile, files: ConfigFiles) -> None:
    """Names and settings of ``[method.forge]`` and the like, used by a row or not."""
    for kind, known in _registries().items():
        for name, params in getattr(config, kind).items():
            where = f"{files.where((kind, name))}: [{kind}.{name}]"
            _checked(Component(name, params), kind, known, where)


def _learner(table: LearnerTable, config: ConfigFile, where: str) -> LearnerSpec:
    known = _registries()

    def part(kind: str, value: str | dict[str, Any]) -> Component:
        component = _component(value, kind, where)
        params = merge(getattr(config, kind).get(component.name, {}), component.params)
        component = _checked(replace(component, params=params), kind, known[kind], where)
        paper = config.experiment.protocol == "paper"
        return _as_in_paper(component, known[kind][component.name]) if paper else component

    method = part("method", table.method)
    needs_generator = known["method"][method.name].needs_generator
    if table.generator and not needs_generator:
        raise ConfigError(
            f"method '{method.name}' uses no generator.",
            where=where,
            do="Leave the generator out, or set method = 'forge'.",
        )
    given = config.learner_defaults
    generator = (table.generator or given.generator) if needs_generator else None
    return LearnerSpec(
        method=method,
        model=part("model", table.model or given.model),
        generator=part("generator", generator) if generator else None,
        title=table.title,
        training=table.training,
    )


_TABLES = {
    "dataset": "the table [dataset]",
    "learner": "a table [[learner]]",
    "generator": "a table [[generator]]",
}
T = TypeVar("T", bound=ConfigTable)


def read_tables(model: type[T], files: ConfigFiles) -> T:
    """A config checked against its tables; `ConfigError` says the first mistakes."""
    try:
        return model.model_validate(files.data)
    except ValidationError as error:
        raise _explain(error, files, model) from error


def _explain(error: ValidationError, files: ConfigFiles, model: type[ConfigTable]) -> ConfigError:
    """First mistakes of a config in plain words, with the nearest known key and the file."""
    lines: dict[str, list[str]] = {}
    for problem in error.errors()[:5]:
        place = ".".join(str(p) for p in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _known_keys(problem["loc"], model)
            line = str(unknown_name(f"key at {place}:", str(problem["loc"][-1]), known))
        elif problem["type"] == "missing":
            line = f"{_TABLES.get(place, place)} is missing."
        else:
            msg = problem["msg"].removeprefix("Value error, ")
            line = f"{place}: {msg} (got {problem['input']!r})."
        lines.setdefault(files.where(problem["loc"]), []).append(line)
    (where, first), *more = lines.items()
    rest = [f"{file}: {' '.join(said)}" for file, said in more]
    return ConfigError(" ".join([*first, *rest]), where=where)


def _known_keys(place: tuple[int | str, ...], table: type[ConfigTable]) -> list[str]:
    for step in place[:-1]:
        if isinstance(step, str):
            hint = table.model_fields[step].annotation
            inside = [h for h in (hint, *get_args(hint)) if isinstance(h, type)]
            table = next((h for h in inside if issubclass(h, ConfigTable)), table)
    return list(table.model_fields)
