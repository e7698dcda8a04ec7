from dataclasses import dataclass, field

import pytest
from exchange_records import record

from fcforge import requests
from fcforge.errors import ConfigError
from fcforge.exchange import model, records
from fcforge.exchange.exchange import Exchange


@dataclass(frozen=True)
class Asked(requests.Request):
    data: str
    epsilon: float | None = None
    accept_scans: bool = False
    trust: list[str] = field(default_factory=list)


ROOTS = {
    "start": Exchange(record(records.Start)),
    "chain": Exchange(record(records.Chain)),
}


@pytest.mark.parametrize(
    ("kind", "asked", "refused"),
    [
        ("start", Asked("a", accept_scans=True), "--accept-scans"),
        ("chain", Asked("a", epsilon=1.0), "--epsilon"),
    ],
)
def test_an_option_is_honoured_or_refused_by_name(kind, asked, refused):
    for name, root in ROOTS.items():
        if name == kind:
            with pytest.raises(ConfigError, match=refused):
                model.require_options(root, asked)
        else:
            model.require_options(root, asked)
    model.require_options(ROOTS[kind], Asked("a", trust=["k.pub"]))


def test_a_first_hospital_begins_a_chain():
    model.require_options(None, Asked("a", accept_scans=True))
    with pytest.raises(ConfigError, match="--epsilon is for a public start"):
        model.require_options(None, Asked("a", epsilon=1.0))


def test_options_exist():
    known = {
        name
        for kind in (
            requests.LearnRequest,
            requests.AuditRequest,
            requests.PredictRequest,
        )
        for name in kind.__dataclass_fields__
    }
    named = set().union(*(place.options for place in model.MODELS.values()))
    assert named - known <= {"register", "round"}  # of releases, to come
