"""Two shares add up to the numbers; each by itself is nothing, and good for one place only."""

import numpy as np
import pytest
from exchange_records import key_of
from keeper_rounds import KEEPERS, SIZE, START_EXCHANGE, numbers_of, shares_of

from fcforge.errors import ExchangeError
from fcforge.exchange.keeping import shares
from fcforge.exchange.keeping.keepers import encryption_key
from fcforge.exchange.keeping.shares import (
    added,
    is_share,
    opened,
    read_share,
    seal,
    signed_numbers,
    split,
)

ID = START_EXCHANGE.root.id


def test_shares_add_up_whatever_the_numbers_are():
    for numbers in ([0, 1, -1], [2**63 - 1, -(2**63), 5], [10**12, -(10**12), 0]):
        whole = np.array(numbers, dtype=np.int64)
        assert signed_numbers(added(split(whole))).tolist() == numbers


def test_each_share_by_itself_is_uniform():
    """Every bit of either share is one half of the time one, for numbers that are all zero."""
    for share in split(np.zeros(20_000, dtype=np.int64)):
        bits = np.unpackbits(share.view(np.uint8))
        ones = bits.reshape(-1, 64).mean(0)
        assert np.abs(ones - 0.5).max() < 6 * 0.5 / np.sqrt(20_000)
    first, again = (split(np.zeros(8, dtype=np.int64))[0] for _ in range(2))
    assert not (first == again).any()


def test_sums_are_modular_and_exact():
    rng = np.random.default_rng(0)
    vectors = [rng.integers(-(2**62), 2**62, 9) for _ in range(3)]
    pairs = [split(vector) for vector in vectors]
    halves = [added([pair[k] for pair in pairs]) for k in range(2)]
    exact = [sum(int(v[i]) for v in vectors) for i in range(9)]
    wrapped = [(n + 2**63) % 2**64 - 2**63 for n in exact]
    assert signed_numbers(added(halves)).tolist() == wrapped


def test_a_keeper_opens_its_own_and_nobody_elses():
    gave = shares_of("NYU")
    words = [
        opened(gave[name], ID, encryption_key(key_of(name)), SIZE) for name in KEEPERS
    ]
    np.testing.assert_array_equal(signed_numbers(added(words)), numbers_of("NYU"))
    ministry, university = (encryption_key(key_of(name)) for name in KEEPERS)
    with pytest.raises(ExchangeError, match="another key"):
        opened(gave["Ministry"], ID, university, SIZE)
    with pytest.raises(ExchangeError, match="12 numbers instead of 13"):
        opened(gave["Ministry"], ID, ministry, 13)


@pytest.mark.parametrize("place", ["start", "round", "site", "keeper"])
def test_a_ciphertext_is_good_for_one_place(place):
    keepers = START_EXCHANGE.root.policy.keepers
    sealed = seal(numbers_of("NYU"), keepers, ID, ("spring", "NYU"))["Ministry"]
    said = {"start": ID, "round": "spring", "site": "NYU", "keeper": "Ministry"}
    said[place] = "other"
    bound = shares._bound(said["start"], (said["round"], said["site"]), said["keeper"])
    key = encryption_key(key_of("Ministry"))
    with pytest.raises(shares.InvalidTag):
        shares.SUITE.decrypt(sealed, key, bound)


def test_nothing_is_encrypted_to_a_weak_key():
    first, second = START_EXCHANGE.root.policy.keepers
    weak = first.model_copy(update={"encryption_key": "00" * 32})
    with pytest.raises(ExchangeError, match="keeper 'Ministry' is weak"):
        seal(numbers_of("NYU"), [weak, second], ID, ("spring", "NYU"))


def test_a_file_is_read_as_it_was_written_and_says_what_it_is(tmp_path):
    share = shares_of("NYU")["University"]
    path = tmp_path / "nyu.share"
    path.write_bytes(share.data)
    assert is_share(path)
    assert read_share(path) == share
    said = " ".join(read_share(path).words())
    for part in ("'NYU'", "'University'", "'spring'", "Nobody can read it alone"):
        assert part in said
    exact = shares_of("NYU", epsilon=None)["University"]
    assert "no noise" in " ".join(exact.words())


def test_every_changed_byte_is_refused(tmp_path):
    data = shares_of("NYU")["Ministry"].data
    path = tmp_path / "x.share"
    places = {*range(0, len(data), 7), *range(17), len(data) - 1}
    for place in sorted(places):
        changed = bytearray(data)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(ExchangeError) as told:
            read_share(path)
        assert str(path) in told.value.where
    for other in (
        data[:-1],
        data + b"0",
        data[:100],
        b"",
        data.replace(b'":', b'": ', 1),
    ):
        path.write_bytes(other)
        with pytest.raises(ExchangeError):
            read_share(path)
    assert not is_share(tmp_path)


def test_an_unsigned_notice_is_no_share(tmp_path):
    share = shares_of("NYU")["Ministry"]
    bare = share.notice.changed(key="", signature="")
    path = tmp_path / "x.share"
    path.write_bytes(shares.Share(bare, share.sealed).data)
    with pytest.raises(ExchangeError, match="no signed notice"):
        read_share(path)
