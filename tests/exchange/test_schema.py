import json

import pytest
from pydantic import TypeAdapter, ValidationError

from fcforge.errors import ExchangeError
from fcforge.exchange import schema


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            schema.Sha256,
            "0a" * 32,
            ["0A" * 32, "0a" * 31, "0a" * 32 + "\n", " " + "0a" * 32],
        ),
        (schema.Signature, "0a" * 64, ["0a " * 64, "0A" * 64, ""]),
        (
            schema.Time,
            "2026-11-16T09:00:00Z",
            ["2026-02-30T09:00:00Z", "2101-01-01T00:00:00Z"],
        ),
        (schema.Version, "2.13.0+cpu", ["", "1.0\n", "x" * 41, "1 0"]),
        (schema.Text, "", ["a\x1b[31m", "x" * 201, "\u202eUYN"]),
        (schema.Rational, "12/5", ["1.5", "-1", "1/0", "01", "1e3", "9" * 41]),
        (schema.Share, 0.5, [1.5, -0.1, float("nan"), "0.5", True]),
        (schema.Number, -3.0, [1e10, float("inf")]),
        (schema.Count, 3, [-1, 10**400, 1.0, "3"]),
    ],
)
def test_every_type_has_bounds(kind, good, bad):
    adapter = TypeAdapter(kind, config=schema.Closed.model_config | {"frozen": None})
    assert adapter.validate_python(good) == good
    for value in bad:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def times_eight(y):
    """The point of this y on the curve of Ed25519, added to itself three times."""
    p = schema.CURVE
    d = -121665 * pow(121666, -1, p) % p
    square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
    x = pow(square, (p + 3) // 8, p)
    if (x * x - square) % p:
        x = x * pow(2, (p - 1) // 4, p) % p
    for _ in range(3):
        k = d * x * x * y * y % p
        doubled = 2 * x * y * pow(1 + k, -1, p) % p
        y = (y * y + x * x) * pow(1 - k, -1, p) % p
        x = doubled
    return x, y


def test_keys_of_small_order_are_weak():
    for y in schema.SMALL_ORDER:
        assert times_eight(y) == (0, 1)
        for sign in (0, 1 << 255):
            key = (y + sign).to_bytes(32, "little").hex()
            with pytest.raises(ValidationError):
                TypeAdapter(schema.PublicKey).validate_python(key)
    beyond = (schema.CURVE + 1).to_bytes(32, "little").hex()  # the point 1 once more
    with pytest.raises(ValidationError):
        TypeAdapter(schema.PublicKey).validate_python(beyond)


class Table(schema.Closed):
    a: int
    b: tuple[float, ...] = ()


def test_one_spelling():
    assert schema.read(Table, b'{"a":1,"b":[0.5]}', "it") == Table(a=1, b=(0.5,))
    respelled = [b'{"b":[0.5],"a":1}', b'{"a":1, "b":[]}', b'{"a":1,"b":[1]}']
    for data in [*respelled, b'{"a":1,"a":1,"b":[]}', b'{"a":1,"b":[5e-1]}']:
        with pytest.raises(ExchangeError, match="is not written as"):
            schema.read(Table, data, "it")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"a":1,"b":[],"c":0}', b'{"a":"1","b":[]}', b"\xff"]
)
def test_what_is_wrong_is_said_with_its_place(data):
    with pytest.raises(ExchangeError) as error:
        schema.read(Table, data, "the table")
    assert "the table cannot be used" in str(error.value)


def test_a_long_value_is_cut_in_the_error():
    with pytest.raises(ExchangeError) as error:
        schema.read(Table, json.dumps({"a": "x" * 10**5}).encode(), "it")
    assert "a = 'xxx" in str(error.value)
    assert len(str(error.value)) < 300


def test_deep_json_is_no_traceback():
    with pytest.raises(ExchangeError):
        schema.read(Table, b"[" * 10**5, "it")
