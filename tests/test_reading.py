"""Plain files are read; what would hang or fill the memory is refused at once."""

import os
from pathlib import Path

import pytest

from fcforge.errors import DataError, ExchangeError
from fcforge.reading import read_plain


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
