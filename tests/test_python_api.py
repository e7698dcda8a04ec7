"""`fcforge.run`: the table of `fcforge run`, from Python."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from torch import nn

import fcforge
from fcforge.core.errors import ConfigError, DataError
from fcforge.data.arrays import naming_rows
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_cohort
from fcforge.methods import METHODS, Method

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


def test_columns_of_pandas_may_be_given(people):
    import pandas as pd

    X, y, site = people.fc, people.y, people.site
    words = pd.Series(np.where(y == 1, "ASD", "TC"), dtype=object)
    names = pd.Series(list(site), dtype=object)
    rows = fcforge.run(X, words, names, learners=["analytic/linear"]).rows
    assert rows[-1].learner == "analytic/linear"
    names[0] = None
    with pytest.raises(DataError, match=r"site\[0\] is None"):
        fcforge.run(X, words, names, learners=["analytic/linear"])


def test_swapped_diagnoses_at_one_site_are_a_warning():
    world = simulate("easy", n_rois=24, seed=0)
    y = np.where(world.site == "Sim-UCLA", 1 - world.y, world.y)
    with pytest.warns(UserWarning, match="site 'Sim-UCLA': '1' and '0' look swapped"):
        fcforge.run(world.fc, y, world.site, learners=["analytic/linear"])


def test_scans_that_look_like_one_person_are_named_by_row():
    world = simulate("easy", n_rois=24, n_sites=2, seed=0)
    tested = split_cohort(world, world.site_names[0], seed=0)["test"].subject_id
    first, second = np.flatnonzero(np.isin(world.subject_id, tested))[:2]
    fc = world.fc.copy()
    fc[second] = 0.9 * fc[first] + 0.1 * fc[second]
    words = rf"X\[{second}\]: looks like X\[{first}\] .* Leave one of them out of all"
    with pytest.warns(UserWarning, match=words):
        fcforge.run(
            fc,
            world.y,
            world.site,
            learners=["analytic/linear"],
            subject_id=world.subject_id,
        )


def test_ids_in_two_spellings_are_left_out_of_all_arrays(people):
    ids = [f"p{k}" for k in range(len(people.y))]
    ids[:2] = ["sub-50279", "S50279"]
    words = "'sub-50279' and 'S50279'.* leave one of the two out of all arrays. Other"
    with pytest.warns(UserWarning, match=words) as caught:
        fcforge.run(
            people.fc,
            people.y,
            people.site,
            learners=["analytic/linear"],
            subject_id=ids,
        )
    assert not any("[dataset]" in str(warning.message) for warning in caught)


def test_errors_name_the_row_of_ids_that_are_floats(people):
    with pytest.raises(DataError, match=r"- X\[3\]: 64 FC values are NaN"):
        fcforge.run(
            changed(people.fc, 3, np.nan),
            people.y,
            people.site,
            learners=["analytic/linear"],
            subject_id=np.arange(len(people.y), dtype=float),
        )


def test_arrays_that_do_not_fit_are_refused(people):
    with pytest.raises(ConfigError, match="arrays need y and site"):
        fcforge.run(people.fc, learners=["analytic/linear"])
    with pytest.raises(ConfigError, match="site has shape"):
        fcforge.run(people.fc, people.y, people.site[:-1], learners=["analytic/linear"])
    with pytest.raises(ConfigError, match="learners by keyword"):
        fcforge.run(SPEC, [ROW])


def changed(array, row, value):
    """Return a copy of an array with another entry in one row."""
    copy = array.astype(object) if array.ndim == 1 else array.copy()
    copy[row] = value
    return copy


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("X", lambda X: changed(X, 3, np.nan), r"X\[3\]: 64 FC values are NaN"),
        ("X", lambda X: changed(X, 3, X[2]), r"X\[3\]: looks like X\[2\] .* Leave one"),
        ("X", lambda X: X * 3, r"X\[0\], X\[1\].* give dataset=\{'kind': 'fisher_z'\}"),
        ("X", lambda X: X[:, 0], r"X has shape \(\d+, 8\), but FC matrices have shape"),
        ("X", lambda X: [X[0], X[1][:2]], r"X\[1\] has shape \(2, 8\), but X\[0\]"),
        ("X", lambda X: X[:0], "X holds no subject"),
        ("X", lambda X: np.full(X.shape, "a"), "X holds no numbers"),
        ("y", lambda y: changed(y, 2, None), r"y\[2\]: has no diagnosis. Leave"),
        ("y", lambda y: changed(y, 2, np.nan), r"y\[2\]: has no diagnosis. Leave"),
        (
            "y",
            lambda y: changed(y, 2, 5),
            r"y\[2\]: unknown diagnosis '5'.* dataset=\{'positive': VALUE",
        ),
        ("site", lambda s: changed(s, 2, None), r"site\[2\] is None, which is not"),
        ("site", lambda s: changed(s, 2, float("nan")), r"site\[2\] is nan, which is"),
    ],
)
def test_errors_name_array_and_row(people, name, change, message):
    arrays = {"X": people.fc, "y": people.y, "site": people.site}
    arrays[name] = change(arrays[name])
    with pytest.raises(DataError, match=message) as caught:
        fcforge.run(*arrays.values(), learners=["analytic/linear"])
    for other in ("npz", "fcforge check", "--", "[dataset]"):
        assert other not in str(caught.value)


def test_scans_of_one_person_in_training_and_test_are_named_by_row(people, tmp_path):
    ids = [f"sub-{k}" for k in range(len(people.y))]
    error = DataError(
        "subjects 'sub-1' and 'sub-0' look like one scan.",
        do="In [dataset]: leave_out = ['sub-0'], or allow_duplicates = true.",
    )
    with (
        pytest.raises(DataError, match=r"^X\[1\] and X\[0\] look like .*allow_dupl"),
        naming_rows(tmp_path / "data.npz", ids),
    ):
        raise error


def test_missing_diagnoses_may_be_left_out_and_sites_may_be_numbers(people):
    words = np.where(people.y == 1, "ASD", "TC").astype(object)
    words[5] = None
    numbers = np.where(people.site == people.site[0], 1.0, 2.0)
    results = fcforge.run(
        people.fc,
        words,
        numbers,
        learners=["analytic/linear"],
        dataset={"drop_unlabelled": True},
    )
    assert set(results.runs[-1].sites) == {"1", "2"}


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
        ([{"method": nn.Linear(2, 2)}], "method is an object"),
    ],
)
def test_learners_that_cannot_be_read_are_refused(people, learners, message):
    with pytest.raises(ConfigError, match=message):
        fcforge.run(people.fc, people.y, people.site, learners=learners)


MINE = """from dataclasses import dataclass
from fcforge.methods import Method

@dataclass(frozen=True)
class Mine(Method):
    strength: float = 1.0
    name = "mine"
"""


def test_an_object_of_a_method_is_the_name_of_its_class(people, tmp_path, monkeypatch):
    (tmp_path / "method_in_a_file.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    from method_in_a_file import Mine

    name = "method_in_a_file:Mine"
    training = {"training": {"epochs": 1}}
    named = {"method": {"name": name, "strength": 2.0}, "model": "linear"}
    given = {"method": Mine(strength=2.0), "model": "linear"}
    try:
        runs = [
            fcforge.run(
                people.fc, people.y, people.site, learners=[learner], settings=training
            ).runs
            for learner in (named, given)
        ]
    finally:
        METHODS.pop(name, None)
    learners = [[run.spec.learner for run in of_one] for of_one in runs]
    assert learners[0] == learners[1]
    assert name in {spec.method.name for spec in learners[0]}


def test_an_object_of_the_packages_methods_has_its_short_name():
    from fcforge.methods.forge import PaperForge
    from fcforge.python_api import _learner_table

    method = {"name": "forge", "variant": "paper", "memory": 8}
    assert _learner_table(PaperForge(memory=8)) == {
        "method": method,
        "generator": "fcm_vae",
    }


def test_an_object_of_a_class_in_no_file_is_refused(people):
    @dataclass(frozen=True)
    class Here(Method):
        name = "here"

    with pytest.raises(ConfigError, match="Here is in no file that can be imported"):
        fcforge.run(people.fc, people.y, people.site, learners=[Here()])


def test_objects_do_not_reach_worker_processes():
    with pytest.raises(ConfigError, match="not known in this process"):
        fcforge.run(SPEC, learners=[ROW], jobs=2)


def test_nothing_else_hangs_on_the_package():
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        fcforge.walk  # noqa: B018
