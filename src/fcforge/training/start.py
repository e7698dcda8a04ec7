"""Lanes before their first site: untrained, or pretrained on public subjects."""

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
    """Return a freshly initialised network without a method's state."""
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
    """Return the lane before any site; it is the same for all orders of a seed.

    Parameters
    ----------
    learner : Learner
    seed : int
    device : torch.device or str
    public : PublicView, optional
        Public subjects that the method learns first.
    pretrained : Lane, optional
        A network trained on them (`pretrain`); without one it is untrained.
    """
    model = learner.model
    lane = pretrained or untrained(model, seed, device)
    return learner.method.start(model, lane, public)


def pretrain(
    model: Model,
    public: PublicView,
    seed: int,
    training: Training,
    device: torch.device | str,
) -> Lane:
    """Train a network on the public subjects by fine-tuning, as if they were one site.

    The last epoch is kept, whatever `training` selects at the sites.
    """
    site = SiteView(PUBLIC_SITE, 0, public.bank, public.rows, public.rows[:0])
    job = Job(untrained(model, seed, device), site, seed, (PUBLIC_SITE,))
    fixed = replace(training, selection="fixed")
    (lane,) = learn_site(Learner(Finetune(), model), [job], public.bank, fixed)
    return lane
