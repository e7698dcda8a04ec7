"""Files that are whole or not there."""

import os
import shutil
from pathlib import Path

import pytest

from fcforge.core.errors import DataError, ExchangeError
from fcforge.core.files import (
    read_plain,
    sweep,
    whole_file,
    whole_folder,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_text_and_bytes_are_written_with_their_folders(tmp_path):
    write_text(tmp_path / "a" / "b" / "note.txt", "Zürich\n")
    write_bytes(tmp_path / "a" / "raw", b"\x00\xff")
    assert (tmp_path / "a" / "b" / "note.txt").read_bytes() == "Zürich\n".encode()
    assert (tmp_path / "a" / "raw").read_bytes() == b"\x00\xff"
    assert names(tmp_path / "a") == ["b", "raw"]
    assert names(tmp_path / "a" / "b") == ["note.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    out = tmp_path / "kept.txt"
    write_text(out, "old")

    def fail() -> None:
        with whole_file(out) as part:
            part.write_text("half of the n")
            assert out.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (out.read_text(), names(tmp_path)) == ("old", ["kept.txt"])
    with pytest.raises(UnicodeEncodeError):
        write_text(out, "\ud800")
    assert (out.read_text(), names(tmp_path)) == ("old", ["kept.txt"])


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as caught:
        write_text(tmp_path / "folder", "x")
    assert caught.value.filename == str(tmp_path / "folder")
    assert names(tmp_path) == ["folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "x.json"
    write_text(path, "old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError(28)))
    with pytest.raises(OSError):
        write_text(path, "new")
    assert (path.read_text(), names(path.parent)) == ("old", ["x.json"])


@pytest.mark.parametrize(
    ("name", "suffix"), [("s.1_bold.nii.gz", ".nii.gz"), ("fc.npz", ".npz"), ("x", "")]
)
def test_the_temporary_name_is_hidden_beside_the_file_and_has_its_suffix(
    tmp_path, name, suffix
):
    with whole_file(tmp_path / name) as part:
        assert part.parent == tmp_path
        assert part.name.startswith(f".{name}.")
        assert part.name.endswith(suffix)
        with whole_file(tmp_path / name) as other:
            assert other != part


def test_the_longest_name_a_disk_takes(tmp_path):
    for name in ("x" * 251 + ".txt", "é" * 127):
        write_text(tmp_path / name, "ok")
        assert names(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "private", "patient")
        with whole_folder(tmp_path / "folder") as part:
            (part / "x").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


def test_the_content_is_on_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd)))
    monkeypatch.setattr(
        os, "replace", lambda a, b: (order.append("replace"), replace(a, b))
    )
    write_text(tmp_path / "x", "x")
    assert order == ["fsync", "replace", "fsync"]  # the folder, too


def test_a_folder_appears_whole_and_never_over_another(tmp_path):
    out = tmp_path / "nodes" / "key"
    with whole_folder(out) as part:
        (part / "a").write_text("1")
        assert not out.exists()
    assert names(out) == ["a"]

    def again() -> None:
        with whole_folder(out) as part:
            (part / "b").write_text("2")

    with pytest.raises(OSError, match="not empty"):
        again()
    assert (names(out), names(out.parent)) == (["a"], ["key"])


def test_a_plain_file_up_to_the_limit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_plain(path, 5) == b"12345"
    with pytest.raises(ExchangeError, match="more than the 4 bytes") as told:
        read_plain(path, 4, ExchangeError)
    assert told.value.where == str(path)


def test_a_pipe_a_folder_a_device_and_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(DataError, match=r"not a regular file|cannot be read"):
            read_plain(path, 10)
    with pytest.raises(DataError, match="No such file"):
        read_plain(tmp_path / "none", 10)


def test_content_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Files and folders are synchronised before the rename, the folder above after it."""
    steps: list[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def synchronised(handle: int) -> None:
        steps.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def renamed(move):
        def step(old, new):
            steps.append(f"rename {Path(new).name}")
            move(old, new)

        return step

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(os, "rename", renamed(rename))
    monkeypatch.setattr(os, "replace", renamed(replace))
    with whole_folder(tmp_path / "folder") as part:
        for name in ("a", "b"):
            (part / name).write_text(name)
    assert sorted(steps[:2]) == ["fsync a", "fsync b"]
    assert steps[2].startswith("fsync .folder.")
    assert steps[3:] == ["rename folder", f"fsync {tmp_path.name}"]
    steps.clear()
    write_text(tmp_path / "note.txt", "x")
    assert steps[0].startswith("fsync .note.txt.")
    assert steps[1:] == ["rename note.txt", f"fsync {tmp_path.name}"]


def test_only_temporary_names_are_swept(tmp_path):
    with (
        whole_file(tmp_path / "a.nii.gz") as first,
        whole_folder(tmp_path / "b") as second,
    ):
        shutil.copy(first, tmp_path / first.name.replace(".a", ".c"))
        shutil.copytree(second, tmp_path / second.name.replace(".b", ".d"))
        (tmp_path / ".bashrc").touch()
        (tmp_path / ".config.d").mkdir()
        assert sweep(tmp_path) == 4
        first.touch()
        second.mkdir()
    assert names(tmp_path) == [".bashrc", ".config.d", "a.nii.gz", "b"]
