"""A lane in a group is the same run alone; which epoch is kept."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.data.splits import make_sites
from fcforge.methods import Lane, Method, make_method
from fcforge.methods.base import Learner
from fcforge.methods.finetune import Finetune
from fcforge.methods.majority import Majority
from fcforge.nn.adam import Adam
from fcforge.nn.cuda_graphs import Graphed
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.best_epoch import BestEpoch, where_better
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job, shapes, stack, unstack
from fcforge.training.loop import learn_site
from fcforge.training.schedule import step_keys
from fcforge.training.step import make_step
from small_world import QUICK_MODELS, R, cast_lane, cohort, make_model, order

DOUBLE = torch.float64


def learner_of(method: str, model: str = "gcn", **settings) -> Learner:
    model_settings = {**QUICK_MODELS.get(model, {}), **settings}
    return Learner(
        make_method(Component(method)), make_model(Component(model, model_settings), R)
    )


def teach(
    learner: Learner,
    seeds: list[int],
    sites: int,
    training: Training,
    *,
    together: bool,
    dtype: torch.dtype,
) -> list[Lane]:
    """Lanes of `seeds` after the first `sites` sites, trained one by one or as one group."""
    bank = Bank()
    lanes = [cast_lane(start_lane(learner, seed), dtype) for seed in seeds]
    for position, name in enumerate(order()[:sites]):
        jobs = []
        for seed, lane in zip(seeds, lanes, strict=True):
            made = make_sites(cohort(), seed)[name]
            train, val = (
                bank.add(PoolName("real", name, seed, p), FCBatch(b.fc.to(dtype), b.y))
                for p, b in (("train", made.train), ("val", made.val))
            )
            view = SiteView(name, position, bank, train, val)
            jobs.append(Job(lane, view, seed, order()[: position + 1]))
        groups = [jobs] if together else [[job] for job in jobs]
        lanes = [
            lane for g in groups for lane in learn_site(learner, g, bank, training)
        ]
    return lanes


def assert_lanes_close(
    alone: list[Lane], together: list[Lane], tolerance: float
) -> None:
    for a, b in zip(alone, together, strict=True):
        x, y = a.named(), b.named()
        assert x.keys() == y.keys()
        for k in x:
            torch.testing.assert_close(
                y[k], x[k], rtol=tolerance, atol=tolerance, msg=k
            )


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("method", "model", "selection"),
    [
        ("finetune", "gcn", "fixed"),
        ("finetune", "mlp", "inner_val"),
        ("finetune", "gat", "inner_val"),
        ("ewc", "gcn", "fixed"),
        ("si", "linear", "fixed"),
        ("er", "sage", "fixed"),
        ("cumulative", "gcn", "fixed"),
    ],
)
def test_a_lane_in_a_group_is_the_run_alone_in_double(method, model, selection):
    learner = learner_of(method, model)
    training = Training(epochs=3, batch_size=7, selection=selection, lr=1e-2)
    alone, group = (
        teach(learner, [0, 1, 2], 2, training, together=t, dtype=DOUBLE)
        for t in (False, True)
    )
    assert_lanes_close(alone, group, 1e-9)
    weights = [lane.params[next(iter(lane.params))] for lane in alone]
    assert not torch.allclose(weights[0], weights[1])  # lanes are different runs


@pytest.mark.rounding
def test_a_lane_in_a_group_is_the_run_alone_in_single_precision():
    learner = learner_of("finetune")
    alone, group = (
        teach(
            learner,
            [0, 1],
            1,
            Training(epochs=1, batch_size=8),
            together=t,
            dtype=torch.float32,
        )
        for t in (False, True)
    )
    assert_lanes_close(alone, group, 1e-4)


@pytest.mark.rounding
def test_batch_norm_statistics_and_dropout_are_the_lanes_own():
    """High dropout and batch norm: one mask or moment of another lane would show at once."""
    learner = learner_of("finetune", dropout=0.6)
    training = Training(epochs=2, batch_size=9, lr=1e-2)
    alone, group = (
        teach(learner, [0, 3], 1, training, together=t, dtype=DOUBLE)
        for t in (False, True)
    )
    assert_lanes_close(alone, group, 1e-9)
    name = next(iter(alone[0].stats))
    assert not torch.allclose(alone[0].stats[name], alone[1].stats[name])


class Seen(NamedTuple):
    mask: torch.Tensor
    epoch: torch.Tensor


@dataclass(frozen=True)
class Witness(Method):
    """Fine-tuning that writes down the key of its last step."""

    name: ClassVar[str] = "witness"
    keeps: ClassVar[str] = "statistics"
    State: ClassVar[type] = Seen

    def start(self, model, lane, public=None):
        return lane._replace(state=Seen(torch.zeros(6), torch.tensor(-1)))

    def begin_epoch(self, model, lane, bank, key):
        from fcforge.core.randomness import keep_mask

        return lane.with_state(
            mask=keep_mask(key, (6,), 0.5), epoch=lane.state.epoch + 1
        )


def test_dropout_masks_are_equal_bit_by_bit_and_differ_between_lanes():
    learner = Learner(Witness(), learner_of("finetune").model)
    training = Training(epochs=3, batch_size=8)
    runs = [
        teach(learner, [0, 1], 1, training, together=t, dtype=torch.float32)
        for t in (False, True)
    ]
    for a, b in zip(*runs, strict=True):
        assert torch.equal(a.state.mask, b.state.mask)
        assert a.state.epoch == b.state.epoch == 2
    assert not torch.equal(runs[0][0].state.mask, runs[0][1].state.mask)


def test_training_does_not_touch_the_lane_it_began_with():
    learner, bank = learner_of("finetune"), Bank()
    made = make_sites(cohort(), 0)[order()[0]]
    rows = bank.add(PoolName("real", order()[0], 0, "train"), made.train)
    lane = start_lane(learner, 0)
    before = {k: v.clone() for k, v in lane.params.items()}
    view = SiteView(order()[0], 0, bank, rows, rows[:0])
    (after,) = learn_site(
        learner,
        [Job(lane, view, 0, order()[:1])],
        bank,
        Training(epochs=1, batch_size=8),
    )
    for k, v in before.items():
        assert torch.equal(lane.params[k], v)
    assert any(not torch.equal(after.params[k], v) for k, v in before.items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_graphed_step_is_the_step():
    learner, bank = learner_of("finetune"), Bank("cuda")
    made = make_sites(cohort(), 0)[order()[0]]
    rows = bank.add(PoolName("real", order()[0], 0, "train"), made.train)
    training = Training(batch_size=8)
    step = make_step(
        learner, training, bank.inputs(learner.model), bank.y, replaying=False
    )
    lane = start_lane(learner, 0, "cuda")
    plain = graphed = (lane, Adam.start(lane.params))
    replay = Graphed(step, carried=2)
    for i in range(4):
        keys = step_keys(torch.tensor(i, dtype=torch.int32, device="cuda"))
        plain = step(*plain, rows[i : i + 8], keys)
        graphed = replay(*graphed, rows[i : i + 8], keys)
    for k, v in plain[0].params.items():
        torch.testing.assert_close(graphed[0].params[k], v, rtol=1e-5, atol=1e-6)


def test_stack_and_unstack_are_inverse():
    lanes = [
        Lane({"w": torch.randn(2, 3)}, {}, Majority.State(torch.tensor(i)))
        for i in range(3)
    ]
    together = stack(lanes)
    assert together.params["w"].shape == (3, 2, 3)
    for a, b in zip(unstack(together, 3), lanes, strict=True):
        assert torch.equal(a.params["w"], b.params["w"])
        assert torch.equal(a.state.counts, b.state.counts)
    assert stack(lanes[:1]) is lanes[0]


def test_shapes_tell_lanes_apart_that_cannot_be_stacked():
    lane = Lane({"w": torch.zeros(2)}, {})
    assert shapes(lane) == shapes(Lane({"w": torch.ones(2)}, {}))
    for other in (
        Lane({"w": torch.zeros(3)}, {}),
        Lane({"w": torch.zeros(2, dtype=torch.float64)}, {}),
        Lane({"w": torch.zeros(2)}, {}, Majority.State(torch.zeros(1))),
        Lane({"v": torch.zeros(2)}, {}),
    ):
        assert shapes(lane) != shapes(other)


@pytest.mark.parametrize("n", [1, 3])
def test_where_better_picks_per_lane(n):
    new = {"w": torch.ones(n, 2, 2) if n > 1 else torch.ones(2, 2)}
    old = {"w": torch.zeros_like(new["w"])}
    better = torch.tensor([True, False, True]) if n > 1 else torch.tensor(True)
    picked = where_better(better, new, old)["w"]
    means = picked.reshape(n, -1).mean(1)
    assert means.tolist() == ([1.0, 0.0, 1.0] if n > 1 else [1.0])


FC = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[1.0, -0.5], [-0.5, 1.0]]])
LEARNER = Learner(Finetune(), make_model(Component("linear"), 2))


def lane(slope: float) -> Lane:
    """Patients have a positive edge where the slope is positive."""
    weight = torch.tensor([[-slope], [slope]])
    return Lane({"head.0.weight": weight, "head.0.bias": torch.zeros(2)}, {})


def keeper(selection: str, y: list[int], peek: bool = False) -> BestEpoch:
    bank = Bank()
    rows = bank.add(PoolName("real", "A", 0, "val"), FCBatch(FC, torch.tensor(y)))
    view = SiteView("A", 0, bank, rows, rows)
    seen = (LEARNER.model.prepare(FC), torch.tensor(y)) if peek else None
    training = Training(selection=selection)
    return BestEpoch(LEARNER, [Job(lane(0.0), view, 0, ("A",), seen)], training, bank)


def slopes(which: BestEpoch, epochs: list[float]) -> float:
    for slope in epochs:
        which.update(lane(slope))
    return float(which.lanes(lane(epochs[-1])).params["head.0.weight"][1, 0])


def test_nothing_is_chosen_where_epochs_are_fixed():
    assert slopes(keeper("fixed", [1, 0]), [0.3, -0.2]) == torch.tensor(-0.2)


def test_inner_validation_goes_by_cross_entropy():
    """Labels 1, 0 want a steep positive slope; the later of two equal epochs does not win."""
    assert slopes(keeper("inner_val", [1, 0]), [0.1, 0.3, 0.2]) == torch.tensor(0.3)
    assert slopes(keeper("inner_val", [0, 1]), [0.1, 0.3, -0.2]) == torch.tensor(-0.2)


def test_the_leak_goes_by_accuracy_and_keeps_the_first_of_equals():
    assert slopes(keeper("fixed", [1, 0], peek=True), [-0.1, 0.1, 0.3]) == torch.tensor(
        0.1
    )
