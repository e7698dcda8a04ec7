"""Which ledgers a key seals: new, moved, older, edited and foreign ones, as commands meet them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import small_exchange as small
from people_at_home import PEOPLE, entry

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.ledger import known as known_module
from fcforge_consortium.ledger.known import KnownLedgers
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.operations.ledger import new_ledger, register_ledger
from fcforge_consortium.operations.records import rotate_file, withdraw_file
from fcforge_consortium.options import (
    LedgerNewRequest,
    LedgerRegisterRequest,
    RotateRequest,
    WithdrawRequest,
)
from fcforge_consortium.records.exchange import open_exchange, save
from fcforge_consortium.records.keys import read_private, write_keys
from fcforge_consortium.records.kinds import Contribution

SITE, OTHER = small.sites()[2:4]


@pytest.fixture
def home(tmp_path):
    """A hospital's folder: data, a key, a base model."""
    small.data_file.__wrapped__(tmp_path)
    write_keys(tmp_path / "key")
    write_keys(tmp_path / "other.key")
    save(small.start(), tmp_path / "base.fcx")
    return tmp_path


@pytest.fixture
def ask(home):
    """What a hospital types; the epsilon of each contribution is 1."""

    def asked(out, cohort=None, **more):
        data = home / "people.npz"
        if cohort is not None:
            folder = home / f"data of {out}"
            folder.mkdir(exist_ok=True)
            data = small.data_file.__wrapped__(folder, cohort)
        given = {"data": data, "state": home / "base.fcx", "sign": home / "key"}
        given |= {"out": home / out, "ledger": home / "ledger"}
        return contribute(small.request(more.pop("site", SITE), **given | more))

    return asked


def half(part):
    """Half of the hospital's people."""
    mine = small.people().select_sites([SITE])
    return mine.select(np.arange(len(mine)) % 2 == part)


# -- beginning -----------------------------------------------------------------------------------
def test_a_ledger_never_begins_silently(ask, home):
    """Issue 39: a deleted ledger, or data in another folder, charged the same people again."""
    with pytest.raises(DataError, match="begin a ledger with --new-ledger"):
        ask("a.fcx")
    assert not (home / "ledger").exists()
    ask("a.fcx", new_ledger=True)
    with pytest.raises(ExchangeError, match="exists already and has 2 lines"):
        ask("b.fcx", new_ledger=True)
    (home / "ledger").rename(home / "backup")
    with pytest.raises(DataError, match="does not exist"):
        ask("b.fcx")
    with pytest.raises(ExchangeError, match="was there before and is missing"):
        ask("b.fcx", new_ledger=True)
    with pytest.raises(ConfigError, match=r"seals the ledger .*ledger already"):
        ask("b.fcx", new_ledger=True, ledger=home / "elsewhere")
    assert not list(home.glob("b.*"))
    (home / "backup").rename(home / "ledger")
    with pytest.raises(ConfigError, match="contributed before"):
        ask("b.fcx")


def test_a_command_that_failed_can_be_typed_again(ask, home):
    with pytest.raises(ConfigError, match="privacy budget"):
        ask("a.fcx", new_ledger=True, epsilon=1e-9)
    assert ask("a.fcx", new_ledger=True).entry.number == 1


def test_a_hospital_without_a_key_says_it_too(ask, home):
    with pytest.raises(DataError, match="--new-ledger"):
        ask("a.fcx", sign=None)
    ask("a.fcx", sign=None, new_ledger=True)
    with pytest.raises(ExchangeError, match="is not signed, but you sign"):
        ask("b.fcx", state=home / "base.fcx")
    assert Ledger.read(home / "ledger").header.key == ""


# -- foreign, edited, older ------------------------------------------------------------------------
def test_a_foreign_ledger_is_refused(ask, home):
    """Issue 39: `--ledger OTHER` wrote one hospital's people into another's ledger."""
    ask("a.fcx", new_ledger=True)
    before = (home / "ledger").read_bytes()
    with pytest.raises(
        ExchangeError, match=r"is sealed by key .* but you sign with key"
    ):
        ask("b.fcx", site=OTHER, sign=home / "other.key")
    with pytest.raises(
        ConfigError, match=f"is the ledger of '{SITE}', not of '{OTHER}'"
    ):
        ask("b.fcx", site=OTHER)
    assert (home / "ledger").read_bytes() == before
    ask("c.fcx", sign=None, ledger=home / "c", new_ledger=True)
    with pytest.raises(ConfigError, match=f"of '{SITE}', not of '{OTHER}'"):
        ask("d.fcx", site=OTHER, sign=None, ledger=home / "c")


def test_an_edited_ledger_is_refused(ask, home):
    """Issue 39: 4.0 became 0.5, and the budget with it."""
    ask("a.fcx", new_ledger=True, epsilon=4.0)
    whole = (home / "ledger").read_bytes()
    lines = whole.splitlines(keepends=True)
    body, _, seal = lines[2].partition(b"\t")
    less = body.replace(b'"epsilon":4.0', b'"epsilon":0.5')
    assert less != body
    forged = {
        "changed": [*lines[:2], less + b"\t" + seal],
        "unsealed": [*lines[:2], less + b"\n"],
        "left out": [lines[0], lines[2]],
        "twice": [*lines, lines[2]],
        "swapped": [lines[0], lines[2], lines[1]],
        "without its key": [
            lines[0].replace(b'"key":"' + read_key(whole), b'"key":"'),
            *lines[1:],
        ],
    }
    for name, parts in forged.items():
        (home / "ledger").write_bytes(b"".join(parts))
        with pytest.raises(ExchangeError, match="its seal does not fit"):
            ask(f"{name}.fcx")
        with pytest.raises(ExchangeError, match="its seal does not fit"):
            Ledger.read(home / "ledger")


def read_key(data):
    """The public key in a ledger's header."""
    return data.split(b'"key":"')[1][:64]


def test_an_older_copy_is_refused(ask, home):
    """The file of the base model does not show it, but the key's folder does."""
    ask("a.fcx", half(0), new_ledger=True)
    shutil.copy(home / "ledger", home / "older")
    ask("b.fcx", half(1))
    newest = (home / "ledger").read_bytes()
    shutil.copy(home / "older", home / "ledger")
    with pytest.raises(ExchangeError, match="is an older copy"):
        ask("c.fcx", half(1))
    (home / "ledger").write_bytes(newest.splitlines(keepends=True)[0])
    for new in (False, True):
        with pytest.raises(ExchangeError, match="is an older copy"):
            ask(f"{new}.fcx", half(1), new_ledger=new)
    (home / "ledger").write_bytes(newest)
    with pytest.raises(ConfigError, match="contributed before"):
        ask("d.fcx", half(1))


def test_a_file_shows_an_older_copy_where_the_key_knows_nothing(ask, home):
    """The exchange holds a record of the hospital that the restored ledger lacks."""
    ask("a.fcx", half(0), sign=None, new_ledger=True)
    shutil.copy(home / "ledger", home / "older")
    ask("b.fcx", half(1), sign=None, state=home / "a.fcx")
    shutil.copy(home / "older", home / "ledger")
    with pytest.raises(ConfigError, match=r"contribution 2 .* does not list"):
        ask("c.fcx", half(1), sign=None, state=home / "b.fcx")


def test_without_the_list_of_its_key_a_ledger_is_not_used_silently(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    (home / "key.ledgers").unlink()
    with pytest.raises(ExchangeError, match=r"ledger register LEDGER --sign KEY"):
        ask("b.fcx", half(1))
    register_ledger(LedgerRegisterRequest(home / "ledger", home / "key"))
    assert ask("c.fcx", half(1)).entry.number == 2


def test_the_list_is_signed(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    listed = home / "key.ledgers"
    listed.write_bytes(listed.read_bytes().replace(b"ledger", b"Ledger"))
    with pytest.raises(ExchangeError, match="its signature does not fit"):
        ask("b.fcx", half(1))


def test_a_moved_ledger_is_known_again(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    (home / "away").mkdir()
    (home / "ledger").rename(home / "away" / "ledger")
    done = ask("b.fcx", half(1), ledger=home / "away" / "ledger")
    assert done.new[0].spent_epsilon == 2.0
    with KnownLedgers.open(home / "key", read_private(home / "key")) as listed:
        (only,) = listed.ledgers.values()
        assert only.path == str(home / "away" / "ledger")


# -- cohorts ---------------------------------------------------------------------------------------
def cohort_ledger(home, name="follow-up"):
    request = LedgerNewRequest(home / name, name, SITE, home / "key")
    return new_ledger(request)


def test_other_people_have_a_budget_of_their_own(ask, home):
    ask("a.fcx", half(0), new_ledger=True, epsilon=4.0)
    second = cohort_ledger(home)
    done = ask("b.fcx", half(1), ledger=second, epsilon=3.0, state=home / "a.fcx")
    (_, new) = done.exchange.of(Contribution)
    assert (new.number, new.epsilon, new.spent_epsilon) == (2, 3.0, 3.0)
    assert open_exchange(home / "b.fcx").model.given
    assert Ledger.read(second).header.cohort == "follow-up"


@pytest.mark.parametrize("first", ["first", "second"])
def test_nobody_is_in_two_ledgers_of_a_key(ask, home, first):
    """Each adds up its own budget: whoever is in both would spend more than either says."""
    ask("a.fcx", half(0), new_ledger=True)
    ask("b.fcx", half(1), ledger=cohort_ledger(home))
    place = home / ("ledger" if first == "first" else "follow-up")
    everybody = small.people().select_sites([SITE])
    with pytest.raises(ConfigError, match=r"people are in the ledger"):
        ask("c.fcx", everybody, ledger=place)


@pytest.mark.parametrize(
    "spelling", ["sub-{:07}", "Pitt_{:07}", "{}_ses-2", "SUB-{}_run-1"]
)
def test_nobody_is_in_two_ledgers_under_two_spellings(ask, home, spelling):
    """The scans are others, as of another day: the ids alone can tell."""

    def numbered(part, spelling):
        ids = [spelling.format(50003 + k) for k in range(len(half(part)))]
        return replace(half(part), subject_id=np.array(ids))

    ask("a.fcx", numbered(0, "{}"), new_ledger=True)
    follow_up = numbered(1, spelling)
    before = Ledger.read(home / "ledger").heads
    with pytest.raises(
        ConfigError, match=r"people are in the ledger .* by id or by scan"
    ):
        ask("b.fcx", follow_up, ledger=cohort_ledger(home))
    with pytest.raises(ConfigError, match="contributed before to this base model"):
        ask("b.fcx", follow_up)
    assert not (home / "b.fcx").exists()
    # to another base model they may, and the budget is the sum, whoever they are
    other = make_base_model(
        small.people().select_sites(small.sites()[:1]), (), {"axes": 4}
    )
    save(other, home / "other.fcx")
    done = ask("b.fcx", follow_up, state=home / "other.fcx")
    assert done.new[0].spent_epsilon == 2.0
    assert Ledger.read(home / "ledger").heads[: len(before)] == before


def test_a_missing_ledger_of_the_key_is_not_overlooked(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    second = cohort_ledger(home)
    shutil.move(home / "ledger", home / "gone")
    with pytest.raises(ExchangeError, match="not in its place"):
        ask("b.fcx", half(1), ledger=second)
    register_ledger(LedgerRegisterRequest(home / "gone", home / "key"))
    assert ask("b.fcx", half(1), ledger=second)


def test_a_copy_of_one_ledger_does_not_stand_for_another(ask, home):
    """The people of the ledger that it replaced would not be compared with anybody."""
    ask("a.fcx", half(0), new_ledger=True)
    second = cohort_ledger(home)
    ask("b.fcx", half(1), ledger=second)
    shutil.copy(home / "ledger", second)
    with pytest.raises(ExchangeError, match=r"follow-up: is .* another ledger"):
        ask("c.fcx", half(1))
    assert not (home / "c.fcx").exists()


def test_a_withdrawn_contribution_is_not_forgotten_with_the_ledger(ask, home):
    """Its budget stays spent, and a further one under its number would be withdrawn, too."""
    ask("a.fcx", new_ledger=True)
    request = WithdrawRequest(SITE, home / "a.fcx", home / "w.fcx", sign=home / "key")
    withdraw_file(request)
    (home / "ledger").unlink()
    (home / "key.ledgers").unlink()
    said = f"withdrawn contribution 1 of '{SITE}', which .*ledger does not list"
    with pytest.raises(ConfigError, match=said):
        ask("b.fcx", state=home / "w.fcx", new_ledger=True)
    assert not (home / "b.fcx").exists()


def test_a_cohort_is_begun_once(ask, home):
    cohort_ledger(home)
    with pytest.raises(ConfigError, match="has a ledger of cohort 'follow-up' already"):
        new_ledger(LedgerNewRequest(home / "x", "follow-up", SITE, home / "key"))


# -- keys that change ------------------------------------------------------------------------------
def test_a_new_key_goes_on_with_the_ledgers_of_the_old_one(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    write_keys(home / "new.key")
    request = RotateRequest(
        home / "key", home / "new.key", SITE, home / "a.fcx", home / "rotated.fcx"
    )
    rotate_file(request)
    with pytest.raises(ExchangeError, match="is sealed by key"):
        ask("b.fcx", half(1), state=home / "rotated.fcx")
    done = ask("b.fcx", half(1), state=home / "rotated.fcx", sign=home / "new.key")
    assert done.new[0].spent_epsilon == 2.0
    assert len(Ledger.read(home / "ledger").entries) == 2
    with pytest.raises(ConfigError, match="a second one would not add up the budget"):
        ask("c.fcx", half(0), ledger=home / "second", new_ledger=True)


def test_a_missing_ledger_does_not_keep_a_stolen_key_in_use(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    (home / "ledger").rename(home / "away")
    write_keys(home / "new.key")
    files = (home / "key", home / "new.key", SITE, home / "a.fcx")
    told = []
    rotate_file(RotateRequest(*files, home / "rotated.fcx"), warn=told.append)
    assert str(home / "ledger") in told[0]
    (home / "away").rename(home / "ledger")
    rotate_file(RotateRequest(*files, home / "again.fcx"), warn=told.append)
    assert len(told) == 1
    assert ask("b.fcx", half(1), state=home / "rotated.fcx", sign=home / "new.key")


def test_one_key_seals_the_ledgers_of_one_hospital(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    with pytest.raises(ConfigError, match=f"a ledger of '{SITE}', not of '{OTHER}'"):
        new_ledger(LedgerNewRequest(home / "x", "more", OTHER, home / "key"))


def test_a_link_to_the_key_has_the_same_list(ask, home):
    ask("a.fcx", half(0), new_ledger=True)
    (home / "links").mkdir()
    (home / "links" / "key").symlink_to(home / "key")
    with pytest.raises(ConfigError, match="already"):
        ask(
            "b.fcx",
            half(0),
            sign=home / "links" / "key",
            ledger=home / "second",
            new_ledger=True,
        )


# -- interruptions ---------------------------------------------------------------------------------
class Killed(BaseException):
    """Nothing is cleaned up after it, as after kill -9."""


def test_killed_at_every_moment_ledger_list_and_files_agree(tmp_path, monkeypatch):
    """The list beside the key is never newer than the ledger, nor older than a file that left."""
    key = tmp_path / "key"
    write_keys(key)
    charged = []
    for at in range(1, 200):
        folder = tmp_path / str(at)
        folder.mkdir()
        shutil.copy(key, folder / "key")
        calls = []

        def counting(name, real, calls=calls, at=at):
            def step(*given, **named):
                calls.append(name)
                if len(calls) == at:
                    raise Killed
                return real(*given, **named)

            return step

        with monkeypatch.context() as patch:
            for name in ("open", "write", "fsync", "replace"):
                patch.setattr(
                    known_module.os,
                    name,
                    counting(name, getattr(known_module.os, name)),
                )
            killed = False
            try:
                publish(folder, new=True)
            except Killed:
                killed = True
        charged.append(recovered(folder))
        if not killed:
            break
    assert not killed
    assert charged == sorted(charged)
    assert charged.count(False) > 10
    assert charged.count(True) > 3


def publish(folder, *, new):
    """Charge one contribution, as a hospital with a key does."""
    key = read_private(folder / "key")
    header = Ledger.new("NYU", key) if new else None
    place = (folder / "ledger", key, folder / "key", header)
    with Ledger.of_key(*place) as ledger:
        ledger.publish(entry(PEOPLE), {folder / "out.fcx": b"given"})


def recovered(folder):
    """Whether people were charged, having looked that ledger, list and files agree."""
    key = read_private(folder / "key")
    begun = (folder / "ledger").exists() and len(
        (folder / "ledger").read_bytes().splitlines()
    ) > 1
    header = None if begun else Ledger.new("NYU", key)
    with Ledger.of_key(folder / "ledger", key, folder / "key", header) as ledger:
        charged = bool(ledger.entries)
        (only,) = ledger._known.ledgers.values()
        assert only.head == ledger.heads[-1]
    files = {path.name for path in folder.iterdir() if not path.name.startswith(".key")}
    assert files == {"key", "ledger", "key.ledgers", *(["out.fcx"] if charged else [])}
    return charged
