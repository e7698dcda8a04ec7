"""A thousand damaged capsules: each one rejected with one clear error, nothing written."""

import os
import shutil
from pathlib import Path

import pytest
from capsule_chains import SITES, chain
from damage import DAMAGES, PARTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fcforge.capsule import container as box
from fcforge.capsule import open_capsule, verify
from fcforge.errors import CapsuleError


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> dict[str, bytes]:
    """Parts of a capsule with remembered subjects, after two sites."""
    path = chain("tiny", SITES[:2], tmp_path_factory.mktemp("sound"))[-1]
    assert open_capsule(path).sites == SITES[:2]
    return box.read_parts(path, box.CHAIN)


def put(thing: bytes | dict[str, bytes], folder: Path) -> Path:
    path = folder / "sent"
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if isinstance(thing, bytes):
        path.write_bytes(thing)
    else:
        path.mkdir()
        for name, data in thing.items():
            (path / name).write_bytes(data)
    return path


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    found = sorted(p for p in folder.rglob("*"))
    return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in found]


def assert_rejected(path: Path) -> None:
    with pytest.raises(CapsuleError) as caught:
        open_capsule(path)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert len(text) < 500
    assert str(path) in text
    checks = verify(path)
    assert [c.ok for c in checks] == [True] * (len(checks) - 1) + [False]


def peak_growth(work) -> float:
    """MiB by which memory rose above its level before `work`, at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def test_a_blow_up_would_be_seen() -> None:
    assert peak_growth(lambda: bytearray(200 * 2**20)) > 150


EACH = 60
assert EACH * len(DAMAGES) >= 1000


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damaged_capsules_are_rejected(damage, sound, tmp_path) -> None:
    tried: set[int] = set()

    @settings(
        max_examples=EACH,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def reject(data) -> None:
        sent = damage(data.draw, sound)
        tried.add(
            hash(sent if isinstance(sent, bytes) else tuple(sorted(sent.items())))
        )
        path = put(sent, tmp_path)
        before = snapshot(tmp_path)
        assert_rejected(path)
        assert snapshot(tmp_path) == before

    open_capsule(put(box.pack(sound), tmp_path))  # the undamaged one opens
    grown = peak_growth(reject)
    if grown >= 60:  # a first import or thread pool happens once, a blow-up every time
        grown = peak_growth(reject)
    assert grown < 60, f"memory grew by {grown} MiB"
    assert len(tried) >= 3


@pytest.mark.parametrize("name", PARTS)
def test_every_byte_of_small_parts_matters(sound, tmp_path, name) -> None:
    """Not a sample: each of the first and last 40 bytes of each part."""
    data = sound[name]
    for place in {
        *range(min(40, len(data))),
        *range(max(0, len(data) - 40), len(data)),
    }:
        changed = bytearray(data)
        changed[place] ^= 0x04
        assert_rejected(put({**sound, name: bytes(changed)}, tmp_path))


def test_links_folders_and_pipes_are_not_followed(sound, tmp_path) -> None:
    for name in (box.LANE, box.MANIFEST):
        path = put(dict(sound), tmp_path)
        (tmp_path / "elsewhere").write_bytes(sound[name])
        (path / name).unlink()
        (path / name).symlink_to(tmp_path / "elsewhere")
        assert_rejected(path)
        (path / name).unlink()
        (path / name).mkdir()
        assert_rejected(path)
        (path / name).rmdir()
        os.mkfifo(path / name)
        assert_rejected(path)  # and does not wait for a writer
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(CapsuleError):
        open_capsule(path)


def test_a_file_larger_than_allowed_is_not_read(sound, tmp_path) -> None:
    path = put(box.pack(sound), tmp_path)
    with pytest.raises(
        CapsuleError, match="is not a regular file of at most 1000 bytes"
    ):
        open_capsule(path, max_bytes=1000)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as stream:
        stream.truncate(5 << 30)
    with pytest.raises(CapsuleError, match="of at most"):
        open_capsule(sparse)


def test_the_zip_is_an_ordinary_zip(sound, tmp_path) -> None:
    """Any tool can look into it, and the folder it unpacks to is as good."""
    import zipfile

    path = put(box.pack(sound), tmp_path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == list(PARTS)
        archive.extractall(tmp_path / "out")
    assert open_capsule(tmp_path / "out").id == open_capsule(path).id


def test_no_such_file(tmp_path) -> None:
    with pytest.raises(CapsuleError, match="no such capsule"):
        open_capsule(tmp_path / "none.capsule")
