"""Four questions, answered from plain facts: every branch of the words."""

from types import SimpleNamespace

import pytest

from fcforge.report.inspect import answer
from fcforge.report.table import Bar


def test_an_answer_is_question_kind_sentence_and_more():
    found = answer("chain_signed", key="abcdef0123456789xyz")
    assert found.question == "Who signed it?"
    assert (found.kind, found.say) == ("good", "The holder of key abcdef0123456789.")
    assert len(found.more) == 1
    assert found.bars == ()
    nobody = answer("chain_signed", key="")
    assert (nobody.kind, nobody.more) == ("warn", ())


def group(n: int = 0, records: int | None = None):
    arrays, papers = SimpleNamespace(n_axes=15), {"people": 300}
    return SimpleNamespace(
        releases=[None] * n,
        records=[None] * (n if records is None else records),
        sites=[f"S{k}" for k in range(n)],
        start=SimpleNamespace(arrays=arrays, papers=papers),
    )


@pytest.mark.parametrize(
    ("n", "unsigned", "kind", "say"),
    [
        (0, [], "", "No hospital has given anything yet."),
        (2, ["S1"], "warn", "Not everybody: S1 did not sign."),
        (1, [], "good", "Every hospital signed its own numbers (1 hospital)."),
    ],
)
def test_who_signed_releases(n, unsigned, kind, say):
    found = answer("releases_signed", group=group(n), unsigned=unsigned)
    assert (found.kind, found.say) == (kind, say)


def test_exact_releases_alarm_and_withdrawn_ones_are_named():
    fine = answer("releases_travel", group=group(2), exact=[], withdrawn=[])
    assert (fine.kind, len(fine.more)) == ("good", 2)
    assert fine.say == "A public start and 17 numbers for each of 2 releases."
    bad = answer("releases_travel", group=group(1), exact=["NYU"], withdrawn=["UM"])
    assert bad.kind == "alarm"
    assert bad.more[2:] == (
        "WARNING: exact numbers without noise from NYU.",
        "Withdrawn, and no longer in the model: UM.",
    )


@pytest.mark.parametrize(("low", "kind"), [(0.56, "good"), (0.54, "warn")])
def test_a_start_is_good_where_its_interval_is_above_the_majority(low, kind):
    bar = Bar("public start", 0.6, low, 0.7, 0.55, "guessing")
    found = answer("releases_work", bar, bar=bar, n=120, commonest="guessing")
    assert found.kind == kind
    assert found.say == "The public start alone is right for 60.0 %; guessing gets 55.0 %."
    assert found.bars == (bar,)
    unknown = answer("releases_work", bar=None, n=None, commonest="guessing")
    assert (unknown.kind, unknown.bars) == ("warn", ())


def test_what_an_attack_can_reach_is_said_in_hundreds():
    worst = SimpleNamespace(spent=1.5, delta=1e-3, site="NYU")
    found = answer("releases_attacked", exact=[], worst=worst, bound=0.8187, audits=["Seen."])
    assert found.kind == "warn"  # epsilon above 1
    assert found.say == "No attack can be right more than 82 times in 100; guessing gets 50."
    assert "epsilon 1.5 (delta 0.001) per person, largest at NYU." in found.more[0]
    assert found.more[1] == "Seen."
    exact = answer("releases_attacked", exact=["UM"], worst=worst, bound=None, audits=())
    assert (exact.kind, exact.more) == ("alarm", ("Treat this capsule as patient data.",))
    nobody = answer("releases_attacked", exact=[], worst=None, bound=None, audits=())
    assert (nobody.kind, nobody.say) == ("", "Nobody took part yet.")


def capsule(keeps: str = "statistics", holds_real: bool = False):
    return SimpleNamespace(
        settings=SimpleNamespace(keeps=keeps),
        holds_real=holds_real,
        remembered=[0] * 5,
        held_out=[0],
    )


def travels(what, state=(), **more):
    facts = {"n_params": 7, "state": state, "real": 2, "budget": "", "exact": False}
    return answer("chain_travels", capsule=what, **(facts | more))


def test_what_travels_in_a_chain():
    found = travels(capsule())
    assert found.kind == "warn"
    assert found.say == "The network and summary statistics of each site's subjects."
    assert found.more == (
        "7 network parameters; method state: none.",
        "3 synthetic and 2 real remembered subjects.",
        "1 synthetic held-out subject, never trained on.",
        "No raw scan is stored. That is not the same as private: see the audit.",
    )
    assert travels(capsule("nothing")).kind == "good"
    assert travels(capsule("nothing", holds_real=True)).kind == "alarm"
    exact = travels(capsule(), exact=True, budget="Epsilon 1.")
    assert exact.kind == "alarm"
    assert exact.more[4:] == (
        "Epsilon 1.",
        "Exact statistics give away who was added to them: treat as patient data.",
    )


def test_the_largest_arrays_are_named_and_the_rest_counted():
    arrays = [
        {"name": f"state/a{k}", "shape": (k, 2), "bytes": 1000 * (9 - k), "scan_like": k == 1}
        for k in range(6)
    ]
    (said, *_) = travels(capsule(), state=arrays).more
    assert "a0 0x2, 9 kB; a1 1x2, 8 kB, True rows like scans; a2 2x2, 7 kB; a3 3x2, 6 kB" in said
    assert said.endswith("; 2 more arrays, 9 kB.")


def test_own_tests_of_a_chain():
    good = SimpleNamespace(site="NYU", accuracy=0.7, majority=0.55, useful=True)
    poor = SimpleNamespace(site="UM", accuracy=None, majority=None, useful=False)
    found = answer("chain_works", tests=[good, poor], commonest="guessing")
    assert found.kind == "warn"  # the last site counts
    assert found.say == "Right for n/a of the real test subjects of UM."
    assert found.more[0].startswith("Surely better than the commonest class at 1 of 2 sites.")
    assert answer("chain_works", tests=[good], commonest="guessing").kind == "good"
    assert answer("chain_works", tests=[], commonest="guessing").kind == "warn"
