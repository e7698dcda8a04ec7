"""Prediction and evaluation: by hand, who is abstained from, the own threshold."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_exchange import R, all_given, given, people, sites, start

from fcforge.core.errors import DataError
from fcforge_consortium.contributions.contribution import own_threshold
from fcforge_consortium.contributions.prediction import (
    Prediction,
    as_csv,
    as_json,
    evaluate,
    predict,
)
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.records.policy import COLUMNS, Measured, Policy

HOSPITALS = sites()[2:]
NEW = people().select_sites([HOSPITALS[-1]])


@pytest.fixture(scope="module")
def exchange():
    return start().merged(*(given(site).exchange for site in HOSPITALS[:2]))


def own(exchange, intercept=0.0, slope=1.0, site=HOSPITALS[-1]):
    return Threshold(
        intercept=intercept, slope=slope, people=10, exchange=exchange.id, site=site
    )


def write(path, cohort, **more):
    np.savez(path, fc=cohort.fc, subject_id=cohort.subject_id, **more)
    return path


def test_probabilities_by_hand(exchange, tmp_path):
    rows = predict(
        exchange, write(tmp_path / "d.npz", NEW), threshold=own(exchange, 0.5, 2.0)
    )
    odds = exchange.model.score(NEW.fc, {}).odds
    assert [r.status for r in rows] == ["ok"] * len(NEW)
    assert [r.subject for r in rows] == NEW.subject_id.tolist()
    said = [r.probability for r in rows]
    np.testing.assert_allclose(said, 1 / (1 + np.exp(-odds)), atol=1e-4)
    at_home = [r.own for r in rows]
    np.testing.assert_allclose(at_home, 1 / (1 + np.exp(-0.5 - 2 * odds)), atol=1e-4)


def test_a_scan_is_scored_by_itself(exchange, tmp_path):
    together = predict(exchange, write(tmp_path / "d.npz", NEW))
    np.save(tmp_path / "one.npy", NEW.fc[3])
    alone = predict(exchange, tmp_path / "one.npy")[0]
    assert alone.probability == together[3].probability
    assert alone.own is None


def test_scans_that_cannot_be_used_are_named_in_their_place(exchange, tmp_path):
    scans = {"a-eye": np.eye(R), "b-good": NEW.fc[0], "c-small": np.eye(R - 1)}
    for name, fc in scans.items():
        np.save(tmp_path / f"{name}.npy", fc)
    rows = predict(exchange, sorted(tmp_path.glob("*.npy")))
    wanted = ["unlike anything seen", "ok", "cannot be used"]
    assert [r.status for r in rows] == wanted
    assert rows[0].strangeness > 1
    assert all(r.note for r in (rows[0], rows[2]))


def test_other_roi_names_cannot_be_used(exchange, tmp_path):
    names = list(people().roi_names)
    rows = predict(exchange, write(tmp_path / "a.npz", NEW, roi_names=names))
    assert {r.status for r in rows} == {"ok"}
    rows = predict(exchange, write(tmp_path / "b.npz", NEW, roi_names=names[::-1]))
    assert {r.status for r in rows} == {"cannot be used"}
    assert f"'ROI {R - 1}'" in rows[0].note


def test_missing_and_odd_covariates_are_abstained_from_by_name(tmp_path):
    few = NEW.select(np.arange(5))
    age = few.covariates["age"].copy()
    sex = few.covariates["sex"].copy()
    age[0] = np.nan
    age[1] = 12 * 30.0  # in months
    sex[2] = 0.0  # counted 0 and 1
    found = start(("age", "sex"))
    rows = predict(found, write(tmp_path / "d.npz", few, age=age, sex=sex))
    assert [r.status for r in rows] == ["abstained"] * 3 + ["ok"] * 2
    assert rows[0].note.startswith("has no age, ")
    assert "has the age 360" in rows[1].note
    assert "has the sex 0" in rows[2].note
    with pytest.raises(DataError, match="covariate 'sex' holds text"):
        found.model.score(few.fc, {"age": age, "sex": np.array(["x"] * 5)})


def test_the_own_threshold_of_another_hospital_is_refused(exchange, tmp_path):
    theirs = own(exchange, site=HOSPITALS[0])
    named = write(tmp_path / "named.npz", NEW, site=NEW.site)
    with pytest.raises(DataError, match=HOSPITALS[0]):
        predict(exchange, named, threshold=theirs)
    with pytest.raises(DataError, match=HOSPITALS[0]):
        evaluate(exchange, NEW, Ledger(Path("p"), [theirs]))
    assert predict(exchange, named, threshold=own(exchange))[0].own is not None


def test_tables_are_safe_to_open(exchange, tmp_path):
    np.save(tmp_path / "=cmd.npy", NEW.fc[0])
    rows = predict(exchange, tmp_path / "=cmd.npy", threshold=own(exchange, site="x"))
    (row,) = csv.DictReader(io.StringIO(as_csv(rows, exchange)))
    assert not row["subject"].startswith("=")
    assert row["sites_learned"] == " ".join(sorted(HOSPITALS[:2]))
    assert "own_probability" in row
    said = json.loads(as_json(rows, exchange))
    assert said["exchange"] == exchange.id
    assert said["probability_of"] == "patient"


def test_no_column_of_a_table_is_a_formula():
    """What a number is called comes from the file."""
    policy = Policy(number=Measured(name="=1+1", limits=(0.0, 1.0)))
    root = SimpleNamespace(policy=policy)
    made = SimpleNamespace(root=root, model=SimpleNamespace(sites=()))
    row = Prediction("a", "ok", answers={"=1+1": 0.5})
    head = as_csv([row], made).splitlines()[0]
    assert head.split(",")[2] == "'=1+1"


def test_every_column_of_a_table_is_known_to_the_policy(exchange):
    """A number of such a name would stand in its place: in that of whom it is about."""
    said = Prediction("a", "ok", own=0.5)
    table = as_csv([said], exchange).splitlines()[0].split(",")
    assert {*table, *said.to_json()} == COLUMNS


def test_evaluation_beside_the_majority_and_the_base_model_alone(exchange):
    found = evaluate(exchange, NEW)
    odds = exchange.model.score(NEW.fc, {}).odds
    assert found.people == len(NEW)
    assert found.majority == max(NEW.y.mean(), 1 - NEW.y.mean())
    value = found.rows["exchange"]["accuracy"]
    assert value.value == pytest.approx(((odds > 0) == NEW.y).mean())
    assert value.low < value.value < value.high
    assert set(found.rows) == {"exchange", "base model alone"}
    assert set(evaluate(start(), NEW).rows) == {"exchange"}
    said = found.to_json()["rows"]["exchange"]["accuracy"]
    assert json.loads(json.dumps(said)) == value.to_json()


def test_people_who_were_seen_are_told_of(exchange):
    mine = people().select_sites([HOSPITALS[0]])
    done = given(HOSPITALS[0])
    known = Ledger(Path("p"), [done.entry])
    fitted = own_threshold(done.exchange.model, mine, HOSPITALS[0], known)
    private = Ledger(Path("p"), [done.entry, fitted])
    found = evaluate(exchange, mine, private)
    assert found.learned == len(mine)
    assert any(str(len(mine)) in note for note in found.notes)
    assert "own threshold" in found.rows
    assert any("fits it again" in note for note in found.notes)
    public = people().select_sites(sites()[:1])
    assert "among the public ones" in evaluate(exchange, public).notes[0]


def test_evaluation_warns_of_diagnoses_that_are_turned_round(exchange):
    odds = exchange.model.score(NEW.fc, {}).odds
    right = (odds > np.median(odds)).astype(np.int64)
    assert evaluate(exchange, replace(NEW, y=right)).warning == ""
    found = evaluate(exchange, replace(NEW, y=1 - right))
    assert found.rows["exchange"]["auroc"].value == 0.0
    assert "--positive" in found.to_json()["warning"]


def test_people_it_says_nothing_of_are_refused(exchange):
    order = np.random.default_rng(0).permutation(R)
    odd = replace(NEW, fc=NEW.fc[:, order][:, :, order], roi_names=())
    kept = np.isnan(all_given().model.score(odd.fc, {}).odds)
    with pytest.raises(DataError, match="abstains from all"):
        evaluate(all_given(), odd.select(kept))
    with pytest.raises(DataError, match="ROI 1"):
        evaluate(exchange, replace(NEW, roi_names=people().roi_names[::-1]))
