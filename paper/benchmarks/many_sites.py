"""CPU time and memory of FORGE per site after 10, 30 and 100 sites.

The memory of all sites together is bounded by `max_candidates`, so that a late site should cost
what an early one costs. One line per number of sites: mean CPU time of the last five sites (training
and end of the site, without fitting the generator), bytes of the lane's state, and candidates.

    python paper/benchmarks/many_sites.py [--max-candidates 5120] [--epochs 20]
"""

import argparse
import time
from functools import partial

import torch

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.generators import make_generator
from fcforge.methods import make_method
from fcforge.methods.base import Learner
from fcforge.models import make_model
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.replay.state import counted, rows_of
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

N_ROIS, N_SUBJECTS = 40, 60
CHECKED = (10, 30, 100)
LAST = 5


def subjects(k: int) -> FCBatch:
    """Return correlation matrices of short series; patients have a stronger first module."""
    rng = torch_rng(0, "site", k)
    y = torch.arange(N_SUBJECTS) % 2
    series = torch.randn(N_SUBJECTS, N_ROIS, 120, generator=rng)
    common = torch.randn(N_SUBJECTS, 1, 120, generator=rng)
    series[:, : N_ROIS // 4] += common * (0.3 + 0.5 * y[:, None, None])
    return FCBatch(torch.stack([torch.corrcoef(one) for one in series]), y)


def synthetic(bank: Bank, batch: FCBatch, name: str, n: int) -> torch.Tensor:
    """Put synthetic subjects of a site into the bank and return their rows."""
    generator = make_generator(Component("corr_gauss"))
    state = generator.fit(batch, torch_rng(0, name, "fit"))
    y = generator.diagnoses(state.model, batch.y, n)
    made = generator.sample(state, y, torch_rng(0, name, "sample"))
    return bank.add(PoolName("synthetic", name, 0, str(n)), made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-candidates", type=int, default=5120)
    parser.add_argument("--epochs", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"max_candidates": asked.max_candidates}
    method = make_method(Component("forge", settings))
    model = make_model(Component("linear", {"features": "log+diagonal"}), N_ROIS, 2)
    learner, bank = Learner(method, model), Bank()
    training = Training(epochs=asked.epochs)
    lane, names, times = start_lane(learner, 0), [], []
    for k in range(max(CHECKED)):
        name = f"site {k}"
        names.append(name)
        batch = subjects(k)
        rows = bank.add(PoolName("real", name, 0, "train"), batch)
        make = partial(synthetic, bank, batch, name)
        make(method.n_synthetic)  # drawn before the clock starts
        bank.inputs(model)
        view = SiteView(
            name,
            k,
            bank,
            rows,
            rows[:0],
            lambda n, name=name: bank.rows(PoolName("synthetic", name, 0, str(n))),
        )
        start = time.process_time()
        (lane,) = learn_site(
            learner, [Job(lane, view, 0, tuple(names))], bank, training
        )
        times.append(time.process_time() - start)
        if k + 1 in CHECKED:
            size = sum(v.numel() * v.element_size() for v in counted(lane.state))
            held = sum(int((r >= 0).sum()) for r in rows_of(lane.state).values())
            seconds = sum(times[-LAST:]) / LAST
            print(
                f"{k + 1:4d} sites: {seconds:.2f} s CPU per site, state {size / 1e6:.2f} MB, "
                f"{held} subjects held, {len(lane.state.memory.rows)} candidates",
                flush=True,
            )


if __name__ == "__main__":
    main()
