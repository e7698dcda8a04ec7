"""TOML in, Experiment out; every mistake says what is known and the nearest name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from fcforge.errors import ConfigError, check_names, look_up
from fcforge.runner.config_files import ConfigFiles, merge, read_config, resolve_data
from fcforge.runner.own_threshold import OWN_FOLDS
from fcforge.runner.pipelines import read_pipeline
from fcforge.runner.plan import Orders, list_orders
from fcforge.settings import Bound, Size, checked, make
from fcforge.types import (
    Component,
    Conditions,
    Folds,
    Leaks,
    LearnerSpec,
    PublicSpec,
    RunSpec,
    Training,
)

Seeds = Annotated[
    tuple[int, ...],
    Bound(bool, "is empty", "Give at least one seed."),
    Bound(
        lambda v: len(set(v)) == len(v), "lists a seed twice", "Give each seed once."
    ),
]
CONDITIONS = tuple(f.name for f in fields(Conditions))


@dataclass(frozen=True)
class Experiment(Conditions):
    """What to run: learners x orders x seeds on one dataset, as plain data."""

    kind: ClassVar[str] = "experiment"
    dataset: Component
    learners: tuple[LearnerSpec, ...]
    title: str = "fcforge experiment"
    seeds: Seeds = (0,)
    orders: Orders = "all"

    def specs(self, sites: Sequence[str], data_sha256: str = "") -> list[RunSpec]:
        """One RunSpec per learner, order and seed."""
        shared = {name: getattr(self, name) for name in CONDITIONS}
        found = []
        orders = list_orders(self.orders, sites)
        folds = (None, *range(OWN_FOLDS)) if self.own_threshold else (None,)
        for learner in self.learners:
            shared["training"] = replace(self.training, **learner.training)
            shared["start"] = self.start if learner.start else None
            for fold, seed, order in product(folds, self.seeds, orders):
                of = (self.dataset, learner, order, seed, data_sha256, fold)
                found.append(RunSpec(*of, **shared))
        return found


# -- the tables of a config file -----------------------------------------------------------------
Named = str | Mapping[str, Any]  # "gcn", or { name = "gcn", hidden = 32 }
# ``learners`` picks rows by title (of a base's list); ``[method.forge]``, ``[model.gcn]`` and
# ``[generator.fcm_vae]`` set what every row's component of that name is given, unless the row
# says otherwise.
TABLES = {
    **dict.fromkeys(("dataset", "experiment", "training", "leaks", "start"), dict),
    **dict.fromkeys(("confounds", "split", "evaluation", "learner_defaults"), dict),
    **dict.fromkeys(("method", "model", "generator"), dict),
    **dict.fromkeys(("learner", "learners"), list),
}
# of ``[experiment]``: the rest has a table of its own
SAID = ("title", "seeds", "orders", "protocol", "test_fraction", "val_fraction")


@dataclass(frozen=True)
class LearnerTable:
    """``[[learner]]``: one row of the results table."""

    method: Named = ""
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
class LearnerDefaults:
    """``[learner_defaults]``: what a row takes that does not say it."""

    model: Named = "gcn"
    generator: Named | None = None  # of methods that need one


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
    files.require(TABLES, ("dataset", "learner"))
    dataset = resolve_dataset(files.data["dataset"], files.where("dataset"), folder)
    said = files.checked(Experiment, "experiment", SAID)
    said |= files.checked(Experiment, "evaluation", ("own_threshold",))
    split = files.table(SplitTable, "split")
    if split.folds:
        said["folds"] = split.folds
        said["seeds"] = tuple(range(split.folds * split.repeats))
    made = Experiment(
        dataset=dataset,
        learners=_learners(files, paper=said.get("protocol") == "paper"),
        training=files.table(Training, "training"),
        leaks=files.table(Leaks, "leaks"),
        start=_start(dataset, files, folder),
        confounds=files.table(ConfoundsTable, "confounds").remove,
        **said,
    )
    _require_consistent(made, files)
    return made


def _require_consistent(made: Experiment, files: ConfigFiles) -> None:
    """Refuse what two tables say together."""
    if made.training.selection == "inner_val" and made.val_fraction == 0:
        what = "selection = 'inner_val' chooses on a validation part, but val_fraction = 0."
        do = "Set val_fraction = 0.2, or selection = 'fixed'."
        raise ConfigError(what, where=files.where("training", "selection"), do=do)
    if made.own_threshold and made.leaks.active():
        what = "own_threshold = true, but a leak lets methods see whom it is fitted on."
        where = files.where("evaluation")
        raise ConfigError(what, where=where, do="Remove [leaks].")


def _start(dataset: Component, files: ConfigFiles, folder: Path) -> PublicSpec | None:
    """Dataset of the public people."""
    if "start" not in files.data:
        return None
    table = files.table(StartTable, "start")
    said = files.data["start"]
    params = {**dataset.params, "sites": "others"}
    params.pop("leave_out", None)
    if table.dataset is not None:
        where = files.where("start", "dataset")
        dataset = resolve_dataset(table.dataset, where, folder)
        params = dict(dataset.params)
    params |= {name: said[name] for name in ("sites", "leave_out") if name in said}
    return PublicSpec(Component(dataset.name, params))


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
    read = make if isinstance(target, type) else checked
    read(target, component.params, place)


def _as_in_paper(component: Component, cls: type[Any]) -> Component:
    """Protocol "paper": what has presets takes the paper's, unless the config says otherwise."""
    settings = {f.name for f in fields(cls)}
    if "paper" not in getattr(cls, "presets", ()) and "preset" not in settings:
        return component
    return replace(component, params={"preset": "paper", **component.params})


def resolve_dataset(table: Mapping[str, Any], where: str, folder: Path) -> Component:
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


# -- the rows of the results table ----------------------------------------------------------------
def _registries() -> dict[str, Mapping[str, type[Any]]]:
    from fcforge.generators import GENERATORS
    from fcforge.methods import METHODS
    from fcforge.models import MODELS

    return {"method": METHODS, "model": MODELS, "generator": GENERATORS}


def _learners(files: ConfigFiles, *, paper: bool) -> tuple[LearnerSpec, ...]:
    """The rows of the results table: all of ``[[learner]]``, or those that ``learners`` names."""
    _check_named_settings(files)
    where = files.where("learner")
    rows = []
    for i, table in enumerate(files.data["learner"]):
        place = f"{where}: learner {i}"
        if isinstance(table, Mapping) and "estimator" in table:
            folder = Path(where).resolve().parent
            rows.append(read_pipeline(table, place, folder))
        else:
            rows.append(_learner(table, place, files, paper))
    titles = [row.title for row in rows]
    require_different("learners", titles, where)
    wanted = files.data.get("learners") or titles
    check_names("learner", wanted, titles, where=files.where("learners"))
    return tuple(row for row in rows if row.title in wanted)


def require_different(kind: str, titles: Sequence[str], where: str) -> None:
    """Raise `ConfigError` where two rows have one title."""
    for title in titles:
        if titles.count(title) > 1:
            what = f"two {kind} are called '{title}'."
            raise ConfigError(what, where=where, do="Give each a title.")


def _check_named_settings(files: ConfigFiles) -> None:
    """Names and settings of ``[method.forge]`` and the like, used by a row or not."""
    for kind, known in _registries().items():
        for name, params in files.data.get(kind, {}).items():
            where = f"{files.where(kind, name)}: [{kind}.{name}]"
            if not isinstance(params, dict):
                what = f"{name} = {params!r} is not a table of settings."
                raise ConfigError(what, where=where)
            _check(Component(name, params), kind, known, where)


def _part(
    where: str, files: ConfigFiles, paper: bool, kind: str, value: Named
) -> Component:
    """A method, model or generator with what the config says of its name."""
    component = read_component(value, kind, where)
    shared = files.data.get(kind, {}).get(component.name, {})
    component = replace(component, params=merge(shared, component.params))
    known = _registries()[kind]
    _check(component, kind, known, where)
    return _as_in_paper(component, known[component.name]) if paper else component


def _learner(
    table: Mapping[str, Any], where: str, files: ConfigFiles, paper: bool
) -> LearnerSpec:
    """A row, its generator only where the method needs one."""
    row = LearnerTable(**checked(LearnerTable, table, where))
    if not row.method:
        do = 'Add method = "..." or estimator = "module:function".'
        raise ConfigError("it names no method.", where=where, do=do)
    defaults = files.table(LearnerDefaults, "learner_defaults")
    part = partial(_part, where, files, paper)
    method = part("method", row.method)
    needed = _registries()["method"][method.name].needs_generator
    if row.generator and not needed:
        what = f"method '{method.name}' uses no generator."
        do = "Leave it out, or set method = 'forge'."
        raise ConfigError(what, where=where, do=do)
    generator = (row.generator or defaults.generator) if needed else None
    return LearnerSpec(
        method=method,
        model=part("model", row.model or defaults.model),
        generator=part("generator", generator) if generator else None,
        title=row.title,
        training=checked(Training, row.training, f"{where}: training"),
        start=row.start,
    )
