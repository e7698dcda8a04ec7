"""Where sites come from: the table of datasets, loading, checking, splitting.

A dataset is a function that returns a `Cohort`. To add one, write ``load_NAME`` in a module of
this folder and add a line to `_ROWS`; its keyword arguments become the settings of a config's
``[dataset]`` table, beside those that every dataset has (`_common`).
"""

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fcforge.messages import ConfigError, look_up
from fcforge.settings import checked
from fcforge.sites.check import check_cohort, require_valid
from fcforge.sites.cohort import Cohort, Fault
from fcforge.sites.participants import columns_of
from fcforge.sites.splits import make_sites, split_site
from fcforge.types import Component

__all__ = [
    "DATASETS",
    "Cohort",
    "Dataset",
    "Fault",
    "check_cohort",
    "dataset_of",
    "load_dataset",
    "load_people",
    "make_sites",
    "require_valid",
    "split_site",
]


class Dataset(NamedTuple):
    """A loader by name; its module is imported when it is called, not before."""

    name: str
    module: str
    about: str

    @property
    def loader(self) -> Callable[..., Cohort]:
        """The loading function, with the settings that every dataset has."""
        module = importlib.import_module(f"fcforge.sites.{self.module}")
        return _with_common(getattr(module, f"load_{self.name}"))


def _common(
    cohort: Cohort,
    leave_out: tuple[str, ...] = (),
    allow_duplicates: bool = False,
    target: str = "diagnosis",
    limits: tuple[float, float] = (0.0, 0.0),
) -> Cohort:
    """Settings that every dataset has.

    Parameters
    ----------
    cohort : Cohort
    leave_out : tuple of str
        Ids of subjects that are left out.
    allow_duplicates : bool
        Let a pair that looks like one scan under two ids be in training and in test.
    target : str
        What is learned: ``"diagnosis"``, or a covariate that is a number, e.g. ``"age"``.
    limits : (float, float)
        Between which numbers that covariate lies, agreed in advance.
    """
    if leave_out:  # first: nothing of theirs is read any more
        cohort = cohort.without(leave_out)
    if target != "diagnosis":
        cohort = cohort.of_number(target, limits)
    elif any(limits):
        raise ConfigError(
            "limits are of a number.",
            where="[dataset]",
            do='Name the covariate: target = "age".',
        )
    return replace(cohort, allow_duplicates=True) if allow_duplicates else cohort


def _with_common(load: Callable[..., Cohort]) -> Callable[..., Cohort]:
    common = {k: v for k, v in _common.__annotations__.items() if k in _COMMON}

    @functools.wraps(load)
    def loader(*args: Any, **params: Any) -> Cohort:
        also = {name: params.pop(name) for name in _COMMON if name in params}
        if "target" in load.__annotations__:
            params["target"] = also.get("target", "diagnosis")
        return _common(load(*args, **params), **also)

    loader.__annotations__ = {**load.__annotations__, **common}
    return loader


_COMMON = tuple(inspect.signature(_common).parameters)[1:]
_ROWS = (
    (
        "simulated",
        "simulated",
        "made-up sites, calibrated on real ABIDE; any number of ROIs",
    ),
    (
        "folder",
        "folder",
        "your FC or time series: one .npz, or participants.tsv + files",
    ),
    ("abide", "abide", "ABIDE I of the PCP, in nilearn's folders, offline or online"),
    (
        "rest_meta_mdd",
        "rest_meta_mdd",
        "REST-meta-MDD: the consortium's ROISignals folder",
    ),
    ("bsnip", "folder", "B-SNIP: participants.tsv + one file per subject"),
)
DATASETS = {row[0]: Dataset(*row) for row in _ROWS}


def load_dataset(component: Component) -> Cohort:
    """Load the dataset a config names.

    Raises
    ------
    ConfigError
        For a name that is not in `DATASETS` or a setting its loader does not have.
    DataError
        For files that cannot be read at all.
    """
    dataset = look_up("dataset", component.name, DATASETS)
    where = f"dataset '{component.name}'"
    params = checked(dataset.loader, component.params, where)
    for key, parameter in inspect.signature(dataset.loader).parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in component.params:
            raise ConfigError(
                f"{where} needs '{key}'.", do=f"Add `{key} = ...` to [dataset]."
            )
    return dataset.loader(**params)


def dataset_of(
    name: str, said: Mapping[str, Any], settings: Mapping[str, Any]
) -> Component:
    """A dataset by what a command's own options say and by ``--set dataset.*``, each thing once.

    Raises
    ------
    ConfigError
        Where both say the same setting: one of them would be ignored.
    """
    for twice in said.keys() & settings.keys():
        what = f"--set dataset.{twice}: another option or argument says it already."
        raise ConfigError(what, do="Leave one of them out.")
    return Component(name, {**said, **settings})


def load_people(
    data: str | os.PathLike[str], sites: Sequence[str], columns: str = "", **how: Any
) -> Cohort:
    """People of the named sites, checked as for training; without names all, unchecked.

    Parameters
    ----------
    data : path
    sites : sequence of str
    columns : str
        ``site=scanner_site,label=dx``.
    **how
        Further settings of the dataset ``folder``; what is None is left out.
    """
    asked = {**how, "columns": columns_of(columns), "sites": list(sites)}
    params = {name: value for name, value in asked.items() if value}
    cohort = load_dataset(Component("folder", {"path": str(data), **params}))
    if sites:
        require_valid(cohort, to_split=not how.get("partial"))
    return cohort
