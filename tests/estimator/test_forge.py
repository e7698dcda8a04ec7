"""`ForgeClassifier()` is FORGE, trained as a run trains it; sites may return."""

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, RunSpec, Training
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier, InputError
from fcforge.experiments.site_loader import SiteLoader
from fcforge.methods import build_learner
from fcforge.methods.forge import Forge
from fcforge.models.edge import Linear
from fcforge.nn.resources import one_thread
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

SMALL = {"memory": 16, "candidates": 16, "dev": 8, "replay": 8}


def of_site(subjects, name):
    fc, y, site = subjects
    return fc[site == name], y[site == name]


def quick(**given):
    return ForgeClassifier(
        generator="corr_gauss", epochs=3, method_params=SMALL, **given
    )


def test_the_default_is_forge(subjects) -> None:
    fc, y, site = subjects
    model = ForgeClassifier(epochs=2, generator_params={"epochs": 2}).fit(fc, y, site)
    method, classifier = model.model_.learner.method, model.model_.learner.model
    assert isinstance(method, Forge)
    assert method.sampling == "hcts"
    assert isinstance(classifier, Linear)
    assert classifier.features == "log+diagonal"
    assert not model.model_.copies_real
    held = model.model_.remembered.fc.numpy()
    assert len(held) == len(model.sites_) * (method.candidates + method.dev)
    real = {scan.tobytes() for scan in fc}
    assert not real & {scan.tobytes() for scan in held}
    by_name = ForgeClassifier(generator="fcm_vae", generator_params={"epochs": 2})
    by_name.set_params(epochs=2).fit(fc, y, site)
    assert torch.equal(by_name.model_.remembered.fc, model.model_.remembered.fc)


def test_three_classes_are_replayed_by_the_gaussian_generator(subjects) -> None:
    fc, y, site = subjects
    three = y + (np.arange(len(y)) % 3 == 0) * (2 - y)
    model = ForgeClassifier(epochs=2, method_params=SMALL).fit(fc, three, site)
    assert set(model.model_.remembered.y.tolist()) == {0, 1, 2}
    by_name = quick().set_params(epochs=2).fit(fc, three, site)
    assert torch.equal(by_name.model_.remembered.fc, model.model_.remembered.fc)
    with pytest.raises(InputError, match="learns two classes; the target is"):
        quick().set_params(generator="fcm_vae").fit(fc, three, site)


def test_a_site_with_a_single_class_is_replayed(subjects) -> None:
    """Its synthetic subjects have the class that the site has, and no other."""
    fc, y, _ = subjects
    model = ForgeClassifier(epochs=2, method_params=SMALL)
    model.set_params(generator__epochs=2)
    with pytest.warns(UserWarning, match="people learned so far are of class 0"):
        model.partial_fit(fc[y == 0], y[y == 0], classes=[0, 1], site="A")
    assert set(model.model_.remembered.y.tolist()) == {0}
    with pytest.warns(UserWarning, match="the site gives the class away"):
        model.partial_fit(fc[y == 1], y[y == 1], site="B")
    assert set(model.model_.remembered.y.tolist()) == {0, 1}


def test_the_default_shows_its_progress(subjects, capsys) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier(epochs=2, verbose=2, generator_params={"epochs": 10})
    model.fit(fc, y, site="A")
    lines = capsys.readouterr().out.splitlines()
    for work in ("generator 1 of 10", "generator 10 of 10", "epoch 2 of 2"):
        assert f"[fcforge] site 'A': {work}" in lines


def test_bitwise_the_training_loop(subjects) -> None:
    """Two sites by the estimator are two calls of `learn_site`, with the same numbers."""
    names = list(dict.fromkeys(subjects[2].tolist()))
    model = quick(seed=7)
    spec = LearnerSpec(
        Component("forge", SMALL),
        Component("linear", {"features": "log+diagonal"}),
        Component("corr_gauss"),
    )
    learner = build_learner(spec, 10, has_base_model=False)
    training = Training(epochs=3, lr=3e-4)
    loader = SiteLoader()
    lane = start_lane(learner, 7)
    for k, name in enumerate(names):
        fc, y = of_site(subjects, name)
        model.partial_fit(fc, y, site=name)
        batch = FCBatch.from_numpy(fc, y)
        none = batch.select(slice(0, 0))
        order = tuple(names[: k + 1])
        run = RunSpec(
            dataset=Component("estimator"),
            learner=spec,
            order=order,
            seed=7,
            training=training,
        )
        site = Site(name, batch, none, none, {})
        job = Job(lane, loader.view(site, run), 7, order)
        with one_thread():
            (lane,) = learn_site(learner, [job], loader.bank, training)
    ours = model.model_.trained_lane.params
    for key, value in lane.params.items():
        assert np.array_equal(ours[key].numpy(), value.numpy())


def test_the_papers_network(subjects) -> None:
    fc, y, site = subjects
    model = quick(model="gcn").fit(fc, y, site)
    assert model.model_.learner.model.name == "gcn"
    assert model.sites_ == tuple(dict.fromkeys(site.tolist()))


def test_a_site_returns(subjects) -> None:
    a, b = dict.fromkeys(subjects[2].tolist())
    fc, y = of_site(subjects, a)
    half = len(y) // 2
    model = quick().partial_fit(fc[:half], y[:half], site=a)
    model.partial_fit(*of_site(subjects, b), site=b)
    before = len(model.model_.remembered)
    quotas = len(model.model_.trained_lane.state.choice.quota)
    model.partial_fit(fc[half:], y[half:], site=a)
    assert model.sites_ == (a, b)
    assert model.model_.order == (a, b, f"{a} (visit 2)")
    assert len(model.model_.remembered) == before + 16 + 8
    assert len(model.model_.trained_lane.state.choice.quota) == quotas + 1
    with pytest.raises(InputError, match=rf"X\[0\] of site '{a}' was learned before"):
        model.partial_fit(fc[half:], y[half:], site=a)
    assert model.model_.order == (a, b, f"{a} (visit 2)")


@pytest.mark.filterwarnings("ignore:site '.*' has no patients")
@pytest.mark.parametrize("rows", [[0], [0, 1, 2]])
def test_too_few_further_subjects_for_a_generator_are_refused(subjects, rows) -> None:
    a, b = dict.fromkeys(subjects[2].tolist())
    fc, y = of_site(subjects, a)
    model = quick().partial_fit(fc[6:], y[6:], site=a)
    before = model.decision_function(fc)
    remembered = model.model_.remembered.fc
    advice = (
        "Wait for further subjects of the site and give them in one call, at least 4"
    )
    for site in (a, b):
        with pytest.raises(InputError, match=f"Nothing was learned. {advice}"):
            model.partial_fit(fc[rows], y[rows], site=site)
    assert model.model_.order == (a,)
    assert np.array_equal(model.decision_function(fc), before)
    assert model.model_.remembered.fc is remembered
    model.partial_fit(fc[:4], y[:4], site=a)  # the same subjects and one more
    assert model.model_.order == (a, f"{a} (visit 2)")


def test_a_visit_without_validation_part(subjects) -> None:
    a, _ = dict.fromkeys(subjects[2].tolist())
    fc, y = of_site(subjects, a)
    pair = [int(np.flatnonzero(y == label)[0]) for label in (0, 1)]
    rest = np.setdiff1d(np.arange(len(y)), pair)
    chooses = ForgeClassifier(
        "finetune", epochs=2, training={"selection": "inner_val"}
    ).fit(fc[rest], y[rest], site=a)
    with pytest.raises(InputError, match="none of its 2 subjects can be set aside"):
        chooses.partial_fit(fc[pair], y[pair], site=a)
    calibrated = ForgeClassifier("finetune", epochs=2, calibrate="inner_val")
    with pytest.raises(InputError, match="or set calibrate='none'"):
        calibrated.fit(fc[pair], y[pair], site=a)
    calibrated.fit(fc[rest], y[rest], site=a)
    temperature = calibrated.model_.temperature
    with pytest.warns(UserWarning, match="The temperature stays"):
        calibrated.partial_fit(fc[pair], y[pair], site=a)
    assert calibrated.model_.temperature == temperature
    assert calibrated.model_.order == (a, f"{a} (visit 2)")


def test_ridge_of_a_site_that_returns_is_ridge_on_all_its_people(subjects) -> None:
    a, _ = dict.fromkeys(subjects[2].tolist())
    fc, y = of_site(subjects, a)
    half = len(y) // 2
    parts = ForgeClassifier("ridge").partial_fit(fc[:half], y[:half], site=a)
    parts.partial_fit(fc[half:], y[half:], site=a)
    whole = ForgeClassifier("ridge").fit(fc, y, site=a)
    np.testing.assert_allclose(
        parts.decision_function(fc), whole.decision_function(fc), atol=1e-4
    )


# -- checks of the data --------------------------------------------------------------------------
@pytest.fixture(scope="module")
def cohort():
    return simulate("easy", n_rois=24, n_sites=3, scale=0.6, seed=3)


def test_permuted_rois_at_one_site_are_refused(cohort) -> None:
    odd = cohort.site == cohort.site_names[2]
    order = np.random.default_rng(0).permutation(24)
    fc = cohort.fc.copy()
    fc[odd] = fc[odd][:, order][:, :, order]
    with pytest.raises(InputError, match="does not resemble that of the other sites"):
        ForgeClassifier("ridge").fit(fc, cohort.y, cohort.site)
    model = ForgeClassifier("ridge").fit(fc[~odd], cohort.y[~odd], cohort.site[~odd])
    with pytest.raises(InputError, match="the sites before it"):
        model.partial_fit(fc[odd], cohort.y[odd], site="new")
    model.set_params(allow_unlike_sites=True)
    with pytest.warns(UserWarning, match="allow_unlike_sites=True") as warned:
        model.partial_fit(fc[odd], cohort.y[odd], site="new")
    assert warned[0].filename == __file__  # the caller's line


def test_scans_in_another_order_than_the_learned_are_a_warning(
    cohort, tmp_path
) -> None:
    model = ForgeClassifier("ridge").fit(cohort.fc, cohort.y, site=cohort.site)
    model.save(tmp_path / "m.safetensors")
    order = np.random.default_rng(0).permutation(cohort.n_rois)
    sides = np.arange(cohort.n_rois) ^ 1
    for fitted in (model, ForgeClassifier.load(tmp_path / "m.safetensors")):
        for k in (1, 2, 30):
            fitted.predict_proba(cohort.fc[:k])  # no warning
            moved = cohort.fc[:k][:, order][:, :, order]
            with pytest.warns(
                UserWarning, match="not resemble that of the people it learned"
            ):
                fitted.predict(moved)
        with pytest.warns(
            UserWarning, match="hemispheres look swapped beside the people"
        ):
            fitted.predict(cohort.fc[:30][:, sides][:, :, sides])
    model.set_params(allow_unlike_sites=True).predict(moved)


def test_fisher_z_with_ones_on_the_diagonal_is_a_warning(cohort) -> None:
    off_diagonal = 1 - np.eye(cohort.n_rois)
    z = np.clip(np.arctanh(cohort.fc * off_diagonal), -1, 1) + np.eye(cohort.n_rois)
    for wrong in (z, np.abs(cohort.fc)):
        with pytest.warns(UserWarning, match="FC has negative eigenvalues"):
            ForgeClassifier("ridge").fit(wrong, cohort.y, site=cohort.site)


def test_swapped_diagnoses_at_one_site_are_a_warning(cohort) -> None:
    odd = cohort.site == cohort.site_names[1]
    model = ForgeClassifier("ridge")
    model.fit(cohort.fc[~odd], cohort.y[~odd], cohort.site[~odd])
    with pytest.warns(UserWarning, match="look swapped") as warned:
        model.partial_fit(cohort.fc[odd], 1 - cohort.y[odd], site="new")
    assert warned[0].filename == __file__


def test_one_scan_with_two_diagnoses_is_refused(subjects) -> None:
    fc, y, _ = subjects
    twice = np.concatenate([fc, fc[:1]])
    with pytest.raises(InputError, match="there twice, with two diagnoses"):
        ForgeClassifier("ridge").fit(twice, np.append(y, 1 - y[0]), site="A")


def test_a_nan_is_named_with_its_subject(subjects) -> None:
    fc = subjects[0].copy()
    fc[4, 2, 3] = np.nan
    with pytest.raises(InputError, match=r"X\[4\].*NaN"):
        ForgeClassifier("ridge").fit(fc, subjects[1])


def test_sites_have_names_in_any_script(subjects) -> None:
    fc, y, _ = subjects
    assert ForgeClassifier("ridge").fit(fc, y, site="北京").sites_ == ("北京",)
    with pytest.raises(InputError, match="VERTICAL LINE"):
        ForgeClassifier("ridge").fit(fc, y, site="a|b")
