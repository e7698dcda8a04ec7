"""A round as hospitals and aggregators type it."""

import json

import pytest
import small_exchange as small

from fcforge_consortium.aggregation.aggregators import RoundList
from fcforge_consortium.records.keys import read_private
from real_runs import consortium

AGGREGATORS = ("Ministry", "University")


def test_an_aggregator_is_made_once_and_gives_its_card_away(tmp_path):
    made = consortium("aggregators", "new", "University", "--out", tmp_path / "u")
    assert made.code == 0
    assert f"--aggregator {tmp_path / 'u.card'}" in made.out
    assert '"name":"University"' in (tmp_path / "u.card").read_text()
    again = consortium("aggregators", "new", "University", "--out", tmp_path / "u")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists already" in again.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A start with two aggregators, and what three hospitals give to a round."""
    place = tmp_path_factory.mktemp("round")
    data = small.data_file(place)
    start = ["--data", data, "--sites", ",".join(small.sites()[:2])]
    for name in AGGREGATORS:
        consortium("aggregators", "new", name, "--out", place / name)
        start += ["--aggregator", place / f"{name}.card"]
    start += ["--set", "base_model.axes=4", "--out", place / "start.fcx"]
    unsigned = consortium("base-model", *start)
    assert unsigned.code == 2
    assert "must be signed" in unsigned.err
    consortium("keys", "new", place / "maker.key")
    assert consortium("base-model", *start, "--sign", place / "maker.key").code == 0
    for number, site in enumerate(small.sites()[2:5]):
        consortium("keys", "new", place / f"{number}.key")
        given = ["--site", site, "--data", data, "--state", place / "start.fcx"]
        given += ["--sign", place / f"{number}.key", "--round", "spring", "--yes"]
        given += ["--ledger", place / f"{number}.private", "--new-ledger"]
        done = consortium("contribute", *given, "--out", place / f"{number}.record")
        assert done.code == 0, done.err
        assert done.err.count("; nobody else can read it.") == 2
        assert done.out == ""  # no news of a model that has not changed
    return place


def kept(folder, command, aggregator, state, out):
    shares = sorted(folder.glob(f"*.{aggregator}.share"))
    given = ["--state", state, "--key", folder / aggregator, "--out", out]
    return consortium(command, *shares, *given)


def test_a_round_as_it_is_typed(folder, tmp_path):
    state = folder / "start.fcx"
    early = kept(folder, "aggregate", "Ministry", state, tmp_path / "x.record")
    assert early.code == 2
    assert "is not closed by both aggregators" in early.err
    wrong = kept(folder, "close", "University", state, tmp_path / "x.fcx")
    assert wrong.code == 2
    assert "'Ministry' closes it first" in wrong.err
    for aggregator, follows in zip(
        AGGREGATORS, ("University, who confirms it", "Ministry; both now"), strict=True
    ):
        out = tmp_path / f"closed by {aggregator}.fcx"
        done = kept(folder, "close", aggregator, state, out)
        assert done.code == 0, done.err
        assert f"send it to {follows}" in done.out
        state = out
    halves = []
    for aggregator in AGGREGATORS:
        halves.append(tmp_path / f"{aggregator}.record")
        done = kept(folder, "aggregate", aggregator, state, halves[-1])
        assert done.code == 0, done.err
        assert "3 hospitals" in done.out
    again = kept(folder, "aggregate", "Ministry", state, tmp_path / "again.record")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "was published before" in again.err
    half = tmp_path / "half.fcx"
    waiting = consortium("merge", folder / "start.fcx", halves[0], "--out", half)
    said = "Round 'spring' is not in the model: closed; published by Ministry alone."
    assert said in waiting.err
    assert said in consortium("predict", half, folder / "people.npz").err
    out = tmp_path / "all.fcx"
    merged = consortium("merge", folder / "start.fcx", *halves, "--out", out)
    assert merged.code == 0, merged.err
    assert "is not in the model" not in merged.err
    assert "round spring" in consortium("inspect", out).out
    assert consortium("verify", out).code == 0
    taken = ["--state", out, "--sign", folder / "0.key", "--out", tmp_path / "less.fcx"]
    site, *others = small.sites()[2:5]
    gone = consortium("withdraw", site, *taken)
    assert gone.code == 0, gone.err
    assert "round 'spring'" in gone.err
    assert all(other in gone.err for other in others)


def test_a_share_says_what_it_is(folder):
    share = next(folder.glob("*.Ministry.share"))
    told = consortium("inspect", share)
    assert told.code == 0
    assert told.out.startswith("Share of ")
    assert "Nobody can read it alone" in told.out
    assert "notice 1 of " in told.out
    (notice,) = json.loads(consortium("inspect", share, "--json").out)
    assert notice["kind"] == "notice"
    refused = consortium("inspect", share, "--html", folder / "x.html")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    untrusted = consortium("inspect", share, "--trust", folder / "Ministry.pub")
    assert untrusted.code == 2
    assert "not trusted" in untrusted.err


@pytest.mark.parametrize(
    ("command", "option"),
    [("audit", "--record"), ("contribute", "--again"), ("aggregate", "--again")],
)
def test_what_weakened_the_promise_is_gone(folder, command, option):
    """Issue 39: audits of real people in shared files, and rounds published a second time."""
    done = consortium(command, folder / "start.fcx", option)
    assert done.code == 2
    assert f"No such option: {option}" in done.err


def test_inspect_says_why_a_round_is_not_in_the_model(folder, tmp_path):
    lists = {}
    for aggregator in AGGREGATORS:
        lists[aggregator] = tmp_path / f"{aggregator}.rounds"
        key = read_private(folder / aggregator)
        new = RoundList.new(aggregator, key)
        with RoundList.open(lists[aggregator], key, new=new):
            pass
    state = folder / "start.fcx"
    for aggregator in AGGREGATORS:
        shares = sorted(folder.glob(f"*.{aggregator}.share"))
        out = tmp_path / f"{aggregator}.fcx"
        given = ["--state", state, "--key", folder / aggregator, "--out", out]
        done = consortium("close", *shares, *given, "--rounds", lists[aggregator])
        assert done.code == 0, done.err
        shown = consortium("inspect", out).out
        assert "Round 'spring' is not in the model: closed by" in shown
        state = out
    site = small.sites()[2]
    void = tmp_path / "void.fcx"
    taken = ["--state", state, "--sign", folder / "0.key", "--out", void]
    assert consortium("withdraw", site, *taken).code == 0
    shown = consortium("inspect", void)
    assert shown.code == 0, shown.err
    assert f"is not in the model: void: {site} withdrew after it was closed" in (
        " ".join(shown.out.split())
    )
    assert consortium("verify", void).code == 0
