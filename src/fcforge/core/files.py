"""Files that are written whole or not at all, and files of others that are read with limits.

What is written goes to a temporary name in the same folder (it begins with a dot), is synchronised
with the disk (fsync) and then takes its name by `os.replace`. A process that is killed, or a machine
that loses power, leaves the old content, the new content, or a temporary name that `sweep` deletes.
Two machines that write the same path on a network drive never share a temporary name. Permissions
are the user's own (umask).
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from fcforge.core.errors import DataError, FCForgeError

# Names that `_beside` makes.
TEMPORARY = re.compile(r"\..{1,40}\.[0-9a-f]{12}(\.nii\.gz|\.[^./]*)?", re.DOTALL)


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, private: bool = False
) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `path` when the block ends without an error.

    Parameters
    ----------
    path : path
        Folders above it are made. The temporary path has its suffix (``.nii.gz`` too), for
        writers that go by it.
    private : bool
        Let only the owner read the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path, ".nii.gz" if path.name.endswith(".nii.gz") else path.suffix)
    try:
        part.touch(0o600 if private else 0o666, exist_ok=False)
        yield part
        _synchronise(part)
        os.replace(part, path)
        _synchronise(path.parent)
    except OSError as error:
        if str(error.filename) != str(part):
            raise
        # name the path that was asked for
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes `path` when the block ends without an error.

    Every file in it, the folder and the folder above are synchronised with the disk.

    Raises
    ------
    OSError
        If `path` exists and is not empty; it stays as it is.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        for inside in part.rglob("*"):
            _synchronise(inside)
        _synchronise(part)
        os.rename(part, path)
        _synchronise(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _synchronise(path: Path) -> None:
    """Write a file, or the entries of a folder, to the disk; not every system can do the latter."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        if is_folder:
            return
        raise
    try:
        os.fsync(handle)
    except OSError:
        if not is_folder:
            raise
    finally:
        os.close(handle)


def sweep(folder: str | os.PathLike[str]) -> int:
    """Delete temporary files and folders that killed processes left in a folder.

    Call it only while no other process writes there.

    Returns
    -------
    int
        Number of files and folders that were deleted.
    """
    count = 0
    for path in Path(folder).glob(".*"):
        if not TEMPORARY.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        count += 1
    return count


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], error: FCForgeError) -> Iterator[None]:
    """Hold the lock of a file while the block runs; raise `error` if another process holds it.

    The operating system releases the lock of a process that is killed. Where a system or a drive
    has no locks, the block runs without one.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(path, "a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise error from problem
        except OSError:  # a drive without locks
            pass
        yield


def write_bytes(
    path: str | os.PathLike[str], content: bytes, *, private: bool = False
) -> None:
    """Write a file completely or not at all; only the owner may read a `private` one."""
    with whole_file(path, private=private) as part:
        part.write_bytes(content)


def write_text(
    path: str | os.PathLike[str], text: str, *, private: bool = False
) -> None:
    """Write a UTF-8 file completely or not at all; only the owner may read a `private` one."""
    write_bytes(path, text.encode(), private=private)


def _beside(path: Path, suffix: str = "") -> Path:
    """Return a temporary path in the folder of `path`, cut since names have a longest length."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}{suffix}")


def read_plain(
    path: str | os.PathLike[str], limit: int, error: type[FCForgeError] = DataError
) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes.

    The open file is examined before it is read, so that a pipe or a device in its place neither
    blocks nor fills the memory.

    Parameters
    ----------
    path : path
    limit : int
    error : type of FCForgeError
        Class of the error for a file that cannot be read, is not regular or is too large.
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
