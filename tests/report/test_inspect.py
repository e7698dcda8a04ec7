"""`fcforge inspect`: four questions answered in plain words, whatever the ledger holds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from capsule_chains import entry
from consortium_world import ANALYTIC, EVIL, audit, cohort, make_capsules, settings

from fcforge.capsule import LearnOptions, learn, open_capsule, seal, with_audit
from fcforge.capsule.ledger import SMALL_CELL
from fcforge.report.inspect import (
    answer,
    answers,
    audits_of,
    held_out_table,
    inspect_words,
    people,
)
from fcforge.report.table import Bar
from fcforge.types import Component, LearnerSpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("inspect") / "world"
    make_capsules(found)
    return found


def words(path) -> str:
    return "\n".join(inspect_words(open_capsule(path)))


def test_who_what_how_well_how_private(folder):
    text = words(folder / "chain/3.capsule")
    wanted = (
        "Capsule ",
        "made from: ",
        "Who signed it?",
        "What travels?",
        "Does it work on real people?",
        "Can an attacker tell who took part?",
        "Sites, in the order of learning:",
        "Accuracy on each site's synthetic held-out set",
        "Prediction: ",
        "Privacy, 1 audit recorded",
    )
    order = [text.index(said) for said in wanted]
    assert order == sorted(order)
    assert "loss, on network: 0.940 [0.880, 1.000]" in text
    assert "An attacker can tell who took part." in text
    assert "Not audited as it travels now: Sim-NYU." in text


def test_an_audit_of_an_earlier_state_is_said_to_be(folder):
    text = words(folder / "chain/1.capsule")
    assert "Privacy audit: none recorded." in text
    assert "first of its chain" in text


def test_every_line_is_printable(folder):
    for name in ("evil.capsule", "unpacked"):
        for line in inspect_words(open_capsule(folder / name)):
            assert line.isprintable()
    assert EVIL in words(folder / "evil.capsule")  # text on a terminal


def test_held_out_sets_by_stage(folder):
    capsule = open_capsule(folder / "chain/2.capsule")
    table = held_out_table(capsule)
    assert [c.title for c in table.columns] == [
        "tested on",
        "after Sim-NYU",
        "after Sim-UCLA",
    ]
    second = [cell.text for cell in table.rows[1]]
    assert second[:2] == ["Sim-UCLA", "-"]
    assert held_out_table(open_capsule(folder / "unpacked")) is None
    assert "none were made" in words(folder / "unpacked")


def test_small_counts_stay_unwritten():
    assert people({"patients": None, "controls": 12}) == (
        f"fewer than {SMALL_CELL} patients, 12 controls"
    )


def test_an_answer_is_question_kind_sentence_and_more():
    found = answer("chain_signed", key="abcdef0123456789xyz")
    assert found.question == "Who signed it?"
    assert (found.kind, found.say) == ("good", "The holder of key abcdef0123456789.")
    assert len(found.more) == 1
    assert found.bars == ()
    nobody = answer("chain_signed", key="")
    assert (nobody.kind, nobody.more) == ("warn", ())


def told_group(n: int = 0, records: int | None = None):
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
    found = answer("releases_signed", group=told_group(n), unsigned=unsigned)
    assert (found.kind, found.say) == (kind, say)


def test_exact_releases_alarm_and_withdrawn_ones_are_named():
    fine = answer("releases_travel", group=told_group(2), exact=[], withdrawn=[])
    assert (fine.kind, len(fine.more)) == ("good", 2)
    assert fine.say == "A public start and 17 numbers for each of 2 releases."
    bad = answer(
        "releases_travel", group=told_group(1), exact=["NYU"], withdrawn=["UM"]
    )
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
    assert (
        found.say == "The public start alone is right for 60.0 %; guessing gets 55.0 %."
    )
    assert found.bars == (bar,)
    unknown = answer("releases_work", bar=None, n=None, commonest="guessing")
    assert (unknown.kind, unknown.bars) == ("warn", ())


def test_what_an_attack_can_reach_is_said_in_hundreds():
    worst = SimpleNamespace(spent=1.5, delta=1e-3, site="NYU")
    found = answer(
        "releases_attacked", exact=[], worst=worst, bound=0.8187, audits=["Seen."]
    )
    assert found.kind == "warn"  # epsilon above 1
    assert (
        found.say
        == "No attack can be right more than 82 times in 100; guessing gets 50."
    )
    assert "epsilon 1.5 (delta 0.001) per person, largest at NYU." in found.more[0]
    assert found.more[1] == "Seen."
    exact = answer(
        "releases_attacked", exact=["UM"], worst=worst, bound=None, audits=()
    )
    assert (exact.kind, exact.more) == (
        "alarm",
        ("Treat this capsule as patient data.",),
    )
    nobody = answer("releases_attacked", exact=[], worst=None, bound=None, audits=())
    assert (nobody.kind, nobody.say) == ("", "Nobody took part yet.")


def told_capsule(keeps: str = "statistics", holds_real: bool = False):
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
    found = travels(told_capsule())
    assert found.kind == "warn"
    assert found.say == "The network and summary statistics of each site's subjects."
    assert found.more == (
        "7 network parameters; method state: none.",
        "3 synthetic and 2 real remembered subjects.",
        "1 synthetic held-out subject, never trained on.",
        "No raw scan is stored. That is not the same as private: see the audit.",
    )
    assert travels(told_capsule("nothing")).kind == "good"
    assert travels(told_capsule("nothing", holds_real=True)).kind == "alarm"
    exact = travels(told_capsule(), exact=True, budget="Epsilon 1.")
    assert exact.kind == "alarm"
    assert exact.more[4:] == (
        "Epsilon 1.",
        "Exact statistics give away who was added to them: treat as patient data.",
    )


def test_the_largest_arrays_are_named_and_the_rest_counted():
    arrays = [
        {
            "name": f"state/a{k}",
            "shape": (k, 2),
            "bytes": 1000 * (9 - k),
            "scan_like": k == 1,
        }
        for k in range(6)
    ]
    (said, *_) = travels(told_capsule(), state=arrays).more
    assert (
        "a0 0x2, 9 kB; a1 1x2, 8 kB, True rows like scans; a2 2x2, 7 kB; a3 3x2, 6 kB"
        in said
    )
    assert said.endswith("; 2 more arrays, 9 kB.")


def test_own_tests_of_a_chain():
    good = SimpleNamespace(site="NYU", accuracy=0.7, majority=0.55, useful=True)
    poor = SimpleNamespace(site="UM", accuracy=None, majority=None, useful=False)
    found = answer("chain_works", tests=[good, poor], commonest="guessing")
    assert found.kind == "warn"  # the last site counts
    assert found.say == "Right for n/a of the real test subjects of UM."
    assert found.more[0].startswith(
        "Better than the commonest class, beyond chance, at 1 of 2"
    )
    assert answer("chain_works", tests=[good], commonest="guessing").kind == "good"
    assert answer("chain_works", tests=[], commonest="guessing").kind == "warn"


@pytest.fixture(scope="module")
def capsule(tmp_path_factory):
    path = tmp_path_factory.mktemp("trust") / "1.capsule"
    site = cohort().site.tolist()[0]
    learn(None, site, cohort(), path, settings=settings(ANALYTIC, 10))
    return open_capsule(path)


def with_tests(capsule, *entries):
    """The capsule with other numbers in its ledger."""
    made = [
        {
            **capsule.entries[0],
            "number": k,
            "site": e["site"],
            "metrics": {**capsule.entries[0]["metrics"], **e["metrics"]},
            "counts": {**capsule.entries[0]["counts"], **e["counts"]},
        }
        for k, e in enumerate(entries)
    ]
    return replace(
        capsule, entries=tuple(made), sites=tuple(e["site"] for e in entries)
    )


def test_nobody_signed_and_nobody_audited(capsule):
    signed, travels, works, attack = answers(capsule)
    assert (signed.kind, attack.kind) == ("warn", "warn")
    assert signed.say.startswith("Nobody")
    assert attack.say == "Not measured: no audit of this capsule is recorded."
    assert travels.kind == "alarm"
    assert any("Exact statistics give away" in more for more in travels.more)
    assert works.question == "Does it work on real people?"


def test_a_signature_names_its_key(capsule):
    answer = answers(
        replace(
            capsule,
            entries=(*capsule.entries[:-1], {**capsule.entries[-1], "key": "ab" * 32}),
        )
    )[0]
    assert (answer.kind, answer.say) == ("good", "The holder of key abababababababab.")


def test_real_accuracy_stands_beside_the_commonest_class(capsule):
    made = with_tests(capsule, entry("UM", 0.9, 30, 30), entry("NYU", 0.6271, 33, 26))
    answer = answers(made)[2]
    assert answer.kind == "warn"  # 62.7 % with an interval that reaches below 55.9 %
    assert answer.say == (
        "Right for 62.7 % of the real test subjects of NYU; always naming the commonest class "
        "gets 55.9 %."
    )
    assert answer.more[0].startswith(
        "Better than the commonest class, beyond chance, at 1 of 2"
    )
    nyu = answer.bars[1]
    assert (nyu.name, nyu.value, nyu.line) == ("NYU", 0.6271, pytest.approx(33 / 59))
    assert (nyu.line_is, nyu.small) == (
        "always naming the commonest class",
        "59 test subjects",
    )


def test_suppressed_counts_are_said_to_be(capsule):
    answer = answers(with_tests(capsule, entry("X", 0.5, None, 30)))[2]
    assert answer.say == "Right for 50.0 % of the real test subjects of X, rounded."
    assert (
        answer.bars[0].small
        == f"rounded, fewer than {SMALL_CELL} in a class: no interval"
    )
    assert answer.bars[0].line_is == ""


def test_no_test_subjects(capsule):
    answer = answers(with_tests(capsule, entry("X", None, 0, 0)))[2]
    assert answer.say == "Not known: no hospital kept real test subjects."


def test_the_worst_audit_counts(capsule):
    site = capsule.sites[0]
    once = with_audit(capsule, audit(site, leak=0.5).to_ledger())
    assert answers(once)[3].kind == "good"
    twice = with_audit(replace(once, id="x"), audit(site, leak=0.9).to_ledger())
    answer = answers(twice)[3]
    assert answer.kind == "alarm"
    assert answer.bars[0].value == 0.9
    assert [bool(found) for *_, found in audits_of(twice)] == [True, True]


def test_real_subjects_are_an_alarm(tmp_path):
    er = LearnerSpec(Component("er"), Component("linear"))
    site = cohort().site.tolist()[0]
    path = tmp_path / "real.capsule"
    learn(
        None,
        site,
        cohort(),
        path,
        settings=settings(er, 10),
        options=LearnOptions(allow_real_subjects=True),
    )
    answer = answers(open_capsule(path))[1]
    assert answer.kind == "alarm"
    assert "REAL SUBJECTS" in answer.say
    assert any(more.startswith("WARNING") for more in answer.more)
    assert not any("No raw scan" in more for more in answer.more)
    seal(open_capsule(path), tmp_path / "again.capsule", allow_real_subjects=True)
