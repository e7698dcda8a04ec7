import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from fcforge.errors import ExchangeError
from fcforge.exchange.payload import load_arrays, save_arrays


def test_arrays_are_read_as_they_were_stored():
    given = {
        "b": np.arange(3),
        "a": np.array(0.5),
        "none": np.zeros((0, 4), np.float32),
    }
    found = load_arrays(save_arrays(given), "start")
    assert list(found) == ["a", "b", "none"]
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape


def hidden(header):
    """Bytes of one array whose header says more than it should."""
    text = json.dumps(
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, **header}
    )
    return struct.pack("<Q", len(text)) + text.encode() + b"abcd"


def test_nothing_hides_beside_the_arrays():
    assert set(load_arrays(save_arrays({"a": np.zeros(4, np.uint8)}), "it")) == {"a"}
    spaced = hidden({})  # spaces after commas
    scans = save({"a": np.zeros(2)}, metadata={"scans": "0.25 0.5"})
    for data in (hidden({"__metadata__": {"scans": "0.25"}}), spaced, scans):
        with pytest.raises(ExchangeError, match="hide"):
            load_arrays(data, "release")


@pytest.mark.parametrize("data", [b"", b"x" * 40, struct.pack("<Q", 2**62) + b"{}"])
def test_damage_is_no_traceback(data):
    with pytest.raises(ExchangeError, match="cannot be read"):
        load_arrays(data, "release")


@pytest.mark.parametrize("bad", [np.array([np.nan]), np.array([1e308 * 10])])
def test_numbers_are_finite(bad):
    with pytest.raises(ExchangeError, match="no number"):
        load_arrays(save_arrays({"a": bad}), "release")
