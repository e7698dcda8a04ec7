"""Reading of an experiment from a TOML config; errors list the known names and the nearest one.

A row is one ``[[learner]]`` table of the config, which becomes one row of the results table. A component is a
method, model, generator or dataset by its name with settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.leaks import Leaks
from fcforge.core.names import check_names, look_up, with_visits
from fcforge.core.settings import (
    Bound,
    Checked,
    at_least,
    checked,
    field_types,
    limits,
    make,
)
from fcforge.core.spec import (
    FOLDS,
    BaseModelSpec,
    Conditions,
    LearnerSpec,
    RunSpec,
    Training,
)
from fcforge.experiments.config_code import allow_module, import_dataset, registries
from fcforge.experiments.config_files import merge, read_config, resolve_data
from fcforge.experiments.orders import Orders, list_orders
from fcforge.experiments.pipelines import read_pipeline
from fcforge.experiments.site_thresholds import OWN_FOLDS

SEEDS = (
    Bound(bool, "is empty", "Give at least one seed."),
    Bound(
        lambda v: len(set(v)) == len(v), "lists a seed twice", "Give each seed once."
    ),
)
CONDITIONS = tuple(f.name for f in fields(Conditions))
FILES = ("path", "covariates", "subjects")  # settings of datasets that name files


@limits(seeds=SEEDS)
@dataclass(frozen=True)
class Experiment(Conditions):
    """Learners, orders and seeds to run on one dataset, as plain data.

    Attributes
    ----------
    dataset : Component
    learners : tuple of LearnerSpec
        Rows of the results table.
    training_stated : tuple of str
        Names of the training settings that the config states; `fcforge tune` does not change them.
    title : str
    seeds : tuple of int
    orders : "all", int or tuple
        Site orders (`fcforge.experiments.orders`).
    reference : str
        Title of the learner from which the report lists every other's difference; "" for none. It
        changes no run.
    """

    kind: ClassVar[str] = "experiment"
    dataset: Component
    learners: tuple[LearnerSpec, ...]
    training_stated: tuple[str, ...] = ()
    title: str = "fcforge experiment"
    seeds: tuple[int, ...] = (0,)
    orders: Orders = "all"
    reference: str = ""

    def specs(self, sites: Sequence[str], data_sha256: str = "") -> list[RunSpec]:
        """Return one run per learner, order and seed.

        With ``own_threshold`` there are further runs, each without one fold of the training subjects
        (`fcforge.experiments.site_thresholds`).

        Parameters
        ----------
        sites : sequence of str
            All sites of the dataset.
        data_sha256 : str
            Digest of the data; "" if unknown.
        """
        shared = {name: getattr(self, name) for name in CONDITIONS}
        specs = []
        listed = list_orders(self.orders, sites)
        orders = [with_visits(order, self.visits) for order in listed]
        folds = (None, *range(OWN_FOLDS)) if self.own_threshold else (None,)
        for learner in self.learners:
            shared["training"] = replace(self.training, **learner.training)
            shared["base_model"] = self.base_model if learner.base_model else None
            for fold, seed, order in product(folds, self.seeds, orders):
                spec = RunSpec(
                    dataset=self.dataset,
                    learner=learner,
                    order=order,
                    seed=seed,
                    data_sha256=data_sha256,
                    left_out=fold,
                    **shared,
                )
                specs.append(spec)
        return specs


# -- the tables of a config file -----------------------------------------------------------------
Named = str | Mapping[str, Any]  # "gcn", or { name = "gcn", hidden = 32 }
# Settings of `Experiment` that stand in ``[experiment]``; the others have tables of their own.
OF_EXPERIMENT = (
    "title",
    "seeds",
    "orders",
    "protocol",
    "test_fraction",
    "val_fraction",
    "visits",
)


@dataclass(frozen=True)
class LearnerTable:
    """Table ``[[learner]]``: one row of the results table.

    Attributes
    ----------
    method, model, generator : str or mapping
        Name, or table of name and settings. The defaults of model and generator are in
        ``[learner_defaults]``.
    title : str
        Name of the row; by default made from its parts.
    training : mapping
        Training settings of this row alone.
    base_model : bool
        Whether the row uses the run's base model, if there is one.
    """

    method: Named = ""
    model: Named | None = None
    generator: Named | None = None
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    base_model: bool = True


@dataclass(frozen=True)
class BaseModelTable(Checked):
    """Table ``[base_model]``: public subjects, from other sites of the run's dataset or another dataset.

    Attributes
    ----------
    sites : "others", tuple of str or None
        Public sites; "others" are all that the run does not test.
    dataset : mapping or None
        Another dataset; by default that of the run.
    leave_out : tuple of str
        Ids of subjects to leave out.
    """

    sites: Literal["others"] | tuple[str, ...] | None = None
    dataset: Mapping[str, Any] | None = None
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConfoundsTable(Checked):
    """Table ``[confounds]``: covariates whose effect is removed from every scan."""

    remove: tuple[str, ...] = ()


@limits(folds=FOLDS, repeats=at_least(1))
@dataclass(frozen=True)
class SplitTable(Checked):
    """Table ``[split]``: repeated k-fold cross-validation, in which every subject is tested."""

    folds: int = 0
    repeats: int = 1


@dataclass(frozen=True)
class EvaluationTable(Checked):
    """Table ``[evaluation]``: what the report shows beside the usual.

    Attributes
    ----------
    own_threshold : bool
        Further rows of the results table, with each site's own threshold.
    reference : str
        Title of a learner, from which the report lists the paired difference of every other one.
    """

    own_threshold: bool = False
    reference: str = ""


@dataclass(frozen=True)
class LearnerDefaults(Checked):
    """Table ``[learner_defaults]``: model and generator of rows that name none."""

    model: Named = "gcn"
    generator: Named | None = None  # for methods that need one


@dataclass(frozen=True)
class ConfigTables(Checked):
    """All tables of a config file.

    Attributes
    ----------
    learners : tuple of str
        Titles of the rows to use; by default all. It selects rows of the base config's list.
    method, model, generator : mapping
        Settings by name: ``[method.forge]``, ``[model.gcn]`` and ``[generator.fcm_vae]`` apply to every row
        with such a component, unless the row itself states them.
    """

    dataset: Mapping[str, Any] = field(default_factory=dict)
    learner: tuple[Mapping[str, Any], ...] = ()
    learners: tuple[str, ...] = ()
    experiment: Mapping[str, Any] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    leaks: Leaks = field(default_factory=Leaks)
    base_model: BaseModelTable | None = None
    confounds: ConfoundsTable = ConfoundsTable()
    split: SplitTable = SplitTable()
    evaluation: EvaluationTable = EvaluationTable()
    learner_defaults: LearnerDefaults = LearnerDefaults()
    method: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    generator: Mapping[str, Any] = field(default_factory=dict)


def load_experiment(
    path: str | Path, settings: Sequence[str] = (), *, allow_code: bool = True
) -> Experiment:
    """Read the experiment of a config file.

    Parameters
    ----------
    path : path
        The file. Relative data paths start at its folder.
    settings : sequence of str
        Overrides, each like ``"training.epochs=5"``.
    allow_code : bool
        Whether modules beside the config may be imported (`fcforge.experiments.config_code`).

    Raises
    ------
    ConfigError
        If the file cannot be read, or a name or setting is wrong.
    """
    data = read_config(path, settings)
    return parse_experiment(data, Path(path), allow_code=allow_code)


def parse_experiment(
    data: Mapping[str, Any], path: Path, *, allow_code: bool = True
) -> Experiment:
    """Return the experiment of a config, checked against the tables and the registries.

    Parameters
    ----------
    data : mapping
        Tables of the file on top of its bases.
    path : Path
        Path of the file, for error messages; modules and data given by ``--set`` lie beside it.
    allow_code : bool
        Whether modules beside the config may be imported (`fcforge.experiments.config_code`).
    """
    where = str(path)
    _refuse_former_word(data, where)
    tables: ConfigTables = make(ConfigTables, data, where)
    dataset = resolve_dataset(tables.dataset, path, allow_code=allow_code)
    elsewhere = field_types(Experiment).keys() - OF_EXPERIMENT  # in tables of their own
    settings = checked(
        Experiment, tables.experiment, f"{where}: experiment", hidden=elsewhere
    )
    split = tables.split
    if split.folds:  # seed i tests fold i % folds of repetition i // folds
        settings["seeds"] = tuple(range(split.folds * split.repeats))
    experiment = Experiment(
        dataset=dataset,
        learners=_learners(
            tables,
            path,
            paper=settings.get("protocol") == "paper",
            allow_code=allow_code,
        ),
        training=tables.training,
        training_stated=tuple(data.get("training", {})),
        leaks=tables.leaks,
        base_model=_base_model(dataset, tables.base_model, path, allow_code),
        confounds=tables.confounds.remove,
        folds=split.folds,
        own_threshold=tables.evaluation.own_threshold,
        reference=tables.evaluation.reference,
        **settings,
    )
    _require_consistent(experiment, where)
    return experiment


def _refuse_former_word(table: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` for `start`, which is `base_model` now."""
    if "start" in table:
        message = "`start` is called `base_model`."
        hint = (
            "Write [base_model] for [start], and base_model = false for start = false."
        )
        raise ConfigError(message, where=where, do=hint)


def _require_consistent(experiment: Experiment, where: str) -> None:
    """Raise `ConfigError` for settings of two tables that exclude each other; `where` is the file."""
    if experiment.training.selection == "inner_val" and experiment.val_fraction == 0:
        message = "selection = 'inner_val' chooses on a validation part, but val_fraction = 0."
        hint = "Set val_fraction = 0.2, or selection = 'fixed'."
        raise ConfigError(message, where=where, do=hint)
    if experiment.own_threshold and experiment.leaks.active():
        message = (
            "own_threshold = true, but a leak lets methods see whom it is fitted on."
        )
        raise ConfigError(message, where=where, do="Remove [leaks].")
    if experiment.reference:
        titles = [learner.title for learner in experiment.learners]
        check_names(
            "learner",
            [experiment.reference],
            titles,
            where=f"{where}: evaluation.reference",
        )
    for learner in experiment.learners:
        _require_public(experiment, learner, where)


def _require_public(experiment: Experiment, learner: LearnerSpec, where: str) -> None:
    """Raise `ConfigError` if a row uses public subjects in a way that has no effect.

    Parameters
    ----------
    experiment : Experiment
    learner : LearnerSpec
        The row.
    where : str
        Path of the config, for the message.
    """
    both = "public_replay and public_pull"
    if not replace(experiment.training, **learner.training).uses_public:
        return
    if experiment.base_model is None:
        message = f"{both} use public subjects, but the run has none."
        hint = (
            "Add a [base_model] table that names the public sites, or leave them at 0."
        )
        raise ConfigError(message, where=where, do=hint)
    if not Training(**learner.training).uses_public:
        return  # stated for all rows: it is ignored in those without gradient steps
    row = f"{where}: learner '{learner.title}'"
    if not learner.base_model:
        message = (
            f"{both} need the base model, which base_model = false takes from this row."
        )
        raise ConfigError(message, where=row, do="Remove one of the two.")
    methods = registries()["method"]
    name = learner.method.name
    if name not in methods or not methods[name].fits:
        message = f"{both} belong to gradient steps, and this row takes none."
        hint = (
            "Leave them out; methods in closed form use public subjects by themselves."
        )
        raise ConfigError(message, where=row, do=hint)


def _base_model(
    dataset: Component, table: BaseModelTable | None, path: Path, allow_code: bool
) -> BaseModelSpec | None:
    """Return the dataset of the public subjects, or None without a table ``[base_model]``.

    Parameters
    ----------
    dataset : Component
        Dataset of the run.
    table : BaseModelTable or None
    path : Path
        Path of the config.
    allow_code : bool
        As for `load_experiment`.
    """
    if table is None:
        return None
    params = {**dataset.params, "sites": "others"}
    params.pop("leave_out", None)  # the run's own; [base_model] states another
    if table.dataset is not None:
        dataset = resolve_dataset(table.dataset, path, allow_code=allow_code)
        params = dict(dataset.params)
    if table.sites:
        params["sites"] = table.sites if table.sites == "others" else [*table.sites]
    if table.leave_out:
        params["leave_out"] = [*table.leave_out]
    return BaseModelSpec(Component(dataset.name, params))


def read_component(value: Named, kind: str, where: str) -> Component:
    """Return the component that a name, or a table of name and settings, states.

    Parameters
    ----------
    value : str or mapping
    kind, where : str
        Kind of the component and place in the config, for the message.
    """
    if isinstance(value, str):
        return Component(value)
    params = dict(value)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"a {kind} table needs a name.", where=where)
    return Component(name, params)


def _check(
    component: Component, kind: str, known: Mapping[str, Any], where: str
) -> None:
    """Raise `ConfigError` if a component's name is unknown or its settings are wrong.

    An instance is made of a dataclass, so that settings are checked together, unless it needs the data's
    number of ROIs.

    Parameters
    ----------
    component : Component
    kind : str
        Kind of the component, for the message.
    known : mapping of str to dataclass or function
        What is called with the settings, by the names that a component of this kind can have.
    where : str
        Place in the config, for the message.
    """
    target = look_up(kind, component.name, known, where=where)
    place = f"{where}: {kind} '{component.name}'"
    makes = isinstance(target, type) and not getattr(target, "needs_rois", False)
    read = make if makes else checked
    read(target, component.params, place)


def resolve_dataset(
    table: Mapping[str, Any], path: Path, *, allow_code: bool = True
) -> Component:
    """Return the dataset that a config names, with absolute paths of its files.

    Parameters
    ----------
    table : mapping
        Table ``[dataset]``.
    path : Path
        Path of the config; relative paths start at its folder.
    allow_code : bool
        As for `load_experiment`.
    """
    from fcforge.data.datasets import DATASETS

    where = f"{path}: [dataset]"
    component = read_component(table, "dataset", where)
    if ":" in component.name:
        allow_module(component.name, path.resolve().parent, where, allow_code)
        import_dataset(component)
    loaders = {name: entry.loader for name, entry in DATASETS.items()}
    _check(component, "dataset", loaders, where)
    params = dict(component.params)
    for name in FILES:
        if name in params:
            params[name] = resolve_data(str(params[name]), path.resolve().parent)
    return Component(component.name, params)


# -- the rows of the results table ----------------------------------------------------------------
def _learners(
    tables: ConfigTables, path: Path, *, paper: bool, allow_code: bool
) -> tuple[LearnerSpec, ...]:
    """Return the rows of the results table: all ``[[learner]]``, or those that ``learners`` names.

    Parameters
    ----------
    tables : ConfigTables
    path : Path
        Path of the config.
    paper : bool
        Whether the protocol is "paper" (`_part`).
    allow_code : bool
        As for `load_experiment`.
    """
    if not tables.learner:
        raise ConfigError(
            "[[learner]] is missing.",
            where=path,
            do='Add a table [[learner]] with method = "...".',
        )
    for kind, known in registries().items():
        for name, params in getattr(tables, kind).items():  # used by a row or not
            where = f"{path}: [{kind}.{name}]"
            if not isinstance(params, Mapping):
                message = f"{name} = {params!r} is not a table of settings."
                raise ConfigError(message, where=where)
            _check(Component(name, params), kind, known, where)
    rows = []
    folder = path.resolve().parent
    for number, table in enumerate(tables.learner, start=1):
        place = f"{path}: learner {number}{_title_of(table)}"
        _refuse_former_word(table, place)
        for name in _code_of(table, tables.learner_defaults):
            allow_module(name, folder, place, allow_code)
        if "estimator" in table:
            rows.append(read_pipeline(table, place, folder))
        else:
            rows.append(_learner(table, place, tables, paper))
    titles = [row.title for row in rows]
    require_different("learners", titles, str(path))
    wanted = tables.learners or titles
    check_names("learner", wanted, titles, where=str(path))
    return tuple(row for row in rows if row.title in wanted)


def _title_of(table: Mapping[str, Any]) -> str:
    """Return the title of a row of learners in quotes, after a space; empty if it has none."""
    title = table.get("title")
    return f" '{title}'" if isinstance(title, str) else ""


def _code_of(table: Mapping[str, Any], defaults: LearnerDefaults) -> list[str]:
    """Return the names in a row that are code of their own: those of the form ``"module:object"``.

    Parameters
    ----------
    table : mapping
        The row.
    defaults : LearnerDefaults
        Model and generator of rows that name none.
    """
    given = {"model": defaults.model, "generator": defaults.generator, **table}
    names = []
    for kind in ("estimator", "method", "model", "generator"):
        value = given.get(kind)
        name = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(name, str) and ":" in name:
            names.append(name)
    return names


def require_different(kind: str, titles: Sequence[str], where: str) -> None:
    """Raise `ConfigError` if two rows have the same title; `kind` and `where` are for the message."""
    for title in titles:
        if titles.count(title) > 1:
            message = f"two {kind} are called '{title}'."
            raise ConfigError(message, where=where, do="Give each a title.")


def _part(
    where: str, tables: ConfigTables, paper: bool, kind: str, value: Named
) -> Component:
    """Return a method, model or generator of a row, with the settings that the config has for its name.

    Parameters
    ----------
    where : str
        Place of the row in the config, for errors.
    tables : ConfigTables
    paper : bool
        Whether the protocol is "paper". Then the paper's variant or preset is used, unless the config names
        another.
    kind : {"method", "model", "generator"}
    value : str or mapping
        Name, or table of name and settings.
    """
    component = read_component(value, kind, where)
    shared = getattr(tables, kind).get(component.name, {})
    component = replace(component, params=merge(shared, component.params))
    known = registries()[kind]
    known.import_member(component.name)
    _check(component, kind, known, where)
    cls = known[component.name]
    settings = {f.name for f in fields(cls)}
    if paper and "paper" in getattr(cls, "variants", ()):
        params = {"variant": "paper", **component.params}
        component = replace(component, params=params)
    elif paper and ("paper" in getattr(cls, "presets", ()) or "preset" in settings):
        params = {"preset": "paper", **component.params}
        component = replace(component, params=params)
    return component


def _learner(
    table: Mapping[str, Any], where: str, tables: ConfigTables, paper: bool
) -> LearnerSpec:
    """Return the learner of a row; it has a generator only if its method needs one.

    Parameters
    ----------
    table : mapping
        The row.
    where : str
        Its place in the config, for errors.
    tables : ConfigTables
    paper : bool
        As for `_part`.
    """
    row = LearnerTable(**checked(LearnerTable, table, where))
    if not row.method:
        hint = 'Add method = "..." or estimator = "module:function".'
        raise ConfigError("it names no method.", where=where, do=hint)
    defaults = tables.learner_defaults
    part = partial(_part, where, tables, paper)
    method = part("method", row.method)
    needed = registries()["method"][method.name].needs_generator
    if row.generator and not needed:
        message = f"method '{method.name}' uses no generator."
        hint = "Leave it out, or set method = 'forge'."
        raise ConfigError(message, where=where, do=hint)
    generator = (row.generator or defaults.generator) if needed else None
    return LearnerSpec(
        method=method,
        model=part("model", row.model or defaults.model),
        generator=part("generator", generator) if generator else None,
        title=row.title,
        training=checked(Training, row.training, f"{where}: training"),
        base_model=row.base_model,
    )
