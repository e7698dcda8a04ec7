"""The methods paragraphs: every learner described by its own specification."""

from dataclasses import replace

import pytest

from fake_runs import fake_learner
from fcforge.core.component import Component
from fcforge.core.leaks import Leaks
from fcforge.core.spec import BaseModelSpec, LearnerSpec, Training
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.methods_text import methods_paragraphs


def test_what_was_run_is_said():
    runs = fake_learner("mine", seeds=(0, 1))
    run, learners, measured, sure = methods_paragraphs(runs, 500)
    for part in ("4 sites", "24 orders", "2 random seeds"):
        assert part in run
    assert "60 epochs per site" in learners
    assert "learning rate 0.001" in learners  # the GCN's own
    assert run.endswith("nothing but the final scores.")
    assert "commonest class of each site's own training part" in measured
    assert "over test subjects (500 draws" in sure


def test_settings_change_the_words():
    found = fake_learner("mine", seeds=(0, 1, 2))
    training = Training(epochs=1, lr=0.01, selection="inner_val")
    said = {"training": training, "leaks": Leaks(select_on_test=True)}
    runs = [replace(r, spec=replace(r.spec, **said)) for r in found]
    run, learners, _, sure = methods_paragraphs(runs, 500)
    assert "learning rate 0.01" in learners
    assert "1 epoch per site, and the epoch with the lowest loss" in learners
    assert "leak in on purpose (select_on_test)" in run
    assert "test subjects and trainings" in sure


def test_a_file_and_own_thresholds_are_said():
    runs = []
    for run in fake_learner("mine") + fake_learner(f"mine{OWN}"):
        data = Component("folder", {"path": "/data/ours.npz"})
        runs.append(replace(run, spec=replace(run.spec, dataset=data)))
    said = methods_paragraphs(runs, 500)[0]
    assert "Data: ours.npz, 4 sites" in said
    assert "1 learner (mine, each also with every site's own threshold" in said


def with_spec(title, learner, **changes):
    """Runs of a learner with a specification of its own."""
    return [
        replace(run, spec=replace(run.spec, learner=learner, **changes))
        for run in fake_learner(title, seeds=(0,), memory_bytes=2_000_000)
    ]


FORGE = LearnerSpec(
    Component("forge", {"l2": 0.25, "memory": 128}),
    Component("gcn", {"hidden": 48}),
    Component("fcm_vae", {"d_z": 7}),
    title="ours",
    training={"epochs": 11, "weight_decay": 0.5},
)
RIDGE = LearnerSpec(
    Component("analytic", {"penalty": 3.0}),
    Component("linear", {"features": "log"}),
    title="ridge",
    base_model=False,
)
ESTIMATOR = LearnerSpec(
    Component("pipeline", {"estimator": "mine:make", "keeps": "cumulative"}),
    Component("pipeline"),
    title="mine",
)


@pytest.fixture(scope="module")
def sentences():
    """The sentence of each learner, by title."""
    public = BaseModelSpec(Component("folder", {"path": "public.npz"}))
    results = []
    for learner in (FORGE, RIDGE, ESTIMATOR):
        results += with_spec(learner.title, learner, base_model=public)
    learners = methods_paragraphs(results, 100)[1]
    places = [learners.index(f"{t}: ") for t in ("ours", "ridge", "mine")]
    ends = [*places[1:], len(learners)]
    parts = [learners[a:b] for a, b in zip(places, ends, strict=True)]
    return dict(zip(("ours", "ridge", "mine"), parts, strict=True))


@pytest.mark.parametrize("learner", [FORGE, RIDGE, ESTIMATOR], ids=lambda s: s.title)
def test_every_setting_of_a_learner_is_in_its_own_sentence(sentences, learner):
    text = sentences[learner.title]
    for component in (learner.method, learner.model, learner.generator):
        if component is not None:
            assert component.name in text
            for name, value in component.params.items():
                shown = f"{value:g}" if isinstance(value, float) else value
                assert f"{name} = {shown}" in text


def test_a_learner_is_described_with_its_own_training(sentences):
    assert "11 epochs per site" in sentences["ours"]
    assert "weight decay 0.5" in sentences["ours"]
    assert "epoch" not in sentences["ridge"]  # a closed form


def test_defaults_are_written_out(sentences):
    assert "refresh = 5" in sentences["ours"]
    assert "dropout = " in sentences["ours"]
    assert "n_rois" not in sentences["ours"]


def test_base_model_and_memory_are_stated(sentences):
    assert (
        "base model of public subjects (folder (path = public.npz))"
        in sentences["ours"]
    )
    assert "without the base model" in sentences["ridge"]
    assert "memory between sites of at most 2 MB" in sentences["ours"]


def test_what_public_subjects_did_beyond_pretraining_is_stated():
    public = BaseModelSpec(Component("folder", {"path": "public.npz"}))
    used = replace(FORGE, training={"public_replay": 16, "public_pull": 3.0})
    ridge = replace(RIDGE, base_model=True)
    for learner, wanted in (
        (used, True),
        (replace(used, base_model=False), False),
        (ridge, False),
    ):
        training = Training(public_replay=16, public_pull=3.0)
        runs = with_spec(learner.title, learner, base_model=public, training=training)
        text = methods_paragraphs(runs, 100)[1]
        assert ("16 public subjects in every batch" in text) is wanted
        assert ("1.5 times the squared distance" in text) is wanted


def test_settings_in_a_table_of_their_own_are_written_out():
    sampler = {"variant": "paper", "sites": {"prior": 1.0}}
    learner = replace(FORGE, method=Component("forge", {"sampler": sampler}))
    text = methods_paragraphs(with_spec("ours", learner), 100)[1]
    assert "sampler = (variant = paper, sites = (prior = 1))" in text
