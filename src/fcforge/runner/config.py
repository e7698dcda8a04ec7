"""TOML in, Experiment out; every mistake says what is known and the nearest name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fcforge.components import check_names, look_up
from fcforge.errors import ConfigError, unknown_name
from fcforge.runner.config_files import ConfigFiles, merge, read_config, resolve_data
from fcforge.runner.experiment import Experiment
from fcforge.runner.pipelines import read_pipeline
from fcforge.settings import Size, checked, make
from fcforge.types import Component, Folds, Leaks, LearnerSpec, PublicSpec, Training

T = TypeVar("T")
Named = str | Mapping[str, Any]  # "gcn", or { name = "gcn", hidden = 32 }


@dataclass(frozen=True)
class LearnerTable:
    """``[[learner]]``: one row of the results table."""

    method: Named
    model: Named | None = None
    generator: Named | None = None
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    start: bool = True


@dataclass(frozen=True)
class StartTable:
    """``[start]``: the public people; other sites of the run's dataset, or another dataset."""

    sites: Literal["others"] | tuple[str, ...] = "others"
    dataset: Mapping[str, Any] | None = None
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConfoundsTable:
    """``[confounds]``: covariates whose effect is taken out of every scan."""

    remove: tuple[str, ...] = ()


@dataclass(frozen=True)
class SplitTable:
    """``[split]``: repeated k-fold, so that everybody is tested; it says what the seeds are."""

    folds: Folds = 0
    repeats: Size = 1


@dataclass(frozen=True)
class EvaluationTable:
    """``[evaluation]``: whether every site's own threshold is shown beside the common one."""

    own_threshold: bool = False


@dataclass(frozen=True)
class LearnerDefaults:
    """``[learner_defaults]``: what a row takes that does not say it."""

    model: Named = "gcn"
    generator: Named | None = None  # of methods that need one


@dataclass(frozen=True)
class ConfigFile:
    """A whole config file.

    ``learners`` picks rows by title (of a base's list); ``[method.forge]``, ``[model.gcn]`` and
    ``[generator.fcm_vae]`` set what every row's component of that name is given, unless the row
    says otherwise.
    """

    dataset: dict[str, Any]
    learner: list[dict[str, Any]]
    experiment: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    leaks: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] | None = None
    confounds: dict[str, Any] = field(default_factory=dict)
    split: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    learners: list[str] = field(default_factory=list)
    learner_defaults: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    generator: dict[str, Any] = field(default_factory=dict)


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
        do = f"Run `fcforge judge {files.where()}`."
        raise ConfigError("this config judges generators.", where=files.where(), do=do)
    config = read_tables(ConfigFile, files)
    dataset = resolve_dataset(config.dataset, files.where(("dataset",)), folder)
    said = check_table(
        Experiment, config.experiment, files, "experiment", hidden=_NOT_SAID
    )
    split = read_table(SplitTable, config, files, "split")
    if split.folds:
        said["folds"] = split.folds
        said["seeds"] = tuple(range(split.folds * split.repeats))
    made = Experiment(
        dataset=dataset,
        learners=_learners(config, files, paper=said.get("protocol") == "paper"),
        training=read_table(Training, config, files, "training"),
        leaks=read_table(Leaks, config, files, "leaks"),
        start=_start(config, dataset, files, folder),
        confounds=read_table(ConfoundsTable, config, files, "confounds").remove,
        **vars(read_table(EvaluationTable, config, files, "evaluation")),
        **said,
    )
    _require_consistent(made, files)
    return made


def _require_consistent(made: Experiment, files: ConfigFiles) -> None:
    """Refuse what two tables say together."""
    if made.training.selection == "inner_val" and made.val_fraction == 0:
        what = "selection = 'inner_val' chooses on a validation part, but val_fraction = 0."
        do = "Set val_fraction = 0.2, or selection = 'fixed'."
        raise ConfigError(what, where=files.where(("training", "selection")), do=do)
    if made.own_threshold and made.leaks.active():
        what = "own_threshold = true, but a leak lets methods see whom it is fitted on."
        where = files.where(("evaluation",))
        raise ConfigError(what, where=where, do="Remove [leaks].")


def _start(
    config: ConfigFile, dataset: Component, files: ConfigFiles, folder: Path
) -> PublicSpec | None:
    """Dataset of the public people."""
    if config.start is None:
        return None
    table = read_table(StartTable, config, files, "start")
    chosen = ("sites", "leave_out")
    found = dataset
    params = {k: v for k, v in dataset.params.items() if k not in chosen}
    params["sites"] = "others"
    if table.dataset is not None:
        where = files.where(("start", "dataset"))
        found = resolve_dataset(dict(table.dataset), where, folder)
        params = dict(found.params)
    params |= {name: config.start[name] for name in chosen if name in config.start}
    return PublicSpec(Component(found.name, params))


# what has a table of its own
_NOT_SAID = (
    "dataset",
    "learners",
    "training",
    "leaks",
    "confounds",
    "start",
    "folds",
    "own_threshold",
)
_NEEDED = {
    "dataset": "the table [dataset]",
    "learner": "a table [[learner]]",
    "generator": "a table [[generator]]",
}


def read_tables(target: type[T], files: ConfigFiles) -> T:
    """The tables of a config; what is in them is not looked at yet.

    `target` is a dataclass with one field per table; those without a default are needed.
    """
    for f in fields(target):  # type: ignore[arg-type]
        if f.default is f.default_factory is MISSING and not files.data.get(f.name):
            raise ConfigError(f"{_NEEDED[f.name]} is missing.", where=files.where())
    return target(**check_table(target, files.data, files))


def check_table(
    target: Any,
    said: Mapping[str, Any],
    files: ConfigFiles,
    *place: str,
    hidden: Any = (),
) -> dict[str, Any]:
    """Keys and values of a table, each checked; a mistake names the file it stands in."""
    names = [f.name for f in fields(target) if f.name not in hidden]
    values: dict[str, Any] = {}
    for key, value in said.items():
        table = f": [{'.'.join(place)}]" if place else ""
        where = f"{files.where((*place, key))}{table}"
        if key not in names:
            raise unknown_name("key", key, names, where=where)
        values |= checked(target, {key: value}, where)
    return values


def read_table(target: type[T], config: object, files: ConfigFiles, name: str) -> T:
    """The dataclass that table `name` of a config fills."""
    return target(**check_table(target, getattr(config, name), files, name))


def read_component(value: Named, kind: str, where: str) -> Component:
    """A component by name, or a table of its name and settings."""
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


def _check(
    component: Component, kind: str, known: Mapping[str, Any], where: str
) -> None:
    """Refuse a name that is in no table, and settings that cannot be used.

    `known` maps names to what is called with the settings: a dataclass or a function.
    """
    target = look_up(kind, component.name, known, where=where)
    place = f"{where}: {kind} '{component.name}'"
    if isinstance(target, type):
        make(target, component.params, place)
    else:
        checked(target, component.params, place)


def _as_in_paper(component: Component, cls: type[Any]) -> Component:
    """Protocol "paper": what has presets takes the paper's, unless the config says otherwise."""
    settings = {f.name for f in fields(cls)}
    offered = "paper" in getattr(cls, "presets", ()) or "preset" in settings
    if not offered or "preset" in component.params:
        return component
    return replace(component, params={**component.params, "preset": "paper"})


def resolve_dataset(table: dict[str, Any], where: str, folder: Path) -> Component:
    """Dataset a config names, with its path made absolute."""
    from fcforge.sites import DATASETS

    component = read_component(table, "dataset", f"{where}: [dataset]")
    loaders = {name: entry.loader for name, entry in DATASETS.items()}
    _check(component, "dataset", loaders, f"{where}: [dataset]")
    params = dict(component.params)
    for name in ("path", "covariates"):
        if name in params:
            params[name] = resolve_data(str(params[name]), folder)
    return Component(component.name, params)


def _registries() -> dict[str, Mapping[str, type[Any]]]:
    from fcforge.generators import GENERATORS
    from fcforge.methods import METHODS
    from fcforge.models import MODELS

    return {"method": METHODS, "model": MODELS, "generator": GENERATORS}


def _learners(
    config: ConfigFile, files: ConfigFiles, *, paper: bool
) -> tuple[LearnerSpec, ...]:
    """The rows of the results table: all of ``[[learner]]``, or those that ``learners`` names."""
    _check_named_settings(config, files)
    defaults = read_table(LearnerDefaults, config, files, "learner_defaults")
    reader = _Reader(config, defaults, paper)
    where = files.where(("learner",))
    rows = []
    for i, table in enumerate(config.learner):
        place = f"{where}: learner {i}"
        if isinstance(table, Mapping) and "estimator" in table:
            rows.append(read_pipeline(table, place, Path(where).resolve().parent))
        else:
            rows.append(reader.learner(table, place))
    titles = [row.title for row in rows]
    for title in titles:
        if titles.count(title) > 1:
            what = f"two learners are called '{title}'."
            raise ConfigError(what, where=where, do="Give each a title.")
    wanted = config.learners or titles
    check_names("learner", wanted, titles, where=files.where(("learners",)))
    return tuple(row for row in rows if row.title in wanted)


def _check_named_settings(config: ConfigFile, files: ConfigFiles) -> None:
    """Names and settings of ``[method.forge]`` and the like, used by a row or not."""
    for kind, known in _registries().items():
        for name, params in getattr(config, kind).items():
            where = f"{files.where((kind, name))}: [{kind}.{name}]"
            if not isinstance(params, dict):
                raise ConfigError(
                    f"{name} = {params!r} is not a table of settings.", where=where
                )
            _check(Component(name, params), kind, known, where)


@dataclass(frozen=True)
class _Reader:
    """Reads rows; what the config says for all, and whether the paper's presets hold."""

    config: ConfigFile
    defaults: LearnerDefaults
    paper: bool

    def learner(self, table: Mapping[str, Any], where: str) -> LearnerSpec:
        """A row, its generator only where the method needs one."""
        row = _row(table, where)
        method = self.part("method", row.method, where)
        needed = _registries()["method"][method.name].needs_generator
        if row.generator and not needed:
            what = f"method '{method.name}' uses no generator."
            do = "Leave it out, or set method = 'forge'."
            raise ConfigError(what, where=where, do=do)
        generator = (row.generator or self.defaults.generator) if needed else None
        return LearnerSpec(
            method=method,
            model=self.part("model", row.model or self.defaults.model, where),
            generator=self.part("generator", generator, where) if generator else None,
            title=row.title,
            training=checked(Training, row.training, f"{where}: training"),
            start=row.start,
        )

    def part(self, kind: str, value: Named, where: str) -> Component:
        """A method, model or generator with what the config says of its name."""
        component = read_component(value, kind, where)
        shared = getattr(self.config, kind).get(component.name, {})
        component = replace(component, params=merge(shared, component.params))
        known = _registries()[kind]
        _check(component, kind, known, where)
        return (
            _as_in_paper(component, known[component.name]) if self.paper else component
        )


def _row(table: Mapping[str, Any], where: str) -> LearnerTable:
    said = checked(LearnerTable, table, where)
    if "method" not in said:
        raise ConfigError(
            "it names no method.",
            where=where,
            do='Add method = "..." or estimator = "module:function".',
        )
    return LearnerTable(**said)
