"""ABIDE in nilearn's folders, on the real sample; damage and absence named."""

import shutil
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest

from fcforge.messages import ConfigError, DataError
from fcforge.sites import check_cohort, load_dataset
from fcforge.sites.abide import BUCKET, PHENOTYPES, load_abide
from fcforge.types import Component

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def sample(shared_data: Path) -> Path:
    return shared_data / "abide_pcp_sample"


@pytest.fixture(scope="module")
def cohort(sample: Path):
    return load_abide(sample)


def test_all_28_real_files_give_the_shared_fc(cohort, shared_data: Path):
    known = np.load(shared_data / "abide1_aal116.npz")
    row = {str(s): i for i, s in enumerate(known["subject_id"])}
    upper = np.triu_indices(116, 1)
    assert len(cohort) == 28
    for i, subject in enumerate(cohort.subject_id):
        j = row[str(subject)]
        expected = known["fc_upper"][j].astype(float)
        np.testing.assert_allclose(cohort.fc[i][upper], expected, atol=1e-3)
        assert cohort.y[i] == known["label"][j]
        assert cohort.site[i] == known["site"][j].split("_")[0]
        assert cohort.covariates["n_volumes"][i] == known["n_timepoints"][j]
        np.testing.assert_allclose(
            cohort.covariates["age"][i], known["age"][j], rtol=1e-6
        )


def test_sites_are_merged_named_and_in_the_order_asked(cohort, sample: Path):
    assert cohort.site_names == ("NYU", "UCLA", "UM", "USM")
    assert cohort.roi_names[0] == "Precentral_L"
    assert load_abide(sample, sites=["USM", "NYU"]).site_names == ("USM", "NYU")
    apart = load_abide(sample, sites=["UM_1", "UCLA_1"], merge=False)
    assert set(apart.site_names) == {"UM_1", "UCLA_1"}


def test_absent_subjects_are_one_line_and_the_check_shows_it(cohort):
    lines = [str(f) for f in check_cohort(cohort) if "no file" in f.what]
    assert len(lines) == 1
    # 444 quality-checked subjects at the four sites, 28 of them in the sample
    assert lines[0].startswith("416 listed subjects have no file")


def test_both_quality_lists(sample: Path):
    assert "843 listed" in load_abide(sample, sites="all").faults[0].what  # 871 - 28
    everyone = load_abide(sample, quality="every")
    missing = next(f for f in everyone.faults if "no file" in f.what)
    # 184 + 109 + 145 + 101 rows of the four sites
    assert missing.what.startswith(f"{184 + 109 + 145 + 101 - 28} listed")


def test_a_truncated_file_is_named_and_the_others_load(sample: Path, tmp_path: Path):
    root = tmp_path / "data"
    shutil.copytree(sample, root, copy_function=shutil.copyfile)
    folder = root / "ABIDE_pcp" / "cpac" / "filt_noglobal"
    victim = sorted(folder.glob("NYU_*.1D"))[0]
    victim.write_bytes(victim.read_bytes()[:5000])
    cohort = load_dataset(Component("abide", {"path": str(root), "sites": ["NYU"]}))
    errors = [f for f in cohort.faults if f.severity == "error"]
    assert len(errors) == 1
    assert victim.name in errors[0].what
    assert "values, the lines before it 116" in errors[0].what
    assert "cut off" in errors[0].do
    assert len(cohort) == len(list(folder.glob("NYU_*.1D"))) - 1


def test_an_roi_with_gaps_is_named_with_its_subject(sample: Path, tmp_path: Path):
    shutil.copytree(sample / "ABIDE_pcp", tmp_path / "ABIDE_pcp")
    file = sorted(tmp_path.glob("ABIDE_pcp/*/*/UM_1_*_rois_aal.1D"))[0]
    lines = file.read_text().splitlines()
    lines[5] = "\t".join(["nan", *lines[5].split("\t")[1:]])
    file.write_text("\n".join(lines))
    cohort = load_abide(tmp_path)
    (error,) = [f for f in cohort.faults if f.severity == "error"]
    assert "Precentral_L: NaN or infinite in 1 of " in error.what
    assert (error.site, error.subject in file.name) == ("UM", True)
    assert len(cohort) == 27


@pytest.fixture
def some_of(sample: Path, tmp_path: Path) -> Path:
    """The sample in a folder that can be written to."""
    shutil.copytree(sample, tmp_path / "data", copy_function=shutil.copyfile)
    return tmp_path / "data"


def test_download_asks_for_each_missing_subject_once(some_of: Path, monkeypatch):
    asked: list[str] = []
    content = next(some_of.rglob("USM_*.1D")).read_bytes()

    def get(url: str) -> bytes:
        asked.append(url)
        if url.endswith("USM_0050434_rois_aal.1D"):
            return content
        raise HTTPError(url, 404, "Not Found", None, None)

    monkeypatch.setattr("fcforge.sites.abide._read_url", get)
    cohort = load_abide(some_of, sites=["USM"], download=True)
    assert len(asked) == len(set(asked)) == 67 - 6  # what is there is not fetched again
    assert asked[0].startswith(f"{BUCKET}/Outputs/cpac/filt_noglobal/rois_aal/USM_00")
    assert len(cohort) == 7
    lost = [f for f in cohort.faults if f.severity == "error"]
    assert len(lost) == 67 - 7
    assert "has no file" in lost[0].what


def test_the_phenotypic_file_is_fetched_first(sample, tmp_path, monkeypatch):
    table = (sample / "ABIDE_pcp" / PHENOTYPES).read_bytes()

    def get(url: str) -> bytes:
        if url == f"{BUCKET}/{PHENOTYPES}":
            return table
        raise HTTPError(url, 403, "Forbidden", None, None)

    monkeypatch.setattr("fcforge.sites.abide._read_url", get)
    cohort = load_abide(tmp_path, sites=["CMU"], download=True)
    assert len(cohort) == 0
    assert (tmp_path / "ABIDE_pcp" / PHENOTYPES).exists()


def test_a_dead_network_is_not_tried_for_every_subject(some_of: Path, monkeypatch):
    monkeypatch.setattr("fcforge.sites.abide.wait", lambda seconds: None)
    calls = []

    def get(url: str) -> bytes:
        calls.append(url)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("fcforge.sites.abide._read_url", get)
    with pytest.raises(DataError, match=r"USM_\d+_rois_aal.1D .*ConnectionError"):
        load_abide(some_of, sites=["USM"], download=True)
    assert len(calls) == 3  # the first that is missing, three times


def test_unknown_names_say_what_is_known(sample: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="Did you mean 'NYU'"):
        load_abide(sample, sites=["NYUU"])
    with pytest.raises(ConfigError, match="Known: ccs, cpac"):
        load_dataset(Component("abide", {"path": str(sample), "pipeline": "css"}))
    with pytest.raises(DataError, match=r"ABIDE_pcp.*: no phenotypic file"):
        load_abide(tmp_path)
