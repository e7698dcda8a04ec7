"""How many lanes a card holds: one lane is tried, the rest is arithmetic."""

from dataclasses import replace

import torch

from fcforge.engine.loop import Job, Learner, learn_lanes
from fcforge.replay.bank import Bank
from fcforge.types import Training

SHARE = 0.7  # of the free memory; the rest is for fragments and the libraries' own workspaces
UNBOUNDED = 1 << 30


def lanes_that_fit(learner: Learner, job: Job, bank: Bank, training: Training) -> int:
    """Lanes like `job` that the bank's device can train together, from one epoch of one lane.

    Peak memory of that epoch is what a lane needs; a CUDA graph holds no more. A CPU has no limit
    here: its groups are small anyway.
    """
    if bank.device.type != "cuda" or not learner.method.fits:
        return UNBOUNDED
    begun = learner.method.begin_site(learner.model, job.lane, job.site, job.rng("begin"))
    job = job._replace(lane=begun)
    each = 1
    for _ in range(2):  # the first epoch also prepares the bank and the libraries' workspaces
        torch.cuda.synchronize(bank.device)
        torch.cuda.reset_peak_memory_stats(bank.device)
        before = torch.cuda.memory_allocated(bank.device)
        learn_lanes(learner, [job], bank, replace(training, epochs=1), graphed=False)
        each = max(1, torch.cuda.max_memory_allocated(bank.device) - before)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(bank.device)
    return max(1, int(SHARE * _allowed(bank.device, free) / each))


def _allowed(device: torch.device, free: int) -> float:
    """Free memory within what this process may use of the card."""
    total = torch.cuda.get_device_properties(device).total_memory
    number = torch.cuda.current_device() if device.index is None else device.index
    share = torch.cuda.get_per_process_memory_fraction(number)
    return max(0.0, min(free, share * total - torch.cuda.memory_reserved(device)))
