"""`fcforge inspect`: every question answered, in plain words, whatever the ledger holds."""

import pytest
from consortium_world import EVIL, make_capsules

from fcforge.capsule import open_capsule
from fcforge.capsule.ledger import SMALL_CELL
from fcforge.report.inspect import held_out_table, inspect_words, people


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
    assert [c.title for c in table.columns] == ["tested on", "after Sim-NYU", "after Sim-UCLA"]
    second = [cell.text for cell in table.rows[1]]
    assert second[:2] == ["Sim-UCLA", "-"]
    assert held_out_table(open_capsule(folder / "unpacked")) is None
    assert "none were made" in words(folder / "unpacked")


def test_small_counts_stay_unwritten():
    assert people({"patients": None, "controls": 12}) == (
        f"fewer than {SMALL_CELL} patients, 12 controls"
    )
