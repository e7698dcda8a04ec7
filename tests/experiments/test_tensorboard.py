"""Event files, read back by an independent decoder and, where it is installed, by TensorBoard."""

import math
import struct

import pytest

from fcforge.experiments.tensorboard import Scalar, crc32c, event_file

POINTS = [Scalar("loss/current", 1, 0.5), Scalar("réplay/Ω", 300, float("nan"))]


def unmasked(word: bytes) -> int:
    rotated = (struct.unpack("<I", word)[0] - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def records(data: bytes):
    while data:
        length, data = data[:8], data[8:]
        size = struct.unpack("<Q", length)[0]
        assert unmasked(data[:4]) == crc32c(length)
        content, checksum = data[4 : 4 + size], data[4 + size : 8 + size]
        assert unmasked(checksum) == crc32c(content)
        yield message(content)
        data = data[8 + size :]


def message(data: bytes) -> dict[int, object]:
    """Fields of a protocol buffer by number."""

    def varint():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    found = {}
    while data:
        tag = varint()
        kind = tag & 7
        size = {1: 8, 5: 4}.get(kind)
        if kind == 0:
            found[tag >> 3] = varint()
            continue
        size = varint() if size is None else size
        found[tag >> 3], data = data[:size], data[size:]
    return found


def test_the_checksum_is_crc_32c():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_an_event_file_holds_its_points():
    first, *events = records(event_file(POINTS, 12.5))
    assert first[3] == b"brain.Event:2"
    for event, point in zip(events, POINTS, strict=True):
        assert struct.unpack("<d", event[1])[0] == 12.5
        assert event[2] == point.step
        value = message(message(event[5])[1])
        assert value[1].decode() == point.tag
        (number,) = struct.unpack("<f", value[2])
        assert number == point.value or math.isnan(point.value)


def test_tensorboard_reads_an_event_file(tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed",
    )
    (tmp_path / "events.out.tfevents.0000000001.x").write_bytes(event_file(POINTS, 1.0))
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [e.step for e in found.Scalars("loss/current")] == [1]
    assert [e.value for e in found.Scalars("loss/current")] == [0.5]
