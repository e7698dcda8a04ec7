"""Parameters of the estimators and of the parts of their learner."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from fcforge.core.errors import ConfigError
from fcforge.estimator import ForgeClassifier, ForgeRegressor, InputError
from fcforge.estimator.inputs import fc_as_numbers

QUICK = {"epochs": 2, "generator": "corr_gauss"}


def test_settings_of_the_parts_by_name() -> None:
    model = ForgeClassifier("analytic", method_params={"public_weight": 1.0})
    given = model.method_params
    model.set_params(method__penalty=3.0, training__clip=2.0, seed=5)
    assert model.method_params == {"public_weight": 1.0, "penalty": 3.0}
    assert given == {"public_weight": 1.0}  # another's dict is left as it is
    assert (model.training, model.seed) == ({"clip": 2.0}, 5)
    model.set_params(
        model__hidden=8, method="finetune", model="mlp", method_params=None
    )
    assert (model.model_params, model.method_params) == ({"hidden": 8}, None)
    assert clone(model).get_params() == model.get_params()
    pipe = make_pipeline(ForgeClassifier("contributions"))
    pipe.set_params(forgeclassifier__method__epsilon=2.0)
    assert pipe[0].method_params == {"epsilon": 2.0}


def test_settings_of_the_parts_are_visible_with_their_defaults() -> None:
    deep = ForgeClassifier(method_params={"memory": 64}).get_params()
    assert deep["method__memory"] == 64
    assert deep["method__sampling"] == "hcts"
    assert deep["model__features"] == "log+diagonal"
    assert deep["training__weight_decay"] == 2e-4
    assert "generator__d_z" in ForgeClassifier(generator="fcm_vae").get_params()
    ridge = ForgeClassifier("ridge").get_params()
    assert ridge["method__penalty"] == 1.0
    assert not [name for name in ridge if name.startswith("generator__")]
    unknown = ForgeClassifier("no such method").get_params()
    assert unknown["method"] == "no such method"


def test_a_wrong_name_is_refused(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(ValueError, match=r"'penalti'\. Did you mean 'penalty'"):
        ForgeClassifier("ridge").set_params(method__penalti=1.0).fit(fc, y)
    with pytest.raises(ValueError, match="Invalid parameter 'methods'"):
        ForgeClassifier().set_params(methods__penalty=1)
    with pytest.raises(ValueError, match="Invalid parameter 'seeds'"):
        ForgeClassifier().set_params(seeds=1)
    with pytest.raises(TypeError, match=r"ForgeClassifier\.__init__\(\)"):
        ForgeClassifier(mehtod="er")


def test_a_search_over_a_setting(subjects) -> None:
    fc, y, _ = subjects
    grid = {"method__penalty": [1.0, 1e3]}
    search = GridSearchCV(ForgeClassifier("ridge"), grid, cv=2).fit(fc, y)
    best = search.best_params_["method__penalty"]
    assert search.best_estimator_.model_.learner.method.penalty == best


def test_settings_of_a_generator_that_is_not_there_are_refused(subjects) -> None:
    fc, y, _ = subjects
    alone = ForgeClassifier("ridge", generator_params={"rank": 3})
    with pytest.raises(InputError, match="generator_params is given, but no generator"):
        alone.fit(fc, y)


def test_what_may_change_between_sites_takes_effect(subjects) -> None:
    fc, y, site = subjects
    first, second = (site == name for name in dict.fromkeys(site.tolist()))

    def after(**changed):
        model = ForgeClassifier("finetune", epochs=2)
        model.partial_fit(fc[first], y[first], site="A")
        model.set_params(**changed)
        model.partial_fit(fc[second], y[second], site="B")
        return model.decision_function(fc)

    same = after()
    assert np.array_equal(same, after(verbose=0))
    for change in ({"epochs": 5}, {"lr": 1e-2}, {"training__weight_decay": 0.5}):
        assert not np.array_equal(same, after(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method__memory": 5}, "method or its settings changed"),
        ({"method": "ridge"}, "method or its settings changed"),
        ({"model__features": "z"}, "model or its settings changed"),
        ({"seed": 3}, "seed changed"),
        ({"positive": 0}, "positive changed"),
    ],
)
def test_what_may_not_change_between_sites_is_refused(
    change, message, subjects
) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier(**QUICK).fit(fc, y, site="A")
    model.set_params(**change)
    with pytest.raises(InputError, match=message):
        model.partial_fit(0.9 * fc + 0.1 * np.eye(10), y, site="B")


def test_the_order_of_edges_may_not_change_between_sites(subjects) -> None:
    fc, y, _ = subjects
    rows, columns = np.tril_indices(10, -1)
    model = ForgeClassifier(**QUICK).fit(fc[:, rows, columns], y, site="A")
    model.set_params(edges="upper")
    with pytest.raises(InputError, match="edges changed after the first site"):
        model.partial_fit(0.9 * fc[:, rows, columns], y, site="B")


def test_seeds(subjects) -> None:
    fc, y, _ = subjects

    def scores(**given):
        model = ForgeClassifier("finetune", "mlp", epochs=1, **given)
        return model.fit(fc, y).decision_function(fc)

    assert np.array_equal(scores(seed=4), scores(random_state=4))
    assert not np.array_equal(scores(seed=4), scores())
    drawn = [scores(random_state=np.random.RandomState(1)) for _ in range(2)]
    assert np.array_equal(*drawn)
    assert not np.array_equal(scores(random_state=None), scores(random_state=None))
    with pytest.raises(InputError, match="seed=1 and random_state=2 differ"):
        scores(seed=1, random_state=2)


def test_the_order_of_the_sites(subjects) -> None:
    fc, y, site = subjects
    a, b = dict.fromkeys(site.tolist())
    model = ForgeClassifier("finetune", epochs=1, site_order=[b, a]).fit(fc, y, site)
    assert model.sites_ == (b, a)
    turned = np.argsort(site != b, kind="stable")
    plain = ForgeClassifier("finetune", epochs=1)
    plain.fit(fc[turned], y[turned], site[turned])
    np.testing.assert_array_equal(
        model.decision_function(fc), plain.decision_function(fc)
    )
    with pytest.raises(InputError, match=f"site_order does not name site '{a}'"):
        ForgeClassifier("ridge", site_order=[b]).fit(fc, y, site)


def test_progress_is_printed_when_it_is_asked_for(subjects, capsys) -> None:
    fc, y, _ = subjects
    ForgeClassifier("finetune", epochs=3).fit(fc, y, site="NYU")
    assert capsys.readouterr().out == ""
    ForgeClassifier("finetune", epochs=3, verbose=2).fit(fc, y, site="NYU")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[fcforge] site 'NYU': epoch 1 of 3"
    assert f"site 'NYU': {len(y)} subjects" in lines[-1]


# -- weights of linear models --------------------------------------------------------------------
def test_coefficients_of_arbitrary_columns() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, "a", "b")
    model = ForgeClassifier(features="any").fit(X, y)
    assert model.coef_.shape == (1, 6)
    expected = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-4)
    three = np.where(X[:, 1] > 1, "c", y)
    model = ForgeClassifier(features="any").fit(X, three)
    scores = X @ model.coef_.T + model.intercept_
    log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_log_proba(X), log_p, atol=1e-4)
    numbers = ForgeRegressor(features="any").fit(X, 20 + 3 * X[:, 0])
    expected = X @ numbers.coef_ + numbers.intercept_
    np.testing.assert_allclose(numbers.predict(X), expected, atol=1e-3)


def test_forge_on_arbitrary_columns_replays_a_gaussian_of_each() -> None:
    rng = np.random.default_rng(0)
    X = 3 + 4 * rng.normal(size=(120, 50))
    y = (X[:, 0] + rng.normal(size=120) > 3).astype(int)
    site = np.repeat(["A", "B"], 60)
    model = ForgeClassifier("forge", features="any", epochs=2)
    assert model.get_params().keys() >= {"method__memory"}
    model.fit(X, y, site)
    made = fc_as_numbers(model.model_.remembered.fc.numpy(), 50)
    assert abs(made.mean() - 3) < 0.2
    assert abs(made.std() - 4) < 0.2
    three = y + (np.arange(120) % 3 == 0) * (2 - y)
    ForgeClassifier("forge", features="any", epochs=2).fit(X, three, site)
    for generator in ("fcm_vae", "corr_gauss", "regate"):
        wrong = ForgeClassifier("forge", generator=generator, features="any")
        with pytest.raises(ValueError, match=r"Leave generator out.*'edge_gauss'"):
            wrong.fit(X, y, site)
    wrong = ForgeClassifier(features="any", model_params={"features": "log"})
    with pytest.raises(ValueError, match="Leave the model's features out"):
        wrong.fit(X, y, site)


@pytest.mark.parametrize("way", ["matrices", "edges"])
def test_coefficients_of_scans_are_those_of_the_features(way, subjects) -> None:
    fc, y, _ = subjects
    X = fc if way == "matrices" else fc[:, *np.tril_indices(10, -1)]
    model = ForgeClassifier("finetune", model_params={"features": "z"}, epochs=5)
    model.fit(X, y)
    rows, columns = np.triu_indices(10, 1)
    z = np.arctanh(fc[:, rows, columns].astype(float)) / 0.2
    expected = z @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-3)
    assert not hasattr(ForgeClassifier("finetune", "mlp", epochs=1).fit(X, y), "coef_")


def test_log_probabilities_do_not_underflow(subjects) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("ridge").fit(fc, y)
    p = model.predict_proba(fc)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(fc)), p)


def test_a_method_that_needs_all_sites_is_refused(subjects) -> None:
    fc, y, site = subjects
    with pytest.raises((ConfigError, InputError), match="needs all sites at once"):
        ForgeClassifier("joint").fit(fc, y, site)
