import itertools
from functools import cache

import numpy as np
import pytest
from exchange_records import ARRAYS, key_of, public_of, record
from people_at_home import entry, opened

from fcforge.core.errors import ExchangeError
from fcforge_consortium.operations.verification import verify
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import (
    Exchange,
    open_exchange,
    require_trusted,
    save,
    union_of,
)
from fcforge_consortium.records.keyring import Keyring
from fcforge_consortium.records.trust import Trust


class AnyRecords:
    """A model that every set of records is good for: what is tested here are the records."""

    def __init__(self, exchange):
        self.exchange = exchange

    def check(self):
        for release in self.exchange.of(records.Contribution):
            if release.epsilon > 8:
                raise ExchangeError("more than the policy allows.")

    def summary(self):
        return f"{len(self.exchange.records)} records"


@pytest.fixture(autouse=True)
def any_records(monkeypatch):
    place = f"{__name__}:AnyRecords"
    monkeypatch.setattr(exchange, "MODELS", {"base_model": place, "chain": place})


START = record(records.BaseModelRecord, site="maker")
ROOT = Exchange(START, (), {START.payload: ARRAYS})


@cache
def release(site="NYU", number=1, signer="", people=None, **changes):
    """A release of a site with arrays of its own, and the arrays."""
    content = [site, number, people]
    seed = int(sha256(repr(content).encode())[:8], 16)
    data = save_arrays({"numbers": np.arange(seed, seed + 4)})
    commitment = sha256(repr(people or content).encode())
    digest = sha256(data)
    made = record(
        records.Contribution,
        site,
        number,
        (START.id,),
        signer,
        payload=digest,
        commitment=commitment,
        **changes,
    )
    return made, {digest: data}


def joined(*given):
    found = ROOT
    for made, arrays in given:
        found = found.joined([made], arrays)
    return found


def test_any_order_and_any_tree_of_merges_is_one_state():
    given = [release(site, n) for site in ("NYU", "UM") for n in (1, 2)]
    every = {joined(*order).id for order in itertools.permutations(given)}
    left, right = joined(*given[:3]), joined(*given[1:])
    assert every == {left.merged(right).id} == {right.merged(left, left).id}
    assert len(left.merged(right).payloads) == 5
    assert left.id != right.id


def test_records_of_a_kind_are_in_order():
    found = joined(release("UM", 2), release("NYU"), release("UM", 1))
    assert [(r.site, r.number) for r in found.of(records.Contribution)] == [
        ("NYU", 1),
        ("UM", 1),
        ("UM", 2),
    ]


def test_another_root_is_refused():
    other = record(records.BaseModelRecord, site="maker", patients=2)
    with pytest.raises(ExchangeError, match="different roots"):
        ROOT.merged(Exchange(other, (), {other.payload: ARRAYS}))


def test_two_releases_with_one_number_are_refused():
    first = release(people="some")
    with pytest.raises(
        ExchangeError, match=r"contribution 1 of 'NYU'.*the same number"
    ):
        joined(first, release(people="others"))


def test_a_copied_commitment_is_refused():
    """A copy of NYU's numbers under another name counted twice."""
    with pytest.raises(ExchangeError, match="as the contribution 1 of"):
        joined(release("NYU", people="some"), release("UM", people="some"))


def test_copied_numbers_are_refused():
    """Merged, they were a file that nobody could read."""
    first, arrays = release("NYU")
    copy = release("UM")[0].changed(payload=first.payload)
    with pytest.raises(ExchangeError, match="same numbers as the contribution 1 of"):
        joined((first, arrays), (copy, arrays))


def test_a_missing_parent_is_refused():
    with pytest.raises(ExchangeError, match="is missing or was withdrawn"):
        ROOT.joined([record(records.Notice, parents=("cd" * 32,))])


def test_missing_and_stray_arrays_are_refused():
    made, arrays = release()
    with pytest.raises(ExchangeError, match="are missing"):
        ROOT.joined([made])
    assert set(ROOT.joined([made], {**arrays, "ee" * 32: b"scans"}).payloads) == {
        START.payload,
        *arrays,
    }


def test_the_models_own_rules_hold():
    with pytest.raises(ExchangeError, match="policy"):
        joined(release(epsilon=9.0))


@pytest.mark.parametrize(
    "name",
    ["nyz", "ny_z", "ŃÝŽ", "ΝΥΖ"],  # the last is Greek
)
def test_lookalikes_are_refused(name):
    with pytest.raises(ExchangeError, match="look alike"):
        joined(release("NYZ"), release(name), release("NY-Z"))


def test_one_key_per_author():
    with pytest.raises(ExchangeError, match="different keys"):
        joined(release(signer="NYU"), release(number=2, signer="thief"))
    with pytest.raises(ExchangeError, match="different keys"):
        joined(release(signer="NYU"), release(number=2))


def test_a_rotation_names_the_next_key():
    before = joined(release(signer="NYU"), release("UM", signer="UM"))
    found = before.rotated("NYU", key_of("NYU"), key_of("new"))
    assert found.key_lines["NYU"] == (public_of("NYU"), public_of("new"))
    more, arrays = release(number=2, signer="new")
    assert len(found.joined([more], arrays).of(records.Contribution, "NYU")) == 2
    more, arrays = release(number=2, signer="thief")
    with pytest.raises(ExchangeError, match="different keys"):
        found.joined([more], arrays)
    (rotation,) = found.of(records.Rotation)
    forged = rotation.changed(signature="", new_key=public_of("thief"))
    with pytest.raises(ExchangeError, match="both keys"):
        ROOT.joined([forged.signed(key_of("NYU"))])
    with pytest.raises(ExchangeError, match="no record is by site 'USM'"):
        before.rotated("USM", key_of("NYU"), key_of("new"))
    with pytest.raises(ExchangeError, match="its rotation must be"):
        before.rotated("NYU", key_of("UM"), key_of("new"))


def test_what_a_stolen_old_key_signs_later_is_refused():
    """The thief can date it as he likes; the new key does not vouch for it."""
    before = joined(release(signer="NYU"), release("UM", signer="UM"))
    found = before.rotated("NYU", key_of("NYU"), key_of("new"))
    stolen, arrays = release(number=2, signer="NYU")
    for order in (found.joined, before.joined([stolen], arrays).joined):
        with pytest.raises(
            ExchangeError, match=r"contribution 2 of .NYU.*does not vouch"
        ):
            order([*found.records, stolen], arrays)
    thief = before.rotated("NYU", key_of("NYU"), key_of("thief"))
    with pytest.raises(ExchangeError, match="different"):
        found.merged(thief)
    ring = Keyring().add("NYU", public_of("NYU")).revoke("NYU")
    with pytest.raises(ExchangeError, match="revoked"):
        require_trusted(found.everything, Trust(keyring=ring))
    renewed = Trust(keyring=ring.add("NYU", public_of("new")))
    require_trusted(found.everything, renewed)
    with pytest.raises(ExchangeError, match="revoked"):
        require_trusted(thief.everything, renewed)


# -- withdrawals -----------------------------------------------------------------------------------
def test_a_withdrawal_holds_wherever_it_is_merged():
    before = joined(release("NYU", signer="NYU"), release("UM", signer="UM"))
    after = before.withdrawn("NYU", key_of("NYU"))
    assert {r.title for r in after.records} == {
        "contribution 1 of 'UM'",
        "withdrawal 1 of 'NYU'",
    }
    assert len(after.payloads) == 2
    assert after.merged(before).id == before.merged(after).id == after.id


def test_no_other_encoding_escapes_a_withdrawal():
    """Anybody could undo a withdrawal by writing the signature in capitals."""
    made, arrays = release(signer="NYU")
    after = ROOT.joined([made], arrays).withdrawn("NYU", key_of("NYU"))
    again = made.changed(signature="", time="2026-01-01T00:00:00Z").signed(
        key_of("NYU")
    )
    assert again.id != made.id
    assert after.joined([again], arrays).id == after.id
    renumbered = made.changed(signature="", number=7).signed(key_of("NYU"))
    assert after.joined([renumbered], arrays).id == after.id
    new, numbers = release(number=2, signer="NYU")
    assert new in after.joined([new], numbers).records


def test_only_the_hospital_itself_withdraws():
    found = joined(release(signer="NYU"))
    for key in (None, key_of("UM")):
        with pytest.raises(ExchangeError, match="must be, too"):
            found.withdrawn("NYU", key)
    with pytest.raises(ExchangeError, match="site 'UM' has nothing"):
        found.withdrawn("UM")
    forged = record(records.Withdrawal, "NYU", parents=(START.id,), signer="UM")
    with pytest.raises(ExchangeError, match="different keys"):
        found.joined([forged])


def test_a_half_goes_with_a_notice_that_was_withdrawn():
    notices = [
        record(
            records.Notice, site, parents=(START.id,), commitment=sha256(site.encode())
        )
        for site in ("NYU", "UM")
    ]
    hospitals = tuple(
        records.RoundMember(site=n.site, notice=n.id, share=n.shares[0].sha256)
        for n in notices
    )
    closings = [
        record(records.Closing, aggregator, parents=(START.id,), signer=aggregator)
        for aggregator in ("Ministry", "University")
    ]
    data = save_arrays({"numbers": np.arange(3)})
    half = record(
        records.AggregateShare,
        "University",
        parents=(START.id,),
        signer="University",
        hospitals=hospitals,
        closings=tuple(one.id for one in closings),
        payload=sha256(data),
    )
    found = ROOT.joined([*notices, *closings, half], {half.payload: data})
    left = found.withdrawn("UM")
    assert left.of(records.AggregateShare) == ()
    assert [n.site for n in left.of(records.Notice)] == ["NYU"]
    assert left.of(records.Closing) == tuple(
        closings
    )  # they show why the round is void
    with pytest.raises(ExchangeError, match="withdrawn"):
        left.joined([half], {half.payload: data})


# -- chains: arrays are handed on ------------------------------------------------------------------
def test_only_the_last_steps_arrays_travel():
    root = record(records.Chain)
    found = Exchange(root)
    parent = root.id
    for number, site in enumerate(("NYU", "UM"), start=1):
        data = save_arrays({"lane": np.full(3, float(number))})
        step = record(
            records.Step,
            site,
            number,
            (parent,),
            payload=sha256(data),
            commitment=sha256(site.encode()),
        )
        found = found.joined([step], {step.payload: data})
        parent = step.id
        assert list(found.payloads) == [step.payload]
    with pytest.raises(ExchangeError, match="site 'NYU' has nothing"):
        found.withdrawn("NYU")


# -- files -----------------------------------------------------------------------------------------
def test_files(tmp_path):
    found = joined(release("NYU"), release("UM"))
    path = save(found, tmp_path / "a.fcx")
    assert open_exchange(path).id == found.id
    new = found.of(records.Contribution, "UM")
    parcel = save(found, tmp_path / "um.record", new)
    assert archive.read(parcel).records == new
    start = save(ROOT, tmp_path / "start.fcx")
    assert union_of([parcel, start], Trust()).id == joined(release("UM")).id
    for opener in (open_exchange, lambda p: union_of([p], Trust())):
        with pytest.raises(ExchangeError, match="neither a base model"):
            opener(parcel)


def test_a_withdrawn_record_in_a_file_is_refused(tmp_path):
    made, arrays = release()
    found = ROOT.joined([made], arrays)
    after = found.withdrawn("NYU")
    every = archive.Contents((*after.everything, made), found.payloads)
    path = archive.write(archive.pack(every), tmp_path / "a.fcx")
    with pytest.raises(ExchangeError, match="withdrawn"):
        open_exchange(path)


# -- trust and verify ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def signed_file(tmp_path_factory):
    start = record(records.BaseModelRecord, site="maker", signer="maker")
    made, arrays = release(signer="NYU")
    made = made.changed(parents=(start.id,), signature="").signed(key_of("NYU"))
    contents = archive.Contents((start, made), {start.payload: ARRAYS, **arrays})
    return archive.write(
        archive.pack(contents), tmp_path_factory.mktemp("signed") / "a.fcx"
    )


def test_verify_says_who_signed(signed_file):
    ring = Keyring().add("NYU", public_of("NYU"))
    checks = verify(signed_file, Trust(required=True, keyring=ring))
    assert all(check.ok for check in checks)
    assert (
        "(NYU)" in next(c for c in checks if c.name == "contribution 1 of 'NYU'").detail
    )


@pytest.mark.parametrize(
    ("trust", "name"),
    [
        (Trust(keys=(public_of("UM"),)), "contribution 1 of 'NYU'"),
        (
            Trust(keyring=Keyring().add("NYU", public_of("UM"))),
            "contribution 1 of 'NYU'",
        ),
        (
            Trust(keyring=Keyring().add("NYU", public_of("NYU")).revoke("NYU")),
            "contribution 1 of 'NYU'",
        ),
    ],
)
def test_untrusted_signers_are_named(signed_file, trust, name):
    bad = [check for check in verify(signed_file, trust) if not check.ok]
    assert name in [check.name for check in bad]
    with pytest.raises(ExchangeError) as error:
        open_exchange(signed_file, trust)
    assert str(signed_file) in error.value.where


def test_unsigned_files_are_refused_where_signatures_are_required(tmp_path):
    path = save(joined(release()), tmp_path / "a.fcx")
    assert all(check.ok for check in verify(path, Trust()))
    asked = Trust(required=True)
    assert [c.name for c in verify(path, asked) if not c.ok] == ["signatures"]
    for opener in (open_exchange, lambda p, t: union_of([p], t)):
        with pytest.raises(ExchangeError, match="not signed"):
            opener(path, asked)
    mixed = save(joined(release(signer="NYU"), release("UM")), tmp_path / "b.fcx")
    with pytest.raises(ExchangeError, match="may have been removed"):
        open_exchange(mixed)


def test_new_records_are_signed_as_the_others_are():
    bare, signed = joined(release()), joined(release(signer="NYU"))
    bare.require_same_signing(False)
    signed.require_same_signing(True)
    ROOT.require_same_signing(True)
    for found, signs in ((bare, True), (signed, False)):
        with pytest.raises(ExchangeError, match="the earlier records are"):
            found.require_same_signing(signs)


def test_verify_of_a_parcel_and_of_damage(tmp_path):
    found = joined(release("UM"))
    parcel = save(found, tmp_path / "um.record", found.records)
    checks = verify(parcel, Trust())
    assert all(check.ok for check in checks)
    assert "merge" in checks[-1].detail
    parcel.write_bytes(parcel.read_bytes()[:-5])
    (broken,) = verify(parcel, Trust())
    assert not broken.ok
    assert broken.detail


def test_what_was_seen_must_be_here(tmp_path):
    """A coordinator could drop a release or a withdrawal unnoticed."""
    all_of_it = joined(release("NYU"), release("UM")).withdrawn("UM")
    seen = save(all_of_it, tmp_path / "seen.fcx")
    assert verify(seen, Trust(), seen)[-1].ok
    earlier = save(joined(release("NYU"), release("UM")), tmp_path / "earlier.fcx")
    assert verify(seen, Trust(), earlier)[-1].ok  # what is gone was withdrawn
    new, numbers = release("USM")
    later = save(all_of_it.joined([new], numbers), tmp_path / "later.fcx")
    assert verify(later, Trust(), seen)[-1].ok
    last = verify(earlier, Trust(), seen)[-1]
    assert not last.ok
    assert "withdrawal 1 of 'UM'" in last.detail


def test_a_ledger_knows_what_was_seen(tmp_path):
    own = entry()
    mine, numbers = release("NYU")
    mine = mine.changed(commitment=own.commitment)
    made = joined((mine, numbers), release("UM"))
    with opened(tmp_path / "fcforge.private") as private:
        private.publish(own.having_seen(made), {})
    path = save(made, tmp_path / "a.fcx")
    assert verify(path, Trust(), private.path)[-1].ok
    dropped = save(joined((mine, numbers)), tmp_path / "b.fcx")
    assert (
        made.of(records.Contribution, "UM")[0].id[:12]
        in verify(dropped, Trust(), private.path)[-1].detail
    )


def excusing(site, *gone):
    """A withdrawal by a site that says that records of others went with it."""
    mine, _ = release(site)
    took = records.Withdrawn(kind="contribution", number=1, commitment=mine.commitment)
    ids = tuple(sorted({mine.id, *gone}))
    return record(
        records.Withdrawal, site, 1, (START.id,), site, takes=(took,), gone=ids
    )


def test_nobody_excuses_that_a_record_of_another_is_missing(tmp_path):
    """A coordinator and a member dropped another's release: all here or withdrawn, it said."""
    own = entry()
    mine, numbers = release("NYU")
    mine = mine.changed(commitment=own.commitment, signature="").signed(key_of("NYU"))
    whole = joined((mine, numbers), release("UM", signer="UM"))
    seen = save(whole, tmp_path / "seen.fcx")
    with opened(tmp_path / "fcforge.private") as private:
        private.publish(own.having_seen(whole), {})
    forged = joined().joined([excusing("UM", mine.id)])
    dropped = save(forged, tmp_path / "dropped.fcx")
    for expect, named in (
        (seen, "contribution 1 of 'NYU'"),
        (private.path, "contribution 1 of 'NYU'"),
    ):
        last = verify(dropped, Trust(), expect)[-1]
        assert not last.ok
        assert named in last.detail
    own_word = whole.withdrawn("NYU", key_of("NYU"))
    honest = save(own_word, tmp_path / "honest.fcx")
    for expect in (seen, private.path):
        last = verify(honest, Trust(), expect)[-1]
        assert last.ok
        assert "by NYU" in last.detail


def test_a_withdrawal_in_anothers_name_excuses_nothing(tmp_path):
    seen = save(joined(release("NYU", signer="NYU")), tmp_path / "seen.fcx")
    mine, _ = release("NYU", signer="NYU")
    forged = excusing("NYU", mine.id).changed(signature="").signed(key_of("thief"))
    dropped = save(joined().joined([forged]), tmp_path / "dropped.fcx")
    last = verify(dropped, Trust(), seen)[-1]
    assert not last.ok
    assert "signed with different keys" in last.detail


def test_a_withdrawal_needs_a_key_that_stands(tmp_path):
    """A stolen old key signs it, and what it takes is no longer there to be asked."""
    made, arrays = release(signer="A")
    given = joined((made, arrays))
    taken = records.Withdrawn(kind="contribution", number=1, commitment=made.commitment)
    said = {"takes": (taken,), "gone": ()}

    def stolen(parent):
        key = key_of("A")
        return records.make(records.Withdrawal, "NYU", 1, (parent,), key, **said)

    rotated = given.rotated("NYU", key_of("A"), key_of("new"))
    with pytest.raises(ExchangeError, match="does not vouch"):
        rotated.joined([stolen(START.id)])
    with pytest.raises(ExchangeError, match="builds on other records than the root"):
        given.joined([stolen(made.id)])  # it would go with what it takes
    save(given, tmp_path / "all.fcx")
    parcel = archive.pack(archive.Contents((stolen(START.id),), {}))
    (tmp_path / "w.record").write_bytes(parcel)
    ring = Keyring().add("NYU", public_of("A")).revoke("NYU")
    both = [tmp_path / "all.fcx", tmp_path / "w.record"]
    left = union_of(both, Trust()).records  # by a key that stands it is theirs to do
    assert left == (stolen(START.id),)
    with pytest.raises(ExchangeError, match=r"not trusted|revoked"):
        union_of(both, Trust(ring))


def test_nobody_hinders_the_withdrawal_of_another():
    """A rotation that built on another's contribution went with it, and no file could be read."""
    mine, theirs = release("NYU", signer="NYU"), release("UM", signer="UM")
    vouches = (theirs[0].id,)
    agreed = records.agreement("UM", public_of("UM"), vouches)
    more = {
        "new_key": public_of("new"),
        "vouches": vouches,
        "proof": key_of("new").sign(agreed).hex(),
    }
    for parents in ((START.id, mine[0].id), (mine[0].id,)):
        rotation = records.make(
            records.Rotation, "UM", 1, parents, key_of("UM"), **more
        )
        with pytest.raises(
            ExchangeError, match="builds on other records than the root"
        ):
            joined(mine, theirs).joined([rotation])


def withdrawal(taken, gone=(), **changes):
    """A withdrawal by a contribution's author that lists some records as gone."""
    told = records.Withdrawn(
        kind="contribution", number=taken.number, commitment=taken.commitment
    )
    content = {"takes": (told,), "gone": gone}
    made = record(records.Withdrawal, taken.site, 1, (START.id,), **content)
    return made.changed(**changes)


def test_a_withdrawal_in_two_copies_of_a_file_is_one():
    made, arrays = release()
    given = joined((made, arrays), release("UM"))
    first = withdrawal(made, (made.id,), time="2026-01-01T00:00:00Z")
    other = withdrawal(made, (made.id,), time="2026-01-02T00:00:00Z")
    left, right = given.joined([first]), given.joined([other])
    both = left.merged(right)
    assert both.id == right.merged(left).id
    assert {r.id for r in both.of(records.Withdrawal)} == {first.id, other.id}
    assert [r.site for r in both.of(records.Contribution)] == ["UM"]


def test_nobody_lists_the_record_of_another_as_gone():
    mine, theirs = release("NYU"), release("UM")
    lie = withdrawal(theirs[0], (theirs[0].id, mine[0].id))
    with pytest.raises(ExchangeError, match="contribution 1 of 'NYU' as gone"):
        joined(mine, theirs).joined([lie])
    with pytest.raises(ExchangeError, match="contribution 1 of 'NYU' as gone"):
        joined(theirs).joined([lie]).joined([mine[0]], mine[1])


def test_kinds_that_the_root_does_not_know_are_refused():
    """Nobody would look at what they carry."""
    chain = record(records.Chain, site="maker")
    made, arrays = release()
    other = made.changed(parents=(chain.id,))
    with pytest.raises(ExchangeError, match="cannot build on a chain"):
        Exchange(chain).joined([other], arrays)
    step = record(records.Step, "UM", 1, (START.id,), payload=made.payload)
    with pytest.raises(ExchangeError, match="cannot build on a base model"):
        ROOT.joined([step], arrays)


def test_one_key_signs_for_one_site():
    """Issue 39: one key signed for two sites."""
    with pytest.raises(ExchangeError, match="signs for the sites 'NYU' and 'UM'"):
        joined(release("NYU", signer="NYU"), release("UM", signer="NYU"))
    joined(release("NYU", signer="NYU"), release("UM", signer="UM"))


@pytest.mark.parametrize("name", ["University", "university", "Univer5ity"])
def test_nobody_takes_the_name_of_an_aggregator(name):
    """A hospital of that name would keep the aggregator from closing any round."""
    with pytest.raises(ExchangeError, match=r"of an aggregator|look alike"):
        joined(release(name, signer="NYU"))
    joined(release("NYU", signer="NYU"))


def test_an_aggregators_key_signs_for_no_hospital():
    with pytest.raises(ExchangeError, match="for the sites 'University' and 'NYU'"):
        joined(release("NYU", signer="University"))
