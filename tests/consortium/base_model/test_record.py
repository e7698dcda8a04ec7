"""A start of public people: the same from rows in any order, and its claims are checked."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from small_exchange import people, sites, start

from fcforge.core.errors import DataError, ExchangeError
from fcforge.core.target import Target
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.base_model.space import SpaceSettings
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import load_arrays, save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.policy import Measured, Policy

FOUR = asdict(SpaceSettings(axes=4))


def test_rows_in_any_order_are_the_same_start():
    turned = people().select(np.arange(len(people()))[::-1])
    again = make_base_model(turned.select_sites(sites()[:2]), (), FOUR)
    assert again.root.payload == start().root.payload
    assert again.root.people_sha256 == start().root.people_sha256
    other = make_base_model(turned.select_sites(sites()[1:3]), (), FOUR)
    assert other.root.payload != again.root.payload


def test_a_start_says_who_the_public_people_are():
    root = start(("age", "sex")).root
    public = people().select_sites(sites()[:2])
    assert (root.people, root.patients) == (len(public), int(public.y.sum()))
    assert set(root.ids) == set(public.subject_id.tolist())
    assert root.settings == FOUR
    assert root.removes == ("age", "sex")
    value, low, high = root.expected.auroc
    assert 0 < low < value < high < 1


def test_words_of_the_data_become_the_policys():
    named = replace(people(), target=Target(classes=("TC", "ASD")))
    made = make_base_model(named, (), FOUR, Policy(disorder="autism"))
    assert made.root.policy.target.classes == ("TC", "ASD")
    with pytest.raises(DataError, match="'MDD'"):
        make_base_model(named, (), FOUR, Policy(control="HC", patient="MDD"))


def test_covariates_that_cannot_be_meant_are_named():
    values = {"age": np.array([20.0, np.nan, 240.0]), "sex": np.array([1.0, 2.0, 1.0])}
    told = start(("age", "sex")).model.base_model.wrong_covariates(values, 3)
    assert told[0] == ""
    assert told[1].startswith("has no age, which is removed")
    assert told[2].startswith("has the age 240, which is removed")
    (nothing,) = start(("age", "sex")).model.base_model.wrong_covariates({}, 1)
    assert nothing.startswith("has no sex, ")


# -- claims ----------------------------------------------------------------------------------------
def forged(arrays=None, **fields):
    """A start whose maker lies: other arrays or fields, all hashes right."""
    made = start(("age",))
    stored = load_arrays(made.payloads[made.root.payload], "start")
    data = save_arrays({**stored, **(arrays or {})})
    record = made.root.changed(payload=sha256(data), **fields)
    return Exchange(record).joined([], {record.payload: data})


def stored(name):
    made = start(("age",))
    return load_arrays(made.payloads[made.root.payload], "start")[name].copy()


def test_an_honest_start_is_opened():
    assert forged().root.payload == start(("age",)).root.payload


@pytest.mark.parametrize(
    "fields",
    [
        {"patients": 10_000},
        {"people": 7},
        {"sites": {"PITT": 1}},
        {"ids": ("a",)},
        {"roi_names": ("a", "b")},
        {"removes": ()},
        {"ranges": {"age": (40.0, 8.0)}},
        {"ranges": {"weight": (40.0, 80.0)}},
        {"n_rois": 11},
        {"settings": {}},
        {"settings": {**FOUR, "axes": 4.0}},
        {"settings": {**FOUR, "scans": "0.5 0.25"}},
        {
            "expected": records.ExpectedQuality(
                people=9, majority=0.5, accuracy=(0.9, 0.2, 0.3), auroc=None
            )
        },
        {
            "expected": records.ExpectedQuality(
                people=9_000, majority=0.5, accuracy=None, auroc=None
            )
        },
        {
            "expected": records.ExpectedQuality(
                people=9,
                majority=0.5,
                accuracy=None,
                auroc=None,
                number={"r2": (0.9, 0.8, 1.0)},
            )
        },
        {"policy": Policy(number=Measured(name="age", limits=(5.0, 65.0)))},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_claims_that_contradict_each_other_are_refused(fields):
    with pytest.raises(ExchangeError, match="the base model 0 of 'public people'"):
        forged(**fields)


def dead_axes():
    axes = stored("axes")
    axes[:, 1:] = 0.0
    return axes


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("axes", lambda a: dead_axes()),  # the noise could be read off them
        ("axes", lambda a: a[:, :1].repeat(4, axis=1)),
        ("size", lambda a: 100 * a),
        ("size", lambda a: -a),
        ("clip", lambda a: 1e6 * a),
        ("clip", lambda a: -a),
        ("clip", lambda a: 0 * a),
        ("temperature", lambda a: 0 * a),
        ("scale", lambda a: -a),
        ("variance", lambda a: 0 * a),
        ("variance", lambda a: np.ones_like(a)),
        ("variance", lambda a: -a),
        ("variance", lambda a: 100 * a),
        ("variance", lambda a: a[:-1]),
        ("mean", lambda a: a[:-1]),
        ("mean", lambda a: a.astype(np.float64)),
        ("mean", lambda a: np.float32(0.5)),
        ("axes", lambda a: np.float32(0.5)),
        ("scans", lambda a: np.zeros(3, np.float32)),
        ("confounds.centre", lambda a: a[:-1]),
        ("confounds.coefficients", lambda a: a[:, :-1]),
    ],
)
def test_arrays_that_cannot_be_of_the_same_people_are_refused(name, change):
    known = None if name == "scans" else stored(name)
    with pytest.raises(ExchangeError, match="the base model 0 of 'public people'"):
        forged({name: change(known)})


def test_scans_unlike_the_public_peoples_are_refused():
    mine = people().select_sites([sites()[2]])
    public = start().model.base_model
    public.require_alike(public.features(mine.fc, {}))
    order = np.random.default_rng(0).permutation(10)
    shuffled = public.features(mine.fc[:, order][:, :, order], {})
    with pytest.raises(DataError, match="unlike the public people's"):
        public.require_alike(shuffled)


def test_a_public_site_may_have_one_diagnosis():
    """Patients of one hospital and controls of another are public people as well."""
    cohort = people().select_sites(sites()[:3])
    one_sided = cohort.select((cohort.site != sites()[2]) | (cohort.y == 1))
    made = make_base_model(one_sided, settings=FOUR)
    assert set(made.root.sites) == set(sites()[:3])
