"""What synthetic subjects are worth to a classifier."""

import numpy as np
import pytest

from fcforge.graphs import edges, fisher_z
from fcforge.studies.judge import utility
from fcforge.studies.judge.measures import ridge_scores
from fcforge.studies.judge.utility import (
    Task,
    _train_together,
    classify,
    network_scores,
)
from fcforge.types import Component, FCBatch, Training


def test_networks_learn_and_equal_seeds_agree(real) -> None:
    train, test = real
    task = Task(train, test, 0)
    a, b = network_scores([task, task], Component("gcn"), Training(epochs=1))
    assert (a == b).all()
    (numbers,) = classify([task], "mlp", Training(epochs=10, lr=1e-3))
    assert numbers["auc"] > 0.6


def test_side_by_side_equals_alone(real) -> None:
    train, test = real
    tasks = [Task(train, test, 0), Task(FCBatch(train.fc, 1 - train.y), test, 1)]
    training = Training(epochs=2)
    together = _train_together(tasks, Component("mlp"), training, "cpu")
    alone = network_scores(tasks, Component("mlp"), training)
    assert abs(alone[0] - alone[1]).max() > 1e-3
    for a, b in zip(together, alone, strict=True):
        assert abs(a - b).max() < 1e-4


def test_metrics_of_four_subjects_by_hand() -> None:
    scores, y = np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 0])
    found = utility.summarise(scores, y)
    # above one half: subjects 0 and 1, of whom 0 is a patient
    assert found == {"acc": 0.5, "pre": 0.5, "rec": 0.5, "f1": 0.5, "auc": 0.75}


def test_linear_scores_are_ridge_on_fisher_z(real) -> None:
    train, test = real
    expected = ridge_scores(
        fisher_z(edges(train.fc)),
        train.y,
        fisher_z(edges(test.fc)),
        utility.RIDGE_PER_SUBJECT,
    )
    found = utility.linear_scores(Task(train, test, 0))
    np.testing.assert_allclose(found, (0.5 * (expected + 1)).numpy(), rtol=1e-5)
    assert utility.summarise(found, test.y.numpy())["auc"] > 0.7


def test_tasks_of_other_sizes_keep_their_places(real) -> None:
    train, test = real
    few = train.select(slice(0, 30))
    tasks = [Task(train, test, 0), Task(few, test, 0), Task(train, test, 1)]
    together = network_scores(tasks, Component("mlp"), Training(epochs=1))
    for task, scores in zip(tasks, together, strict=True):
        (alone,) = network_scores([task], Component("mlp"), Training(epochs=1))
        assert (alone == scores).all()


def test_swapped_diagnoses_turn_a_classifier_round(real) -> None:
    train, test = real
    tasks = [Task(train, test, 0), Task(FCBatch(train.fc, 1 - train.y), test, 0)]
    right, wrong = classify(tasks, "linear", Training())
    assert right["auc"] + wrong["auc"] == pytest.approx(1.0, abs=0.02)
    assert classify([], "gcn", Training()) == []  # nothing to classify


def test_a_network_never_sees_the_test_subjects(real) -> None:
    train, test = real
    (one,) = classify([Task(train, test, 0)], "mlp", Training(epochs=2))
    other = FCBatch.concat([test.select(slice(0, 20)), train.select(slice(0, 20))])
    (two,) = network_scores(
        [Task(train, other, 0)], Component("mlp"), Training(epochs=2)
    )
    (three,) = network_scores(
        [Task(train, test, 0)], Component("mlp"), Training(epochs=2)
    )
    np.testing.assert_allclose(two[:20], three[:20], atol=1e-6)
    assert 0.0 <= one["acc"] <= 1.0
