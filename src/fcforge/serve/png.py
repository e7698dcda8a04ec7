"""A matrix as a PNG, one pixel per cell, written with the standard library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

# Colour-blind safe: ColorBrewer's red-blue (diverging), and a white-to-plum ramp (sequential).
DIVERGING = ("#2166ac", "#67a9cf", "#d1e5f0", "#f7f7f7", "#fddbc7", "#ef8a62", "#b2182b")
SEQUENTIAL = ("#ffffff", "#e7e1ef", "#c994c7", "#df65b0", "#980043", "#4d0022")


def colours(values: np.ndarray, ramp: tuple[str, ...], low: float, high: float) -> np.ndarray:
    """Colours (..., 3), uint8, of values between `low` and `high`."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in ramp], dtype=float)
    at = np.clip((values - low) / ((high - low) or 1.0), 0, 1) * (len(ramp) - 1)
    at = np.nan_to_num(at, nan=0.0)
    k = np.minimum(at.astype(int), len(ramp) - 2)
    mixed = stops[k] + (stops[k + 1] - stops[k]) * (at - k)[..., None]
    return mixed.round().astype(np.uint8)


def png(rgb: np.ndarray) -> bytes:
    """PNG file of (height, width, 3) uint8."""
    height, width, _ = rgb.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), rgb.reshape(height, -1)], axis=1)
    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
