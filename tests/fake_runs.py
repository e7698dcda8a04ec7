"""Made-up RunResults: learners of known skill and known forgetting, for metrics and reports."""

from itertools import permutations

import numpy as np

from fcforge.core.component import Component
from fcforge.core.leaks import Leaks
from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult
from fcforge.core.spec import LearnerSpec, RunSpec, Training

SITES = ("NYU", "UM", "USM", "UCLA")


def run(
    scores,
    labels,
    *,
    order=None,
    seed=0,
    initial=None,
    learner=None,
    leaks=None,
    train_mean=None,
    subject_ids=None,
    memory_bytes=0,
    seconds=1.0,
):
    """One RunResult from a dict site -> (n_stages, n_test)."""
    sites = tuple(scores)
    order = tuple(order or sites)
    labels = {s: np.asarray(labels[s], dtype=np.int64) for s in sites}
    return RunResult(
        spec=RunSpec(
            dataset=Component("simulated", {"preset": "hard"}),
            learner=learner or LearnerSpec(Component("finetune"), Component("gcn")),
            order=order,
            seed=seed,
            training=Training(epochs=60),
            leaks=leaks or Leaks(),
        ),
        sites=sites,
        scores={s: np.asarray(scores[s], dtype=np.float32) for s in sites},
        initial=initial or {s: np.full(len(labels[s]), 0.5, np.float32) for s in sites},
        y=labels,
        subject_ids=subject_ids
        or {s: tuple(f"{s}-{k}" for k in range(len(labels[s]))) for s in sites},
        train_mean=train_mean or {s: float(labels[s].mean()) for s in sites},
        memory_bytes=np.full(len(order), memory_bytes),
        seconds=np.full(len(order), seconds),
        environment={"python": "3.11", "fcforge": "0.1.0", "machine": "test"},
    )


def fake_learner(
    title,
    *,
    skill=1.0,
    forgets=0.0,
    sites=SITES,
    n_pool=120,
    n_test=36,
    seeds=(0, 1, 2),
    orders=None,
    method="finetune",
    model="gcn",
    leaks=None,
    memory_bytes=0,
    constant=False,
):
    """Runs of one learner; `skill` is its d', `forgets` what each later site takes from it."""
    learner = LearnerSpec(Component(method), Component(model), title=title)
    results = []
    for seed in seeds:
        ids, labels, luck = {}, {}, {}
        for s in sites:
            pick = numpy_rng(seed, "split", s).choice(n_pool, n_test, replace=False)
            ids[s] = tuple(f"{s}-{k}" for k in pick)
            labels[s] = (pick % 5 < 2).astype(int)
            luck[s] = np.array([numpy_rng(0, "luck", s, i).normal() for i in ids[s]])
        for order in orders or permutations(sites):
            scores, rng = {}, numpy_rng(seed, title, *order)
            for s in sites:
                at = order.index(s)
                drop = [
                    max(skill - forgets * (t - at), 0) if t >= at else skill / 3
                    for t in range(len(order))
                ]
                mean = np.array(drop)[:, None] * (2 * labels[s] - 1)
                z = mean + luck[s] + 0.6 * rng.normal(size=mean.shape)
                scores[s] = np.full(z.shape, 0.2) if constant else 1 / (1 + np.exp(-z))
            results.append(
                run(
                    scores,
                    labels,
                    order=order,
                    seed=seed,
                    learner=learner,
                    leaks=leaks,
                    subject_ids=ids,
                    memory_bytes=memory_bytes,
                    train_mean=dict.fromkeys(sites, 0.4),
                )
            )
    return results


KEEPS = {
    "finetune/gcn": "nothing",
    "cumulative/gcn": "real subjects",
    "ewc/gcn": "statistics",
    "FORGE/gcn": "synthetic subjects",
    "analytic ridge": "statistics",
    "stuck/gcn": "nothing",
}


def fake_experiment(**kwargs):
    """Six learners, one of them a constant predictor."""
    return [
        *fake_learner("finetune/gcn", skill=1.0, forgets=0.35, **kwargs),
        *fake_learner(
            "cumulative/gcn",
            skill=1.1,
            method="cumulative",
            memory_bytes=18_800_000,
            **kwargs,
        ),
        *fake_learner(
            "ewc/gcn",
            skill=0.9,
            forgets=0.22,
            method="ewc",
            memory_bytes=420_000,
            **kwargs,
        ),
        *fake_learner(
            "FORGE/gcn",
            skill=1.0,
            forgets=0.1,
            method="forge",
            memory_bytes=6_900_000,
            **kwargs,
        ),
        *fake_learner(
            "analytic ridge",
            skill=1.4,
            method="analytic",
            model="linear",
            memory_bytes=178_000,
            **kwargs,
        ),
        *fake_learner(
            "stuck/gcn", method="si", constant=True, memory_bytes=210_000, **kwargs
        ),
    ]


def two_site_run(order):
    scores = {
        "A": [[0.9, 0.1, 0.8, 0.2], [0.9, 0.9, 0.8, 0.2]],
        "B": [[0.4, 0.6], [0.9, 0.1]],
    }
    labels = {"A": [1, 0, 1, 0], "B": [1, 0]}
    initial = {"A": np.full(4, 0.6), "B": np.full(2, 0.6)}
    return run(
        scores, labels, order=order, initial=initial, train_mean={"A": 0.7, "B": 0.4}
    )
