"""What stays at home: entries prove the people, budgets add up, and nothing is half done."""

import errno
import multiprocessing
import os
import stat

import numpy as np
import pytest
from people_at_home import FC, IDS, PEOPLE, N, Y, entry, opened, scans

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge_consortium.ledger import journal
from fcforge_consortium.ledger.entries import Spent
from fcforge_consortium.ledger.journal import _write_hidden, head_of
from fcforge_consortium.ledger.ledger import Ledger, default_ledger
from fcforge_consortium.ledger.people import people_of, same_people
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.records.canonical import to_canonical
from fcforge_consortium.records.policy import Policy

POLICY = Policy(max_epsilon=3.0, max_delta=1e-5, exact_allowed=True)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "fcforge.private"


# -- a file that only grows ------------------------------------------------------------------------
def hold(place, ready, go_on):
    with opened(place):
        ready.set()
        go_on.wait(30)


def test_two_at_once_are_refused_and_looking_is_not(place):
    fork = multiprocessing.get_context("fork")
    ready, go_on = fork.Event(), fork.Event()
    other = fork.Process(target=hold, args=(place, ready, go_on))
    other.start()
    assert ready.wait(30)
    with pytest.raises(DataError, match="in use by another") as told, opened(place):
        pass
    assert told.value.where == str(place)
    assert Ledger.read(place).entries == ()
    go_on.set()
    other.join()
    with opened(place):
        pass


HEADER = to_canonical(Ledger.new("NYU")).decode()
HEADER = f"{HEADER}\t{head_of('', HEADER.encode())}\n"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "{}\n",
        '{"format":"fcforge-rounds","kind":"header","version":1}\n',
        HEADER.replace("private", "rounds"),
        HEADER.replace('"version":2', '"version":3'),
        HEADER.replace("{", '{"more":0,'),
        HEADER.replace('"site":"NYU"', '"site":"UM"'),
        HEADER + "\n",
        HEADER + '{"kind":"x"}\n',
        HEADER + HEADER,
    ],
)
def test_what_is_not_a_ledger_is_told_and_stays(text, place):
    place.write_text(text)
    for use in (Ledger.read, lambda p: Ledger.open(p).__enter__()):
        with pytest.raises(ExchangeError) as told:
            use(place)
        assert str(place) in told.value.where
        assert place.read_text() == text


@pytest.mark.parametrize("whole_line", [False, True])
def test_an_entry_that_was_cut_off_is_not_taken_for_one_that_was_begun(
    place, whole_line
):
    """Its people would spend again: what it paid for has been given."""
    with opened(place) as private:
        private.publish(entry(), {place.with_name("nyu.record"): b"given"})
    data = place.read_bytes()
    last = data.rfind(b"\n", 0, -1) + 1
    place.write_bytes(data[:last] if whole_line else data[:-20])
    with (
        pytest.raises(ExchangeError, match=r"cut off.*Restore your backup"),
        opened(place),
    ):
        pass
    place.write_bytes(data)
    with opened(place) as private:
        assert len(private.entries) == 1


def test_a_damaged_entry_is_not_taken_for_none(place):
    with opened(place) as private:
        private.publish(entry(), {})
    whole = place.read_bytes()
    for old, new in (
        (b'"p0"', b'"p9"x'),
        (b'"epsilon":1.0', b'"epsilon":-1.0'),
        (b'"epsilon":1.0', b'"epsilon":0.5'),
    ):
        place.write_bytes(whole.replace(old, new))
        with pytest.raises(ExchangeError, match="line 3"):
            Ledger.read(place)
    os.mkfifo(place.with_name("pipe"))
    with pytest.raises(DataError, match="regular file"):
        Ledger.read(place.with_name("pipe"))
    with pytest.raises(DataError, match="does not exist"):
        Ledger.read(place.with_name("none"))


# -- both or neither -----------------------------------------------------------------------------
class Killed(BaseException):
    """Nothing is cleaned up after it, as after kill -9."""


STEPS = ("open", "write", "fsync", "replace", "ftruncate")


def stopping(monkeypatch, at, what):
    """Let the `at`-th call that touches the disk fail with `what`; how many there were."""
    calls = []
    for name in STEPS:
        real = getattr(os, name)

        def step(*given, real=real, **named):
            calls.append(real.__name__)
            if len(calls) == at:
                raise what
            return real(*given, **named)

        monkeypatch.setattr(journal.os, name, step)
    return calls


def give(place, outs, kept):
    with opened(place) as private:
        private.publish(kept, {out: out.name.encode() * 9 for out in outs})


def killed_at(at, folder, monkeypatch, what):
    place = folder / "fcforge.private"
    outs = [folder / "nyu.exchange", folder / "nyu.share"]
    kept = entry()
    with monkeypatch.context() as patch:
        calls = stopping(patch, at, what)
        try:
            give(place, outs, kept)
        except (Killed, ExchangeError, DataError) as error:
            return place, outs, len(calls) < at, error
    return place, outs, True, None


def agreement(place, outs):
    """Whether people were charged, having looked that all files are there or none is."""
    with opened(place) as private:
        charged = bool(private.entries)
    files = {p.name for p in place.parent.iterdir()}
    assert files == {place.name, *(out.name for out in outs if charged)}
    for out in outs if charged else ():
        assert out.read_bytes() == out.name.encode() * 9
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    return charged


def test_killed_at_every_moment_register_and_files_agree(tmp_path, monkeypatch):
    charged = []
    for at in range(1, 100):
        (tmp_path / str(at)).mkdir()
        place, outs, done, _ = killed_at(at, tmp_path / str(at), monkeypatch, Killed())
        charged.append(agreement(place, outs))
        if done:
            break
    assert done
    assert charged == sorted(charged)  # first never, then always
    assert charged.count(False) > 4
    assert charged.count(True) > 3


def test_what_was_never_paid_for_gets_no_name_later(tmp_path, monkeypatch):
    """Killed before the entry, the folder away, given elsewhere, the folder back."""
    stick = tmp_path / "stick"
    place = tmp_path / "fcforge.private"
    real = _write_hidden

    def dying(placed, data):
        real(placed, data)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_write_hidden", dying)
        with pytest.raises(Killed):
            give(place, [stick / "mine.fcx"], entry())
    stick.rename(tmp_path / "away")
    give(place, [tmp_path / "other.fcx"], entry())
    (tmp_path / "away").rename(stick)
    with opened(place) as private:
        assert len(private.entries) == 1
    assert list(stick.iterdir()) == []


def test_a_full_disk_charges_nobody_and_says_so(tmp_path, monkeypatch):
    for at in range(1, 100):
        (tmp_path / str(at)).mkdir()
        full = OSError(errno.ENOSPC, "No space left on device")
        place, outs, done, told = killed_at(at, tmp_path / str(at), monkeypatch, full)
        charged = agreement(place, outs)
        if done:
            break
        assert told is not None
        assert "No space left" in str(told)
        if charged:
            assert "was charged" in told.do
    assert done
    assert charged


def test_the_next_command_finishes_it(tmp_path, monkeypatch):
    place, out = tmp_path / "fcforge.private", tmp_path / "nyu.exchange"
    with monkeypatch.context() as patch:
        patch.delattr(journal, "_rename_hidden")
        with pytest.raises(NameError):
            give(place, [out], entry())
    assert not out.exists()
    with opened(place):
        assert out.exists()


def test_a_contribution_is_not_overwritten_by_the_same_command(tmp_path, monkeypatch):
    """Issue 39: killed between charge and rename, the command is repeated with the same name."""
    place, out = tmp_path / "fcforge.private", tmp_path / "nyu.exchange"
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_rename_hidden", lambda placed: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            give(place, [out], entry())
    with pytest.raises(ExchangeError, match="exists already") as told:
        give(place, [out], entry(number=2))
    assert told.value.where == str(out)
    assert agreement(place, [out])
    assert len(Ledger.read(place).entries) == 1


def test_a_file_that_took_the_name_meanwhile_is_kept(tmp_path, monkeypatch):
    place, out = tmp_path / "fcforge.private", tmp_path / "nyu.exchange"
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_rename_hidden", lambda placed: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            give(place, [out], entry())
    out.write_bytes(b"another")
    with pytest.raises(ExchangeError, match="name exists") as told, opened(place):
        pass
    assert "was charged" in told.value.do
    assert out.read_bytes() == b"another"


# -- the budget ----------------------------------------------------------------------------------
def test_the_budget_is_the_sum_of_all_entries_whoever_took_part(place):
    with opened(place) as private:
        assert private.require_budget(1.0, 1e-6, POLICY) == Spent(1.0, 1e-6)
        private.publish(entry(), {})
        private.publish(entry(PEOPLE[:2], 0.5, 2e-6, "NYU_B"), {})
        assert private.spent == Spent(1.5, 3e-6)
        assert private.require_budget(1.0, 1e-6, POLICY) == Spent(2.5, 4e-6)
        with pytest.raises(ConfigError, match="policy's 3 and 1e-05") as told:
            private.require_budget(1.6, 1e-6, POLICY)
        assert told.value.where == str(place)
    assert [r.site for r in Ledger.read(place).entries] == ["NYU", "NYU_B"]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (2.1, 1e-6),
        (1.0, 9.5e-6),
        (1.0, 0.99),
        (np.nan, 1e-6),
        (1.0, np.nan),
        (0.0, 1e-6),
    ],
)
def test_the_policy_is_a_hard_cap(place, epsilon, delta):
    with opened(place) as private:
        private.publish(entry(), {})
        with pytest.raises(ConfigError, match="policy's 3 and 1e-05"):
            private.require_budget(epsilon, delta, POLICY)


def test_nothing_is_promised_after_exact_numbers(place):
    with opened(place) as private:
        assert private.require_budget(None, 0.0, POLICY) == Spent()
        private.publish(entry(epsilon=None, delta=0.0), {})
        with pytest.raises(ConfigError, match=r"epsilon inf .*without noise"):
            private.require_budget(1.0, 1e-6, POLICY)
        assert private.require_budget(None, 0.0, POLICY) == Spent()
        with pytest.raises(ConfigError, match="without noise"):
            private.require_budget(None, 0.0, Policy())


def test_people_of_an_entry_are_known_by_id_or_by_scan_again(place):
    one = entry(PEOPLE[:2])
    with opened(place) as private:
        private.publish(one, {})
        assert private.holds(PEOPLE).tolist() == [True, True] + [False] * (N - 2)
        assert private.holds(PEOPLE, {one.commitment}).sum() == 2
        assert not private.holds(PEOPLE, {"a" * 64}).any()


def test_the_entry_of_a_record(place):
    with opened(place) as private:
        kept = entry()
        private.publish(kept, {})
        assert private.entry_for(kept.commitment, "it") == kept
        with pytest.raises(DataError, match="no entry for it") as told:
            private.entry_for("a" * 64, "it")
        assert told.value.where == str(place)


# -- thresholds ----------------------------------------------------------------------------------
def test_the_last_threshold_counts(place):
    said = {"slope": 1.0, "people": 9, "exchange": "a" * 64, "site": "NYU"}
    with opened(place) as private:
        assert private.threshold is None
        private.append(Threshold(intercept=0.5, **said))
        private.append(Threshold(intercept=-1.0, **said))
    assert Ledger.read(place).threshold.intercept == -1.0


def test_it_is_private_and_one_for_all_data_of_a_folder(place, tmp_path):
    assert default_ledger(tmp_path / "nyu.npz") == default_ledger(tmp_path) == place
    with opened(place):
        pass
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_commitment_says_nothing_without_the_salt():
    one = entry()
    assert one.commitment == one.changed(seen=("a" * 64,)).commitment
    assert entry().commitment != one.commitment
    assert entry(salt=one.salt).commitment == one.commitment
    turned = people_of(FC, IDS, 1 - Y)
    assert entry(turned, salt=one.salt).commitment != one.commitment


def test_only_the_same_people_are_found_again():
    kept = entry()
    order = [3, 1, 0, 5, 4, 2]
    shuffled = people_of(FC[order], [IDS[k] for k in order], Y[order])
    assert kept.places(shuffled).tolist() == [2, 1, 5, 0, 4, 3]
    wrong = {
        "2 are not in the data (first: p4)": PEOPLE[:4],
        "6 have another scan (first: p0)": people_of(FC[::-1], IDS, Y),
        "6 have another diagnosis (first: p0)": people_of(FC, IDS, 1 - Y),
    }
    for what, people in wrong.items():
        with pytest.raises(DataError, match="not the 6 people") as told:
            kept.places(people)
        assert what in told.value.what
        assert told.value.where == "site 'NYU'"


def test_without_ids_people_are_known_by_their_scans():
    kept = entry(people_of(FC, [""] * N, Y))
    assert kept.places(people_of(FC[::-1], IDS, Y[::-1])).tolist() == [5, 4, 3, 2, 1, 0]


def test_people_are_known_by_id_or_by_scan():
    touched = FC.copy()
    touched[:, 2, 5] += 0.001
    touched[:, 5, 2] += 0.001
    renamed = people_of(touched, [f"new{k}" for k in range(N)], Y)
    assert same_people(renamed, PEOPLE).all()
    assert same_people(people_of(scans(seed=1), IDS, Y), PEOPLE).all()
    strangers = people_of(scans(seed=1), [f"new{k}" for k in range(N)], Y)
    assert not same_people(strangers, PEOPLE).any()
    nameless = people_of(scans(seed=1), [""] * N, Y)
    assert not same_people(nameless, people_of(FC, [""] * N, Y)).any()


@pytest.mark.parametrize(
    ("before", "now"),
    [("S01", " s01"), ("Zo\u00eb", "ZOE\u0308"), ("\uff33 1", "s  1")],
)
def test_case_spaces_and_encoding_make_no_other_id(before, now):
    first = people_of(scans(1, seed=1), [before], np.array([0]))
    again = people_of(scans(1, seed=2), [now], np.array([0]))
    assert same_people(again, first).all()


@pytest.mark.parametrize(
    "now", ["0050279", "sub-50279", "Pitt_0050279", "50279_ses-1", "sub-0050279_run-2"]
)
def test_an_id_in_another_spelling_is_one_person(now):
    first = people_of(scans(2, seed=1), ["50278", "50279"], np.array([0, 1]))
    again = people_of(scans(2, seed=2), [now, "50280"], np.array([1, 0]))
    assert same_people(again, first).tolist() == [True, False]
    assert same_people(first, again).tolist() == [False, True]


def test_numbers_that_a_table_gives_to_two_people_are_no_persons_number():
    both = people_of(scans(2, seed=1), ["HC10001", "SZ10001"], np.array([0, 1]))
    again = people_of(scans(2, seed=2), ["sz-10001", "SZ10002"], np.array([1, 0]))
    assert same_people(again, both).tolist() == [True, False]
    assert same_people(both, again).tolist() == [False, True]


@pytest.mark.parametrize("odd", ["a\x1b[2J", "a" * 201])
def test_an_id_that_cannot_be_kept_is_told(odd):
    with pytest.raises(DataError) as told:
        people_of(FC[:2], ["fine", odd], Y[:2])
    assert odd[:40] in told.value.what or repr(odd)[1:-1] in told.value.what


def test_a_threshold_is_of_a_site_and_of_a_state():
    own = Threshold(intercept=-1.0, slope=1.0, people=9, exchange="a" * 64, site="NYU")
    np.testing.assert_allclose(own.odds(np.array([0.0, 2.0])), [-1.0, 1.0])
    own.require_site(["", "NYU"])
    with pytest.raises(DataError, match="these people to UM"):
        own.require_site(["NYU", "UM"])
    assert own.stale("a" * 64) == []
    assert "fits it again" in own.stale("b" * 64)[0]
