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


def test_weak_keys_and_lookalike_names_are_no_fields():
    for kind, bad in ((schema.PublicKey, "01" + "00" * 31), (schema.SiteName, "NYU ")):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(bad)


class Table(schema.Closed):
    a: int
    b: tuple[float, ...] = ()


def test_one_spelling():
    assert schema.read(TypeAdapter(Table), b'{"a":1,"b":[0.5]}', "it") == Table(
        a=1, b=(0.5,)
    )
    respelled = [b'{"b":[0.5],"a":1}', b'{"a":1, "b":[]}', b'{"a":1,"b":[1]}']
    for data in [*respelled, b'{"a":1,"a":1,"b":[]}', b'{"a":1,"b":[5e-1]}']:
        with pytest.raises(ExchangeError, match="is not written as"):
            schema.read(TypeAdapter(Table), data, "it")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"a":1,"b":[],"c":0}', b'{"a":"1","b":[]}', b"\xff"]
)
def test_what_is_wrong_is_said_with_its_place(data):
    with pytest.raises(ExchangeError) as error:
        schema.read(TypeAdapter(Table), data, "the table")
    assert "the table cannot be used" in str(error.value)


def test_a_long_value_is_cut_in_the_error():
    with pytest.raises(ExchangeError) as error:
        schema.read(TypeAdapter(Table), json.dumps({"a": "x" * 10**5}).encode(), "it")
    assert "a = 'xxx" in str(error.value)
    assert len(str(error.value)) < 300


def test_deep_json_is_no_traceback():
    with pytest.raises(ExchangeError):
        schema.read(TypeAdapter(Table), b"[" * 10**5, "it")
