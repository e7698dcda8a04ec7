"""Files that are written whole or not at all, and files of others that are read with limits.

Content is first written to a temporary file in the same folder (its name begins with a dot), then
forced to the disk (fsync), then renamed by `os.replace`. A process that is killed, or a machine that
loses power, leaves the old content, the new content, or a temporary file that `sweep` deletes. Two
machines that write the same path on a network drive never share a temporary name. Permissions
follow the user's umask.
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

# Names that `_temporary_path` makes.
TEMPORARY = re.compile(r"\..{1,40}\.[0-9a-f]{12}(\.nii\.gz|\.[^./]*)?", re.DOTALL)


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, private: bool = False
) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `path` when the block ends without an error.

    Parameters
    ----------
    path : path
        File to write. Missing folders above it are created. The temporary path has the same
        suffix (``.nii.gz`` too), since some writers choose the format by it.
    private : bool
        Let only the owner read the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = ".nii.gz" if path.name.endswith(".nii.gz") else path.suffix
    temporary = _temporary_path(path, suffix)
    try:
        temporary.touch(0o600 if private else 0o666, exist_ok=False)
        yield temporary
        _synchronise(temporary)
        os.replace(temporary, path)
        _synchronise(path.parent)
    except OSError as error:
        if str(error.filename) != str(temporary):
            raise
        # The user knows only the final path, so the error names that one.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes `path` when the block ends without an error.

    Every file in it, the folder and the folder above are forced to the disk (fsync).

    Parameters
    ----------
    path : path
        Folder to write. Missing folders above it are created.

    Raises
    ------
    OSError
        If `path` exists and is not empty; it stays as it is.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_path(path)
    temporary.mkdir()
    try:
        yield temporary
        for inside in temporary.rglob("*"):
            _synchronise(inside)
        _synchronise(temporary)
        os.rename(temporary, path)
        _synchronise(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _synchronise(path: Path) -> None:
    """Force a file's content, or a folder's list of entries, to the disk (fsync).

    A folder is skipped where the operating system cannot do that.
    """
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

    Parameters
    ----------
    path : path
        File that carries the lock; it is created if it is missing, and stays.
    error : FCForgeError
        Error to raise.
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
    with whole_file(path, private=private) as temporary:
        temporary.write_bytes(content)


def write_text(
    path: str | os.PathLike[str], text: str, *, private: bool = False
) -> None:
    """Write a UTF-8 file completely or not at all; only the owner may read a `private` one."""
    write_bytes(path, text.encode(), private=private)


def _temporary_path(path: Path, suffix: str = "") -> Path:
    """Return a new temporary path in the folder of `path`; a long name is cut, as systems limit it."""
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
        File, often from somebody else.
    limit : int
        Largest size in bytes.
    error : type of FCForgeError
        Class of the error for a file that cannot be read, is not regular or is too large.

    Returns
    -------
    bytes
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as stream:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise error("is not a regular file.", where=Path(path))
            # one byte more than allowed shows that the file has grown meanwhile
            data = b"" if info.st_size > limit else stream.read(limit + 1)
    except OSError as problem:
        message = f"cannot be read ({problem.strerror})."
        raise error(message, where=Path(path), do="Check the path.") from problem
    if max(info.st_size, len(data)) > limit:
        message = f"is larger than allowed: it has more than the {limit} bytes of such a file."
        raise error(message, where=Path(path))
    return data
