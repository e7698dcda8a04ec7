"""Where sites come from: the table of datasets, loading, checking, splitting."""

from fcforge.sites.cohort import Cohort, Fault
from fcforge.sites.datasets import (
    DATASETS,
    Dataset,
    check_cohort,
    dataset_of,
    load_dataset,
    load_people,
    require_valid,
)
from fcforge.sites.splits import make_sites, split_site

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
