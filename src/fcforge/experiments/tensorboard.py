"""TensorBoard event files of scalars, written without TensorBoard.

An event file is a sequence of TFRecords. A record is the length of its data (8 bytes, little
endian), a checksum of the length, the data, and a checksum of the data; a checksum is a masked
CRC-32C. The data are a protocol buffer of type ``Event``
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/event.proto).
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

VERSION = b"brain.Event:2"  # first record of every file
CASTAGNOLI = 0x82F63B78  # polynomial of CRC-32C, reflected
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # wire types of protocol buffers


class Scalar(NamedTuple):
    """One point of a curve.

    Attributes
    ----------
    tag : str
        Name of the curve; TensorBoard groups curves by what precedes the first slash.
    step : int
    value : float
    """

    tag: str
    step: int
    value: float


def event_file(scalars: Iterable[Scalar], seconds: float) -> bytes:
    """Return the content of an event file.

    Numbers of the fields in event.proto and summary.proto: an Event has wall_time (1), step (2), file_version
    (3) and summary (5); a Summary has value (1); a Value has tag (1) and simple_value (2).

    Parameters
    ----------
    scalars : iterable of Scalar
    seconds : float
        Time of all points since 1970.
    """
    clock = _field(1, DOUBLE, struct.pack("<d", seconds))
    records = [_record(clock + _text(3, VERSION))]
    for tag, step, value in scalars:
        point = _text(1, tag.encode()) + _field(2, FLOAT, struct.pack("<f", value))
        summary = _text(5, _text(1, point))
        records.append(_record(clock + _field(2, VARINT, _varint(step)) + summary))
    return b"".join(records)


def _varint(number: int) -> bytes:
    """Return a whole number in groups of seven bits, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer: its number and type, then its content."""
    return _varint(number << 3 | wire_type) + content


def _text(number: int, content: bytes) -> bytes:
    """Return a field of bytes, which begin with their length."""
    return _field(number, BYTES, _varint(len(content)) + content)


def _record(data: bytes) -> bytes:
    """Return a TFRecord of some data."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _table() -> list[int]:
    """Return the CRC-32C of every byte, from which longer ones are computed."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ CASTAGNOLI * (crc & 1)
        table.append(crc)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    """Return the masked checksum of a record: CRC-32C rotated by 15 bits, plus a constant."""
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)
