import json
from contextlib import nullcontext

import pytest
from exchange_records import CONTENT, SHA, key_of, public_of, record

from fcforge.core.errors import ExchangeError
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.canonical import canonical
from fcforge_consortium.records.kinds import read_record


@pytest.fixture(params=CONTENT, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def test_a_line_is_read_as_it_was_written(kind):
    made = record(kind, signer="NYU")
    again = read_record(made.line)
    assert again == made
    assert again.id == made.id
    assert again.key == public_of("NYU")


def test_every_kind_is_known():
    for kind in CONTENT:
        assert type(read_record(record(kind).line)) is kind


def places(value, path=()):
    """Every place in nested JSON where another field could hide."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, (*path, i))


def test_nothing_hides_in_a_record(kind):
    """86 scans went as `result.scans` of an audit, 13 MB in a field of a step."""
    made = record(kind)
    for path in places(json.loads(made.line)):
        if path[:1] == ("settings",) or path in [("sites",), ("ranges",)]:
            continue  # tables of names: bounded, and held against the data by the model
        if path == ("held_out",):
            continue
        data = json.loads(made.line)
        inner = data
        for step in path:
            inner = inner[step]
        inner["scans"] = [0.5] * 10
        with pytest.raises(ExchangeError, match=r"scans = \[0.5"):
            read_record(canonical(data))


def test_another_encoding_of_a_signature_is_refused(kind):
    made = record(kind, signer="NYU")
    data = json.loads(made.line)
    for other in (made.signature.upper(), " " + made.signature, made.signature + "00"):
        with pytest.raises(ExchangeError):
            read_record(canonical({**data, "signature": other}))
    with pytest.raises(ExchangeError, match="has a key without a signature"):
        made.changed(signature="").checked()


def test_a_signature_covers_every_field(kind):
    made = record(kind, signer="NYU")
    for name, value in {
        "number": 2,
        "time": "2026-01-01T00:00:00Z",
        "site": "UM",
    }.items():
        with pytest.raises(ExchangeError):
            made.changed(**{name: value}).checked()
    with pytest.raises(ExchangeError, match=r"signature|both keys"):
        made.changed(key=public_of("UM")).checked()


def test_a_signature_for_something_else_is_none():
    made = record(records.Contribution, signer="NYU")
    text = made.content.removeprefix(records.CONTEXT)
    other = key_of("NYU").sign(text).hex()
    with pytest.raises(ExchangeError, match="has an invalid signature"):
        made.changed(signature=other).checked()


def test_size_parents_and_arrays_are_held_to_the_kind(kind):
    made = record(kind)
    wrong = {"payload": "" if made.payload else SHA}
    handed_on = kind.passes_on and not wrong["payload"]  # learned in one process
    expected = pytest.raises(
        ExchangeError, match=r"lost its arrays|names arrays, which"
    )
    with nullcontext() if handed_on else expected:
        made.changed(**wrong).checked()
    other = (SHA,) if made.is_root else ()
    with pytest.raises(ExchangeError, match="must have parents"):
        made.changed(parents=other).checked()
    with pytest.raises(ExchangeError, match="twice"):
        record(records.Notice, parents=(SHA, SHA))


def test_a_record_is_no_longer_than_its_kind():
    shares = {f"Hospital {number}": 0.5 for number in range(20_000)}
    assert len(record(records.Step).line) < records.Step.limit
    with pytest.raises(ExchangeError, match="at most 262144 are allowed"):
        record(records.Step, held_out=shares)
    with pytest.raises(ExchangeError, match="at most 4194304 are allowed"):
        read_record(b"[" * (records.LONGEST + 1))


def test_an_unknown_kind_is_refused():
    data = {**json.loads(record(records.Notice).line), "kind": "capsule"}
    with pytest.raises(ExchangeError, match="'capsule'"):
        read_record(canonical(data))


def test_what_cannot_be_a_record_is_said():
    with pytest.raises(
        ExchangeError, match=r"a withdrawal of 'NYU' .*takes.0.number = 0"
    ):
        record(
            records.Withdrawal,
            takes=({"kind": "contribution", "number": 0, "commitment": SHA},),
        )


def test_a_budget_of_which_nothing_is_expected_is_told_by_its_numbers():
    gains = {None: 0.05, 4.0: 0.02, 1.0: 0.004}
    rows = [
        records.ExpectedGainRow(
            epsilon=epsilon, aggregators=True, gain=gain, error=0.005
        )
        for epsilon, gain in gains.items()
    ]
    expected_gain = records.ExpectedGain(public=0.7, pooled=0.06, rows=tuple(rows))
    found = record(records.BaseModelRecord, expected_gain=expected_gain)
    for epsilon in (1.0, 0.5):
        assert "(gain +0.004 ± 0.005)" in found.hopeless(epsilon, aggregators=True)
    for epsilon in (2.0, 4.0, 8.0, None):  # the next row that is not below has worth
        assert not found.hopeless(epsilon, aggregators=True)
    assert not found.hopeless(1.0, aggregators=False)  # nothing is known of that way
