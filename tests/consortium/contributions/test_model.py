"""Releases around a start: what is refused, what stays at home, what is learned."""

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from aggregator_rounds import parsed
from exchange_records import key_of
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from small_exchange import all_given, given, learned, people, sites, start

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge_consortium.aggregation.aggregators import (
    Noise,
    RoundList,
    aggregate,
    card_of,
    close,
)
from fcforge_consortium.aggregation.rounds import give
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.contributions.contribution import own_threshold
from fcforge_consortium.contributions.model import LEAST_AGREEMENT, TURNED
from fcforge_consortium.ledger.entries import Spent
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.kinds import Contribution
from fcforge_consortium.report import contributions
from fcforge_consortium.report.describe import describe

HOSPITALS = sites()[2:]
SITE = HOSPITALS[0]


def mine():
    return people().select_sites([SITE])


def home(*entries):
    return Ledger(Path("fcforge.private"), entries)


def free():
    """A start whose policy takes exact sums."""
    return start(exact_allowed=True)


# -- the head is a function of the set ---------------------------------------------------------
@settings(max_examples=10, deadline=None)
@drawn(data=st.data())
def test_any_order_and_any_withdrawal_is_one_head(data):
    order = data.draw(st.permutations(HOSPITALS))
    gone = data.draw(st.sampled_from(HOSPITALS))
    found = start()
    for site in order:
        found = found.merged(given(site).exchange)
    assert found.id == all_given().id
    np.testing.assert_array_equal(found.model.beta(), all_given().model.beta())
    without = start().merged(*(given(s).exchange for s in HOSPITALS if s != gone))
    after = found.withdrawn(gone)
    np.testing.assert_array_equal(after.model.beta(), without.model.beta())
    np.testing.assert_array_equal(after.model.beta(), found.model.beta_without(gone))


def test_the_head_is_the_solve_of_the_sum():
    model = all_given().model
    arrays = model.base_model.space
    total = np.sum([g.numbers for g in model.given], axis=0)
    variance = float(len(HOSPITALS) * vector.noise_units(1.0) ** 2)
    wanted = vector.solve(arrays, total, variance, len(HOSPITALS))
    np.testing.assert_allclose(model.beta(), wanted, rtol=1e-6)
    public = start().model
    np.testing.assert_array_equal(public.head.weight, arrays.base.weight)
    assert model.sites == tuple(sorted(HOSPITALS))
    assert public.sites == sites()[:2]


# -- a step ------------------------------------------------------------------------------------
def test_a_step_adds_one_release_and_keeps_the_rest_at_home():
    done = given(SITE)
    (release,) = done.new
    assert done.exchange.of(Contribution) == (release,)
    assert [p.id for p in done.entry.people] == mine().subject_id.tolist()
    assert release.commitment == done.entry.commitment
    assert set(done.entry.seen) == {r.id for r in done.exchange.everything}
    data = release.line + done.exchange.payloads[release.payload]
    assert done.entry.salt.encode() not in data
    assert not any(p.scan.encode() in data for p in done.entry.people)
    assert Fraction(release.variance) == vector.noise_units(1.0) ** 2


def test_exact_releases_are_the_sums_in_whole_units():
    done = learned(free(), SITE, mechanism="none")
    model = done.exchange.model
    x = model.base_model.features(mine().fc, {})
    wanted = vector.contribution_rows(model.base_model.space, x, mine().y).sum(0)
    assert np.array_equal(model.given[0].numbers, wanted)
    assert (done.new[0].epsilon, done.new[0].variance) == (0.0, "0")
    assert model.head_count(model.given[0])[0] == pytest.approx(len(mine()), abs=0.01)


def test_a_person_adds_no_more_than_the_noise_is_for():
    model = start().model
    x = model.base_model.features(people().fc, {}) * 50
    units = np.linalg.norm(
        vector.contribution_rows(model.base_model.space, x, people().y).astype(float),
        axis=1,
    )
    assert units.max() <= vector.SENSITIVITY


def test_noise_is_secret_and_of_the_stated_size():
    one, two = (learned(start(), SITE).exchange.model.given[0] for _ in range(2))
    assert not np.array_equal(one.numbers, two.numbers)
    exact = learned(free(), SITE, mechanism="none").exchange.model
    noise = (one.numbers - exact.given[0].numbers) / float(one.variance) ** 0.5
    assert 1e-3 < np.abs(noise).max() < 6


def test_new_people_are_a_further_release_and_the_same_people_are_told():
    half = np.arange(len(mine())) % 2 == 0
    first = learned(start(), SITE, cohort=mine().select(half))
    second = learned(
        first.exchange, SITE, home(first.entry), cohort=mine().select(~half)
    )
    both = home(first.entry, second.entry)
    assert (second.new[0].number, second.new[0].spent_epsilon) == (2, 2.0)
    for state in (second.exchange, start()):
        with pytest.raises(ConfigError, match="contributed before"):
            learned(state, SITE, both)
    without = second.exchange.withdrawn(SITE)
    third = learned(without, SITE, both)
    assert (third.new[0].number, third.new[0].spent_epsilon) == (3, 3.0)
    renamed = replace(
        mine(), subject_id=np.array([f"x{i}" for i in range(len(mine()))])
    )
    with pytest.raises(ConfigError, match="by id or by scan"):
        learned(second.exchange, SITE, both, cohort=renamed)


def test_the_stated_budget_does_not_depend_on_who_took_part():
    """Issue 39: an exact maximum over people told two neighbouring hospitals apart.

    One hospital contributes the same person twice, its neighbour another person in his place.
    """
    half = np.arange(len(mine())) % 2 == 0
    other = ~half
    shared = other.copy()
    shared[np.flatnonzero(half)[0]] = True
    first = learned(start(), SITE, cohort=mine().select(half))
    without = first.exchange.withdrawn(SITE)
    stated = set()
    for cohort in (mine().select(other), mine().select(shared)):
        (new,) = learned(without, SITE, home(first.entry), cohort=cohort).new
        stated.add((new.spent_epsilon, new.spent_delta))
    assert stated == {(2.0, 2e-6)}


def test_a_release_that_the_ledger_does_not_know_is_refused():
    with pytest.raises(ConfigError, match=f"contribution 1 of '{SITE}'"):
        learned(given(SITE).exchange, SITE)


def test_turned_labels_are_refused():
    assert given(SITE).before["auroc"] > 0.7
    turned = replace(mine(), y=1 - mine().y)
    with pytest.raises(DataError, match="--accept-labels"):
        learned(start(), SITE, cohort=turned, accept_labels=False)
    learned(start(), SITE, cohort=turned, accept_labels=True)


@pytest.mark.parametrize("spelling", ["0050003", "SUB-50003", "Pitt_0050003"])
def test_a_public_person_in_another_spelling_is_named(spelling):
    """The scan is another person's, so that the id alone can tell."""
    public = people().select_sites(sites()[:2])
    public_ids = public.subject_id.astype("U30")
    public_ids[1] = "50003"
    exchange = make_base_model(replace(public, subject_id=public_ids), (), {"axes": 4})
    ids = mine().subject_id.astype("U30")
    ids[2] = spelling
    named = f"1 of its people.*{spelling}, which has the number of 50003.*shorten it"
    with pytest.raises(DataError, match=named):
        learned(exchange, SITE, cohort=replace(mine(), subject_id=ids))
    (warning,) = exchange.model.familiar(replace(mine(), subject_id=ids))
    assert f"{spelling}, which has the number of 50003" in warning


def test_people_who_do_not_fit_the_start_are_named():
    ids = mine().subject_id.copy()
    ids[2] = people().subject_id[0]
    with pytest.raises(DataError, match=f"among the public ones.*{ids[2]}"):
        learned(start(), SITE, cohort=replace(mine(), subject_id=ids))
    ids[2] = f" {ids[2].swapcase()}"
    with pytest.raises(DataError, match="among the public ones"):
        learned(start(), SITE, cohort=replace(mine(), subject_id=ids))
    months = {**mine().covariates, "age": mine().covariates["age"] * 12}
    with pytest.raises(DataError, match=r"has the age .* which is removed"):
        learned(start(("age",)), SITE, cohort=replace(mine(), covariates=months))
    with pytest.raises(DataError, match="has no age"):
        learned(start(("age",)), SITE, cohort=replace(mine(), covariates={}))


@pytest.mark.parametrize(
    ("policy", "asked", "wrong"),
    [
        ({"fewest_people": 1_000}, {}, DataError),
        ({"most_people": 10}, {}, DataError),
        ({"max_epsilon": 0.5}, {}, ConfigError),
        ({}, {"delta": 0.99}, ConfigError),
        ({}, {"epsilon": 9.0}, ConfigError),
        ({}, {"mechanism": "none"}, ConfigError),
        ({"exact_allowed": True}, {"mechanism": "none", "epsilon": 1.0}, ConfigError),
        ({}, {"round": "R1"}, ConfigError),
    ],
)
def test_the_policy_holds(policy, asked, wrong):
    with pytest.raises(wrong):
        learned(start(**policy), SITE, **asked)


# -- forged releases ---------------------------------------------------------------------------
def forged(numbers=None, signer="", **fields):
    """A release whose hospital lies: other numbers or fields, all hashes right."""
    exchange = given(SITE).exchange
    release = exchange.of(Contribution)[0]
    data = exchange.payloads[release.payload]
    if numbers is not None:
        data = save_arrays({"numbers": numbers})
    made = release.changed(payload=sha256(data), **fields)
    return start().joined([made], {made.payload: data})


def numbers_of(site):
    return given(site).exchange.model.given[0].numbers


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": 4.0, "spent_epsilon": 4.0},
        {"epsilon": 30.0},
        {"delta": 0.5},
        {"variance": "1"},
        {"variance": "0"},
        {"grid": 1.0},
        {"mechanism": "none"},
        {"mechanism": "none", "epsilon": 0.0, "delta": 0.0, "variance": "0"},
    ],
    ids=str,
)
def test_a_budget_that_is_not_what_it_says_is_refused(fields):
    with pytest.raises(ExchangeError, match=f"contribution 1 of '{SITE}'"):
        forged(**fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n[:-1],
        lambda n: n.astype(np.float64),
        lambda n: n[None],
        lambda n: np.append(n[:-1], n[-1] * 20_000),  # 960,000 people
        lambda n: np.append(n[:-1], -(2**40)),  # -4 million
        lambda n: n * 1_000,
        lambda n: np.append(n[:-1] * 10_000, n[-1]),
    ],
)
def test_numbers_that_nobody_can_give_are_refused(change):
    with pytest.raises(ExchangeError, match=SITE):
        forged(change(numbers_of(SITE)))


def test_a_copy_under_another_name_is_refused():
    copied = given(SITE).new[0].changed(site=HOSPITALS[1])
    arrays = given(SITE).exchange.payloads
    with pytest.raises(ExchangeError, match="same people and salt"):
        given(SITE).exchange.joined([copied], arrays)


@pytest.mark.parametrize("factor", [9_000, 600])
def test_a_hospital_cannot_claim_more_people_than_planned(factor):
    """Issue 39: 101 people claimed to be 9,000 and turned the model."""
    numbers = numbers_of(SITE)
    claimed = np.append(numbers[:-1], factor * vector.COUNT)
    with pytest.raises(ExchangeError, match="cannot come from 10 to 300 people"):
        forged(claimed)


def test_influence_is_measured_against_the_base_model():
    """Issue 39: a poisoned model's own temperature hid who had poisoned it."""
    poisoned = learned(free(), SITE, mechanism="none").exchange
    (release,) = poisoned.of(Contribution)
    numbers = poisoned.arrays(release)["numbers"].copy()
    numbers[-1] = 300 * vector.COUNT
    numbers[:-1] = 3 * numbers[-1] // len(numbers) ** 0.5
    data = save_arrays({"numbers": numbers})
    forged_release = release.changed(payload=sha256(data))
    model = free().joined([forged_release], {sha256(data): data})
    for site in HOSPITALS[1:]:
        model = model.merged(learned(free(), site, mechanism="none").exchange)
    moved = model.model.influence()
    space = model.model.base_model.space
    poison = moved.pop(SITE)
    assert poison > 3 * max(moved.values())
    assert model.model.temperature > 2 * space.base.temperature  # what hid it


def against(space, people):
    """Numbers of some people who all point away from the base model, each at the clip."""
    away = -space.base.weight / np.linalg.norm(space.base.weight)
    numbers = np.zeros(space.n_numbers, dtype=np.int64)
    numbers[: len(away)] = np.trunc(away * people * vector.UNIT * 0.999)
    numbers[-1] = people * vector.COUNT
    return numbers


def poisoned_by(*people):
    """The exact contributions of all hospitals, of which the first ones are poison."""
    found = free()
    for site, count in itertools.zip_longest(HOSPITALS, people):
        done = learned(free(), site, mechanism="none").exchange
        if count is None:
            found = found.merged(done)
            continue
        numbers = against(free().model.base_model.space, count)
        numbers[-2] = HOSPITALS.index(site)  # no copy of another's
        data = save_arrays({"numbers": numbers})
        (release,) = done.of(Contribution)
        poison = release.changed(payload=sha256(data))
        found = found.joined([poison], {sha256(data): data})
    return found


def test_a_quiet_poison_is_named_by_its_effect_on_public_people():
    """Issue 39: 101 people who claimed to be 9,000 turned AUROC from .780 to .224, unnamed."""
    with pytest.raises(ExchangeError, match="cannot come from 10 to 300 people"):
        poisoned_by(9_000)
    for claimed in (101, 300):
        found = poisoned_by(claimed).model
        without = dict(found.agreement_without)
        assert found.agreement < 0
        assert without.pop(SITE) > 0.9
        assert max(without.values()) < 0
        assert found.turning() == [SITE]
        rows = describe(found.exchange).tables[0].rows
        assert [row[0] for row in rows if row[-1]] == [SITE]
    honest = free()
    for site in HOSPITALS:
        honest = honest.merged(learned(free(), site, mechanism="none").exchange)
    assert honest.model.turning() == []
    assert all_given().model.turning() == []


@pytest.mark.parametrize("people", [(50, 50), (100, 100, 100), (15, 15, 15, 15)])
def test_hospitals_that_poison_together_do_not_hide_each_other(people):
    """Without any one of them the model stays turned, so that leaving one out shows nothing."""
    found = poisoned_by(*people)
    model = found.model
    assert model.agreement < -0.9
    without = model.agreement_without.values()
    assert max(without) - model.agreement < TURNED
    assert model.turning() == sorted(HOSPITALS[: len(people)])
    shown = describe(found)
    assert [a.kind for a in shown.answers if "turn the base model round" in a.say] == [
        "alarm"
    ]
    assert min(all_given().model.agreement_alone.values()) > LEAST_AGREEMENT


def test_a_poison_inside_a_round_is_shown_for_the_round_as_a_whole():
    """Nobody can see inside a sum: the round is named, not the hospital."""
    names = ("Ministry", "University")
    cards = tuple(card_of(name, key_of(name)) for name in names)
    found = start(aggregators=cards, exact_allowed=True)
    space = found.model.base_model.space
    shares = []
    for site in HOSPITALS:
        asked = {"round": "spring", "mechanism": "none", "signer": site}
        done = learned(found, site, **asked)
        files = done.files
        if site == SITE:
            gift = (against(space, 300), Spent(), key_of(site))
            files = give(found, done.entry, *gift)[1]
        shares.append({name: parsed(files[name]) for name in names})
    lists = {name: RoundList("nowhere") for name in names}
    size = found.model.size
    for name in names:
        mine = [one[name] for one in shares]
        done = close(found, mine, key_of(name), size, lists[name])
        lists[name].lines.append(done.line)
        found = done.exchange
    noise = Noise(0, found.model.grid, size)
    for name in names:
        mine = [one[name] for one in shares]
        found = aggregate(found, mine, key_of(name), noise, lists[name]).exchange
    assert list(found.model.agreement_without) == ["round spring"]
    assert found.model.agreement < 0
    assert found.model.turning() == ["round spring"]
    shown = describe(found)
    (travels,) = [a for a in shown.answers if a.question == "What travels?"]
    assert any("No aggregator can read a share alone" in said for said in travels.more)
    table = shown.tables[0]
    assert [row[0] for row in table.rows if row[-1]] == ["round spring"]
    assert "Nobody can look inside a round" in table.note


def test_influence_without_a_name_is_the_step_of_the_others():
    model = all_given().model
    for site in HOSPITALS:
        others = [given for given in model.given if given.name != site]
        total = np.sum([g.numbers for g in others], axis=0).astype(float)
        variance = float(sum(g.variance for g in others))
        wanted = vector.solve(model.base_model.space, total, variance, len(others))
        np.testing.assert_allclose(model.beta_without(site), wanted, rtol=1e-9)


# -- influence ---------------------------------------------------------------------------------
def test_a_hospital_of_one_mind_is_flagged():
    honest = all_given().model
    assert set(honest.influence()) == set(HOSPITALS)
    assert honest.outliers() == []
    exact = free()
    for site in HOSPITALS:
        exact = exact.merged(learned(free(), site, mechanism="none").exchange)
    assert exact.model.outliers() == []  # sites differ by more than chance
    loud = numbers_of(SITE)
    loud[-1] = 250 * vector.COUNT  # within policy and plan, all of one mind
    loud[:-1] = 3 * loud[-1] // len(loud) ** 0.5
    others = [given(s).exchange for s in HOSPITALS[1:]]
    found = forged(loud).merged(*others).model
    assert found.outliers() == [SITE]
    table = describe(found.exchange).tables[0]
    row = next(row for row in table.rows if row[0] == SITE)
    assert row[-1]
    assert "±" in row[1]


def test_what_a_file_holds_of_whom_is_counted_from_it():
    found = all_given()
    rows = {row[0]: row for row in describe(found).tables[-1].rows}
    assert rows[f"contribution 1 of '{SITE}'"][-1] == str(found.model.size)
    public = found.arrays(found.root).values()
    assert rows["base model 0 of 'public people'"][-1] == str(
        sum(a.size for a in public)
    )


def test_a_start_is_held_against_the_commonest_class():
    known = start().root.expected
    good = known.changed(accuracy=(0.66, 0.6, 0.72), majority=0.55)
    assert contributions.works(good).kind == "good"
    answer = contributions.works(good.changed(accuracy=(0.66, 0.5, 0.8)))
    assert answer.kind == "warn"
    assert "66.0 % [50.0 %, 80.0 %]" in answer.say
    unknown = contributions.works(known.changed(accuracy=None))
    assert unknown.say.startswith("Not known")


def test_a_description_answers_four_questions():
    signed = describe(all_given(signed=True)).answers
    assert signed[0].kind == "good"
    assert any("one person replaced) it means epsilon 2." in m for m in signed[3].more)
    exact = describe(learned(free(), SITE, mechanism="none").exchange)
    assert [a.kind for a in exact.answers][1] == "alarm"
    assert exact.answers[3].kind == "alarm"
    assert describe(start()).answers[3].say == "No contribution is in the model."
    assert describe(start()).sites == ()


# -- threshold and scores ----------------------------------------------------------------------
def test_a_threshold_is_fitted_without_the_own_contributions():
    done = learned(free(), SITE, mechanism="none")
    model = done.exchange.model
    fitted = own_threshold(model, mine(), SITE, home(done.entry))
    flattered = own_threshold(model, mine(), SITE, home())
    assert flattered.slope > fitted.slope  # nobody was left out
    with pytest.raises(DataError, match=f"belongs to {SITE}, not to '{HOSPITALS[1]}'"):
        own_threshold(model, mine(), HOSPITALS[1], home(done.entry))


def test_scores_by_hand_and_abstention():
    model = all_given().model
    x = model.base_model.features(mine().fc, {})
    odds = (
        model.base_model.space.base.standardise(x) @ model.head.weight + model.head.bias
    ) / (model.temperature)
    fc = np.concatenate([mine().fc, np.eye(10)[None]])
    found = model.score(fc, {})
    np.testing.assert_allclose(found.odds[:-1], odds)
    assert np.isnan(found.odds[-1])
    assert found.strangeness[-1] > 1
    assert found.why[-1]
    assert not any(found.why[:-1])


def test_the_head_is_explained_to_rounding():
    for exchange, names in ((all_given(), ()), (start(("age", "sex")), ("age", "sex"))):
        values = {name: mine().covariates[name] for name in names}
        scored, offset = exchange.model.attribution(values)
        wanted = exchange.model.score(mine().fc, values).odds
        np.testing.assert_allclose(scored.score(mine().fc) + offset, wanted, atol=1e-9)
    reference, who = all_given().model.reference()
    assert reference.shape == (10, 10)
    assert "public people" in who


def test_the_base_model_alone_stands_beside():
    (title,) = all_given().model.baselines()
    alone = all_given().model.baselines()[title]
    assert alone.exchange.id == start().id
    assert start().model.baselines() == {}


def test_a_signed_step_is_its_hospitals():
    done = given(SITE, SITE)
    assert done.new[0].key == key_of(SITE).public_key().public_bytes_raw().hex()


@pytest.mark.parametrize(
    ("epsilon", "delta", "why"),
    [
        (0.0, 1e-6, "not within the policy"),
        (0.5, 1e-6, "less than the record alone costs"),
        (1.0, 1e-7, "less than the record alone costs"),
        (1e5, 1e-6, "not within the policy"),
        (1.0, 1.0, "not within the policy"),
    ],
)
def test_what_people_have_spent_is_possible(epsilon, delta, why):
    """Such a record once made `inspect` fail for everybody, or say too little."""
    done = given(SITE, SITE)
    (release,) = done.new
    forged = release.changed(spent_epsilon=epsilon, spent_delta=delta, signature="")
    forged = forged.signed(key_of(SITE))
    with pytest.raises(ExchangeError, match=why):
        start().joined([forged], done.exchange.payloads)


def test_notices_say_what_they_cost():
    names = ("Ministry", "University")
    aggregators = tuple(card_of(name, key_of(name)) for name in names)
    around = start(aggregators=aggregators)
    (notice,) = learned(around, SITE, signer=SITE, round="spring").new
    assert around.joined([notice]).model.spent(notice) == (1.0, 1e-6)
    for change in ({"spent_epsilon": 0.1}, {"epsilon": 1e6}, {"delta": 0.0}):
        forged = notice.changed(**change, signature="").signed(key_of(SITE))
        with pytest.raises(ExchangeError, match=f"notice 1 of '{SITE}'|spent"):
            around.joined([forged])


def test_nobody_is_in_one_release_twice():
    """Ten copies of one person, each changed a little, were ten times the stated epsilon."""
    copied = mine().fc.copy()
    copied[1] = copied[0]
    first, second = mine().subject_id[:2]
    for change in (0.0, 0.001, 0.05):
        copied[1, [0, 1], [1, 0]] += change
        with pytest.raises(DataError, match=f"{first}.*one person|'{first}'") as told:
            learned(start(), SITE, cohort=replace(mine(), fc=copied))
        assert f"--leave-out {second}" in str(told.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [("sub-01_ses-1", "sub-01_ses-2"), ("50003", "Pitt_0050003"), ("s01", "S1")],
)
def test_nobody_is_in_one_release_under_two_spellings(one, other):
    """Their scans are of two days: both would count, at twice the stated epsilon."""
    ids = mine().subject_id.astype("U30")
    ids[1], ids[4] = one, other
    said = f"'{one}' and '{other}'.*twice the stated budget.*--leave-out"
    with pytest.raises(DataError, match=said):
        learned(start(), SITE, cohort=replace(mine(), subject_id=ids))
    ids[4] = "sub-02"
    assert learned(start(), SITE, cohort=replace(mine(), subject_id=ids)).new


def test_a_hash_has_no_public_persons_number():
    """The estimators name people by hashes, in whose digits any number may occur."""
    public = people().select_sites(sites()[:2])
    public_ids = public.subject_id.astype("U30")
    public_ids[1] = "50003"
    exchange = make_base_model(replace(public, subject_id=public_ids), (), {"axes": 4})
    ids = mine().subject_id.astype("U30")
    ids[2] = "c3f50003ab9f12d4"
    assert learned(exchange, SITE, cohort=replace(mine(), subject_id=ids)).new
