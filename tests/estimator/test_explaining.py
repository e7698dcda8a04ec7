"""Why the estimator said so, and the head of a linear model."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from fcforge.core.errors import DataError
from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import World, atlas_of, recipe_of
from fcforge.estimator import (
    ForgeClassifier,
    ForgeRegressor,
    InputError,
    edge_stability,
)
from fcforge.imaging.atlas import Atlas

R = 24
PLAIN = {
    "method": "ridge",
    "model_params": {"features": "centred"},
    "method_params": {"penalty": "gcv"},
}


@pytest.fixture(scope="module")
def cohort():
    return simulate("easy", n_rois=R, n_sites=2, scale=0.6, seed=3)


@pytest.fixture(scope="module")
def fitted(cohort):
    first = cohort.site == cohort.site_names[0]
    model = ForgeClassifier("ridge").fit(cohort.fc[first], cohort.y[first])
    return model.partial_fit(cohort.fc[~first], cohort.y[~first])


def fitted_plain(cohort):
    return ForgeClassifier(**PLAIN).fit(cohort.fc, cohort.y)


def test_contributions_add_up_to_the_decision(fitted, cohort):
    found = fitted.explain(cohort.fc[:5])
    np.testing.assert_allclose(fitted.mean_fc_, cohort.fc.mean(0), atol=1e-6)
    assert not found.exact  # linear in the matrix logarithm, not in z
    assert fitted_plain(cohort).explain(cohort.fc[:1]).exact
    assert found.positive == "1"
    total = found.base + found.contribution.sum(1)
    np.testing.assert_allclose(
        total, fitted.decision_function(cohort.fc[:5]), atol=1e-5
    )


def test_edges_of_nilearn_give_the_same(fitted, cohort):
    lower = cohort.fc[:, *np.tril_indices(R, -1)]
    model = ForgeClassifier("ridge").fit(lower, cohort.y)
    whole = ForgeClassifier("ridge").fit(cohort.fc, cohort.y)
    a, b = model.explain(lower[:2]), whole.explain(cohort.fc[:2])
    np.testing.assert_allclose(a.contribution, b.contribution, atol=1e-5)


@pytest.mark.parametrize("positive", ["ASD", "TC"])
def test_contributions_speak_for_the_patients_whatever_they_are_called(
    cohort, positive
):
    """ASD comes first in sorted order; `positive` decides, not the alphabet."""
    y = np.where(cohort.y == 1, positive, "TC" if positive == "ASD" else "ASD")
    named = ForgeClassifier("ridge", positive=positive).fit(cohort.fc, y)
    plain = ForgeClassifier("ridge").fit(cohort.fc, cohort.y)
    expected = plain.explain(cohort.fc[:2])
    found = named.explain(cohort.fc[:2])
    assert found.positive == positive
    np.testing.assert_allclose(found.contribution, expected.contribution, atol=1e-12)
    stable = edge_stability(
        named, cohort.fc, y, draws=2
    )  # other halves, the same signs
    assert np.corrcoef(stable.weight, expected.slope[0])[0, 1] > 0.5


@pytest.mark.parametrize("params", [{"method": "ridge"}, PLAIN])
def test_the_disease_is_found_better_than_by_chance(params, cohort):
    """The simulator's own pattern against the trained weights: no rank correlation by chance."""
    truth = World(atlas_of(R), recipe_of("easy", None, None), 3).population.disorder[
        np.triu_indices(R, 1)
    ]
    model = ForgeClassifier(**params).fit(cohort.fc, cohort.y)
    patients = model.explain(cohort.fc[cohort.y == 1])
    effect = patients.contribution.mean(0)  # all patients against the mean of everybody
    centred = truth - truth.mean()
    assert spearmanr(patients.slope.mean(0), centred).statistic > 0.25
    top = np.argsort(-effect)[: len(effect) // 10]
    strong = np.abs(centred) > np.quantile(np.abs(centred), 0.8)
    assert strong[top].mean() > 0.3  # by chance 0.2
    assert (patients.deletion.explained > patients.deletion.random.mean(1)).all()


def test_stability_of_a_disease_and_of_none(cohort):
    model = ForgeClassifier("ridge")
    found = edge_stability(model, cohort.fc, cohort.y, draws=10)
    assert found.n == 10
    shown = model.fit(cohort.fc, cohort.y).explain(cohort.fc[:1])
    table = shown.edges(n=20)
    np.testing.assert_array_equal(
        table.contribution, shown.contribution[0][table.index]
    )
    nothing = np.random.default_rng(0).permutation(cohort.y)
    chance = edge_stability(model, cohort.fc, nothing, draws=10)
    assert chance.stable.sum() <= 3
    assert found.in_top.max() > 0.5


def placed(n=R):
    names = tuple(f"ROI {k}" for k in range(n))
    systems = tuple("visual" if k % 2 else "motor" for k in range(n))
    return Atlas("made-up", names, systems, xyz=np.arange(3.0 * n).reshape(n, 3))


def test_the_strongest_edges_as_a_connectome(fitted, cohort, tmp_path):
    found = fitted.explain(cohort.fc[:2], atlas=placed())
    matrix, places = found.connectome(1, n=5)
    assert np.count_nonzero(np.triu(matrix)) == 5
    top = found.edges(1, 5)
    np.testing.assert_array_equal(
        np.sort(matrix[np.triu_indices(R, 1)][top.index]), np.sort(top["contribution"])
    )
    np.testing.assert_array_equal(places, placed().xyz)
    with pytest.raises(DataError, match="places of these ROIs are not known"):
        fitted.explain(cohort.fc[:1]).connectome()
    found.to_brainnet(tmp_path / "sub.1", 1, n=5)
    written = np.loadtxt(tmp_path / "sub.1.edge")
    np.testing.assert_allclose(written, matrix, rtol=1e-5)
    nodes = (tmp_path / "sub.1.node").read_text().splitlines()
    assert nodes[1].split()[:4] == ["3.0", "4.0", "5.0", "2"]
    assert nodes[1].split()[5] == "ROI_1"
    found.to_npz(tmp_path / "all.npz")
    stored = np.load(tmp_path / "all.npz")
    np.testing.assert_allclose(stored["contribution"][1], found.matrix(1))
    assert stored["roi_names"].tolist() == list(placed().roi_names)


def test_a_reference_and_a_stability_of_ones_own(fitted, cohort):
    controls = cohort.fc[cohort.y == 0]
    found = fitted.explain(cohort.fc[:2], reference=controls)
    np.testing.assert_allclose(
        found.base, fitted.decision_function(controls.mean(0)[None])[0], atol=1e-4
    )
    assert found.reference == "the reference that was given"
    one = fitted.explain(cohort.fc[:1], reference=cohort.fc[0])
    np.testing.assert_allclose(one.contribution, 0, atol=1e-6)
    stability = edge_stability(fitted_plain(cohort), cohort.fc, cohort.y, draws=4)
    table = fitted.explain(cohort.fc[:1], stability=stability).edges(n=3)
    np.testing.assert_array_equal(table["stable"], stability.stable[table.index])
    with pytest.raises(ValueError, match="X has 10 features"):
        fitted.explain(cohort.fc[:1], reference=np.eye(10))
    other = simulate("easy", n_rois=10, n_sites=2, scale=0.4, seed=3)
    wrong = edge_stability(
        ForgeClassifier(**PLAIN), other.fc, other.y, other.site, draws=2
    )
    with pytest.raises(InputError, match="the stability is of 45 edges"):
        fitted.explain(cohort.fc[:1], stability=wrong)


def test_what_is_refused(fitted, cohort):
    with pytest.raises(ValueError, match="X has 10 features"):
        fitted.explain(simulate(n_rois=10, n_sites=2, scale=0.2).fc[:2])
    other = Atlas("small", ("a", "b"), ("", ""))
    with pytest.raises(DataError, match="atlas 'small': it has 2 ROIs, the model 24"):
        fitted.explain(cohort.fc[:1], atlas=other)
    edges = cohort.fc[:, 0, 1:9]
    any_ = ForgeClassifier(features="any")
    with pytest.raises(InputError, match="arbitrary numbers"):
        any_.fit(edges, cohort.y).explain(edges, atlas=other)


def columns(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 7)), columns=list("abcdefg"))
    return X, np.repeat(["p", "q"], n // 2)


def test_columns_of_any_kind_are_explained(tmp_path) -> None:
    X, site = columns()
    y = (X["a"] > 0).astype(int)
    model = ForgeClassifier(features="any").fit(X, y, site)
    model.partial_fit(X * 1.1 + 0.3, y, site="r")
    found = model.explain(X[:5])
    mean = np.concatenate([X, X * 1.1 + 0.3]).mean(0)
    np.testing.assert_allclose(found.reference, mean, atol=1e-6)
    terms = (X.to_numpy()[:5] - mean) * model.coef_[0]
    np.testing.assert_allclose(found.contribution, terms, atol=1e-5)
    np.testing.assert_allclose(found.score, model.decision_function(X[:5]), atol=1e-5)
    assert found.exact
    assert abs(found.gap).max() < 1e-8
    assert found.columns(0, 1)["column"].tolist() == ["a"]
    assert found.positive == "1"
    model.save(tmp_path / "model.safetensors")
    loaded = ForgeClassifier.load(tmp_path / "model.safetensors")
    again = loaded.explain(X[:5])
    np.testing.assert_allclose(again.contribution, found.contribution, atol=1e-5)


def test_columns_of_three_classes_a_network_and_a_number() -> None:
    X, site = columns()
    three = np.array(["HC", "SZ", "BP"])[np.argsort(np.argsort(X["b"])) // 27]
    model = ForgeClassifier(features="any").fit(X, three, site)
    found = model.explain(X[:2], target="SZ")
    assert found.positive == "SZ"
    assert abs(found.gap).max() < 1e-3
    with pytest.raises(InputError, match="Give target="):
        model.explain(X[:2])
    network = ForgeClassifier("finetune", "mlp", features="any", epochs=20)
    found = network.fit(X, (X["a"] > 0).astype(int), site).explain(X[:5])
    assert not found.exact
    assert abs(found.gap).max() < 0.05
    assert (np.abs(found.contribution).mean(0).argmax()) == 0
    number = ForgeRegressor(features="any").fit(X, 3 * X["a"], site)
    found = number.explain(X[:3])
    np.testing.assert_allclose(found.score, number.predict(X[:3]), atol=1e-5)
    assert found.positive == "higher y"


def test_stability_of_a_number_and_of_three_classes(cohort):
    number = cohort.fc[:, 0, 1] * 10 + 30
    plain = ForgeRegressor(model_params={"features": "centred"})
    found = edge_stability(plain, cohort.fc, number, draws=4)
    assert found.n == 4
    assert found.weight.argmax() == 0  # the edge of the first two ROIs
    assert found.in_top[0] == 1.0
    classes = np.arange(len(cohort.y)) % 3
    model = ForgeClassifier("ridge")
    with pytest.raises(InputError, match="which of the classes"):
        edge_stability(model, cohort.fc, classes, draws=2)
    weights = [
        edge_stability(model, cohort.fc, classes, draws=2, target=k).weight
        for k in (0, 2)
    ]
    assert not np.allclose(*weights)
    with pytest.raises(InputError, match="stability is of edges"):
        edge_stability(ForgeClassifier(features="any"), number[:, None], classes)


def test_stability_by_several_processes_is_the_same(cohort):
    model = ForgeClassifier(**PLAIN)
    one, two = (
        edge_stability(model, cohort.fc, cohort.y, draws=4, n_jobs=n) for n in (1, 2)
    )
    np.testing.assert_array_equal(one.weight, two.weight)
