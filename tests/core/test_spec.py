"""Values that pass between packages: batches, seals, specs and their keys."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fake_runs import run
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, FCForgeError, SealedError
from fcforge.core.leaks import Leaks
from fcforge.core.names import unknown_name
from fcforge.core.spec import LearnerSpec, RunSpec, Training
from fcforge.core.subjects import FCBatch
from fcforge.core.target import Target, strata

SPEC = RunSpec(
    dataset=Component("folder", {"path": "/a/b.npz"}),
    learner=LearnerSpec(
        Component("ewc", {"strength": 10.0}),
        Component("gcn"),
        Component("corr_gauss"),
        "mine",
    ),
    order=("A", "B", "C"),
    seed=3,
    training=Training(epochs=4),
    leaks=Leaks(select_on_test=True),
    data_sha256="abc",
)


def test_batches_concatenate_and_select():
    fc = np.arange(27.0).reshape(3, 3, 3)
    a = FCBatch.from_numpy(fc, np.array([0, 1, 1]))
    assert (a.fc.dtype, a.y.dtype, len(a), a.n_rois) == (
        torch.float32,
        torch.int64,
        3,
        3,
    )
    both = FCBatch.concat([a, a.select(slice(0, 1))])
    assert both.y.tolist() == [0, 1, 1, 0]
    assert both.select(torch.tensor([False, True, False, False])).fc[0, 0, 0] == 9


def test_spec_survives_json():
    assert RunSpec.from_json(SPEC.to_json()) == SPEC
    with pytest.raises(ConfigError, match="unknown setting 'odd'"):
        RunSpec.from_json({**SPEC.to_json(), "odd": 1})
    with pytest.raises(TypeError, match=r"missing.*'seed'"):
        RunSpec.from_json({k: v for k, v in SPEC.to_json().items() if k != "seed"})
    assert SPEC.prefix(2).order == ("A", "B")
    assert SPEC.prefix(0).order == ()


def test_titles_and_leaks():
    assert SPEC.learner.title == "mine"
    assert replace(SPEC.learner, title="").title == "ewc/gcn"
    assert Leaks().active() == ()
    assert SPEC.leaks.active() == ("select_on_test",)


def test_an_error_says_what_where_and_what_to_do():
    error = FCForgeError("it broke.", where="here", do="Mend it.")
    assert str(error) == "here: it broke. Mend it."
    assert str(FCForgeError("it broke.")) == "it broke."


def test_errors_travel_between_processes():
    """Worker processes send errors to their parent."""
    import pickle

    error = SealedError("it broke.", where="here", do="Mend it.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SealedError
    assert (again.what, again.where, again.do, str(again)) == (
        error.what,
        error.where,
        error.do,
        str(error),
    )


def test_unknown_names_come_with_the_nearest():
    assert "Did you mean 'gcn'?" in str(unknown_name("model", "gnc", ["gat", "gcn"]))
    text = str(unknown_name("model", "zzz", ["gat", "gcn"]))
    assert "Did you mean" not in text
    assert "Known: gat, gcn." in text


def test_targets_that_are_learned_as_one():
    """Two classes have words of their own; more agree word by word, numbers in their limits."""
    assert Target().fits(Target(classes=("TC", "ASD")))
    three = Target(classes=("HC", "SZ/SZP", "BP"))
    assert three.fits(Target(classes=("HC", "SZ", "BP")))
    assert not three.fits(Target(classes=("HC", "BP", "SZ")))
    assert not three.fits(Target())
    age = Target("age", (), (5, 65))
    assert age.fits(Target("age", (), (5, 65)))
    assert not age.fits(Target("age", (), (5, 60)))
    assert (str(age), str(three)) == ("age (5 to 65)", "diagnosis (HC, SZ/SZP, BP)")
    assert [t.columns for t in (Target(), three, age)] == [1, 2, 1]


def test_strata_are_classes_or_fifths_of_numbers():
    y = np.array([0, 2, 1])
    assert strata(y).tolist() == [0, 2, 1]
    numbers = np.linspace(3, -3, 40)
    assert strata(numbers).tolist() == np.repeat([4, 3, 2, 1, 0], 8).tolist()
    assert set(strata(numbers[:9]).tolist()) == {0}


def test_results_say_their_kind_and_truth():
    two = run({"A": [[0.1, 0.9]]}, {"A": [0, 1]})
    assert (two.kind, two.truth("A").tolist()) == ("two classes", [0, 1])
    three = replace(two, scores={"A": np.full((1, 2, 3), 1 / 3)})
    assert (three.kind, three.truth("A").tolist()) == (
        "more classes",
        [[1, 0, 0], [0, 1, 0]],
    )
    number = replace(two, y={"A": np.array([12.5, 30.0])})
    assert (number.kind, number.truth("A").tolist()) == ("number", [12.5, 30.0])
