"""REST-meta-MDD in the consortium's exact format, made up."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.rest_meta_mdd import COLUMNS, load_rest_meta_mdd

COUNTS = {"S1": 5, "S4": 2, "S9": 5, "S14": 5, "S20": 5, "S21": 5}


def ids() -> list[str]:
    return [
        f"{s}-{dx}-{i + 1:04d}"
        for s, n in COUNTS.items()
        for dx in (1, 2)
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mdd")
    folder = root / "Results" / "ROISignals_FunImgARCWF"
    folder.mkdir(parents=True)
    for k, subject in enumerate(ids()):
        rng = np.random.default_rng(k)
        width = 1568 if k % 2 else 1833
        signals = rng.normal(size=(90, width))
        signals[:, :116] += 5 * np.arange(116)
        savemat(folder / f"ROISignals_{subject}.mat", {"ROISignals": signals})
    names = np.array(ids(), dtype=object).reshape(-1, 1)
    n = len(names)
    savemat(
        root / "Stat_Sub_Info.mat",
        {
            "SubID": names,
            "Dx": np.array([[1 if s.split("-")[1] == "1" else -1] for s in ids()]),
            "Age": np.r_[[-9999.0], 20.0 + np.arange(n - 1)].reshape(-1, 1),
            "Sex": np.ones((n, 1)),
            "Edu": np.full((n, 1), 12.0),
            "Site": np.ones((n, 1)),
            "Motion": np.full((n, 1), 0.06),
        },
    )
    return root


def test_aal_is_columns_1_to_116_and_the_id_gives_site_and_diagnosis(shared: Path):
    cohort = load_rest_meta_mdd(shared)
    assert cohort.site_names == ("S1", "S9", "S14", "S20", "S21")
    assert len(cohort) == 50
    assert cohort.fc.shape[1:] == (116, 116)
    first = cohort.subject_id.tolist().index("S1-2-0001")
    assert cohort.y[first] == 0
    assert cohort.y[cohort.subject_id.tolist().index("S1-1-0001")] == 1
    rng = np.random.default_rng(ids().index("S1-2-0001"))
    width = 1568 if ids().index("S1-2-0001") % 2 else 1833
    expected = np.corrcoef(rng.normal(size=(90, width))[:, :116], rowvar=False)
    np.testing.assert_allclose(cohort.fc[first], expected, atol=1e-6)
    assert [f for f in check_cohort(cohort, n_rois=116) if f.severity == "error"] == []


def test_the_duplicate_site_is_refused(shared: Path):
    with pytest.raises(DataError, match=r"S4.* holds subjects of S14"):
        load_rest_meta_mdd(shared, sites=["S4"])


def test_the_consortium_list_chooses_subjects_and_adds_covariates(
    shared: Path, tmp_path: Path
):
    cohort = load_rest_meta_mdd(shared, subjects=shared / "Stat_Sub_Info.mat")
    assert np.isnan(cohort.covariates["age"][0])
    assert cohort.covariates["age"][1] == 20.0
    assert set(cohort.covariates) == {"n_volumes", "age", "sex", "education", "mean_fd"}
    wrong = tmp_path / "list.mat"
    savemat(wrong, {"SubID": np.array(["S1-1-0001"], dtype=object), "Dx": [[-1]]})
    with pytest.raises(DataError, match="contradicts"):
        load_rest_meta_mdd(shared, subjects=wrong)


def test_listed_but_absent_and_truncated_subjects_are_named_the_rest_loads(
    tmp_path: Path,
):
    folder = tmp_path / "Results" / "ROISignals_FunImgARCWF"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"S1-{dx}-{i:04d}" for dx in (1, 2) for i in range(1, 4)]
    for subject in names[:-1]:
        x = rng.normal(size=(90, 1568))
        savemat(folder / f"ROISignals_{subject}.mat", {"ROISignals": x})
    broken = folder / f"ROISignals_{names[0]}.mat"
    broken.write_bytes(broken.read_bytes()[:3000])
    x119 = rng.normal(size=(90, 119))
    savemat(folder / f"ROISignals_{names[1]}.mat", {"ROISignals": x119})
    listing = tmp_path / "list.mat"
    dx = [[1 if s.split("-")[1] == "1" else -1] for s in names]
    savemat(listing, {"SubID": np.array(names, dtype=object), "Dx": dx})
    cohort = load_rest_meta_mdd(tmp_path, sites=["S1"], subjects=listing)
    assert len(cohort) == 3
    said = {f.subject: f.what for f in cohort.faults}
    assert set(said) == {names[0], names[1], names[-1]}
    assert "119 columns" in said[names[1]]
    assert "no file" in said[names[-1]]


def test_sites_come_in_the_order_asked_and_unknown_ones_are_named(shared: Path):
    settings = {"path": str(shared), "sites": ["S9", "S1"]}
    cohort = load_dataset(Component("rest_meta_mdd", settings))
    assert cohort.site_names == ("S9", "S1")
    with pytest.raises(ConfigError, match="REST-meta-MDD site 'S99'"):
        load_rest_meta_mdd(shared, sites=["S99"])
    with pytest.raises(DataError, match="ROISignals_FunImgARglobalCWF"):
        load_rest_meta_mdd(shared, global_signal=True)


def test_all_sites_but_the_duplicate_one(shared: Path):
    cohort = load_rest_meta_mdd(shared, sites="all")
    assert cohort.site_names == ("S1", "S9", "S14", "S20", "S21")
    assert [(f.severity, f.site) for f in cohort.faults] == [("warning", "S4")]
    assert "S14 again" in cohort.faults[0].what


@pytest.mark.parametrize("atlas", sorted(COLUMNS.keys() - {"aal", "power264"}))
def test_other_atlases_are_other_columns(shared: Path, atlas: str):
    cohort = load_rest_meta_mdd(shared, sites=["S9"], atlas=atlas)
    first, last = COLUMNS[atlas]
    assert cohort.n_rois == last - first + 1
    assert cohort.roi_names == ()
    file = shared / "Results" / "ROISignals_FunImgARCWF" / "ROISignals_S9-1-0001.mat"
    series = loadmat(file)["ROISignals"][:, first - 1 : last]
    own = cohort.fc[cohort.subject_id.tolist().index("S9-1-0001")]
    np.testing.assert_allclose(own, np.corrcoef(series.T), atol=1e-5)


def test_narrow_files_have_no_power_rois(shared: Path):
    cohort = load_rest_meta_mdd(shared, sites=["S9"], atlas="power264")
    assert cohort.n_rois == 264
    narrow = [f for f in cohort.faults if "1568 columns" in f.what]
    assert len(narrow) == 5
    assert "columns 1570 to 1833" in narrow[0].what


def test_folders_inside_the_shared_one(shared: Path):
    whole = load_rest_meta_mdd(shared)
    for inner in ("Results", "Results/ROISignals_FunImgARCWF"):
        same = load_rest_meta_mdd(shared / inner)
        assert same.content_sha256() == whole.content_sha256()


@pytest.mark.parametrize(
    ("given", "global_signal", "was"),
    [
        ("ROISignals_FunImgARCWF", True, "kept"),
        ("ROISignals_FunImgARglobalCWF", False, "removed"),
    ],
)
def test_the_folder_of_the_other_processing_is_refused(
    shared: Path, tmp_path: Path, given: str, global_signal: bool, was: str
):
    files = shared / "Results" / "ROISignals_FunImgARCWF"
    folder = tmp_path / given
    folder.mkdir()
    for file in files.glob("ROISignals_S9-*.mat"):
        (folder / file.name).hardlink_to(file)
    with pytest.raises(DataError, match=f"global signal was {was}") as refused:
        load_rest_meta_mdd(folder, sites=["S9"], global_signal=global_signal)
    assert f"global_signal = {str(not global_signal).lower()}" in str(refused.value)
    other = load_rest_meta_mdd(folder, sites=["S9"], global_signal=not global_signal)
    assert len(other) == 10
