"""Three tiny sites with a class effect, and synthetic twins in place of a generator."""

import torch

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.methods import make_method
from fcforge.methods.base import Lane, Learner
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from small_world import cast_lane, make_model

N_ROIS = 8
SITES = ("A", "B", "C")
TRAINING = Training(epochs=3, batch_size=8)
SIZES = {"memory": 12, "candidates": 10, "dev": 6, "replay": 8, "refresh": 2}
VARIANTS = {
    "stable": {},
    "paper": {"variant": "paper"},
    "authors": {"variant": "authors"},
    "uniform": {"sampling": "uniform"},
    "reservoir": {"sampling": "reservoir"},
    "authors sampler": {"sampler": "authors"},
    "taught": {"teach_current": True},
}


def subjects(n: int, site: str, kind: str, patients: float = 0.4) -> FCBatch:
    """Correlation matrices of short series; patients have a stronger first module."""
    rng = torch_rng(0, site, kind)
    y = (torch.arange(n) >= n - round(n * patients)).long()
    common = torch.randn(n, 1, 30, generator=rng) * (0.4 + 0.8 * y[:, None, None])
    series = torch.randn(n, N_ROIS, 30, generator=rng)
    series[:, : N_ROIS // 2] += common
    series = series - series.mean(-1, keepdim=True)
    series = series / series.norm(dim=-1, keepdim=True)
    return FCBatch(series @ series.transpose(1, 2), y)


def learner(model: str = "mlp", **settings) -> Learner:
    """FORGE of a size for these sites."""
    method = make_method(Component("forge", {**SIZES, **settings}))
    return Learner(method, make_model(Component(model), N_ROIS))


class World:
    """A bank with real subjects of each site, and views whose generator is `subjects`."""

    def __init__(self, n: int = 20, dtype: torch.dtype = torch.float32) -> None:
        self.bank, self.dtype = Bank(), dtype
        self.real = {
            s: self.bank.add(
                PoolName("real", s, 0, "train"), self.cast(subjects(n, s, "real"))
            )
            for s in SITES
        }

    def cast(self, batch: FCBatch) -> FCBatch:
        return FCBatch(batch.fc.to(self.dtype), batch.y)

    def start(self, learner: Learner, seed: int) -> Lane:
        return cast_lane(start_lane(learner, seed), self.dtype)

    def view(self, site: str, position: int) -> SiteView:
        def synthesise(n: int) -> torch.Tensor:
            name = PoolName("synthetic", site, 0, f"stub:{n}")
            return self.bank.add(name, self.cast(subjects(n, site, "synthetic")))

        empty = torch.empty(0, dtype=torch.int64)
        return SiteView(site, position, self.bank, self.real[site], empty, synthesise)

    def learn(self, learner: Learner, order, seed=0, training=TRAINING):
        """Lanes after each site of one order, trained alone."""
        lane = self.start(learner, seed)
        lanes = []
        for i, site in enumerate(order):
            job = Job(lane, self.view(site, i), seed, tuple(order[: i + 1]))
            (lane,) = learn_site(learner, [job], self.bank, training)
            lanes.append(lane)
        return lanes
