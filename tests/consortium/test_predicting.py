"""Prediction from releases: by hand, who is abstained from, the own threshold, explanations."""

from dataclasses import replace

import numpy as np
import pytest
from capsule_chains import N_ROIS, SITES, chain, cohort
from small_consortium import R, empty, people, release_of, sites

from fcforge.capsule import open_capsule, prediction
from fcforge.capsule.home import Receipt, Threshold, fingerprints, read_home, receipt_of
from fcforge.capsule.judging import probability
from fcforge.capsule.prediction import predict_scans
from fcforge.consortium import Home
from fcforge.consortium.learning import Budget, learn, refit_threshold
from fcforge.consortium.predicting import (
    evaluate,
    explain_file,
    explain_model,
    judge,
    predict,
    predictor,
)
from fcforge.errors import DataError

HOSPITALS = sites()[2:]
NEW = people().select_sites([HOSPITALS[-1]])
REMOVED = ("age", "sex")


@pytest.fixture(scope="module")
def group():
    return empty().joined([release_of(s) for s in HOSPITALS[:2]])


def write(path, cohort, **more):
    np.savez(path, fc=cohort.fc, subject_id=cohort.subject_id, **more)
    return path


def test_probabilities_by_hand(group, tmp_path):
    rows = predict(group, write(tmp_path / "d.npz", NEW), Threshold(0.5, 2.0, 10, ""))
    x = group.start.arrays.standardise(group.start.features(NEW.fc, {}))
    odds = (x @ group.head.weight + group.head.bias) / group.start.arrays.temperature
    assert [r.status for r in rows] == ["ok"] * len(NEW)
    assert [r.subject for r in rows] == NEW.subject_id.tolist()
    np.testing.assert_allclose(
        [r.probability for r in rows], 1 / (1 + np.exp(-odds)), atol=1e-4
    )
    np.testing.assert_allclose(
        [r.own for r in rows], 1 / (1 + np.exp(-0.5 - 2 * odds)), atol=1e-4
    )


def test_a_scan_is_judged_by_itself(group, tmp_path):
    together = predict(group, write(tmp_path / "d.npz", NEW))
    np.save(tmp_path / "one.npy", NEW.fc[3])
    alone = predict(group, tmp_path / "one.npy")[0]
    assert alone.probability == together[3].probability
    assert alone.own is None


def test_strange_scans_are_abstained_from(group, tmp_path):
    rng = np.random.default_rng(0)
    order = rng.permutation(R)
    noise = np.corrcoef(rng.standard_normal((R, 15)))
    flat = np.where(np.eye(R) > 0, 1.0, 0.97)
    for name, fc in {"noise": noise, "flat": flat, "eye": np.eye(R)}.items():
        np.save(tmp_path / f"{name}.npy", fc)
    rows = predict(group, tmp_path)
    assert {r.status for r in rows} == {"unlike anything seen"}
    assert all(r.probability is None and r.strangeness > 1 and r.note for r in rows)
    shuffled = replace(NEW, fc=NEW.fc[:, order][:, :, order])
    found = judge(group, shuffled.fc, {})
    assert np.isnan(found.odds).mean() > 0.5
    assert np.isnan(judge(group, NEW.fc, {}).odds).mean() == 0


def test_other_roi_names_cannot_be_used(group, tmp_path):
    names = list(people().roi_names)
    rows = predict(group, write(tmp_path / "a.npz", NEW, roi_names=names))
    assert {r.status for r in rows} == {"ok"}
    rows = predict(group, write(tmp_path / "b.npz", NEW, roi_names=names[::-1]))
    assert {r.status for r in rows} == {"cannot be used"}
    assert rows[0].note == f"ROI 1 is 'ROI {R - 1}', the capsule has 'ROI 0' there."


def test_missing_and_odd_covariates_are_abstained_from_by_name(tmp_path):
    group = empty(REMOVED)
    few = NEW.select(np.arange(5))
    age, sex = few.covariates["age"].copy(), few.covariates["sex"].copy()
    age[0], age[1], sex[2] = (
        np.nan,
        12 * 30.0,
        0.0,
    )  # missing; in months; counted 0 and 1
    rows = predict(group, write(tmp_path / "d.npz", few, age=age, sex=sex))
    assert [r.status for r in rows] == ["abstained"] * 3 + ["ok"] * 2
    assert rows[0].note == "has no age, which the start removes"
    assert rows[1].note.startswith("its age 360 is far outside the public people's (8.")
    assert rows[2].note.startswith("its sex 0 is")
    rows = predict(group, write(tmp_path / "none.npz", few))
    assert {r.note for r in rows} == {"has no age or sex, which the start removes"}
    with pytest.raises(DataError, match="covariate 'sex' holds text"):
        judge(group, few.fc, {"age": age, "sex": np.array(["x"] * 5)})


def test_learning_refuses_covariates_in_another_unit():
    months = {**NEW.covariates, "age": NEW.covariates["age"] * 12}
    with pytest.raises(DataError, match=r"its age .* is far outside .*age in years"):
        learn(
            empty(REMOVED),
            replace(NEW, covariates=months),
            HOSPITALS[-1],
            Home(),
            Budget(),
        )


def test_own_odds_and_probability():
    assert Threshold(-1.0, 2.0, 3, "").odds(np.array([1.0]))[0] == 1.0
    np.testing.assert_array_equal(
        probability(np.array([0.0, 2000.0, -2000.0])), [0.5, 1.0, 0.0]
    )


def test_the_own_threshold_of_another_hospital_is_refused(group, tmp_path):
    own = Threshold(0.0, 1.0, 3, group.digest, HOSPITALS[0])
    named = write(tmp_path / "named.npz", NEW, site=NEW.site)
    with pytest.raises(
        DataError, match=rf"'{HOSPITALS[0]}'.*of {HOSPITALS[-1]}.*--local"
    ):
        predict(group, named, own)
    with pytest.raises(DataError, match="of their own hospital"):
        evaluate(group, NEW, Home(threshold=own))
    assert predict(group, write(tmp_path / "unnamed.npz", NEW), own)[0].own is not None
    assert predict(group, named, replace(own, site=HOSPITALS[-1]))[0].own is not None


def test_evaluation_beside_the_majority_and_the_public_head(group):
    found = evaluate(group, NEW, Home())
    odds = judge(group, NEW.fc, {}).odds
    assert found.people == len(NEW)
    assert found.majority == max(NEW.y.mean(), 1 - NEW.y.mean())
    value = found.rows["consortium"]["accuracy"]
    assert value.value == pytest.approx(((odds > 0) == NEW.y).mean())
    assert value.low < value.value < value.high
    assert set(found.rows) == {"consortium", "public head alone"}
    assert set(evaluate(empty(), NEW, Home()).rows) == {"consortium"}
    receipt = Receipt("x", fingerprints(NEW.fc, NEW.subject_id.tolist(), NEW.y), 1, 1.0)
    home = Home((receipt,), Threshold(0.0, 1.0, 3, group.digest))
    mine = evaluate(group, NEW, home)
    assert mine.learned == len(NEW)
    assert mine.notes == (
        f"{len(NEW)} of these people are in a release: too good to be true.",
    )
    assert mine.rows["own threshold"] == mine.rows["consortium"]
    stale = replace(home, threshold=Threshold(0.0, 1.0, 3, "older"))
    assert "fits it again" in evaluate(group, NEW, stale).notes[0]


def test_evaluation_warns_of_diagnoses_that_are_turned_round(group):
    odds = judge(group, NEW.fc, {}).odds
    right = (odds > np.median(odds)).astype(np.int64)
    assert evaluate(group, replace(NEW, y=right)).warning == ""
    found = evaluate(group, replace(NEW, y=1 - right))
    assert found.rows["consortium"]["auroc"].value == 0.0
    assert found.warning.startswith(
        "WARNING: patients and controls seem to be swapped. The AUROC is"
    )
    assert "--positive" in found.to_json()["warning"]


def test_a_threshold_is_fitted_again_without_the_own_contributions(group):
    done = learn(group, people(), HOSPITALS[-1], Home(), Budget("none"))
    again = refit_threshold(done.group, people(), HOSPITALS[-1], done.home).threshold
    assert again == done.home.threshold
    flattered = refit_threshold(done.group, people(), HOSPITALS[-1], Home()).threshold
    assert flattered.slope > again.slope  # nobody was left out
    with pytest.raises(
        DataError, match=rf"is of {HOSPITALS[-1]}, not of '{HOSPITALS[0]}'"
    ):
        refit_threshold(done.group, people(), HOSPITALS[0], done.home)


def test_people_a_chain_has_learned_are_told_of(tmp_path):
    path = chain("analytic", SITES[:1], tmp_path)[-1]
    capsule, home = open_capsule(path), read_home(receipt_of(path))
    mine = cohort().select_sites(SITES[:1])
    (note,) = evaluate(capsule, mine).notes
    assert note.startswith(
        f"{len(mine)} of these people are of {SITES[0]}, where it learned"
    )
    found, n = evaluate(capsule, mine, home), len(home.receipts[0].people)
    assert found.learned == n < len(mine)
    assert found.notes == (f"{n} of these people were learned: too good to be true.",)
    tested = mine.select(
        ~np.isin(mine.subject_id, [who for who, *_ in home.receipts[0].people])
    )
    assert evaluate(capsule, tested, home).notes == ()
    assert evaluate(capsule, cohort().select_sites(SITES[2:])).notes == ()


def test_a_harmonised_chain_is_evaluated_at_a_new_site_as_it_is_told(tmp_path):
    capsule = open_capsule(
        chain("analytic", SITES[:1], tmp_path, harmonise="combat")[-1]
    )
    new = cohort().select_sites(SITES[2:])
    with pytest.raises(DataError, match=r"was not among those learned.*--unseen"):
        evaluate(capsule, new)
    said = prediction.judge(capsule, new.fc, SITES[2], "estimate").odds
    found = evaluate(capsule, new, unseen="estimate")
    assert found.people == np.isfinite(said).sum()
    right = ((said > 0) == new.y)[np.isfinite(said)].mean()
    assert found.rows["the capsule"]["accuracy"].value == pytest.approx(right)


def test_the_head_is_explained_to_rounding(group):
    found = explain_model(group, NEW.fc[:4], {})
    np.testing.assert_allclose(
        found.score, judge(group, NEW.fc[:4], {}).odds, atol=1e-9
    )
    assert np.abs(found.gap).max() < 1e-9
    assert found.positive == "patient"


def test_covariates_are_part_of_the_base():
    removes = ("age", "sex")
    group = empty(removes)
    values = {name: NEW.covariates[name][:3] for name in removes}
    found = explain_model(group, NEW.fc[:3], values)
    np.testing.assert_allclose(
        found.score, judge(group, NEW.fc[:3], values).odds, atol=1e-9
    )
    assert np.abs(found.gap).max() < 1e-9
    assert len(set(found.base.tolist())) == 3


def test_only_scans_with_an_answer_are_explained(group, tmp_path):
    for name, fc in {
        "a-eye": np.eye(R),
        "b-good": NEW.fc[0],
        "c-small": np.eye(R - 1),
    }.items():
        np.save(tmp_path / f"{name}.npy", fc)
    files = sorted(tmp_path.glob("*.npy"))
    rows = predict(group, files)
    found = explain_file(group, files, rows)
    assert found.subjects == ("b-good.npy",)
    with pytest.raises(DataError, match="nothing to explain"):
        explain_file(group, files[:1], rows[:1])


def test_an_estimated_effect_is_explained_as_it_was_answered(tmp_path):
    """Strange scans count in the effect that is estimated, though they get no answer."""
    path = chain("analytic", SITES[:1], tmp_path, harmonise="site_demean", held_out=48)[
        -1
    ]
    capsule, new = open_capsule(path), cohort().select_sites([SITES[2]])
    odd = np.where(np.eye(N_ROIS) > 0, 1.0, 0.97)
    np.savez(tmp_path / "d.npz", fc=np.concatenate([new.fc[:8], [odd] * 4]))
    asked = (SITES[2], "estimate")
    rows = predict_scans(predictor(capsule, *asked), tmp_path / "d.npz")
    answered = [row.probability for row in rows if row.status == "ok"]
    assert 0 < len(answered) < len(rows)
    found = explain_file(capsule, [tmp_path / "d.npz"], rows, "auto", None, *asked)
    np.testing.assert_allclose(probability(found.score), answered, atol=1e-4)
