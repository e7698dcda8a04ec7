"""Methods for a paper: what is said is what was run."""

from dataclasses import replace

from fake_runs import fake_learner
from fcforge.report.paper_methods import methods_paragraphs
from fcforge.types import Training


def test_what_was_run_is_said():
    runs = fake_learner("mine", seeds=(0, 1))
    run, measured, sure = methods_paragraphs(runs, [], 500)
    for said in ("4 sites", "24 orders", "2 random seeds", "60 epochs per site"):
        assert said in run
    assert "published learning rate" in run
    assert run.endswith("nothing but the final scores.")
    assert "commonest class of each site's own training part" in measured
    assert "over test subjects (500 draws" in sure


def test_settings_change_the_words():
    found = fake_learner("mine", seeds=(0, 1, 2))
    training = Training(epochs=1, lr=0.01, selection="inner_val")
    runs = [replace(r, spec=replace(r.spec, training=training)) for r in found]
    run, _, sure = methods_paragraphs(runs, ["select_on_test"], 500)
    assert "learning rate 0.01" in run
    assert "1 epoch per site; the epoch with the lowest loss" in run
    assert "leak in on purpose (select_on_test)" in run
    assert "test subjects and trainings" in sure
