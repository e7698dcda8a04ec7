"""The table of datasets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fcforge.errors import ConfigError
from fcforge.sites import DATASETS, Cohort, load_dataset
from fcforge.sites.cohort import upper_from_fc
from fcforge.sites.simulated import simulate
from fcforge.types import Component


def tiny(n_rois: int = 6) -> Cohort:
    return simulate(n_rois=n_rois, n_sites=2, scale=0.06, seed=0)


def write_npz(path: Path, cohort: Cohort, **change: object) -> Path:
    arrays: dict[str, object] = {
        "fc_upper": upper_from_fc(cohort.fc),
        "label": cohort.y.astype(np.int8),
        "site": cohort.site,
        "subject_id": cohort.subject_id,
        **change,
    }
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


def test_registry():
    assert {"simulated", "folder"} <= set(DATASETS)
    made = load_dataset(Component("simulated", {"n_rois": 8, "scale": 0.05}))
    assert made.n_rois == 8
    with pytest.raises(ConfigError, match=r"unknown dataset 'simulatd'. Did you mean 'simulated'"):
        load_dataset(Component("simulatd"))
    with pytest.raises(ConfigError, match=r"'n_roi'. Did you mean 'n_rois'"):
        load_dataset(Component("simulated", {"n_roi": 8}))
    with pytest.raises(ConfigError, match=r"dataset 'folder' needs 'path'"):
        load_dataset(Component("folder"))


def test_listing_datasets_imports_neither_torch_nor_scipy_nor_pandas(tmp_path):
    path = write_npz(tmp_path / "d.npz", tiny())
    code = (
        "import sys; from fcforge.sites import DATASETS, check_cohort;"
        f"check_cohort(DATASETS['folder'](path={str(path)!r}));"
        "print([m for m in ('torch', 'scipy', 'pandas', 'nilearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
