# ruff: noqa: E402
"""EWC and ER of Avalanche on the dense GCN, for `bench.py`: run in an environment that has Avalanche.

    PYTHON paper/benchmarks/avalanche_peer.py '{"device": "cpu", "seconds": 3, "rois": [116]}' OUT.json

Two experiences of 120 subjects, batches of 30, and 32 remembered subjects for ER. The network is the
one that `lanes.py` calls the plain dense loop, Adam as everywhere here; Avalanche does not clip. The
time of the second experience's epochs is taken from its callbacks, without Fisher information and
evaluation.
"""

import json
import statistics
import sys
from importlib.metadata import version
from pathlib import Path

import torch

# Avalanche imports torchvision and uses none of its compiled operators here. Where these are for
# another build of torch, its import wants two of them declared.
VISION = torch.library.Library("torchvision", "FRAGMENT")
if torch.__version__.endswith("+cpu") and not version("torchvision").endswith("+cpu"):
    for operator in ("nms", "qnms"):
        VISION.define(f"{operator}(Tensor boxes, Tensor scores, float iou) -> Tensor")

from avalanche import __version__
from avalanche.benchmarks import tensors_benchmark
from avalanche.core import SupervisedPlugin
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, EWCPlugin, ReplayPlugin
from lanes import BATCH, MEMORY, WIDTH, DenseConv, fake_people
from setting import Net, own_seconds
from torch import Tensor, nn

from fcforge.graphs import adjacency, gcn_norm

EPOCHS = 60


class Stop(Exception):
    """Raised once enough epochs were timed."""


class DenseGCN(nn.Module):
    """The paper's GCN of a tensor (n, 2, R, R): FC and propagation matrix of every subject."""

    def __init__(self, rois: int) -> None:
        super().__init__()
        self.rois, self.net = rois, Net(DenseConv, rois)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""

        def pool(nodes: Tensor) -> Tensor:
            nodes = nodes.reshape(-1, self.rois, WIDTH)
            return torch.cat([nodes.mean(1), nodes.amax(1)], 1)

        return self.net(x[:, 0].flatten(0, 1), (x[:, 1],), pool)[0]


class Timer(SupervisedPlugin):
    """Seconds per step in every epoch of the second experience."""

    def __init__(self, device: str, seconds: float) -> None:
        super().__init__()
        self.device, self.left, self.took = device, seconds, []

    def before_training_epoch(self, strategy, **kwargs) -> None:
        self.begun = own_seconds(self.device)

    def after_training_epoch(self, strategy, **kwargs) -> None:
        if strategy.clock.train_exp_counter == 1:
            spent = own_seconds(self.device) - self.begun
            self.took.append(spent / strategy.clock.train_epoch_iterations)
            self.left -= spent
            if len(self.took) > 3 and self.left < 0:
                raise Stop


def experience(seed: int, rois: int) -> tuple[Tensor, Tensor]:
    """FC and propagation matrices (120, 2, R, R) of made-up subjects, and labels."""
    people = fake_people(4 * BATCH, rois, seed=seed)
    return torch.stack([people.fc, gcn_norm(adjacency(people.fc, 0.4))], 1), people.y


def rate(plugin: SupervisedPlugin, device: str, seconds: float, rois: int) -> float:
    """Steps per second at the second experience."""
    data = [experience(seed, rois) for seed in (0, 1)]
    benchmark = tensors_benchmark(
        train_tensors=data, test_tensors=data, task_labels=[0, 0]
    )
    model, timer = DenseGCN(rois).to(device), Timer(device, seconds)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=2e-4),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        device=device,
        plugins=[plugin, timer],
        evaluator=EvaluationPlugin(loggers=[]),
    )
    try:
        for i, one in enumerate(benchmark.train_stream):
            strategy.train_epochs = EPOCHS if i else 1
            strategy.train(one, num_workers=0)
    except Stop:
        pass
    return 1 / statistics.median(timer.took[1:])


def main() -> None:
    asked, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    given = (asked["device"], asked["seconds"], asked["rois"][0])

    er = ReplayPlugin(mem_size=MEMORY, batch_size=BATCH, batch_size_mem=32)
    ewc = EWCPlugin(ewc_lambda=1.0, mode="separate")
    results = {"ewc": rate(ewc, *given), "er": rate(er, *given)}
    out.write_text(json.dumps({"version": __version__, **results}))


if __name__ == "__main__":
    main()
