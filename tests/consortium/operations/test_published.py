"""Published base models: fetched through a stand-in for the download, kept, and used."""

import json
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from small_exchange import data_file, given, sites, start

from fcforge.core.errors import ConfigError, DataError
from fcforge.data import abide
from fcforge.data.abide import subjects_sha256
from fcforge.data.folder import load_folder
from fcforge.estimator import InputError
from fcforge_consortium.estimator import ConsortiumClassifier
from fcforge_consortium.operations import published
from fcforge_consortium.operations.published import (
    BASE_MODELS,
    Source,
    published_base_model,
)
from fcforge_consortium.records.exchange import open_exchange, save
from real_runs import consortium

N = 40
ROIS = {"rois_aal": 116, "rois_cc200": 200}
QUALITY = dict.fromkeys(abide.PASSED, "OK")


def series(name: str) -> bytes:
    """Made-up series of one subject: a few common signals, a few volumes."""
    subject, _, atlas = name.removesuffix(".1D").partition("_rois_")
    who = int(subject.rpartition("_")[2])
    n_rois = ROIS[f"rois_{atlas}"]
    common = np.random.default_rng(0).normal(size=(4, n_rois))
    rng = np.random.default_rng(who)
    x = rng.normal(size=(24, 4)) @ (common + 0.4 * rng.normal(size=common.shape))
    x[:, : n_rois // 2] += (who % 2) * rng.normal(size=(24, 1))  # the patients
    x += rng.normal(size=x.shape)
    head = "\t".join(f"#{i + 1}" for i in range(n_rois))
    rows = ("\t".join(f"{v:.4f}" for v in row) for row in x)
    return "\n".join([head, *rows]).encode()


def phenotypes() -> bytes:
    columns = ["SUB_ID", "SITE_ID", "FILE_ID", "DX_GROUP", *abide.COVARIATES.values()]
    lines = [",".join([*columns, *QUALITY])]
    for who in range(50001, 50001 + N):
        site = "NYU" if who % 4 < 2 else "USM"
        row = [who, site, f"{site}_00{who}", 2 - who % 2, 20, 1, 0.1]
        lines.append(",".join(map(str, [*row, *QUALITY.values()])))
    return "\n".join(lines).encode()


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket with made-up people; the names of what was fetched from it."""
    fetched = []

    def get(url):
        name = url.rpartition("/")[2]
        fetched.append(name)
        return phenotypes() if name == abide.PHENOTYPES else series(name)

    monkeypatch.setattr(abide, "_read_url", get)
    monkeypatch.setenv("FCFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NILEARN_DATA", str(tmp_path / "nilearn"))
    ids = subjects_sha256(map(str, range(50001, 50001 + N)))
    for name in ("abide-871", "abide-871-cc200"):
        changed = abide.PUBLISHED[name]._replace(people=N, subjects_sha256=ids)
        monkeypatch.setitem(abide.PUBLISHED, name, changed)
    monkeypatch.setitem(BASE_MODELS, "abide-aal", Source("abide-871"))
    return fetched


@pytest.mark.parametrize(("name", "rois"), [("abide-aal", 116), ("abide-cc200", 200)])
def test_a_start_is_fetched_once_and_kept(bucket, name, rois):
    place = published_base_model(name)
    assert place == published.cache_folder() / f"{name}.fcx"
    assert len(bucket) == N + 1
    made = open_exchange(place)
    assert (made.root.people, made.root.n_rois) == (N, rois)
    assert made.root.policy.exact_allowed
    assert published_base_model(name) == place
    assert len(bucket) == N + 1
    people = load_folder(published.published_people(name))
    assert people.roi_names[0] == ("Precentral_L" if rois == 116 else "1")


def test_other_people_than_the_published_ones_are_no_start(bucket, monkeypatch):
    monkeypatch.setattr(published, "make_base_model", lambda *people, **plan: start())
    monkeypatch.setitem(BASE_MODELS, "abide-aal", Source("abide-871", people="0" * 64))
    with pytest.raises(DataError, match=r"abide-871\.npz.*not those of 'abide-aal'"):
        published_base_model("abide-aal")
    assert not (published.cache_folder() / "abide-aal.fcx").exists()


def test_other_arrays_of_the_same_people_are_told(bucket, monkeypatch):
    monkeypatch.setattr(published, "make_base_model", lambda *people, **plan: start())
    monkeypatch.setitem(BASE_MODELS, "abide-aal", Source("abide-871", arrays="0" * 64))
    told = []
    published_base_model("abide-aal", told.append)
    assert "bit by bit" in told[0]


def test_what_somebody_put_into_the_cache_is_not_believed(bucket, monkeypatch):
    """Neither a start of other people, nor their scans, nor what hospitals gave around one."""
    folder = published.cache_folder()
    folder.mkdir()
    monkeypatch.setitem(BASE_MODELS, "abide-aal", Source("abide-871", people="0" * 64))
    data_file(folder).rename(folder / "abide-871.npz")
    asked = ("base-model", "--public", "abide-aal", "--without", "NYU", "--exact")
    told = consortium(*asked, "--out", folder / "mine.fcx")
    assert told.code == 2
    assert "not those of 'abide-aal'" in " ".join(told.err.split())
    place = folder / "abide-aal.fcx"
    save(start(exact_allowed=True, most_planned=1_000), place)
    with pytest.raises(DataError, match=r"abide-aal\.fcx.*not those of 'abide-aal'"):
        published_base_model("abide-aal")
    place.unlink()
    save(start(), place)
    known = Source("abide-871", people=start().root.people_sha256, arrays="0" * 64)
    monkeypatch.setitem(BASE_MODELS, "abide-aal", known)
    with pytest.raises(DataError, match="with the policy of"):
        published_base_model("abide-aal")
    place.unlink()
    save(start(exact_allowed=True, most_planned=1_000), place)
    told = []
    published_base_model("abide-aal", told.append)
    assert "bit by bit" in told[0]
    assert "somebody put" in told[0]
    place.unlink()
    save(given(sites()[2]).exchange, place)
    with pytest.raises(DataError, match="not a base model alone"):
        published_base_model("abide-aal")
    assert bucket == []


def test_without_a_published_hash_the_ids_are_compared_and_it_is_told(
    bucket, monkeypatch
):
    """A start of ten ROIs and made-up people was taken for abide-cc200, without a word."""
    folder = published.cache_folder()
    folder.mkdir()
    mine = start(exact_allowed=True, most_planned=1_000)
    save(mine, folder / "abide-cc200.fcx")
    data_file(folder).rename(folder / "abide-871-cc200.npz")
    for use in (published_base_model, published.published_people):
        with pytest.raises(DataError, match="not those of 'abide-cc200'"):
            use("abide-cc200")
    ids = subjects_sha256([*mine.root.ids, *mine.root.left_out])
    same = abide.PUBLISHED["abide-871-cc200"]._replace(subjects_sha256=ids)
    monkeypatch.setitem(abide.PUBLISHED, "abide-871-cc200", same)
    told = []
    published_base_model("abide-cc200", told.append)
    assert "no SHA-256" in told[0]
    assert bucket == []


def test_nothing_is_kept_of_a_fetch_that_somebody_is_missing_from(bucket, monkeypatch):
    whole = abide._read_url

    def get(url):
        return whole(url) if "50007" not in url else b""

    monkeypatch.setattr(abide, "_read_url", get)
    with pytest.raises(DataError, match="39 subjects, 40 in the published file"):
        published_base_model("abide-aal")
    assert not list(published.cache_folder().glob("*"))
    with pytest.raises(ConfigError, match="abide-cc200"):
        published_base_model("abide-cc20")


@pytest.fixture
def offline(bucket, monkeypatch):
    """No network; the URLs that were asked for."""
    asked = []

    def get(url):
        asked.append(url)
        raise URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(abide, "_read_url", get)
    monkeypatch.setattr(abide, "wait", lambda seconds: None)
    return asked


def test_without_a_network_it_is_said_what_to_do(offline):
    rng = np.random.default_rng(0)
    said = consortium("base-model", "--public", "abide-aal")
    assert said.code == 2
    told = f"download of {abide.PHENOTYPES} from {abide.BUCKET} failed"
    cache = str(published.cache_folder())
    with pytest.raises(InputError) as raised:
        ConsortiumClassifier(base_model="abide-aal").fit(
            np.stack([np.corrcoef(rng.normal(size=(116, 150))) for _ in range(8)]),
            np.arange(8) % 2,
            site="here",
        )
    for text in (" ".join(said.err.split()), str(raised.value)):
        for words in (
            told,
            "Name or service not known",
            "Connect",
            cache,
            "base_model=",
        ):
            assert words in text
    assert not list(published.cache_folder().glob("*"))


@pytest.mark.filterwarnings("ignore:no SHA-256 of 'abide-aal'")
def test_the_command_and_the_estimator_use_it(bucket, tmp_path):
    answer = consortium("base-model", "--public", "abide-aal")
    assert answer.code == 0, answer.err
    people = load_folder(published.published_people("abide-aal"))
    here = people.site == "NYU"
    model = ConsortiumClassifier(base_model="abide-aal")
    with pytest.raises(InputError, match=r"20 of its people are among the public ones"):
        model.fit(people.fc[here], people.y[here], site="NYU")
    out = tmp_path / "usm.fcx"
    asked = ("--public", "abide-aal", "--without", "NYU", "--out", out)
    assert consortium("base-model", *asked, "--exact").code == 0
    assert open_exchange(out).root.sites == {"USM": 20}
    model = ConsortiumClassifier(base_model=out).fit(
        people.fc[here], people.y[here], site="NYU"
    )
    assert model.sites_ == ("NYU",)
    assert model.score(people.fc[here], people.y[here]) > 0.6
    with pytest.warns(
        UserWarning, match=r"X\[0\], whose scan looks like that of 50002"
    ):
        model.predict(people.fc[~here])
    for asked in (("--public", "abide-aal", "--people", 3), ("--without", "NYU")):
        assert "--out is missing" in consortium("base-model", *asked).err


@pytest.mark.data
def test_the_published_people_are_those_of_the_file(shared_data):
    from fcforge.data.checks import without_duplicates

    people = load_folder(shared_data / "abide1_aal116.npz")
    alone, twice = without_duplicates(people)
    assert twice == ["50602"]
    assert set(people.site_names) == set(abide.SITE_IDS)
    assert alone.content_sha256() == BASE_MODELS["abide-aal"].people


def test_the_published_arrays_were_the_same_on_all_processors():
    file = Path(__file__).parents[3] / "paper" / "results" / "published_base_model.json"
    found = json.loads(file.read_text())
    arrays = {row["arrays"] for row in found["processors"]}
    assert arrays == {BASE_MODELS["abide-aal"].arrays}
    assert len(found["processors"]) >= 4
