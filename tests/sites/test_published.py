"""Published data files: subjects as published, rebuilt with a stand-in for the download."""

from urllib.error import HTTPError

import numpy as np
import pytest

from fcforge.messages import ConfigError, DataError
from fcforge.sites import abide
from fcforge.sites.folder import load_folder
from fcforge.sites.published import FOUR, PUBLISHED, rebuild, subjects_sha256
from real_runs import fcforge

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
