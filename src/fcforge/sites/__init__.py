"""Where sites come from: the table of datasets, loading, checking, splitting.

A dataset is a function that returns a `Cohort`. To add one, write it in a module of this
folder and add a line to `DATASETS`; its keyword arguments become the settings of a config's
``[dataset]`` table.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fcforge.components import look_up
from fcforge.errors import ConfigError
from fcforge.settings import checked
from fcforge.sites.check import check_cohort, require_valid
from fcforge.sites.cohort import Cohort, Fault
from fcforge.sites.splits import make_sites, split_site
from fcforge.types import Component

__all__ = [
    "DATASETS",
    "Cohort",
    "Dataset",
    "Fault",
    "check_cohort",
    "load_dataset",
    "make_sites",
    "require_valid",
    "split_site",
]


@dataclass(frozen=True)
class Dataset:
    """A loader by name; its module is imported when it is called, not before."""

    module: str
    function: str
    about: str

    @property
    def loader(self) -> Callable[..., Cohort]:
        """The loading function itself."""
        return getattr(importlib.import_module(f"fcforge.sites.{self.module}"), self.function)

    def __call__(self, **params: Any) -> Cohort:
        """Load with these settings."""
        return self.loader(**params)


DATASETS: dict[str, Dataset] = {
    "simulated": Dataset(
        "simulated", "simulate", "made-up sites, calibrated on real ABIDE; any number of ROIs"
    ),
    "folder": Dataset(
        "folder", "load_folder", "your FC or time series: one .npz, or participants.tsv + files"
    ),
    "abide": Dataset(
        "abide", "load_abide", "ABIDE I of the PCP, through nilearn's fetcher, offline or online"
    ),
    "rest_meta_mdd": Dataset(
        "rest_meta_mdd", "load_rest_meta_mdd", "REST-meta-MDD: the consortium's ROISignals folder"
    ),
    "bsnip": Dataset("bsnip", "load_bsnip", "B-SNIP: participants.tsv + one file per subject"),
    "authors": Dataset(
        "authors", "load_authors", "the FORGE authors' .pt or BrainIB's .mat, nothing executed"
    ),
}


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
    known = inspect.signature(dataset.loader).parameters
    params = checked(dataset.loader, component.params, f"dataset '{component.name}'")
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in component.params:
            raise ConfigError(
                f"dataset '{component.name}' needs '{key}'.", do=f"Add `{key} = ...` to [dataset]."
            )
    return dataset(**params)
