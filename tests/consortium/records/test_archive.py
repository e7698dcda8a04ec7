import io
import json
import os
import re
import struct
import zipfile

import numpy as np
import pytest
from exchange_records import ARRAYS, SHA, record
from safetensors.numpy import save

from fcforge.core.errors import ExchangeError
from fcforge_consortium.records import archive
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import Contents, load_arrays, save_arrays
from fcforge_consortium.records.canonical import sha256


@pytest.fixture(scope="module")
def contents():
    root = record(records.BaseModelRecord)
    audit = record(records.Withdrawal, parents=(root.id,))
    return Contents((root, audit), {root.payload: ARRAYS})


@pytest.fixture(scope="module")
def data(contents):
    return archive.pack(contents)


def test_a_file_is_read_as_it_was_written(contents, tmp_path):
    path = archive.write(archive.pack(contents), tmp_path / "a.fcx")
    assert archive.read(path) == contents
    assert path.stat().st_mode & 0o777 == 0o600
    names = zipfile.ZipFile(path).namelist()
    assert names == [
        "manifest.json",
        "records.jsonl",
        f"payloads/{contents[0][0].payload}.safetensors",
    ]


def test_order_does_not_matter(contents):
    root, last = contents.records
    first = record(records.Notice, parents=(root.id,))
    second = record(records.Contribution, parents=(first.id,))
    some = [second, last, first, root]
    assert archive.in_order(some) == archive.in_order(some[::-1])
    assert archive.in_order(some)[0] == root
    assert archive.in_order(some).index(first) < archive.in_order(some).index(second)


def test_every_flipped_bit_is_seen(data):
    for place in range(0, len(data), 7):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(ExchangeError):
            archive.unpack(bytes(broken))


def test_every_cut_is_seen(data):
    for end in range(0, len(data), 61):
        with pytest.raises(ExchangeError):
            archive.unpack(data[:end])
    with pytest.raises(ExchangeError):
        archive.unpack(data + b"\0")


def zipped(parts, how=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as box:
        for name, part in parts.items():
            box.writestr(name, part)
    return out.getvalue()


def parts_of(data):
    box = zipfile.ZipFile(io.BytesIO(data))
    return {name: box.read(name) for name in box.namelist()}


def test_other_zips_are_refused(data):
    parts = parts_of(data)
    with pytest.raises(ExchangeError, match="compressed"):
        archive.unpack(zipped(parts, zipfile.ZIP_DEFLATED))
    with pytest.raises(ExchangeError, match="something other"):
        archive.unpack(zipped(parts))  # another date
    for name in ("../x", "payloads/notes.txt", f"payloads/{SHA}.safetensors"):
        with pytest.raises(ExchangeError, match="do not belong to its records"):
            archive.unpack(zipped({**parts, name: b"scans"}))


@pytest.mark.parametrize(
    ("form", "version", "reader"),
    [
        ("fcforge-capsule", 1, "0.1"),
        ("fcforge-capsule", 3, "0.2 before 16 November 2026"),
        ("fcforge-consortium", 2, "0.1"),
        ("fcforge-consortium", 3, "0.2 before 16 November 2026"),
        ("fcforge-exchange", 4, "0.2"),
    ],
)
def test_older_files_are_refused_by_name(form, version, reader):
    old = zipped({"manifest.json": json.dumps({"format": form, "version": version})})
    with pytest.raises(ExchangeError) as error:
        archive.unpack(old)
    assert (
        f"format {form} version {version}, which fcforge {reader} reads"
        in error.value.what
    )
    assert f"Read it with fcforge {reader}" in error.value.do
    assert ("count as without noise" in error.value.do) == (form != archive.FORMAT)


@pytest.mark.parametrize(
    "said",
    [
        {"format": archive.FORMAT, "version": 6},
        {"format": "x", "version": 5},
        {"format": ["fcforge-exchange"], "version": 4},
        {"format": archive.FORMAT, "version": [4]},
    ],
    ids=str,
)
def test_other_versions_are_refused(said):
    with pytest.raises(ExchangeError, match=re.escape(str(said["version"]))):
        archive.unpack(zipped({"manifest.json": json.dumps(said)}))


@pytest.mark.parametrize("said", [b"", b"[]", b"{}", b"[" * 10**5, b'{"format":1}'])
def test_no_manifest(said):
    with pytest.raises(ExchangeError, match="manifest"):
        archive.unpack(zipped({"manifest.json": said}))


def test_many_generations_end(contents):
    """A long chain of parents must not take hours to sort."""
    line = [contents.records[0]]
    for number in range(1, 2_000):
        line.append(record(records.Contribution, number=number, parents=(line[-1].id,)))
    assert archive.in_order(line[::-1]) == tuple(line)


def test_places(contents, tmp_path):
    taken = tmp_path / "a.fcx"
    archive.write(archive.pack(contents), taken)
    for out, why in ((taken, "exists"), (tmp_path, "exists")):
        with pytest.raises(ExchangeError, match=why):
            archive.require_place(out)
    archive.require_place(tmp_path / "new" / "b.fcx")


def test_only_regular_files_of_some_size_are_read(tmp_path, data, monkeypatch):
    path = tmp_path / "a.fcx"
    path.write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    for other, why in (
        (tmp_path, "directory"),
        (tmp_path / "b", "No such"),
        (tmp_path / "pipe", "regular"),
    ):
        with pytest.raises(ExchangeError, match=why) as error:
            archive.read(other)
        assert str(other) in error.value.where
    monkeypatch.setattr(archive, "MAX_BYTES", len(data) - 1)
    with pytest.raises(ExchangeError, match="larger"):
        archive.read(path)


def test_a_full_disk_is_said(contents, tmp_path, monkeypatch):
    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "write_bytes", full)
    with pytest.raises(ExchangeError, match="No space left"):
        archive.write(archive.pack(contents), tmp_path / "a.fcx")
    assert not (tmp_path / "a.fcx").exists()


def test_the_manifest_names_every_part(data):
    parts = parts_of(data)
    said = json.loads(parts.pop("manifest.json"))
    assert said["parts"] == {name: sha256(part) for name, part in parts.items()}


# -- arrays ----------------------------------------------------------------------------------------
def test_arrays_are_read_as_they_were_stored():
    given = {
        "b": np.arange(3),
        "a": np.array(0.5),
        "none": np.zeros((0, 4), np.float32),
    }
    found = load_arrays(save_arrays(given), "start")
    assert list(found) == ["a", "b", "none"]
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape


def hidden(header):
    """Bytes of one array whose header says more than it should."""
    text = json.dumps(
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, **header}
    )
    return struct.pack("<Q", len(text)) + text.encode() + b"abcd"


def test_nothing_hides_beside_the_arrays():
    assert set(load_arrays(save_arrays({"a": np.zeros(4, np.uint8)}), "it")) == {"a"}
    spaced = hidden({})  # spaces after commas
    scans = save({"a": np.zeros(2)}, metadata={"scans": "0.25 0.5"})
    for data in (hidden({"__metadata__": {"scans": "0.25"}}), spaced, scans):
        with pytest.raises(ExchangeError, match="hide"):
            load_arrays(data, "contribution 1")


@pytest.mark.parametrize("data", [b"", b"x" * 40, struct.pack("<Q", 2**62) + b"{}"])
def test_damage_is_no_traceback(data):
    with pytest.raises(ExchangeError, match="cannot be read"):
        load_arrays(data, "contribution 1")


@pytest.mark.parametrize("bad", [np.array([np.nan]), np.array([1e308 * 10])])
def test_numbers_are_finite(bad):
    with pytest.raises(ExchangeError, match="not finite numbers"):
        load_arrays(save_arrays({"a": bad}), "contribution 1")


def test_entries_and_lines_are_counted_before_they_are_read(monkeypatch):
    monkeypatch.setattr(archive, "MAX_RECORDS", 3)
    entries = archive._zipped({f"part {k}": b"" for k in range(6)})
    monkeypatch.setattr(zipfile, "ZipFile", None)  # it makes an object of each entry
    with pytest.raises(ExchangeError, match="has 6 parts; at most 5"):
        archive.unpack(entries)
    with pytest.raises(ExchangeError, match="has 4 records; at most 3"):
        archive._read_lines(b"\n" * 4)
