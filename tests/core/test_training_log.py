"""Logs as JSON and back."""

import json

import pytest

from fcforge.core.training_log import Entry, SiteLog, entries_of


def test_a_log_comes_back_from_json_as_it_was():
    log = SiteLog()
    log.add("loss/total", 1, 0.1)
    log.add("loss/total", 2, float("inf"))
    log.add("replay/quota", 1, 12, "NYU")
    log.add_history({"kl": [3.0, 2.0]})
    entries = list(log)
    assert entries[0] == Entry("loss/total", "", 1, 0.1)
    assert entries[-1] == Entry("generator/kl", "", 2, 2.0)
    assert entries_of(json.loads(json.dumps(log.to_json()))) == entries


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": 1},
        [{"name": "x"}],
        [{"name": "x", "past_site": "", "epochs": [1, 2], "values": [1.0]}],
        [{"name": "x", "past_site": "", "epochs": ["one"], "values": [1.0]}],
    ],
)
def test_what_is_no_log_is_refused(wrong):
    with pytest.raises((ValueError, TypeError, KeyError)):
        entries_of(wrong)
