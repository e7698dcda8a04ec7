"""Files of others, opened with limits; files of one's own, whole or not there at all.

What is written goes to a temporary name in the same folder (it begins with a dot), then to the
disk, then takes its name by `os.replace`: whatever kills the process, nothing is half there. Two
machines writing the same path on a network drive cannot share a temporary name. Permissions are
the user's own (umask).
"""

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from fcforge.core.errors import DataError, FCForgeError


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, private: bool = False
) -> Iterator[Path]:
    """Write to the path that is handed out; when the block ends well it becomes `path`.

    Folders above `path` are made. The path handed out has the suffix of `path` (``.nii.gz``
    too), for writers that go by it. A `private` file can be read by its owner only.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path, ".nii.gz" if path.name.endswith(".nii.gz") else path.suffix)
    try:
        part.touch(0o600 if private else 0o666, exist_ok=False)
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        if str(error.filename) != str(part):
            raise
        raise OSError(
            error.errno, error.strerror, str(path)
        ) from error  # the one asked for
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill the folder that is handed out; when the block ends well it becomes `path`.

    A `path` that is there with something in it stays, and `OSError` is raised.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_bytes(
    path: str | os.PathLike[str], content: bytes, *, private: bool = False
) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path, private=private) as part:
        part.write_bytes(content)


def write_text(
    path: str | os.PathLike[str], text: str, *, private: bool = False
) -> None:
    """Write a UTF-8 file, whole or not at all."""
    write_bytes(path, text.encode(), private=private)


def _beside(path: Path, suffix: str = "") -> Path:
    """Temporary name in the folder of `path`; cut, since a long name may leave no room for more."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}{suffix}")


def read_plain(
    path: str | os.PathLike[str], limit: int, error: type[FCForgeError] = DataError
) -> bytes:
    """Bytes of a regular file of at most `limit` bytes; else `error`.

    What is opened is looked at before it is read, so that a pipe or a device put in its place
    neither blocks nor fills the memory.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as stream:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise error("is not a regular file.", where=Path(path))
            data = b"" if info.st_size > limit else stream.read(limit + 1)
    except OSError as problem:
        what = f"cannot be read ({problem.strerror})."
        raise error(what, where=Path(path), do="Check the path.") from problem
    if max(info.st_size, len(data)) > limit:
        what = f"is larger than allowed: it has more than the {limit} bytes of such a file."
        raise error(what, where=Path(path))
    return data
