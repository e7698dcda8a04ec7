"""Accuracy of classifiers that are trained on synthetic subjects and tested on real ones.

A lane is one training run: one learner, order of sites and seed.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fcforge.core.component import Component
from fcforge.core.settings import build
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.evaluation.generator_quality import measures
from fcforge.evaluation.metrics import cell_values
from fcforge.experiments.site_loader import SiteLoader
from fcforge.generators.cache import LANES
from fcforge.graphs import edges, fisher_z
from fcforge.methods import Learner
from fcforge.methods.base import prediction
from fcforge.methods.finetune import Finetune
from fcforge.models import MODELS
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

# 1e4 at NYU's 120 training subjects, the untuned value of BASELINES.md.
RIDGE_PER_SUBJECT = 80.0
METRICS = {
    "acc": "accuracy",
    "pre": "precision",
    "rec": "sensitivity",
    "f1": "f1",
    "auc": "auroc",
}


@dataclass(frozen=True)
class Task:
    """One classifier to train on `train` and to test on `test`; `seed` decides its initial weights."""

    train: FCBatch
    test: FCBatch
    seed: int


def linear_scores(task: Task) -> np.ndarray:
    """Return P(patient) of the test subjects, (score + 1) / 2 of a ridge regression.

    Its features are standardised Fisher-z edges, its target is -1 for controls and 1 for patients.
    """
    x = fisher_z(edges(task.train.fc))
    query = fisher_z(edges(task.test.fc))
    score = measures.ridge_scores(x, task.train.y, query, RIDGE_PER_SUBJECT)
    return (0.5 * (score + 1.0)).cpu().numpy()


def network_scores(
    tasks: Sequence[Task],
    model: Component,
    training: Training,
    device: torch.device | str = "cpu",
) -> list[np.ndarray]:
    """Return P(patient) of every task's test subjects after training `model` on its training set.

    On a GPU several tasks of equal size are trained at once, as lanes (a lane is one training run);
    on a CPU one after another.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i, task in enumerate(tasks):
        groups[len(task.train)].append(i)
    size = LANES if torch.device(device).type == "cuda" else 1
    out: dict[int, np.ndarray] = {}
    for members in groups.values():
        for start in range(0, len(members), size):
            chunk = members[start : start + size]
            scores = _train_together([tasks[i] for i in chunk], model, training, device)
            out.update(zip(chunk, scores, strict=True))
    return [out[i] for i in range(len(tasks))]


def _train_together(
    tasks: Sequence[Task],
    model: Component,
    training: Training,
    device: torch.device | str,
) -> list[np.ndarray]:
    """Train a network for every task as lanes, and return P(patient) of each task's test subjects.

    All tasks must have the same number of training subjects.
    """
    n_rois = tasks[0].train.n_rois
    learner = Learner(Finetune(), build("model", model, MODELS, n_rois=n_rois))
    loader = SiteLoader(str(device))
    jobs = []
    for i, task in enumerate(tasks):
        view = loader.show(f"judge {i}", task.train, task.seed)
        lane = start_lane(learner, task.seed, device)
        jobs.append(Job(lane, view, task.seed, ("judge",)))
    trained_lanes = learn_site(learner, jobs, loader.bank, training)
    scores = []
    for lane, task in zip(trained_lanes, tasks, strict=True):
        with torch.no_grad():
            inputs = learner.model.prepare(task.test.fc.to(device))
            logits = learner.method.logits(learner.model, lane, inputs)
        scores.append(prediction(logits).float().cpu().numpy())
    return scores


def classify(
    tasks: Sequence[Task],
    classifier: str,
    training: Training,
    device: torch.device | str = "cpu",
) -> list[dict[str, float]]:
    """Return accuracy, precision, recall, F1 and AUROC of a classifier in every task.

    Parameters
    ----------
    tasks : sequence of Task
    classifier : str
        ``linear`` is ridge regression in closed form; any other name is a model of fcforge.
    training : Training
        Settings of the networks' training.
    device : torch.device or str

    Returns
    -------
    list of dict
        One per task, with the keys of `METRICS`.
    """
    if classifier == "linear":
        scores = [linear_scores(t) for t in tasks]
    else:
        scores = network_scores(tasks, Component(classifier), training, device)
    results = []
    for score, task in zip(scores, tasks, strict=True):
        y = task.test.y.cpu().numpy()
        numbers = {k: cell_values(score, y, name) for k, name in METRICS.items()}
        results.append({k: float(value) for k, value in numbers.items()})
    return results
