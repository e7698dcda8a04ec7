"""Datasets by name, and loading them.

A dataset is a function that returns a `Cohort`. To add one, write the function in a module of this
folder and add a line to `_ROWS`, or register it as an entry point of the group
``fcforge.datasets``. Its annotated keyword arguments become the settings of a config's
``[dataset]`` table, beside those that every dataset has (`_common`).
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.names import look_up
from fcforge.core.registry import Registry, import_object
from fcforge.core.settings import checked, field_limits, field_types, limits
from fcforge.data.checks import require_valid
from fcforge.data.cohort import Cohort


class Dataset(NamedTuple):
    """Entry of the registry of datasets.

    Attributes
    ----------
    name : str
        Name in a config.
    source : str or callable
        A function that returns a `Cohort`, a dataclass of settings with a method ``load``, or
        ``"module:name"`` of one of them, which is imported when data are loaded.
    about : str
        One line for ``fcforge list datasets``.
    """

    name: str
    source: str | Callable[..., Cohort]
    about: str

    @property
    def loader(self) -> Callable[..., Cohort]:
        """Function that loads the cohort, with the source's settings and those of every dataset.

        It passes each keyword argument on to the source or to `_common`, by its name.
        """
        source: Any = self.source
        if isinstance(source, str):
            source = import_object(source)
        source_settings = field_types(source)  # name to type

        # `updated=()`: of a source that is a class, the attributes are not copied.
        @limits(**field_limits(source))
        @functools.wraps(source, updated=())
        def loader(**params: Any) -> Cohort:
            """Return the cohort of the source, with the common settings applied."""
            of_source = {k: v for k, v in params.items() if k in source_settings}
            common = {k: v for k, v in params.items() if k in _COMMON}
            result = source(**of_source)
            cohort = result if isinstance(result, Cohort) else result.load()
            return _common(cohort, **common)

        # `checked` reads the types of a config's settings from the annotations.
        loader.__annotations__ = {**source_settings, **_COMMON}
        return loader


def _common(
    cohort: Cohort,
    leave_out: tuple[str, ...] = (),
    allow_duplicates: bool = False,
    allow_unlike_sites: bool = False,
    target: str = "diagnosis",
    limits: tuple[float, float] = (0.0, 0.0),
) -> Cohort:
    """Return the cohort with the settings applied that every dataset has.

    Parameters
    ----------
    cohort : Cohort
    leave_out : tuple of str
        Ids of subjects that are left out.
    allow_duplicates, allow_unlike_sites : bool
        As in `Cohort`.
    target : str
        Target: ``"diagnosis"``, or a covariate that is a number, e.g. ``"age"``.
    limits : (float, float)
        Least and greatest value of that number, agreed in advance; zeros if there are none.
    """
    if leave_out:  # first, so that nothing else of these people is used
        cohort = cohort.without(leave_out)
    if target != "diagnosis":
        cohort = cohort.of_number(target, limits)
    elif any(limits):
        raise ConfigError(
            "`limits` applies only to a numeric target.",
            where="[dataset]",
            do='Name the covariate: target = "age".',
        )
    return replace(
        cohort, allow_duplicates=allow_duplicates, allow_unlike_sites=allow_unlike_sites
    )


_NOT_SET = ("cohort", "return")
_COMMON = {k: v for k, v in _common.__annotations__.items() if k not in _NOT_SET}
_ROWS = (
    (
        "simulated",
        "fcforge.data.simulated:simulate",
        "made-up sites: calibrated on real ABIDE, or made to disagree",
    ),
    (
        "folder",
        "fcforge.data.folder:Folder",
        "your FC or time series: one .npz, or participants.tsv + files",
    ),
    (
        "abide",
        "fcforge.data.abide:load_abide",
        "ABIDE I of the PCP, in nilearn's folders, offline or online",
    ),
    (
        "rest_meta_mdd",
        "fcforge.data.rest_meta_mdd:load_rest_meta_mdd",
        "REST-meta-MDD: the consortium's ROISignals folder",
    ),
    (
        "brainib",
        "fcforge.data.brainib:load_brainib",
        "BrainIB's md_AAL_0.4.mat, the file that the FORGE authors' code names",
    ),
    (
        "bsnip",
        "fcforge.data.folder:load_bsnip",
        "B-SNIP: participants.tsv + one file per subject",
    ),
)


def _adopt(candidate: Any, name: str, where: str) -> Dataset:
    """Return the registry's entry for a plug-in's loading function.

    Parameters
    ----------
    candidate : object
        What the plug-in's entry point names.
    name : str
        Name of the entry point, hence of the dataset.
    where : str
        Place of the plug-in, for the error message.
    """
    if not callable(candidate):
        message = f"'{name}' is not a function that returns a Cohort."
        raise ConfigError(message, where=where, do="Correct or uninstall the plug-in.")
    lines = (inspect.getdoc(candidate) or "no description").splitlines()
    return Dataset(name, candidate, lines[0])


DATASETS: Registry[Dataset] = Registry(
    "fcforge.datasets", _adopt, {row[0]: Dataset(*row) for row in _ROWS}
)


def load_dataset(component: Component) -> Cohort:
    """Load the dataset that a config names.

    Parameters
    ----------
    component : Component
        Name of the dataset and its settings.

    Raises
    ------
    ConfigError
        For a name that is not in `DATASETS`, or a setting that its loader does not have.
    DataError
        For files that cannot be read at all.
    """
    dataset = look_up("dataset", component.name, DATASETS)
    where = f"dataset '{component.name}'"
    params = checked(dataset.loader, component.params, where)
    if "path" in dataset.loader.__annotations__ and "path" not in params:
        raise ConfigError(f"{where} needs 'path'.", do="Add `path = ...` to [dataset].")
    return dataset.loader(**params)


def dataset_of(
    name: str, options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> Component:
    """Return the dataset that a command's options and its ``--set dataset.*`` describe.

    Parameters
    ----------
    name : str
        Name of the dataset.
    options : mapping
        Settings from the command's own options, by name.
    overrides : mapping
        Settings from ``--set``, by name.

    Raises
    ------
    ConfigError
        When both contain the same setting: one would be ignored.
    """
    for twice in options.keys() & overrides.keys():
        message = f"--set dataset.{twice}: another option or argument sets it already."
        raise ConfigError(message, do="Leave one of them out.")
    return Component(name, {**options, **overrides})


def load_people(
    data: str | os.PathLike[str], sites: Sequence[str], **settings: Any
) -> Cohort:
    """Return the people of the named sites from a user's files, checked as for training.

    Without names all people are returned, unchecked.

    Parameters
    ----------
    data : path
        File or folder, as the dataset ``folder`` reads it.
    sites : sequence of str
        Sites, or none for all.
    **settings
        Further settings of the dataset ``folder``; None, False and empty ones mean the default.
    """
    candidates = {**settings, "sites": list(sites)}
    params = {name: value for name, value in candidates.items() if value}
    cohort = load_dataset(Component("folder", {"path": str(data), **params}))
    if sites:
        # With `partial` a class may be missing, so the people cannot be meant for a split.
        require_valid(cohort, to_split=not settings.get("partial"))
    return cohort
