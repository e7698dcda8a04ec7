"""The two imaging commands, called as the command line calls them."""

from collections.abc import Callable
from typing import Any

from fcforge.imaging.app import fc_folder
from fcforge.imaging.options import FCRequest, PreprocessRequest
from fcforge.imaging.raw.pipeline import preprocess_folder
from fcforge.messages import FCForgeError
from fcforge.report import quality


def fc_command(*, say: Callable[[str], None], **options: Any) -> int:
    """`fcforge fc` with these options; its exit code."""
    return _code(
        lambda: fc_folder(FCRequest(**options), say=say, pages=quality).code, say
    )


def preprocess_command(*, say: Callable[[str], None], **options: Any) -> int:
    """`fcforge preprocess` with these options; its exit code."""
    request = PreprocessRequest
    return _code(
        lambda: preprocess_folder(request(**options), say=say, pages=quality).code, say
    )


def _code(work: Callable[[], int], say: Callable[[str], None]) -> int:
    try:
        return work()
    except FCForgeError as error:
        say(f"error: {error}")
        return 2
