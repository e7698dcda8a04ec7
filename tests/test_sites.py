"""The table of datasets."""

import subprocess
import sys

import pytest
from small_cohorts import tiny, write_npz

from fcforge.messages import ConfigError
from fcforge.sites import DATASETS, load_dataset
from fcforge.types import Component


def test_registry():
    assert {"simulated", "folder"} <= set(DATASETS)
    made = load_dataset(Component("simulated", {"n_rois": 8, "scale": 0.05}))
    assert made.n_rois == 8
    with pytest.raises(
        ConfigError, match=r"unknown dataset 'simulatd'. Did you mean 'simulated'"
    ):
        load_dataset(Component("simulatd"))
    with pytest.raises(ConfigError, match=r"'n_roi'. Did you mean 'n_rois'"):
        load_dataset(Component("simulated", {"n_roi": 8}))
    with pytest.raises(ConfigError, match=r"dataset 'folder' needs 'path'"):
        load_dataset(Component("folder"))


def test_listing_datasets_imports_neither_torch_nor_scipy_nor_pandas(tmp_path):
    path = write_npz(tmp_path / "d.npz", tiny())
    code = (
        "import sys; from fcforge.sites import DATASETS, check_cohort;"
        f"check_cohort(DATASETS['folder'].loader(path={str(path)!r}));"
        "print([m for m in ('torch', 'scipy', 'pandas', 'nilearn') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
