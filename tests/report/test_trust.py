"""Can I trust it? The four answers, from hand-made ledgers."""

from dataclasses import replace

import pytest
from consortium_world import ANALYTIC, audit, cohort, settings

from fcforge.capsule import LearnOptions, learn, open_capsule, seal, with_audit
from fcforge.capsule.contents import OwnTest, own_tests, wilson
from fcforge.capsule.ledger import SMALL_CELL
from fcforge.report.inspect import answers, audits_of
from fcforge.types import Component, LearnerSpec


def entry(site: str, accuracy: float | None, patients: int | None, controls: int | None) -> dict:
    own = None if accuracy is None else {"accuracy": accuracy}
    counts = {"test": {"patients": patients, "controls": controls}}
    return {"kind": "learn", "site": site, "metrics": {"own_test": own}, "counts": counts}


@pytest.fixture(scope="module")
def capsule(tmp_path_factory):
    path = tmp_path_factory.mktemp("trust") / "1.capsule"
    site = cohort().site.tolist()[0]
    learn(None, site, cohort(), path, settings=settings(ANALYTIC, 10))
    return open_capsule(path)


def with_tests(capsule, *entries):
    """The capsule with other numbers in its ledger."""
    made = [
        {**capsule.entries[0], "number": k, "site": e["site"], "metrics": {
            **capsule.entries[0]["metrics"], **e["metrics"]}, "counts": {
            **capsule.entries[0]["counts"], **e["counts"]}}
        for k, e in enumerate(entries)
    ]  # fmt: skip
    return replace(capsule, entries=tuple(made), sites=tuple(e["site"] for e in entries))


def test_own_tests_by_hand():
    """37 of 59 right where 33 are patients: 62.7 % against 55.9 %."""
    found = own_tests([entry("NYU", 0.6271, 33, 26), entry("UM", None, 10, 10)])
    assert len(found) == 1
    test = found[0]
    assert (test.site, test.n, test.majority) == ("NYU", 59, pytest.approx(33 / 59))
    assert (test.low, test.high) == (
        pytest.approx(0.4998, abs=1e-3),
        pytest.approx(0.739, abs=1e-3),
    )
    assert not test.useful
    assert own_tests([entry("UM", 0.95, 50, 50)])[0].useful


def test_small_counts_have_no_interval():
    (found,) = own_tests([entry("X", 0.5, None, 30)])
    assert found == OwnTest("X", 0.5)
    assert not found.useful


def test_wilson_is_scipys():
    from scipy.stats import binomtest

    for k, n in ((0, 12), (5, 12), (12, 12), (370, 590)):
        exact = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((exact.low, exact.high), abs=1e-6)


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
        replace(capsule, entries=(*capsule.entries[:-1], {**capsule.entries[-1], "key": "ab" * 32}))
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
    assert answer.more[0].startswith("Surely better than the commonest class at 1 of 2 sites.")
    nyu = answer.bars[1]
    assert (nyu.name, nyu.value, nyu.line) == ("NYU", 0.6271, pytest.approx(33 / 59))
    assert (nyu.line_is, nyu.small) == ("always naming the commonest class", "59 test subjects")


def test_suppressed_counts_are_said_to_be(capsule):
    answer = answers(with_tests(capsule, entry("X", 0.5, None, 30)))[2]
    assert answer.say == "Right for 50.0 % of the real test subjects of X, rounded."
    assert answer.bars[0].small == f"rounded, fewer than {SMALL_CELL} in a class: no interval"
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
