"""`fcforge.run`: the table of `fcforge run`, from Python."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from torch import nn

import fcforge
from fcforge.core.errors import ConfigError
from fcforge.data.simulated import simulate

SPEC = {
    "dataset": {
        "name": "simulated",
        "preset": "easy",
        "n_sites": 2,
        "scale": 0.1,
        "n_rois": 8,
    },
    "learner": [{"method": "analytic", "model": "linear"}],
}
ROW = {"title": "logistic", "estimator": LogisticRegression(), "keeps": "cumulative"}


def test_a_table_with_their_estimator_and_our_method(tmp_path):
    told = []
    found = fcforge.run(
        SPEC,
        learners=[ROW],
        out=tmp_path / "run",
        progress=lambda done, total, what: told.append(done),
    )
    table = found.table.set_index("learner")
    majority = {"majority class", "majority class of each site"}
    assert set(table.index) == majority | {"logistic", "analytic/linear"}
    assert table.loc["logistic", "keeps"] == "real subjects"
    assert table.loc["logistic", "memory_bytes"] > 0
    assert told[-1] == len(list((tmp_path / "run" / "nodes").iterdir())) - 2
    again = fcforge.run(SPEC, learners=[ROW], out=tmp_path / "run")
    assert again.table.equals(found.table)
    assert fcforge.run(SPEC, learners=[ROW]).table["aaa"].equals(found.table["aaa"])


def test_a_config_file_with_more_rows(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        '[dataset]\nname = "simulated"\npreset = "easy"\nn_sites = 2\nscale = 0.1\nn_rois = 8\n'
    )
    assert "logistic" in set(fcforge.run(path, learners=[ROW]).table["learner"])


@pytest.fixture(scope="module")
def people():
    return simulate(preset="easy", n_sites=2, scale=0.1, n_rois=8)


def test_arrays_with_learners_by_name(people, tmp_path):
    results = fcforge.run(
        people.fc,
        people.y,
        people.site,
        learners=["analytic/linear", ROW],
        out=tmp_path / "mine",
    )
    assert {"analytic/linear", "logistic"} <= set(results.table["learner"])
    again = fcforge.run(
        people.fc,
        people.y,
        people.site,
        learners=["analytic/linear", ROW],
        out=tmp_path / "mine",
    )
    assert again.table.equals(results.table)
    text = repr(results)
    for part in ("AAA", "FM", "FOR", "AUROC", "analytic/linear"):
        assert part in text
    figure = results.plot()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "logistic" in labels
    assert figure.axes[0].get_xlabel() == "accuracy along the way"


def test_diagnoses_may_be_words(people):
    words = np.where(people.y == 1, "ASD", "TC")
    named = {"positive": "ASD", "negative": "TC"}
    results = fcforge.run(
        people.fc, words, people.site, learners=["analytic/linear"], dataset=named
    )
    plain = fcforge.run(people.fc, people.y, people.site, learners=["analytic/linear"])
    assert results.table["aaa"].equals(plain.table["aaa"])


def test_arrays_that_do_not_fit_are_refused(people):
    with pytest.raises(ConfigError, match="arrays need y and site"):
        fcforge.run(people.fc, learners=["analytic/linear"])
    with pytest.raises(ConfigError, match="site has shape"):
        fcforge.run(people.fc, people.y, people.site[:-1], learners=["analytic/linear"])
    with pytest.raises(ConfigError, match="learners by keyword"):
        fcforge.run(SPEC, [ROW])


def test_forge_given_as_text_replays_fcm_vae(people):
    results = fcforge.run(
        people.fc,
        people.y,
        people.site,
        learners=["forge/linear", "forge/gcn/corr_gauss"],
        settings={
            "training": {"epochs": 1},
            "generator": {"fcm_vae": {"epochs": 1}},
            "experiment": {"orders": 1},
        },
    )
    generators = {
        run.spec.learner.title: run.spec.learner.generator.name
        for run in results.runs
        if run.spec.learner.generator
    }
    assert generators == {"forge/linear": "fcm_vae", "forge/gcn": "corr_gauss"}


@pytest.mark.parametrize(
    ("learners", "message"),
    [
        ("finetune/gcn", "is not a list"),
        ([], "arrays need learners"),
        (["finetune/gcn/corr_gauss/more"], "neither"),
        ([LogisticRegression()], "For an estimator of scikit-learn"),
        ([{"method": "finetune", "model": nn.Linear(2, 2)}], "model is an object"),
    ],
)
def test_learners_that_cannot_be_read_are_refused(people, learners, message):
    with pytest.raises(ConfigError, match=message):
        fcforge.run(people.fc, people.y, people.site, learners=learners)


def test_objects_do_not_reach_worker_processes():
    with pytest.raises(ConfigError, match="not known in this process"):
        fcforge.run(SPEC, learners=[ROW], jobs=2)


def test_nothing_else_hangs_on_the_package():
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        fcforge.walk  # noqa: B018
