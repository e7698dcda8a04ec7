"""Files of fitted estimators: the same answers after loading, and refusals of damaged files."""

import json

import numpy as np
import pytest
from safetensors.torch import load, save

from fcforge.core.errors import ConfigError, DataError, FCForgeError
from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier, ForgeRegressor, InputError
from fcforge.estimator.storage import HEADER

SMALL = {"memory": 16, "candidates": 16, "dev": 8, "replay": 8}


def forge(**given):
    return ForgeClassifier(
        generator="corr_gauss", epochs=2, method_params=SMALL, **given
    )


@pytest.mark.parametrize("labels", [(0, 1), ("TC", "ASD"), (2, 1)])
def test_scores_explanations_and_learning_are_the_same(
    labels, subjects, tmp_path
) -> None:
    fc, code, site = subjects
    y = np.array(labels)[code]
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    model = forge(calibrate="inner_val").fit(fc[a], y[a], site="A")
    model.save(tmp_path / "model.safetensors")
    again = ForgeClassifier.load(tmp_path / "model.safetensors")
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.sites_ == ("A",)
    assert again.get_params()["method__memory"] == 16
    np.testing.assert_array_equal(again.predict_proba(fc), model.predict_proba(fc))
    one, other = model.explain(fc[:2]), again.explain(fc[:2])
    np.testing.assert_allclose(other.contribution, one.contribution, atol=1e-5)
    assert other.reference == one.reference
    for estimator in (model, again):
        estimator.partial_fit(fc[b], y[b], site="B")
    np.testing.assert_array_equal(
        again.decision_function(fc), model.decision_function(fc)
    )


def test_edges_any_columns_and_numbers_travel(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    lower = fc[:, *np.tril_indices(10, -1)]
    cases = [
        (ForgeClassifier("ridge"), lower, y),
        (ForgeClassifier(features="any"), lower[:, :7] * 3, y),
        (ForgeRegressor(limits=(0, 90)), fc, 20 + 30 * lower[:, 3]),
    ]
    for k, (model, X, target) in enumerate(cases):
        model.fit(X, target)
        model.save(tmp_path / f"{k}.safetensors")
        back = type(model).load(tmp_path / f"{k}.safetensors")
        np.testing.assert_array_equal(back.predict(X), model.predict(X))
        np.testing.assert_array_equal(back.coef_, model.coef_)
    with pytest.raises(ConfigError, match=r"Use ForgeRegressor\.load"):
        ForgeClassifier.load(tmp_path / "2.safetensors")


def test_few_people_leave_no_mean(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    few = np.concatenate([np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:4]])
    ForgeClassifier("ridge").fit(fc[few], y[few]).save(tmp_path / "few.safetensors")
    back = ForgeClassifier.load(tmp_path / "few.safetensors")
    with pytest.raises(InputError, match="holds no reference scan"):
        back.explain(fc[:1])


def test_real_subjects_need_permission(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("er", epochs=1, method_params={"memory": 8}).fit(fc, y)
    with pytest.raises(ConfigError, match="keeps real subjects"):
        model.save(tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "x.safetensors", allow_real_subjects=True)
    with pytest.raises(ConfigError, match="exists already"):
        model.save(tmp_path / "x.safetensors", allow_real_subjects=True)


# -- damaged and forged files --------------------------------------------------------------------
@pytest.fixture(scope="module")
def stored(subjects, tmp_path_factory):
    fc, y, _ = subjects
    path = tmp_path_factory.mktemp("stored") / "model.safetensors"
    forge().fit(fc, y, site="A").save(path)
    return path.read_bytes()


def header_of(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"][HEADER])


def rewritten(stored, tmp_path, header=None, arrays=None):
    path = tmp_path / "changed.safetensors"
    header = {**header_of(stored), **(header or {})}
    tensors = {**load(stored), **(arrays or {})}
    kept = {k: v.contiguous() for k, v in tensors.items() if v is not None}
    path.write_bytes(save(kept, metadata={HEADER: json.dumps(header)}))
    return path


def test_an_unchanged_copy_is_read(stored, tmp_path) -> None:
    assert ForgeClassifier.load(rewritten(stored, tmp_path)).sites_ == ("A",)


@pytest.mark.parametrize(
    "header",
    [
        {"version": 2},
        {"extra": 1},
        {"visits": []},
        {"n_rois": 11},
        {"method": {"name": "os:system", "params": {}}},
        {"method": {"name": "no such method", "params": {}}},
        {"method": {"name": "finetune", "params": {}}},
        {"model": {"name": "linear", "params": {"features": "z"}}},
        {"model": {"name": "mlp", "params": {"hidden": 10**9}}},
        {"parameters": {"unknown": 1}},
        {"target": {"name": "y", "classes": [], "limits": [0, 1]}},
    ],
)
def test_a_forged_header_is_refused(header, stored, tmp_path) -> None:
    with pytest.raises(FCForgeError):
        ForgeClassifier.load(rewritten(stored, tmp_path, header))


def test_forged_arrays_are_refused(stored, tmp_path) -> None:
    arrays = load(stored)
    weight = arrays["params/head.0.weight"]
    rows = arrays["state/memory.rows"]
    upper = arrays["remembered/edges"]
    changes = [
        {"params/head.0.weight": weight * np.nan},
        {"params/head.0.weight": weight[:, :-1]},
        {"params/more": weight},
        {"state/memory.rows": rows + 10_000},
        {"state/memory.rows": None},
        {"remembered/edges": upper * 5},
        {"remembered/edges": upper[:, :-1]},
        {"remembered/y": None},
    ]
    for change in changes:
        with pytest.raises(DataError):
            ForgeClassifier.load(rewritten(stored, tmp_path, arrays=change))


def test_a_changed_byte_is_noticed(stored, tmp_path) -> None:
    """A flipped bit of a weight or of the header would give other predictions without a word."""
    size = int.from_bytes(stored[:8], "little")
    path = tmp_path / "flipped.safetensors"
    seed = stored.index(b"n_seen") + 10  # a digit of the number of people
    assert stored[seed : seed + 1].isdigit()
    for place in (seed, 8 + size + 5, (8 + size + len(stored)) // 2, len(stored) - 4):
        flipped = bytearray(stored)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(DataError):
            ForgeClassifier.load(path)
    path.write_bytes(stored)
    assert ForgeClassifier.load(path).sites_ == ("A",)


def test_other_files_are_refused(stored, tmp_path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"PK\x03\x04", stored[:200], stored[:-40], b"\xff" * 100):
        path.write_bytes(data)
        with pytest.raises(DataError):
            ForgeClassifier.load(path)


def test_a_model_of_few_people_learns_on_after_loading(tmp_path) -> None:
    """Its file holds no mean FC; people learned later make a new one, without the first ones."""
    people = simulate("easy", n_rois=24, n_sites=2, scale=0.3, seed=3)
    a, b = (people.site == name for name in people.site_names)
    few = np.flatnonzero(a)[:9]
    model = ForgeClassifier("ridge").fit(people.fc[few], people.y[few], site="A")
    model.save(tmp_path / "few.safetensors")
    again = ForgeClassifier.load(tmp_path / "few.safetensors")
    for estimator in (model, again):
        estimator.partial_fit(people.fc[b], people.y[b], site="B")
    scores = model.decision_function(people.fc)
    np.testing.assert_array_equal(again.decision_function(people.fc), scores)
    np.testing.assert_allclose(again.mean_fc_, people.fc[b].mean(0), atol=1e-6)
    again = ForgeClassifier.load(tmp_path / "few.safetensors")
    again.partial_fit(people.fc[b][:9], people.y[b][:9], site="B")
    again.save(tmp_path / "later.safetensors")
    later = ForgeClassifier.load(tmp_path / "later.safetensors")
    assert not hasattr(later, "mean_fc_")  # of nine people it is not stored
