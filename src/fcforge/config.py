"""TOML in, Experiment out; every mistake says what is known and the nearest name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from fcforge.components import look_up
from fcforge.errors import ConfigError, unknown_name
from fcforge.runner.experiment import Experiment
from fcforge.types import Component, Leaks, LearnerSpec, Training


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class ExperimentTable(_Table):
    """``[experiment]``."""

    title: str = "fcforge experiment"
    seeds: list[int] = Field(default=[0], min_length=1)
    orders: Literal["all"] | int | list[list[str]] = "all"
    protocol: Literal["strict", "paper"] = "strict"
    test_fraction: float = Field(default=0.3, gt=0, lt=1)
    val_fraction: float = Field(default=0.2, ge=0, lt=1)
    harmonise: Literal["none", "site_demean", "combat"] = "none"

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds


class LeaksTable(_Table):
    """``[leaks]``: off unless their effect is to be measured."""

    select_on_test: bool = False
    context_on_test: bool = False
    generator_sees_test: bool = False


class TrainingTable(_Table):
    """``[training]``."""

    epochs: int = Field(default=100, ge=1)
    batch_size: int = Field(default=32, ge=2)
    lr: float | None = Field(default=None, gt=0)
    weight_decay: float = Field(default=2e-4, ge=0)
    clip: float = Field(default=1.0, gt=0)
    selection: Literal["fixed", "inner_val"] = "fixed"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"


class LearnerTable(_Table):
    """``[[learner]]``: one row of the results table."""

    method: str | dict[str, Any]
    model: str | dict[str, Any] = "gcn"
    generator: str | dict[str, Any] | None = None
    title: str = ""
    training: dict[str, Any] = Field(default_factory=dict)

    @field_validator("training")
    @classmethod
    def _known_settings(cls, training: dict[str, Any]) -> dict[str, Any]:
        checked = TrainingTable.model_validate(training).model_dump()
        return {key: checked[key] for key in training}


class ConfigFile(_Table):
    """A whole config file."""

    experiment: ExperimentTable = Field(default_factory=ExperimentTable)
    dataset: dict[str, Any]
    training: TrainingTable = Field(default_factory=TrainingTable)
    leaks: LeaksTable = Field(default_factory=LeaksTable)
    learner: list[LearnerTable] = Field(min_length=1)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file; a syntax error names the file and line."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError("no such file.", where=str(path), do="`fcforge init` writes one.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a TOML file: {error}.", where=str(path)) from error


def override(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply ``--set a.b=c``: values are read as TOML, bare words as text.

    ``learner.0.method=ewc`` reaches into a list by number; a new key is made where its table
    exists.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {setting}: not of the form a.b=c.")
        try:
            value = tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            value = text
        node: Any = data
        *tables, last = path.strip().split(".")
        for name in tables:
            node = _enter(node, name, path)
        if isinstance(node, list):
            node[_number(last, node, path)] = value
        else:
            _require_table(node, last, path)[last] = value
    return data


def _require_table(node: Any, name: str, path: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise ConfigError(f"--set {path}: there is no '{name}' inside the value {node!r}.")
    return node


def _enter(node: Any, name: str, path: str) -> Any:
    if isinstance(node, list):
        return node[_number(name, node, path)]
    node = _require_table(node, name, path)
    if isinstance(node.get(name), str) and name in ("method", "model", "generator"):
        node[name] = {"name": node[name]}  # method = "ewc", --set learner.0.method.strength=10
    return node.setdefault(name, {})


def _number(name: str, node: list[Any], path: str) -> int:
    if not name.isdigit() or int(name) >= len(node):
        raise ConfigError(f"--set {path}: '{name}' is not a number below {len(node)}.")
    return int(name)


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Experiment of a config file with ``--set`` overrides; relative data paths start there."""
    data = override(read_toml(path), settings)
    return parse_experiment(data, where=str(path), folder=Path(path).resolve().parent)


def parse_experiment(data: dict[str, Any], where: str, folder: Path) -> Experiment:
    """Check a parsed config against the tables and the registries."""
    if "judge" in data:
        raise ConfigError(
            "this config judges generators.", where=where, do=f"Run `fcforge judge {where}`."
        )
    try:
        config = ConfigFile.model_validate(data)
    except ValidationError as error:
        raise _explain(error, where) from error
    experiment = config.experiment
    orders = experiment.orders
    if config.training.selection == "inner_val" and experiment.val_fraction == 0:
        raise ConfigError(
            "selection = 'inner_val' chooses on a validation part, but val_fraction = 0.",
            where=where,
            do="Set val_fraction = 0.2, or selection = 'fixed'.",
        )
    paper = experiment.protocol == "paper"
    built = Experiment(
        dataset=resolve_dataset(config.dataset, where, folder),
        learners=tuple(
            _learner(t, f"{where}: learner {i}", paper) for i, t in enumerate(config.learner)
        ),
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
    titles = [learner.title for learner in built.learners]
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(
                f"two learners are called '{title}'.", where=where, do="Give each a title."
            )
    return built


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
    """The component, if its name is in a table and its settings have the types they should.

    `known` maps names to what is called with the settings: a dataclass or a function. Unknown
    settings are left to whoever builds the component.
    """
    hints = get_type_hints(look_up(kind, component.name, known, where=where))
    for key, value in component.params.items():
        try:  # as JSON: a list may stand for a tuple, but a word not for a number
            TypeAdapter(hints.get(key, Any)).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            raise ConfigError(
                f"{kind} '{component.name}': {key} = {value!r} cannot be used "
                f"({'; '.join(dict.fromkeys(e['msg'] for e in error.errors()))}).",
                where=where,
            ) from error
    return component


def _as_in_paper(component: Component, cls: type[Any]) -> Component:
    """Protocol "paper": what has presets takes the paper's, unless the config says otherwise."""
    if "preset" not in {f.name for f in fields(cls)} or "preset" in component.params:
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


def resolve_data(path: str, folder: Path) -> str:
    """Place of a data file: absolute, beside the config, or under ``$FCFORGE_DATA``.

    ``$FCFORGE_DATA/x`` falls back to ``../shared/data/x`` beside the repository.
    """
    import os

    if path.startswith("$FCFORGE_DATA"):
        rest = path.removeprefix("$FCFORGE_DATA").lstrip("/")
        root = os.environ.get("FCFORGE_DATA")
        if root:
            return str(Path(root, rest).resolve())
        for parent in (folder, *folder.parents):
            if (parent / "shared" / "data" / rest).exists():
                return str(parent / "shared" / "data" / rest)
        return str(folder / rest)
    return str((folder / Path(path).expanduser()).resolve())


def _learner(table: LearnerTable, where: str, paper: bool) -> LearnerSpec:
    from fcforge.generators import GENERATORS
    from fcforge.methods import METHODS
    from fcforge.models import MODELS

    def part(kind: str, value: str | dict[str, Any], known: Mapping[str, Any]) -> Component:
        component = _checked(_component(value, kind, where), kind, known, where)
        return _as_in_paper(component, known[component.name]) if paper else component

    method = part("method", table.method, METHODS)
    if table.generator and not METHODS[method.name].needs_generator:
        raise ConfigError(
            f"method '{method.name}' uses no generator.",
            where=where,
            do="Leave the generator out, or set method = 'forge'.",
        )
    return LearnerSpec(
        method=method,
        model=part("model", table.model, MODELS),
        generator=part("generator", table.generator, GENERATORS) if table.generator else None,
        title=table.title,
        training=table.training,
    )


_TABLES = {"dataset": "the table [dataset]", "learner": "a table [[learner]]"}


def _explain(error: ValidationError, where: str) -> ConfigError:
    """First mistakes of a config in plain words, with the nearest known key."""
    lines = []
    for problem in error.errors()[:5]:
        place = ".".join(str(p) for p in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _known_keys(problem["loc"])
            lines.append(str(unknown_name(f"key at {place}:", str(problem["loc"][-1]), known)))
        elif problem["type"] == "missing":
            lines.append(f"{_TABLES.get(place, place)} is missing.")
        else:
            msg = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{place}: {msg} (got {problem['input']!r}).")
    return ConfigError(" ".join(lines), where=where)


def _known_keys(place: tuple[int | str, ...]) -> list[str]:
    table: Any = ConfigFile
    for step in place[:-1]:
        if isinstance(step, str):
            table = {
                "experiment": ExperimentTable,
                "training": TrainingTable,
                "leaks": LeaksTable,
                "learner": LearnerTable,
            }.get(step, table)
    return list(table.model_fields)
