"""`fcforge inspect`: four questions answered in plain words, whatever the ledger holds."""

from dataclasses import replace

import pytest
from capsule_chains import entry
from consortium_world import ANALYTIC, EVIL, audit, cohort, make_capsules, settings

from fcforge.capsule import LearnOptions, learn, open_capsule, seal, with_audit
from fcforge.capsule.ledger import SMALL_CELL
from fcforge.report.inspect import (
    answers,
    audits_of,
    held_out_table,
    inspect_words,
    people,
)
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
    assert signed.say == "Not everybody: the sender did not sign."
    assert attack.say == "Not measured: no audit is recorded in this file."
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
    assert answer.kind == "good"
    assert answer.more[0] == "Keys: the sender abababababababab."


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
