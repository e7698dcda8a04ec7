"""A line and its files are there together or not at all, whenever the process is killed."""

import errno
import multiprocessing
import os
import stat

import pytest
from people_at_home import receipt

from fcforge.errors import DataError, ExchangeError
from fcforge.exchange.home import journal
from fcforge.exchange.home.private_record import PrivateRecord


@pytest.fixture
def place(tmp_path):
    return tmp_path / "fcforge.private"


def hold(place, ready, go_on):
    with PrivateRecord.open(place):
        ready.set()
        go_on.wait(30)


def test_two_at_once_are_refused_and_looking_is_not(place):
    fork = multiprocessing.get_context("fork")
    ready, go_on = fork.Event(), fork.Event()
    other = fork.Process(target=hold, args=(place, ready, go_on))
    other.start()
    assert ready.wait(30)
    with (
        pytest.raises(DataError, match="in use by another") as told,
        PrivateRecord.open(place),
    ):
        pass
    assert told.value.where == str(place)
    assert PrivateRecord.read(place).receipts == ()
    go_on.set()
    other.join()
    with PrivateRecord.open(place):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "{}\n",
        '{"format":"fcforge-rounds","kind":"header","version":1}\n',
        '{"format":"fcforge-private","kind":"header","version":2}\n',
        '{"format":"fcforge-private","kind":"header","more":0,"version":1}\n',
        '{"format":"fcforge-private","kind":"header","version":1}\n\n',
        '{"format":"fcforge-private","kind":"header","version":1}\n{"kind":"x"}\n',
    ],
)
def test_what_is_not_a_private_record_is_told_and_stays(text, place):
    place.write_text(text)
    for use in (PrivateRecord.read, lambda p: PrivateRecord.open(p).__enter__()):
        with pytest.raises(ExchangeError) as told:
            use(place)
        assert str(place) in told.value.where
        assert place.read_text() == text


@pytest.mark.parametrize("whole_line", [False, True])
def test_a_receipt_that_was_cut_off_is_not_taken_for_one_that_was_begun(
    place, whole_line
):
    """Its people would spend again: what it paid for has been given."""
    with PrivateRecord.open(place) as private:
        private.publish(receipt(), {place.with_name("nyu.record"): b"given"})
    data = place.read_bytes()
    last = data.rfind(b"\n", 0, -1) + 1
    place.write_bytes(data[:last] if whole_line else data[:-20])
    with (
        pytest.raises(ExchangeError, match=r"cut off.*bring back your copy"),
        PrivateRecord.open(place),
    ):
        pass
    place.write_bytes(data)
    with PrivateRecord.open(place) as private:
        assert len(private.receipts) == 1


def test_a_damaged_receipt_is_not_taken_for_none(place):
    with PrivateRecord.open(place) as private:
        private.publish(receipt(), {})
    whole = place.read_bytes()
    for old, new in ((b'"p0"', b'"p9"x'), (b'"epsilon":1.0', b'"epsilon":-1.0')):
        place.write_bytes(whole.replace(old, new))
        with pytest.raises(ExchangeError, match="line 3"):
            PrivateRecord.read(place)
    os.mkfifo(place.with_name("pipe"))
    with pytest.raises(DataError, match="regular file"):
        PrivateRecord.read(place.with_name("pipe"))
    with pytest.raises(DataError, match="No such file"):
        PrivateRecord.read(place.with_name("none"))


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
    with PrivateRecord.open(place) as private:
        private.publish(kept, {out: out.name.encode() * 9 for out in outs})


def killed_at(at, folder, monkeypatch, what):
    place = folder / "fcforge.private"
    outs = [folder / "nyu.exchange", folder / "nyu.share"]
    kept = receipt()
    with monkeypatch.context() as patch:
        calls = stopping(patch, at, what)
        try:
            give(place, outs, kept)
        except (Killed, ExchangeError, DataError) as error:
            return place, outs, len(calls) < at, error
    return place, outs, True, None


def agreement(place, outs):
    """Whether people were charged, having looked that all files are there or none is."""
    with PrivateRecord.open(place) as private:
        charged = bool(private.receipts)
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
        patch.delattr(journal, "_name")
        with pytest.raises(NameError):
            give(place, [out], receipt())
    assert not out.exists()
    with PrivateRecord.open(place):
        assert out.exists()
