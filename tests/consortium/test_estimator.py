"""Estimators on consortium files: steps of a chain, contributions around a base model."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from small_exchange import R, learned, people, sites, start

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_site
from fcforge.estimator import ForgeClassifier, InputError
from fcforge.evaluation.temperature import probability
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.chains.settings import settings_for
from fcforge_consortium.estimator import (
    ConsortiumClassifier,
    ConsortiumRegressor,
    from_estimator,
)
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.records.exchange import open_exchange, save
from fcforge_consortium.records.kinds import Contribution
from fcforge_consortium.records.policy import Policy


@pytest.fixture(scope="module")
def subjects():
    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    return cohort.fc, cohort.y, cohort.site


def split(subjects):
    fc, y, site = subjects
    names = list(dict.fromkeys(site.tolist()))
    return [(name, fc[site == name], y[site == name]) for name in names]


def test_site_by_site_and_its_file(subjects, tmp_path) -> None:
    (a, fa, ya), (b, fb, yb) = split(subjects)
    model = ConsortiumClassifier("finetune", "linear", epochs=3, held_out=8, seed=4)
    model.partial_fit(fa, ya, site=a).partial_fit(fb, yb, site=b)
    assert model.sites_ == (a, b)
    model.save(tmp_path / "x.exchange", new_ledger=True)
    again = ConsortiumClassifier.load(tmp_path / "x.exchange")
    assert np.array_equal(again.decision_function(fb), model.decision_function(fb))
    assert again.get_params()["seed"] == 4
    assert again.classes_.tolist() == [0, 1]
    # handed over between the two sites: bitwise the same network
    ConsortiumClassifier(
        "finetune", "linear", epochs=3, held_out=8, seed=4
    ).partial_fit(fa, ya, site=a).save(
        tmp_path / "a.exchange", ledger=tmp_path / "a.private", new_ledger=True
    )
    other = ConsortiumClassifier.load(tmp_path / "a.exchange").partial_fit(
        fb, yb, site=b
    )
    assert model.model_.state.to_bytes() == other.model_.state.to_bytes()
    with pytest.raises(ValueError, match="was learned before"):
        model.partial_fit(fa, ya, site=a)
    fresh = model.fit(fa, ya)
    assert fresh.sites_ == ("site-1",)


def test_words_as_classes_travel(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    words = np.where(y == 1, "ASD", "TD")
    model = ConsortiumClassifier().fit(fc, words)
    model.save(tmp_path / "x.exchange", new_ledger=True)
    again = ConsortiumClassifier.load(tmp_path / "x.exchange")
    assert np.array_equal(again.predict(fc), model.predict(fc))
    policy = open_exchange(tmp_path / "x.exchange").root.policy
    assert policy.target.classes == ("TD", "ASD")


def test_bitwise_the_chain_of_the_command_line():
    """The estimator on a site's learning part is what `fcforge consortium chain` makes."""
    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    name = cohort.site_names[0]
    learner = LearnerSpec(Component("finetune"), Component("gcn", {"hidden": 16}))
    settings = settings_for(
        learner, 10, training=Training(epochs=2), held_out=0, calibrate="none"
    )
    site = split_site(cohort, name, 0)
    chain, _ = empty_chain(settings, TWO_CLASSES, name).model.after(site)
    part = site.learning(with_val=True)
    model = ConsortiumClassifier(
        "finetune", "gcn", epochs=2, model_params={"hidden": 16}
    )
    model.partial_fit(part.fc.numpy(), part.y.numpy(), site=name)
    assert chain.state.to_bytes() == model.model_.state.to_bytes()


def test_who_was_learned_stays_at_home(subjects, tmp_path):
    (a, fa, ya), (b, fb, yb) = split(subjects)
    model = (
        ConsortiumClassifier().partial_fit(fa, ya, site=a).partial_fit(fb, yb, site=b)
    )
    model.save(tmp_path / "x.exchange", new_ledger=True)
    private = Ledger.read(tmp_path / "fcforge.private")
    assert [entry.site for entry in private.entries] == [a, b]
    said = open_exchange(tmp_path / "x.exchange").model.steps
    assert [step.commitment for step in said] == [
        entry.commitment for entry in private.entries
    ]
    model.save(tmp_path / "y.exchange")  # nobody twice
    again = Ledger.read(tmp_path / "fcforge.private")
    assert len(again.entries) == 2
    model.save(tmp_path / "z.exchange", ledger=tmp_path / "elsewhere", new_ledger=True)
    assert len(Ledger.read(tmp_path / "elsewhere").entries) == 2


def test_real_subjects_need_the_flag(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    model = ConsortiumClassifier("cumulative", "linear", epochs=1).fit(fc, y)
    with pytest.raises(ExchangeError, match="real subjects"):
        model.save(tmp_path / "x.exchange", new_ledger=True)
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "x.exchange", allow_real_subjects=True, new_ledger=True)
    (step,) = open_exchange(tmp_path / "x.exchange").model.steps
    assert step.flags == ("allow_real_subjects",)


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
    model = ConsortiumClassifier(positive=positive).fit(mine.fc, y, site=one)
    plain = ConsortiumClassifier().fit(mine.fc, mine.y, site=one)
    sick = model.classes_.tolist().index(patient)
    assert model.predict_proba(mine.fc)[:, sick] == pytest.approx(
        plain.predict_proba(mine.fc)[:, 1]
    )
    assert (model.predict(mine.fc) == y).mean() == (
        plain.predict(mine.fc) == mine.y
    ).mean()
    model.save(tmp_path / "a.exchange", new_ledger=True)
    found = open_exchange(tmp_path / "a.exchange")
    assert found.root.policy.target.classes == (str(control), str(patient))
    assert probability(found.model.score(mine.fc, {}).odds) == pytest.approx(
        plain.predict_proba(mine.fc)[:, 1], abs=1e-5
    )
    again = ConsortiumClassifier.load(tmp_path / "a.exchange")
    np.testing.assert_array_equal(again.predict(mine.fc), model.predict(mine.fc))
    theirs = cohort.select_sites([two])
    again.partial_fit(theirs.fc, np.where(theirs.y == 1, patient, control), site=two)
    plain.partial_fit(theirs.fc, theirs.y, site=two)
    sick = again.classes_.tolist().index(patient)
    assert again.predict_proba(theirs.fc)[:, sick] == pytest.approx(
        plain.predict_proba(theirs.fc)[:, 1]
    )


@pytest.mark.parametrize("classes", [("a", "b"), (1, 2)])
def test_saving_is_refused_until_the_patients_are_named(classes, tmp_path):
    cohort = simulate("easy", n_rois=12, n_sites=1, scale=0.3, seed=2)
    y = np.where(cohort.y == 1, *classes)
    model = ConsortiumClassifier().fit(cohort.fc, y)
    with pytest.raises(ValueError, match=r"which means patient.*positive="):
        model.save(tmp_path / "a.exchange", new_ledger=True)
    assert not (tmp_path / "a.exchange").exists()
    with pytest.raises(ValueError, match="positive='c' is neither of"):
        ConsortiumClassifier(positive="c").fit(cohort.fc, y)


A, B, NEW = sites()[2:5]
EXACT = {"mechanism": "none"}


def of(site):
    found = people().select_sites([site])
    return found.fc, np.where(found.y == 1, "patient", "control"), found.covariates


def begin(removed=()):
    return start(removed, exact_allowed=True)


def model(**more) -> ConsortiumClassifier:
    given = {"base_model": begin(), "method_params": EXACT, **more}
    return ConsortiumClassifier("contributions", **given)


def test_sites_one_by_one_are_the_exchange():
    made = model()
    for site in (B, A):
        fc, y, _ = of(site)
        made.partial_fit(fc, y, site=site)
    found = begin()
    for site in (A, B):
        found = learned(found, site, mechanism="none").exchange
    assert made.sites_ == found.model.sites
    np.testing.assert_allclose(made.model_.beta(), found.model.beta())
    fc, y, _ = of(NEW)
    p = made.predict_proba(fc)
    np.testing.assert_allclose(p.sum(1), 1)
    assert made.classes_.tolist() == ["control", "patient"]
    assert (made.predict(fc) == y).mean() > 0.6
    np.testing.assert_allclose(made.predict_proba(fc[:1]), p[:1], rtol=1e-12)
    again = clone(made).fit(*of(A)[:2], site=A)
    assert again.sites_ == (A,)


def test_noise_is_the_default_and_the_same_people_are_told():
    made = ConsortiumClassifier("contributions", base_model=start()).fit(
        *of(A)[:2], site=A
    )
    (release,) = made.model_.exchange.of(Contribution)
    assert release.epsilon == 1.0
    with pytest.raises(InputError, match="learned before"):
        made.partial_fit(*of(A)[:2], site=A)


def test_the_default_method_on_a_start_with_noise_names_what_works():
    way = r'method="contributions", method_params={"epsilon": 1\.0}'
    for given in (None, {"epsilon": 1.0}):
        made = ConsortiumClassifier(base_model=start(), method_params=given)
        with pytest.raises(InputError, match=f"{way}, or .*--exact"):
            made.fit(*of(A)[:2], site=A)
    made = ConsortiumClassifier(base_model=begin(), method_params={"epsilon": 1.0})
    with pytest.raises(InputError, match="unknown setting 'epsilon'"):
        made.fit(*of(A)[:2], site=A)


def test_a_start_of_no_such_name_lists_those_there_are():
    with pytest.raises(InputError, match=r"'abide-all' is neither .*abide-aal"):
        ConsortiumClassifier(base_model="abide-all").fit(*of(A)[:2], site=A)


def test_releases_go_round(tmp_path):
    made = model().fit(*of(A)[:2], site=A)
    found = made.save(tmp_path / "a.exchange", new_ledger=True)
    assert open_exchange(tmp_path / "a.exchange").id == found
    back = ConsortiumClassifier.load(tmp_path / "a.exchange")
    fc = of(NEW)[0]
    np.testing.assert_allclose(back.decision_function(fc), made.decision_function(fc))
    assert back.classes_.tolist() == [0, 1]
    with pytest.raises(ConfigError, match="signed when it is made"):
        made.save(tmp_path / "b.exchange", key=object())
    path = save(begin(), tmp_path / "start.exchange")
    np.testing.assert_allclose(
        model(base_model=path).fit(*of(A)[:2], site=A).decision_function(fc),
        made.decision_function(fc),
    )


def test_confounds_are_asked_for():
    removed = ("age", "sex")
    made = model(base_model=begin(removed))
    fc, y, covariates = of(A)
    with pytest.raises(InputError, match=r"has no .*sex"):
        made.fit(fc, y, site=A)
    made.fit(fc, y, site=A, covariates=covariates)
    with pytest.raises(InputError, match=r"has no .*sex.*covariates="):
        made.predict(fc)
    assert made.predict_proba(fc, covariates).shape == (len(fc), 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"base_model": None}, "needs a base model"),
        ({"method_params": {"epsilom": 1}}, "Did you mean 'epsilon'"),
        ({"features": "any"}, "contributions are made from FC only"),
    ],
)
def test_what_cannot_be_meant(more, words):
    fc, y, _ = of(A)
    with pytest.raises(InputError, match=words):
        model(**more).fit(fc[:, 0] if "features" in more else fc, y, site=A)


# -- starts of other targets -----------------------------------------------------------------------
WORDS = np.array(["HC", "SZ", "BP"])  # not in sorted order


@cache
def several():
    """Three diagnoses at five sites, and ages that the FC tells."""
    made = simulate(
        "easy", n_rois=R, n_sites=5, scale=0.5, d_scale=8.0, disorders=2, seed=3
    )
    level = made.fc.mean((1, 2)).astype(float)
    age = np.clip(30 + 10 * (level - level.mean()) / level.std(), 5, 65)
    named = replace(made, target=Target(classes=tuple(WORDS)), covariates={"age": age})
    return {"classes": named, "age": named.of_number("age", (5.0, 65.0))}


@cache
def start_of(kind):
    cohort = several()[kind]
    public = cohort.select_sites(cohort.site_names[:2])
    policy = Policy(exact_allowed=True)
    return make_base_model(public, settings={"axes": 4}, policy=policy)


def test_a_start_of_three_diagnoses_is_the_exchange():
    """Columns are those of `classes_`; a hospital may lack a diagnosis."""
    cohort = several()["classes"]
    first, second, new = cohort.site_names[2:]
    made = ConsortiumClassifier(base_model=start_of("classes"))
    found = start_of("classes")
    for site in (first, second):
        mine = cohort.select_sites([site])
        mine = mine.select(mine.y < 2) if site == first else mine
        made.partial_fit(mine.fc, WORDS[mine.y], site=site)
        found = learned(found, site, cohort=mine, mechanism="none").exchange
    tested = cohort.select_sites([new])
    p = made.predict_proba(tested.fc)
    assert made.classes_.tolist() == ["BP", "HC", "SZ"]
    wanted = np.exp(found.model.calibrated(tested.fc, {}))
    np.testing.assert_allclose(p, wanted[:, [2, 0, 1]])
    assert made.score(tested.fc, WORDS[tested.y]) > 0.45
    with pytest.raises(InputError, match="'ADHD', which is neither of"):
        ConsortiumClassifier(base_model=start_of("classes")).fit(
            mine.fc, np.where(mine.y, "ADHD", "HC"), site=first
        )
    with pytest.raises(InputError, match="Use ConsortiumRegressor"):
        ConsortiumClassifier(base_model=start_of("age")).fit(
            mine.fc, WORDS[mine.y], site=first
        )


def test_a_start_of_a_number_is_the_exchange(tmp_path):
    cohort = several()["age"]
    site, new = cohort.site_names[3:]
    mine = cohort.select_sites([site])
    tested = cohort.select_sites([new])
    years = cohort.target.restored
    made = ConsortiumRegressor(base_model=start_of("age")).fit(
        mine.fc, years(mine.y), site=site
    )
    found = learned(start_of("age"), site, cohort=mine, mechanism="none").exchange
    wanted = years(found.model.calibrated(tested.fc, {}))
    np.testing.assert_allclose(made.predict(tested.fc), wanted)
    assert made.score(tested.fc, years(tested.y)) > 0.4
    made.save(tmp_path / "age.exchange", new_ledger=True)
    back = ConsortiumRegressor.load(tmp_path / "age.exchange")
    np.testing.assert_allclose(back.predict(tested.fc), wanted)
    with pytest.raises(InputError, match="Give limits= as the base model has them"):
        ConsortiumRegressor(base_model=start_of("age"), limits=(0, 99)).fit(
            mine.fc, mine.y
        )


# -- explanations ---------------------------------------------------------------------------------
def test_releases_with_covariates():
    fc, y = people().fc, people().y
    site = sites()[2]
    here = people().site == site
    model = ConsortiumClassifier(
        "contributions",
        base_model=start(exact_allowed=True),
        method_params={"mechanism": "none"},
    )
    model.fit(fc[here], y[here], site=site)
    scans = fc[here][:3]
    found = model.explain(scans)
    np.testing.assert_allclose(found.score, model.decision_function(scans), atol=1e-6)
    assert np.abs(found.gap).max() < 1e-8


def test_releases_from_edges_of_nilearn_need_their_covariates():
    here = people().select_sites([sites()[2]])
    lower = here.fc[:, *np.tril_indices(here.n_rois, -1)]
    removes = ("age", "sex")
    known = {name: here.covariates[name] for name in removes}
    model = ConsortiumClassifier(
        "contributions",
        base_model=start(removes, exact_allowed=True),
        method_params={"mechanism": "none"},
    ).fit(lower, here.y, site=sites()[2], covariates=known)
    some = {name: values[:3] for name, values in known.items()}
    found = model.explain(lower[:3], some)
    np.testing.assert_allclose(
        found.score, model.decision_function(lower[:3], some), atol=1e-6
    )
    with pytest.raises(InputError, match="age"):
        model.explain(lower[:3])


def test_a_file_without_a_reference_scan_is_not_explained(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    for held_out in (0, 8):
        path = tmp_path / f"{held_out}.fcx"
        made = ConsortiumClassifier(held_out=held_out).fit(fc, y)
        made.save(path, ledger=tmp_path / f"{held_out}.ledger", new_ledger=True)
        loaded = ConsortiumClassifier.load(path)
        if held_out:
            assert "synthetic" in loaded.explain(fc[:1]).reference
            continue
        with pytest.raises(InputError, match="holds no reference scan"):
            loaded.explain(fc[:1])


# -- from an estimator of fcforge ------------------------------------------------------------------
@pytest.mark.parametrize("method", ["ridge", "forge"])
def test_a_fitted_estimator_becomes_a_chain(method, subjects, tmp_path) -> None:
    fc, y, site = subjects
    sizes = {"memory": 8, "candidates": 8, "dev": 4, "replay": 4}
    given = {"epochs": 2, "seed": 3}
    if method == "forge":
        given |= {"generator": "corr_gauss", "method_params": sizes}
    fitted = ForgeClassifier(method, **given).fit(fc, y, site)
    made = from_estimator(fitted, fc, y, site, held_out=8)
    np.testing.assert_array_equal(
        made.decision_function(fc), fitted.decision_function(fc)
    )
    made.save(tmp_path / "a.fcx", new_ledger=True)
    assert open_exchange(tmp_path / "a.fcx").model.sites == fitted.sites_
    with pytest.raises(ConfigError, match="do not make the network"):
        from_estimator(fitted, fc[1:], y[1:], site[1:])


def test_a_changed_setting_of_a_chain_is_refused(subjects) -> None:
    fc, y, site = subjects
    a, b = (site == name for name in dict.fromkeys(site.tolist()))
    made = ConsortiumClassifier().fit(fc[a], y[a], site="A")
    made.set_params(method__penalty=3.0)
    with pytest.raises(InputError, match=r"method_params=.* was None"):
        made.partial_fit(fc[b], y[b], site="B")


def test_settings_without_effect_are_refused():
    """They would be ignored silently."""
    some = people()
    given = {"base_model": start(), "model_params": {"tau": 0.3}}
    beside = ConsortiumClassifier("contributions", **given)
    with pytest.raises(InputError, match="no effect beside a base model"):
        beside.fit(some.fc, some.y)
