"""Which epoch is kept: by hand, lane by lane."""

import torch

from fcforge.engine import Job, Learner
from fcforge.engine.lift import Keeper
from fcforge.methods import Lane
from fcforge.methods.finetune import Finetune
from fcforge.models import make_model
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.types import Component, FCBatch, Training

FC = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[1.0, -0.5], [-0.5, 1.0]]])
LEARNER = Learner(Finetune(), make_model(Component("linear"), 2))


def lane(slope: float) -> Lane:
    """Patients have a positive edge where the slope is positive."""
    weight = torch.tensor([[-slope], [slope]])
    return Lane({"head.0.weight": weight, "head.0.bias": torch.zeros(2)}, {}, {})


def keeper(selection: str, y: list[int], peek: bool = False) -> Keeper:
    bank = Bank()
    rows = bank.add(PoolName("real", "A", 0, "val"), FCBatch(FC, torch.tensor(y)))
    view = SiteView("A", 0, bank, rows, rows)
    seen = (LEARNER.model.prepare(FC), torch.tensor(y)) if peek else None
    training = Training(selection=selection)
    return Keeper(LEARNER, [Job(lane(0.0), view, 0, ("A",), seen)], training, bank)


def slopes(which: Keeper, epochs: list[float]) -> float:
    for slope in epochs:
        which.see(lane(slope))
    return float(which.kept(lane(epochs[-1])).params["head.0.weight"][1, 0])


def test_nothing_is_chosen_where_epochs_are_fixed():
    assert slopes(keeper("fixed", [1, 0]), [0.3, -0.2]) == torch.tensor(-0.2)


def test_inner_validation_goes_by_cross_entropy():
    """Labels 1, 0 want a steep positive slope; the later of two equal epochs does not win."""
    assert slopes(keeper("inner_val", [1, 0]), [0.1, 0.3, 0.2]) == torch.tensor(0.3)
    assert slopes(keeper("inner_val", [0, 1]), [0.1, 0.3, -0.2]) == torch.tensor(-0.2)


def test_the_leak_goes_by_accuracy_and_keeps_the_first_of_equals():
    assert slopes(keeper("fixed", [1, 0], peek=True), [-0.1, 0.1, 0.3]) == torch.tensor(0.1)
