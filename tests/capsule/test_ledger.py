"""Ledger lines: signed by their authors, and no suppressed count can be worked out."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from capsule_chains import SITES, an_audit, cohort, settings

from fcforge.capsule import (
    Capsule,
    LearnOptions,
    Trust,
    learn,
    open_capsule,
    seal,
    verify,
    with_audit,
)
from fcforge.capsule import container as box
from fcforge.capsule.keys import read_private, write_keys
from fcforge.capsule.learning import learn_next
from fcforge.capsule.ledger import (
    SMALL_CELL,
    STEPS_OF_SHARES,
    canonical,
    public_hex,
    published_share,
    require_author,
    sha256,
    signed,
    suppressed,
)
from fcforge.errors import CapsuleError
from fcforge.sites import split_site


def test_the_share_of_the_issue_does_not_tell_the_count():
    """13 controls, fewer than 10 patients, 13 of 20 right: 7 follows from 0.6500."""
    exact = {
        n for n in range(14, 23) if any(round(k / n, 4) == 0.65 for k in range(n + 1))
    }
    assert exact == {20}
    said = published_share(13 / 20, (13, None))
    assert said == 0.6
    possible = {
        n for n in range(14, 23) if any(round(k / n / 0.1) == 6 for k in range(n + 1))
    }
    assert possible == set(range(14, 23))


@pytest.mark.parametrize("known", [0, 10, 13, 40])
def test_every_suppressed_count_stays_possible(known):
    """For every number of patients below ten and every accuracy: all nine counts still fit."""
    for few in range(1, SMALL_CELL):
        n = known + few
        counts = (known, suppressed(few))
        for right in range(n + 1):
            said = published_share(right / n, counts)
            if said is None:
                continue
            fits = [
                m
                for m in range(known + 1, known + SMALL_CELL)
                for step in STEPS_OF_SHARES
                if any(
                    round(round(k / m / step) * step, 2) == said for k in range(m + 1)
                )
            ]
            assert set(fits) == set(range(known + 1, known + SMALL_CELL))


def test_without_a_suppressed_count_a_percent_is_published():
    for right, n in product((0, 7, 50, 101), (101, 200)):
        assert published_share(right / n, (n - 60, 60)) == pytest.approx(
            right / n, abs=0.00501
        )


@pytest.fixture
def keys(tmp_path) -> dict:
    """Private keys of two hospitals and of a stranger."""
    names = ("a", "b", "stranger")
    for name in names:
        write_keys(tmp_path / f"{name}.pem")
    return {name: read_private(tmp_path / f"{name}.pem") for name in names}


def hexes(keys: dict, *names: str) -> list[str]:
    return [public_hex(keys[name]) for name in names]


def two_hospitals(folder: Path, keys: dict) -> Path:
    first, second = folder / "1.capsule", folder / "2.capsule"
    mine = LearnOptions(key=keys["a"])
    learn(None, SITES[0], cohort(), first, settings=settings("majority"), options=mine)
    learn(first, SITES[1], cohort(), second, options=LearnOptions(key=keys["b"]))
    return second


def resealed(capsule: Capsule, out: Path, key: object, **changes: object) -> Path:
    """What whoever has the file can do: any content, chained, sealed and signed by `key`."""
    forged = replace(capsule, **{"id": "new", **changes})
    seal(forged, out, key=key)
    return out


def test_each_line_is_signed_by_its_author_and_verify_shows_it(tmp_path, keys):
    path = two_hospitals(tmp_path, keys)
    a, b = hexes(keys, "a", "b")
    opened = open_capsule(path, Trust((a, b)))
    assert [entry["key"] for entry in opened.entries] == [a, b]
    assert opened.signed_by == b
    (line,) = (check.detail for check in verify(path) if check.name == "signatures")
    assert line == f"2 lines: {SITES[0]} by {a[:16]}, {SITES[1]} by {b[:16]}"


def test_a_key_that_is_not_trusted_is_refused_wherever_it_signed(tmp_path, keys):
    path = two_hospitals(tmp_path, keys)
    a, b, stranger = hexes(keys, "a", "b", "stranger")
    with pytest.raises(
        CapsuleError, match=r"line 2 is signed by key .*which is not trusted"
    ):
        open_capsule(path, Trust((a,)))
    with pytest.raises(
        CapsuleError, match=r"line 1 is signed by key .*which is not trusted"
    ):
        open_capsule(path, Trust((b, stranger)))


def test_the_last_hop_cannot_rewrite_an_earlier_line(tmp_path, keys):
    """B makes A's accuracy better, mends the chain and signs: A's signature gives it away."""
    capsule = open_capsule(two_hospitals(tmp_path, keys))
    first = {**capsule.entries[0], "seconds": 9.5}
    second = {**capsule.entries[1], "previous": sha256(canonical(first))}
    path = resealed(capsule, tmp_path / "x.capsule", keys["b"], entries=(first, second))
    with pytest.raises(
        CapsuleError, match="signature of ledger line 1 does not fit its content"
    ):
        open_capsule(path)


def test_a_line_taken_over_under_another_key_breaks_the_next_hospitals_signature(
    tmp_path, keys
):
    capsule = open_capsule(two_hospitals(tmp_path, keys))
    own = {**capsule.entries[0], "seconds": 9.5, "signature": ""}
    first = signed(own, keys["stranger"])
    second = {**capsule.entries[1], "previous": sha256(canonical(first))}
    path = resealed(
        capsule, tmp_path / "x.capsule", keys["stranger"], entries=(first, second)
    )
    with pytest.raises(CapsuleError, match="signature of ledger line 2"):
        open_capsule(path)


def test_an_audit_invented_for_another_hospital_is_refused(tmp_path, keys):
    capsule = open_capsule(two_hospitals(tmp_path, keys))
    path = tmp_path / "audited.capsule"
    seal(with_audit(capsule, an_audit(SITES[0])), path, key=keys["b"])
    with pytest.raises(CapsuleError, match="its audit must be, too"):
        open_capsule(path)
    theirs = capsule.line(SITES[0])["key"]
    with pytest.raises(CapsuleError, match="its audit must be, too"):
        require_author(SITES[0], theirs, public_hex(keys["b"]), "audit")
    own = tmp_path / "own.capsule"
    seal(with_audit(capsule, an_audit(SITES[1])), own, key=keys["b"])
    stolen = {**open_capsule(own).entries[-1], "key": hexes(keys, "a")[0]}
    forged = (*capsule.entries, stolen)
    made = resealed(capsule, tmp_path / "y.capsule", keys["b"], entries=forged)
    with pytest.raises(CapsuleError, match="signature of ledger line 3"):
        open_capsule(made)


@pytest.mark.parametrize("line", [0, 1])
def test_a_stripped_signature_is_an_error_as_soon_as_any_line_is_signed(
    line, tmp_path, keys
):
    capsule = open_capsule(two_hospitals(tmp_path, keys))
    entries = [dict(e) for e in capsule.entries]
    entries[line] |= {"key": "", "signature": ""}
    if line == 0:  # B repairs its own line
        entries[1]["previous"] = sha256(canonical(entries[0]))
        entries[-1] = signed(entries[-1], keys["b"])
    path = resealed(capsule, tmp_path / "x.capsule", keys["b"], entries=tuple(entries))
    with pytest.raises(
        CapsuleError, match=f"line {line + 1} is not signed, though others are"
    ):
        open_capsule(path)
    assert open_capsule(path, Trust(required=False)).sites == SITES[:2]


def test_arrays_that_nobody_signed_are_refused(tmp_path, keys):
    """Whoever has no key can change the network and every checksum, but not the signed line."""
    path = two_hospitals(tmp_path, keys)
    capsule = open_capsule(path)
    params = {k: v + 1 for k, v in capsule.lane.params.items()}
    changed = replace(capsule, lane=capsule.lane._replace(params=params))
    seal(changed, tmp_path / "x.capsule")
    with pytest.raises(
        CapsuleError, match="arrays are not those of the ledger's last site"
    ):
        open_capsule(tmp_path / "x.capsule")
    last = {**changed.entries[-1], "arrays": arrays_of(tmp_path / "x.capsule")}
    mended = replace(changed, entries=(*changed.entries[:-1], last))
    seal(mended, tmp_path / "y.capsule")
    with pytest.raises(CapsuleError, match="signature of ledger line 2 does not fit"):
        open_capsule(tmp_path / "y.capsule")
    seal(capsule, tmp_path / "copy.capsule")  # as it was: needs no key
    assert (tmp_path / "copy.capsule").read_bytes() == path.read_bytes()


def arrays_of(path: Path) -> str:
    parts = box.read_parts(path, box.CHAIN)
    return sha256(canonical({name: sha256(parts[name]) for name in box.ARRAYS}))


@pytest.mark.parametrize("before", [0, 1])
def test_lines_that_grew_in_memory_are_all_signed(before, tmp_path, keys):
    """As `ForgeClassifier` makes them: several sites, then one seal with a key."""
    chain = settings("majority")
    capsule = Capsule.empty(chain)
    if before:
        learn(
            None,
            SITES[0],
            cohort(),
            tmp_path / "a.capsule",
            settings=chain,
            options=LearnOptions(key=keys["a"]),
        )
        capsule = open_capsule(tmp_path / "a.capsule")
    for name in SITES[before:3]:
        site = split_site(cohort(), name, 0, chain.test_fraction, chain.val_fraction)
        capsule = learn_next(capsule, site)
    path = tmp_path / "all.capsule"
    if before:
        with pytest.raises(CapsuleError, match="lines before yours are signed"):
            seal(capsule, path)
    seal(capsule, path, key=keys["b"])
    a, b = hexes(keys, "a", "b")
    signed_by = [
        entry["key"] for entry in open_capsule(path, Trust(required=True)).entries
    ]
    assert signed_by == [a] * before + [b] * (3 - before)


def test_a_key_does_not_sign_over_lines_that_were_sealed_without(tmp_path, keys):
    chain = settings("majority")
    learn(None, SITES[0], cohort(), tmp_path / "a.capsule", settings=chain)
    site = split_site(cohort(), SITES[1], 0, chain.test_fraction, chain.val_fraction)
    capsule = learn_next(open_capsule(tmp_path / "a.capsule"), site)
    with pytest.raises(CapsuleError, match="lines before yours are not signed"):
        seal(capsule, tmp_path / "b.capsule", key=keys["b"])


def test_signatures_can_be_required(tmp_path):
    path = tmp_path / "a.capsule"
    learn(None, SITES[0], cohort(), path, settings=settings("majority"))
    assert open_capsule(path).signed_by == ""
    with pytest.raises(CapsuleError, match="is not signed"):
        open_capsule(path, Trust(required=True))
    strict = LearnOptions(trust=Trust(required=True))
    with pytest.raises(CapsuleError, match="is not signed"):
        learn(path, SITES[1], cohort(), tmp_path / "b.capsule", options=strict)


def test_a_line_is_signed_where_the_others_are_and_only_there(tmp_path, keys):
    path = two_hospitals(tmp_path, keys)
    with pytest.raises(CapsuleError, match=r"lines before yours are signed.*--sign"):
        learn(path, SITES[2], cohort(), tmp_path / "3.capsule")
    plain, out = tmp_path / "plain.capsule", tmp_path / "3.capsule"
    learn(None, SITES[0], cohort(), plain, settings=settings("majority"))
    with pytest.raises(CapsuleError, match="lines before yours are not signed"):
        learn(plain, SITES[1], cohort(), out, options=LearnOptions(key=keys["a"]))
    assert not out.exists()


def test_capsules_are_written_for_their_owner_only(tmp_path):
    path = tmp_path / "a.capsule"
    learn(None, SITES[0], cohort(), path, settings=settings("majority"))
    assert path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "a.capsule.receipt.json").stat().st_mode & 0o077 == 0
    learn(None, SITES[0], cohort(), tmp_path / "folder", settings=settings("majority"))
    assert [f.stat().st_mode & 0o077 for f in (tmp_path / "folder").iterdir()] == [
        0
    ] * 5
