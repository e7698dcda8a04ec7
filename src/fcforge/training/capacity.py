"""The number of lanes (training runs) that a device has memory for at the same time."""

from dataclasses import replace

import torch

from fcforge.core.spec import Training
from fcforge.methods.base import Learner
from fcforge.replay.bank import Bank
from fcforge.training.lanes import Job
from fcforge.training.loop import begin_site, learn_lanes

SHARE = 0.7  # of the free memory; the rest is for fragmentation and library workspaces
UNBOUNDED = 1 << 30


def lanes_that_fit(learner: Learner, job: Job, bank: Bank, training: Training) -> int:
    """Return how many lanes like `job` the bank's device can train together.

    One lane is trained for one epoch, and its peak memory is taken as what every lane needs; a CUDA
    graph needs no more. On a CPU the number is not limited, because its groups are small anyway.

    Parameters
    ----------
    learner : Learner
    job : Job
        A lane at the site that it is about to learn.
    bank : Bank
    training : Training
    """
    if not learner.model.lifts:
        return 1
    if bank.device.type != "cuda" or not learner.method.fits:
        return UNBOUNDED
    job = begin_site(learner, job)
    per_lane = 1
    short = replace(training, epochs=1)
    # the first epoch also prepares the bank and the libraries' workspaces
    for _ in range(2):
        torch.cuda.synchronize(bank.device)
        torch.cuda.reset_peak_memory_stats(bank.device)
        before = torch.cuda.memory_allocated(bank.device)
        learn_lanes(learner, [job], bank, short, lambda: None, graphed=False)
        per_lane = max(1, torch.cuda.max_memory_allocated(bank.device) - before)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(bank.device)
    return max(1, int(SHARE * free / per_lane))
