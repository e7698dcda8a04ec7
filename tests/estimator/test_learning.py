"""What the estimator learns, seals and opens: links of a chain, releases around a start."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from small_consortium import empty, people, sites, start

from fcforge.capsule import open_capsule
from fcforge.capsule.prediction import judge
from fcforge.consortium import Home, read_consortium, write_consortium
from fcforge.consortium.learning import Budget, learn
from fcforge.errors import CapsuleError, ConfigError
from fcforge.estimator import ForgeClassifier, InputError
from fcforge.sites.simulated import simulate


def split(subjects):
    fc, y, site = subjects
    names = list(dict.fromkeys(site.tolist()))
    return [(name, fc[site == name], y[site == name]) for name in names]


def test_site_by_site_and_its_capsule(subjects, tmp_path) -> None:
    (a, fa, ya), (b, fb, yb) = split(subjects)
    model = ForgeClassifier("finetune", "linear", epochs=3, held_out=8, seed=4)
    model.partial_fit(fa, ya, site=a).partial_fit(fb, yb, site=b)
    assert model.sites_ == (a, b)
    model.to_capsule(tmp_path / "x.capsule")
    again = ForgeClassifier.from_capsule(tmp_path / "x.capsule")
    assert np.array_equal(again.decision_function(fb), model.decision_function(fb))
    assert again.get_params()["seed"] == 4
    assert again.classes_.tolist() == [0, 1]
    # handed over between the two sites: bitwise the same network
    ForgeClassifier("finetune", "linear", epochs=3, held_out=8, seed=4).partial_fit(
        fa, ya, site=a
    ).to_capsule(tmp_path / "a.capsule")
    other = ForgeClassifier.from_capsule(tmp_path / "a.capsule").partial_fit(
        fb, yb, site=b
    )
    for key, value in model.capsule_.lane.params.items():
        assert torch.equal(value, other.capsule_.lane.params[key])
    with pytest.raises(ValueError, match="learned already"):
        model.partial_fit(fa, ya, site=a)
    fresh = model.fit(fa, ya)
    assert fresh.sites_ == ("site-1",)


def test_words_as_classes_travel(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    words = np.where(y == 1, "ASD", "TD")
    model = ForgeClassifier().fit(fc, words)
    model.to_capsule(tmp_path / "x.capsule")
    again = ForgeClassifier.from_capsule(tmp_path / "x.capsule")
    assert np.array_equal(again.predict(fc), model.predict(fc))
    assert open_capsule(tmp_path / "x.capsule").settings.classes == ("TD", "ASD")


def test_bitwise_the_capsule_of_the_command_line(subjects, tmp_path) -> None:
    """The estimator on a site's learning part is what `fcforge learn` (and so the run) makes."""
    from fcforge.capsule import learn, settings_for
    from fcforge.sites import split_site
    from fcforge.types import Component, LearnerSpec, Training

    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    name = cohort.site_names[0]
    learner = LearnerSpec(Component("finetune"), Component("gcn", {"hidden": 16}))
    settings = settings_for(
        learner, 10, training=Training(epochs=2), held_out=0, calibrate="none"
    )
    capsule = learn(None, name, cohort, tmp_path / "a.capsule", settings=settings)
    part = split_site(cohort, name, 0).learning(with_val=True)
    model = ForgeClassifier("finetune", "gcn", epochs=2, model_params={"hidden": 16})
    model.partial_fit(part.fc.numpy(), part.y.numpy(), site=name)
    for key, value in capsule.lane.params.items():
        assert torch.equal(value, model.capsule_.lane.params[key]), key


def test_real_subjects_need_the_flag(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("cumulative", "linear", epochs=1).fit(fc, y)
    with pytest.raises(CapsuleError, match="real subjects"):
        model.to_capsule(tmp_path / "x.capsule")
    assert not list(tmp_path.iterdir())
    model.to_capsule(tmp_path / "x.capsule", allow_real_subjects=True)
    assert open_capsule(tmp_path / "x.capsule").entries[-1]["flags"] == [
        "allow_real_subjects"
    ]


# -- which class is the patients ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("control", "patient", "positive"),
    [
        (0, 1, None),
        ("TC", "ASD", None),  # sorts the other way round
        ("HC", "MDD", None),
        (2, 1, 1),  # ABIDE's DX_GROUP
        ("reference", "ataxia", "ataxia"),
    ],
)
def test_python_and_the_command_line_mean_the_same_people(
    control, patient, positive, tmp_path
):
    """Patients of the estimator are patients of the commands, whatever they are called."""
    cohort = simulate("easy", n_rois=12, n_sites=2, scale=0.5, seed=2)
    one, two = cohort.site_names
    mine = cohort.select_sites([one])
    y = np.where(mine.y == 1, patient, control)
    model = ForgeClassifier(positive=positive).fit(mine.fc, y, site=one)
    plain = ForgeClassifier().fit(mine.fc, mine.y, site=one)
    sick = model.classes_.tolist().index(patient)
    assert model.predict_proba(mine.fc)[:, sick] == pytest.approx(
        plain.predict_proba(mine.fc)[:, 1]
    )
    assert (model.predict(mine.fc) == y).mean() == (
        plain.predict(mine.fc) == mine.y
    ).mean()
    model.to_capsule(tmp_path / "a.capsule")
    capsule = open_capsule(tmp_path / "a.capsule")
    assert [str(c) for c in capsule.settings.classes] == [str(control), str(patient)]
    assert judge(capsule, mine.fc).probability == pytest.approx(
        plain.predict_proba(mine.fc)[:, 1], abs=1e-5
    )
    again = ForgeClassifier.from_capsule(tmp_path / "a.capsule")
    np.testing.assert_array_equal(again.predict(mine.fc), model.predict(mine.fc))
    theirs = cohort.select_sites([two])
    again.partial_fit(theirs.fc, np.where(theirs.y == 1, patient, control), site=two)
    plain.partial_fit(theirs.fc, theirs.y, site=two)
    sick = again.classes_.tolist().index(patient)
    assert again.predict_proba(theirs.fc)[:, sick] == pytest.approx(
        plain.predict_proba(theirs.fc)[:, 1]
    )


@pytest.mark.parametrize("classes", [("a", "b"), (1, 2)])
def test_a_capsule_is_refused_until_the_patients_are_named(classes, tmp_path):
    cohort = simulate("easy", n_rois=12, n_sites=1, scale=0.3, seed=2)
    y = np.where(cohort.y == 1, *classes)
    model = ForgeClassifier().fit(cohort.fc, y)
    with pytest.raises(ValueError, match=r"which means patient.*positive="):
        model.to_capsule(tmp_path / "a.capsule")
    assert not (tmp_path / "a.capsule").exists()
    with pytest.raises(ValueError, match="positive='c' is neither of"):
        ForgeClassifier(positive="c").fit(cohort.fc, y)


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
        model(start=path).fit(*of(A)[:2], site=A).decision_function(fc),
        made.decision_function(fc),
    )


def test_confounds_are_asked_for():
    removed = ("age", "sex")
    made = model(start=start(removed))
    fc, y, covariates = of(A)
    with pytest.raises(InputError, match="has no age or sex"):
        made.fit(fc, y, site=A)
    made.fit(fc, y, site=A, covariates=covariates)
    with pytest.raises(InputError, match=r"has no age or sex.*covariates="):
        made.predict(fc)
    assert made.predict_proba(fc, covariates).shape == (len(fc), 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"start": None}, "needs a public start"),
        ({"method_params": {"epsilom": 1}}, "Did you mean 'epsilon'"),
        ({"features": "any"}, "releases are made from FC only"),
    ],
)
def test_what_cannot_be_meant(more, words):
    fc, y, _ = of(A)
    with pytest.raises(InputError, match=words):
        model(**more).fit(fc[:, 0] if "features" in more else fc, y, site=A)
