"""What is found below a folder, what is refused before it is read, and which came from which."""

import numpy as np
import pytest

from fcforge.capsule.container import LEDGER, MANIFEST
from fcforge.errors import CapsuleError, StoreError
from fcforge.report import discovery
from fcforge.report.discovery import (
    Ancestor,
    Chain,
    chain_of,
    find_items,
    lineage,
    reason,
    require_plain_run,
)


def touch(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_runs_capsules_and_audits_are_found(tmp_path):
    touch(tmp_path / "runs/a/experiment.json")
    touch(tmp_path / "runs/a/audit.json")  # belongs to the run
    touch(tmp_path / "x.capsule")
    touch(tmp_path / "renamed.bin", b"PK\3\4" + bytes(26) + MANIFEST.encode() + b"...")
    touch(tmp_path / f"open/{MANIFEST}")
    touch(tmp_path / f"open/{LEDGER}")
    touch(tmp_path / "nyu/audit.json")
    touch(tmp_path / "notes.txt", b"PK\3\4 but no capsule")
    touch(tmp_path / ".hidden/y.capsule")
    items, cut = find_items(tmp_path)
    assert [(i.kind, i.name) for i in items] == [
        ("audit", "nyu/audit.json"),
        ("capsule", "open"),
        ("capsule", "renamed.bin"),
        ("run", "runs/a"),
        ("capsule", "x.capsule"),
    ]
    assert not cut
    assert len({i.page for i in items}) == len(items)


def test_links_are_not_followed(tmp_path):
    outside = touch(tmp_path / "outside/secret.capsule")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.capsule").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    assert find_items(inside) == ([], False)


def test_pages_have_plain_names_that_differ(tmp_path):
    touch(tmp_path / "a b/<img src=x>.capsule")
    touch(tmp_path / "a/b-<img src=x>.capsule")
    pages = [i.page for i in find_items(tmp_path)[0]]
    assert len(set(pages)) == 2
    for page in pages:
        assert page.startswith("capsule-a-b-img-src-x-capsule-")
        assert set(page) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_an_odd_name_is_shown_without_its_escapes(tmp_path):
    touch(tmp_path / "\x1b[31m.capsule")
    assert find_items(tmp_path)[0][0].name == "?[31m.capsule"


def test_the_folder_itself_may_be_a_run(tmp_path):
    touch(tmp_path / "demo/experiment.json")
    items, _ = find_items(tmp_path / "demo")
    assert [(i.kind, i.name) for i in items] == [("run", "demo")]


def test_the_search_ends(tmp_path, monkeypatch):
    for k in range(5):
        touch(tmp_path / f"{k}.capsule")
    monkeypatch.setattr(discovery, "MOST_ITEMS", 3)
    assert len(find_items(tmp_path)[0]) == 3
    monkeypatch.setattr(discovery, "MOST_ENTRIES", 2)
    assert find_items(tmp_path) == ([], True)


def test_a_run_with_links_or_huge_scores_is_refused(tmp_path, monkeypatch):
    node = tmp_path / "nodes" / "ab"
    node.mkdir(parents=True)
    np.savez_compressed(node / "scores.npz", x=np.zeros(10_000))
    require_plain_run(tmp_path)
    monkeypatch.setattr(discovery, "MOST_SCORES", 10_000)
    with pytest.raises(StoreError, match="too large"):
        require_plain_run(tmp_path)
    (node / "scores.npz").unlink()
    (node / "scores.npz").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="links are not followed"):
        require_plain_run(tmp_path)


def test_reasons_name_no_place_on_this_machine(tmp_path):
    assert reason(CapsuleError("torn\x1b.", where="/home/me/x")) == "torn?."
    assert (
        reason(FileNotFoundError(2, "No such file", "/home/me"))
        == "cannot be read (No such file)."
    )
    assert reason(KeyError("x")) == "is not as fcforge writes it (KeyError)."


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
    assert second == Ancestor(
        "2", "1", "B", ""
    )  # named by ledgers, but no file lies here
    assert chains[0].branches[0].capsules[-1] == Ancestor("5", "3", "audit", "p3")


def test_the_family_of_one_capsule():
    chains = lineage(ANCESTRIES)
    assert chain_of(chains, "4") == [chains[0]]
    assert chain_of(chains, "9") == [chains[1]]
    assert chain_of(chains, "x") == []


def test_lying_ledgers_end():
    circle = [
        ("a", (("1", "A"), ("2", "B"), ("1", "A"))),
        ("b", (("2", "B"), ("1", "A"))),
    ]
    assert [ids(c) for c in lineage(circle)] == [["1", "2"]]


def test_nobody():
    assert lineage([]) == []
