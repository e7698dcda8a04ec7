"""ForgeClassifier around a public start: the same head as the consortium's own commands."""

import numpy as np
import pytest
from sklearn.base import clone
from small_consortium import empty, people, sites, start

from fcforge.consortium import Home, read_consortium, write_consortium
from fcforge.consortium.learning import Budget, learn
from fcforge.errors import ConfigError
from fcforge.estimator import ForgeClassifier, InputError

A, B, NEW = sites()[2:5]
EXACT = {"mechanism": "none"}


def of(site):
    found = people().select_sites([site])
    return found.fc, np.where(found.y == 1, "patient", "control"), found.covariates


def model(**more) -> ForgeClassifier:
    given = {"start": start(), "method_params": EXACT, **more}
    return ForgeClassifier("forge_release", **given)


def test_sites_one_by_one_are_the_consortium():
    made = model()
    for site in (B, A):
        fc, y, _ = of(site)
        made.partial_fit(fc, y, site=site)
    group = empty()
    for site in (A, B):
        group = learn(group, people(), site, Home(), Budget("none")).group
    assert made.sites_ == group.sites
    np.testing.assert_allclose(made.capsule_.beta, group.beta)
    fc, y, _ = of(NEW)
    p = made.predict_proba(fc)
    np.testing.assert_allclose(p.sum(1), 1)
    assert made.classes_.tolist() == ["control", "patient"]
    assert (made.predict(fc) == y).mean() > 0.6
    np.testing.assert_array_equal(made.predict_proba(fc[:1]), p[:1])
    again = clone(made).fit(*of(A)[:2], site=A)
    assert again.sites_ == (A,)


def test_noise_is_the_default_and_the_same_people_are_told():
    made = ForgeClassifier("forge_release", start=start()).fit(*of(A)[:2], site=A)
    assert made.capsule_.releases[0].epsilon == 1.0
    with pytest.raises(InputError, match="earlier release"):
        made.partial_fit(*of(A)[:2], site=A)


def test_a_capsule_goes_round(tmp_path):
    made = model().fit(*of(A)[:2], site=A)
    digest = made.to_capsule(tmp_path / "a.capsule")
    assert read_consortium(tmp_path / "a.capsule").digest == digest
    back = ForgeClassifier.from_capsule(tmp_path / "a.capsule")
    fc = of(NEW)[0]
    np.testing.assert_allclose(back.decision_function(fc), made.decision_function(fc))
    assert back.classes_.tolist() == [0, 1]
    with pytest.raises(ConfigError, match="signed when it is made"):
        made.to_capsule(tmp_path / "b.capsule", key=object())
    path = write_consortium(empty(), tmp_path / "start.capsule")
    np.testing.assert_allclose(
        model(start=path).fit(*of(A)[:2], site=A).decision_function(fc), made.decision_function(fc)
    )


def test_confounds_are_asked_for():
    removed = ("age", "sex")
    made = model(start=start(removed))
    fc, y, covariates = of(A)
    with pytest.raises(InputError, match="have no age, sex"):
        made.fit(fc, y, site=A)
    made.fit(fc, y, site=A, covariates=covariates)
    with pytest.raises(InputError, match=r"removes age, sex.*covariates="):
        made.predict(fc)
    assert made.predict_proba(fc, covariates).shape == (len(fc), 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"start": None}, "needs a public start"),
        ({"method_params": {"epsilom": 1}}, "Did you mean 'epsilon'"),
        ({"features": "any"}, "releases speak about FC"),
    ],
)
def test_what_cannot_be_meant(more, words):
    fc, y, _ = of(A)
    with pytest.raises(InputError, match=words):
        model(**more).fit(fc[:, 0] if "features" in more else fc, y, site=A)
