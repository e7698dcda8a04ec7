"""ABIDE in nilearn's folders, on the real sample; published data files are rebuilt from it."""

import shutil
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.data import abide
from fcforge.data.abide import (
    BUCKET,
    FOUR,
    PHENOTYPES,
    PUBLISHED,
    load_abide,
    rebuild,
    subjects_sha256,
)
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.folder import load_folder
from real_runs import fcforge

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


def test_three_quality_lists(sample: Path):
    assert "843 listed" in load_abide(sample, sites="all").faults[0].what  # 871 - 28
    everyone = load_abide(sample, quality="every")
    missing = next(f for f in everyone.faults if "no file" in f.what)
    # 184 + 109 + 145 + 101 rows of the four sites
    assert missing.what.startswith(f"{184 + 109 + 145 + 101 - 28} listed")
    listed = load_abide(sample, quality="all")
    missing = next(f for f in listed.faults if "no file" in f.what)
    # 175 + 98 + 140 + 71 subjects with a PCP file at the four sites
    assert missing.what.startswith(f"{175 + 98 + 140 + 71 - 28} listed")
    whole = load_abide(sample / "ABIDE_pcp", sites="all", quality="all")
    assert f"{1035 - 28} listed" in whole.faults[0].what


def test_series_without_band_pass_are_another_folder(sample: Path):
    faults = load_abide(sample, band_pass=False).faults
    assert "cpac/nofilt_noglobal" in faults[0].what


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

    monkeypatch.setattr("fcforge.data.abide._read_url", get)
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

    monkeypatch.setattr("fcforge.data.abide._read_url", get)
    cohort = load_abide(tmp_path, sites=["CMU"], download=True)
    assert len(cohort) == 0
    assert (tmp_path / "ABIDE_pcp" / PHENOTYPES).exists()


def test_a_dead_network_is_not_tried_for_every_subject(some_of: Path, monkeypatch):
    monkeypatch.setattr("fcforge.data.abide.wait", lambda seconds: None)
    calls = []

    def get(url: str) -> bytes:
        calls.append(url)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("fcforge.data.abide._read_url", get)
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


# -- published files -------------------------------------------------------------------------------
FILES = {
    "abide-871": ("abide1_aal116.npz", None),
    "abide-871-cc200": ("abide1_aal116.npz", None),  # the same people
    "abide-529": ("abide1_aal116_dparsf.npz", FOUR),
    "abide-1098": ("abide1_aal116_dparsf.npz", None),
}


@pytest.fixture
def network(shared_data, tmp_path, monkeypatch):
    """A bucket that has the phenotypic file and the 28 series of the sample alone."""
    sample = shared_data / "abide_pcp_sample" / "ABIDE_pcp"
    known = {path.name: path for path in sample.rglob("*.1D")}
    known["USM_0050432_rois_aal.1D"] = next(iter(known.values()))
    known[abide.PHENOTYPES] = sample / abide.PHENOTYPES

    def get(url):
        assert url.startswith(abide.BUCKET)
        name = url.rpartition("/")[2]
        if name not in known:
            raise HTTPError(url, 404, "Not Found", None, None)
        return known[name].read_bytes()

    monkeypatch.setattr(abide, "_read_url", get)
    monkeypatch.setenv("NILEARN_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_lists_are_those_of_the_published_files(name, shared_data):
    file, sites = FILES[name]
    arrays = np.load(shared_data / file)
    rows = np.isin(arrays["site"], sites) if sites else slice(None)
    ids = arrays["subject_id"][rows].astype(str).tolist()
    assert len(ids) == PUBLISHED[name].people
    assert subjects_sha256(ids) == PUBLISHED[name].subjects_sha256


@pytest.mark.data
def test_the_papers_529_are_all_rows_but_those_the_bucket_lacks(shared_data):
    folder = shared_data / "abide_pcp_sample" / "ABIDE_pcp"
    table = abide._phenotypes(folder, None)
    rows = {p.subject_id for p in abide._people(table, "every", False, FOUR)}
    arrays = np.load(shared_data / "abide1_aal116_dparsf.npz")
    there = set(arrays["subject_id"][np.isin(arrays["site"], FOUR)].astype(str))
    assert there < rows
    assert len(rows - there) == 10  # of UCLA, without a file of any pipeline
    names = abide._names(table)
    assert names["50432"] == "USM_0050432"  # no_filename in the table
    assert names["50952"] == "NYU_0050952"


@pytest.mark.data
def test_a_file_is_rebuilt_and_what_is_missing_is_told(network, shared_data, tmp_path):
    told = rebuild("abide-871", tmp_path / "a.npz", network)
    assert told[0] == "28 subjects, 871 in the published file"
    assert told[1].startswith("843 subjects without series: ")
    made = np.load(tmp_path / "a.npz")
    known = np.load(shared_data / "abide1_aal116.npz")
    place = {who: i for i, who in enumerate(known["subject_id"].tolist())}
    rows = [place[who] for who in made["subject_id"].tolist()]
    for name in ("label", "site", "age", "sex", "n_timepoints", "n_flat_roi"):
        np.testing.assert_array_equal(made[name], known[name][rows])
    np.testing.assert_array_equal(made["roi_ids"], known["roi_ids"])
    gap = np.abs(made["fc_upper"].astype(float) - known["fc_upper"][rows])
    assert gap.max() < 1e-3
    assert len(load_folder(tmp_path / "a.npz")) == 28


@pytest.mark.data
def test_subjects_without_a_file_name_come_by_their_usual_name(network, tmp_path):
    told = rebuild("abide-529", tmp_path / "b.npz", network)
    assert told[0].startswith("29 subjects, 529")  # the 28, and one of the bucket
    assert 50432 in np.load(tmp_path / "b.npz")["subject_id"]
    again = rebuild("abide-529", tmp_path / "b.npz", network, download=False)
    assert again[0] == told[0]  # what is there is not fetched again


@pytest.mark.data
def test_the_command_says_what_differs(network, tmp_path):
    answer = fcforge("data", "abide-871", tmp_path / "a.npz")
    assert answer.code == 1
    assert "28 subjects, 871" in answer.err
    unknown = fcforge("data", "abide-870", tmp_path / "a.npz")
    assert unknown.code == 2
    assert "abide-871" in unknown.err


def test_nobody_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "ABIDE_pcp").mkdir()
    with pytest.raises(DataError, match="no phenotypic file"):
        rebuild("abide-871", tmp_path / "a.npz", tmp_path, download=False)
    with pytest.raises(ConfigError, match="abide-529"):
        rebuild("abide-530", tmp_path / "a.npz", tmp_path)
