"""What reading somebody's files may raise, and how to say it in one line."""

from __future__ import annotations

import zlib
from zipfile import BadZipFile

from fcforge.errors import FCForgeError

BROKEN = (
    FCForgeError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    EOFError,
    zlib.error,
    BadZipFile,
)


def reason(error: BaseException) -> str:
    """One line, without the place of files on this machine."""
    if isinstance(error, FCForgeError):
        return error.what
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})."
    return f"is not as fcforge writes it ({type(error).__name__})."
