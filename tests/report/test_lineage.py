"""Which capsule was made from which: chains, branches, and ledgers that lie."""

from fcforge.report.shelf import Ancestor, Chain, chain_of, lineage


def ids(chain: Chain) -> list:
    return [*(c.id for c in chain.capsules), *(ids(b) for b in chain.branches)]


ANCESTRIES = [
    ("p1", (("1", "A"),)),
    ("p3", (("1", "A"), ("2", "B"), ("3", "C"), ("5", "audit"))),
    ("p4", (("1", "A"), ("2", "B"), ("4", "D"))),
    ("p9", (("9", "Z"),)),
]


def test_a_branching_chain():
    chains = lineage(ANCESTRIES)
    assert [ids(c) for c in chains] == [["1", "2", ["3", "5"], ["4"]], ["9"]]
    first, second = chains[0].capsules
    assert first == Ancestor("1", "", "A", "p1")
    assert second == Ancestor("2", "1", "B", "")  # named by ledgers, but no file lies here
    assert chains[0].branches[0].capsules[-1] == Ancestor("5", "3", "audit", "p3")


def test_the_family_of_one_capsule():
    chains = lineage(ANCESTRIES)
    assert chain_of(chains, "4") == [chains[0]]
    assert chain_of(chains, "9") == [chains[1]]
    assert chain_of(chains, "x") == []


def test_lying_ledgers_end():
    circle = [("a", (("1", "A"), ("2", "B"), ("1", "A"))), ("b", (("2", "B"), ("1", "A")))]
    assert [ids(c) for c in lineage(circle)] == [["1", "2"]]


def test_nobody():
    assert lineage([]) == []
