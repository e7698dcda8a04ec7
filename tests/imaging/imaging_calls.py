"""The two imaging commands, called as the command line calls them."""

from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from fcforge.core.errors import FCForgeError
from fcforge.imaging.app import fc_folder
from fcforge.imaging.options import FCRequest, PreprocessRequest
from fcforge.imaging.raw.pipeline import preprocess_folder
from fcforge.report import quality


def fc_command(*, say: Callable[[str], None], **options: Any) -> int:
    """`fcforge fc` with these options; its exit code."""
    return _code(lambda: fc_folder(FCRequest(**options), quality).code, say)


def preprocess_command(*, say: Callable[[str], None], **options: Any) -> int:
    """`fcforge preprocess` with these options; its exit code."""
    request = PreprocessRequest(**options)
    return _code(lambda: preprocess_folder(request, quality).code, say)


def _code(work: Callable[[], int], say: Callable[[str], None]) -> int:
    """Return the result of `work`; each line that it prints to stderr goes to `say`."""
    written = StringIO()
    try:
        with redirect_stderr(written):
            return work()
    except FCForgeError as error:
        written.write(f"error: {error}")
        return 2
    finally:
        for line in written.getvalue().splitlines():
            say(line)
