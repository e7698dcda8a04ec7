"""Files of others: plain ones of bounded size, and never a pipe that does not end."""

import os
import stat
from pathlib import Path

from fcforge.errors import DataError, FCForgeError


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
