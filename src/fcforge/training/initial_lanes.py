"""Lanes (training runs) before their first site: untrained, or pretrained on public subjects."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch

from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.methods.base import Lane, Learner
from fcforge.methods.finetune import Finetune
from fcforge.models.base import Model
from fcforge.replay.bank import PublicView, SiteView
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

PUBLIC_SITE = "(public)"


def untrained(model: Model, seed: int, device: torch.device | str = "cpu") -> Lane:
    """Return a lane with a freshly initialised network and no state of a method."""
    params = model.init(torch_rng(seed, "init", model.name))
    return Lane(
        {k: v.to(device) for k, v in params.items()},
        {k: v.to(device) for k, v in model.init_stats().items()},
    )


def start_lane(
    learner: Learner,
    seed: int,
    device: torch.device | str = "cpu",
    public: PublicView | None = None,
    pretrained: Lane | None = None,
) -> Lane:
    """Return a lane before its first site; it is the same for all orders of a seed.

    Parameters
    ----------
    learner : Learner
    seed : int
        Seed of the run, from which the network's first parameters are drawn.
    device : torch.device or str
    public : PublicView, optional
        Public subjects that the method may learn first.
    pretrained : Lane, optional
        A network that `pretrain` has trained on them; by default the network is untrained.
    """
    model = learner.model
    lane = pretrained or untrained(model, seed, device)
    with nullcontext() if public is None else public.bank.closed():
        return learner.method.start(model, lane, public)


def pretrain(
    model: Model,
    public: PublicView,
    seeds: Sequence[int],
    training: Training,
    device: torch.device | str,
) -> list[Lane]:
    """Train one network per seed on the public subjects by fine-tuning, as if they were one site.

    All seeds train in parallel. The last epoch is kept, whatever `training` selects at the sites.

    Parameters
    ----------
    model : Model
    public : PublicView
        The public subjects; all of them are trained on.
    seeds : sequence of int
        Seeds of the runs that will start from the networks.
    training : Training
    device : torch.device or str

    Returns
    -------
    list of Lane
        One per seed.
    """
    jobs = []
    for seed in seeds:
        no_validation = public.rows[:0]
        site = SiteView(PUBLIC_SITE, 0, public.bank, public.rows, no_validation)
        lane = untrained(model, seed, device)
        jobs.append(Job(lane, site, seed, (PUBLIC_SITE,)))
    fixed = replace(training, selection="fixed")
    return learn_site(Learner(Finetune(), model), jobs, public.bank, fixed)
