"""What is found below a folder, and what is refused before it is read."""

import numpy as np
import pytest

from fcforge.messages import ExchangeError, StoreError
from fcforge.report import discovery
from fcforge.report.discovery import find_items, reason, require_plain_run


def touch(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_runs_exchange_files_audits_and_judgements_are_found(tmp_path):
    touch(tmp_path / "runs/a/experiment.json")
    touch(tmp_path / "runs/a/audit.json")  # belongs to the run
    touch(tmp_path / "x.fcx")
    touch(tmp_path / "judged/records.json")
    touch(tmp_path / "judged/portraits.npz")
    touch(tmp_path / "nyu/audit.json")
    touch(tmp_path / "notes.txt", b"PK\3\4 but no exchange")
    touch(tmp_path / ".hidden/y.fcx")
    items = find_items(tmp_path)
    assert [(i.kind, i.name) for i in items] == [
        ("judged", "judged"),
        ("audit", "nyu/audit.json"),
        ("run", "runs/a"),
        ("exchange", "x.fcx"),
    ]
    assert len({i.page for i in items}) == len(items)


def test_links_are_not_followed(tmp_path):
    outside = touch(tmp_path / "outside/secret.fcx")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.fcx").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    assert find_items(inside) == []


def test_pages_have_plain_names_that_differ(tmp_path):
    touch(tmp_path / "a b/<img src=x>.fcx")
    touch(tmp_path / "a/b-<img src=x>.fcx")
    pages = [i.page for i in find_items(tmp_path)]
    assert len(set(pages)) == 2
    for page in pages:
        assert page.startswith("exchange-a-b-img-src-x-fcx-")
        assert set(page) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_an_odd_name_is_shown_without_its_escapes(tmp_path):
    touch(tmp_path / "\x1b[31m.fcx")
    assert find_items(tmp_path)[0].name == "?[31m.fcx"


def test_the_folder_itself_may_be_a_run(tmp_path):
    touch(tmp_path / "demo/experiment.json")
    items = find_items(tmp_path / "demo")
    assert [(i.kind, i.name) for i in items] == [("run", "demo")]


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
    assert reason(ExchangeError("torn\x1b.", where="/home/me/x")) == "torn?."
    assert (
        reason(FileNotFoundError(2, "No such file", "/home/me"))
        == "cannot be read (No such file)."
    )
    assert reason(KeyError("x")) == "is not as fcforge writes it (KeyError)."
