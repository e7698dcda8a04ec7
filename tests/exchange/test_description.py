"""Answers to the four questions: what is good, what warns and what alarms, decided from numbers."""

from typing import NamedTuple

import pytest

from fcforge.exchange import description
from fcforge.exchange.description import Bar
from fcforge.exchange.records import AttackRow


class Signed(NamedTuple):
    site: str
    key: str


def test_who_signed():
    nobody = description.who_signed([])
    assert (nobody.kind, nobody.question) == ("", "Who signed it?")
    some = description.who_signed([Signed("NYU", "ab" * 32), Signed("UM", "")])
    assert (some.kind, some.say) == ("warn", "Not everybody: UM did not sign.")
    all_of_them = [Signed("UM", "cd" * 32), Signed("NYU", "ab" * 32)]
    good = description.who_signed(all_of_them)
    assert good.kind == "good"
    assert good.more[0] == f"Keys: NYU {'ab' * 8}, UM {'cd' * 8}."


def test_releases_without_noise_alarm():
    plain = description.releases_travel(18, 2, 300)
    assert plain.kind == "good"
    assert plain.say == "A public start and 18 numbers for each of 2 releases."
    assert "300 public people" in plain.more[0]
    odd = description.releases_travel(18, 1, 300, exact=["NYU"], withdrawn=["UM"])
    assert odd.kind == "alarm"
    assert [line.rsplit(" ", 1)[1] for line in odd.more[2:]] == ["NYU.", "UM."]


@pytest.mark.parametrize(
    ("keeps", "exact", "real", "level"),
    [
        ("nothing", False, False, "good"),
        ("synthetic subjects", False, False, "warn"),
        ("statistics", True, False, "alarm"),
        ("real subjects", False, True, "alarm"),
    ],
)
def test_what_a_chain_carries(keeps, exact, real, level):
    answer = description.chain_travels(
        keeps, ["12 parameters."], exact=exact, real_subjects=real
    )
    assert answer.kind == level
    assert answer.more[0] == "12 parameters."
    assert any("No raw scan" in line for line in answer.more) != real
    assert any("Exact statistics" in line for line in answer.more) == exact


def test_accuracy_is_good_when_its_interval_is_above_the_commonest_class():
    um = Bar("UM", 0.9, 0.8, 0.95, 0.5)
    nyu = Bar("NYU", 0.627, 0.5, 0.74, 0.559)
    answer = description.works_at_home([um, nyu])
    assert answer.kind == "warn"  # of the last site: it reaches below 55.9 %
    assert "62.7 %" in answer.say
    assert "55.9 %" in answer.say
    assert "at 1 of 2 sites" in answer.more[0]
    assert description.works_at_home([nyu, um]).kind == "good"
    rounded = description.works_at_home([Bar("X", 0.5)])
    assert (rounded.kind, rounded.say[-10:]) == ("warn", ", rounded.")
    assert description.works_at_home([]).kind == "warn"


def test_a_start_is_held_against_the_commonest_class():
    works = description.works_at_unseen_sites
    assert works((0.66, 0.6, 0.72), 0.55, 400).kind == "good"
    answer = works((0.66, 0.5, 0.8), 0.55, 40)
    assert answer.kind == "warn"
    assert (answer.bars[0].low, answer.bars[0].line) == (0.5, 0.55)
    assert works(None, None, 4).say.startswith("Not known")


def attack(auc: float, beats_chance: bool) -> AttackRow:
    return AttackRow(
        release="network",
        attack="loss",
        auc=auc,
        tpr_at_1pct_fpr=0.0,
        identified=None,
        control_auc=0.5,
        beats_chance=beats_chance,
        reference=False,
    )


def test_the_strongest_attack_decides():
    weak = attack(0.95, False)
    strong = attack(0.9, True)
    answer = description.strongest_attack([weak, strong], ["UM"])
    assert answer.kind == "alarm"
    assert (answer.bars[0].value, answer.bars[0].kind) == (0.9, "leak")
    assert answer.more[-1] == "Not audited as it travels now: UM."
    assert description.strongest_attack([weak], []).kind == "good"
    assert description.strongest_attack([], ["UM"]).kind == "warn"


def test_what_is_promised():
    good = description.promised_privacy("NYU", 1.0, 1e-5, 0.731, ["Audited."])
    assert (good.kind, good.more[-1]) == ("good", "Audited.")
    assert "more than 73 times in 100" in good.say
    assert "(at NYU)" in good.more[0]
    assert description.promised_privacy("NYU", 4.0, 1e-5, 0.98).kind == "warn"
    assert description.exact_numbers(["NYU"]).kind == "alarm"
    assert description.nobody_took_part().kind == ""
