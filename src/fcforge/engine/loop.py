"""The training loop, all of it: one site, many lanes.

A lane is one (method, order so far, seed). Lanes that learn the same site at the same depth are
trained together by `learn_site`; on a CPU a group holds one lane and the same code runs unlifted.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcforge.engine.lift import gradient, lift, lifted_gradient, stack, unstack
from fcforge.engine.optim import Adam, adam_restart, adam_start, adam_step
from fcforge.engine.selection import Keeper
from fcforge.errors import SealedError
from fcforge.methods.base import Batch, Lane, Method
from fcforge.methods.finetune import Finetune
from fcforge.models.base import Inputs, Model, gather
from fcforge.randomness import derive, fold, torch_rng
from fcforge.replay.bank import Bank, PublicView, SiteView
from fcforge.speed import Graphed, products
from fcforge.types import Training


@dataclass(frozen=True)
class Learner:
    """A method and the model it teaches."""

    method: Method
    model: Model


class Job(NamedTuple):
    """One lane about to learn one site.

    Attributes
    ----------
    lane : Lane
    site : SiteView
    seed : int
    prefix : tuple of str
        Sites so far, this one last. Randomness depends on (seed, prefix) alone.
    peek : (inputs, labels) or None
        The open site's test split, only ever given under the `select_on_test` leak.
    """

    lane: Lane
    site: SiteView
    seed: int
    prefix: tuple[str, ...]
    peek: tuple[Inputs, Tensor] | None = None

    def rng(self, purpose: str) -> torch.Generator:
        """Generator for work done once."""
        return torch_rng(self.seed, *self.prefix, purpose)

    @property
    def key(self) -> Tensor:
        """Counter key for work done inside the lifted step."""
        return torch.tensor(
            derive(self.seed, *self.prefix, "steps") & 0x7FFFFFFF, dtype=torch.int32
        )


def untrained(model: Model, seed: int, device: torch.device | str = "cpu") -> Lane:
    """A network as it is initialised, without a method's state."""
    params = model.init(torch_rng(seed, "init", model.name))
    return Lane(
        {k: v.to(device) for k, v in params.items()},
        {k: v.to(device) for k, v in model.init_stats().items()},
        {},
    )


def start_lane(
    learner: Learner,
    seed: int,
    device: torch.device | str = "cpu",
    public: PublicView | None = None,
    pretrained: Lane | None = None,
) -> Lane:
    """Lane before any site; equal for all orders of a seed.

    With `public` people a method begins from them; a network is `pretrained` on them.
    """
    model, method = learner.model, learner.method
    lane = method.start(
        model, pretrained or untrained(model, seed, device), torch_rng(seed, "start")
    )
    if public is None:
        return lane
    return method.learn_public(model, lane, public)


def pretrain(
    model: Model,
    public: PublicView,
    seeds: Sequence[int],
    training: Training,
    device: torch.device | str,
) -> list[Lane]:
    """One network per seed trained on the public people as if they were one site.

    By plain fine-tuning; the seeds are lanes of one training.
    """
    jobs = []
    for seed in seeds:
        site = SiteView("(public)", 0, public.bank, public.rows, public.rows[:0])
        jobs.append(Job(untrained(model, seed, device), site, seed, ("(public)",)))
    fixed = replace(training, selection="fixed")  # nothing is chosen on public people here
    return learn_site(Learner(Finetune(), model), jobs, public.bank, fixed)


def minibatches(n: int, batch_size: int, epochs: int, rng: torch.Generator) -> Tensor:
    """Places (epochs, steps, b) into n training rows: a fresh permutation each epoch.

    All batches have one size: b = ceil(n / ceil(n / batch_size)); the last one wraps around to
    the start of the permutation, so every subject is used at least once per epoch and shapes
    never change.
    """
    steps = -(-n // batch_size)
    b = -(-n // steps)
    order = torch.argsort(torch.rand(epochs, n, generator=rng), dim=1)
    return torch.cat([order, order[:, : steps * b - n]], dim=1).reshape(epochs, steps, b)


def make_step(
    learner: Learner,
    training: Training,
    inputs: Inputs,
    y: Tensor,
    *,
    replaying: bool,
    alone: bool = False,
) -> Callable[[Lane, Adam, Tensor, Tensor], tuple[Lane, Adam]]:
    """One optimiser step of one lane, as a pure function of (lane, optimiser, rows, key).

    A step that runs `alone` is never lifted.
    """
    method, model = learner.method, learner.model
    lr = model.lr if training.lr is None else training.lr
    optimiser = {"lr": lr, "weight_decay": training.weight_decay, "clip": training.clip}
    low = training.precision == "bfloat16"

    def step(lane: Lane, opt: Adam, rows: Tensor, key: Tensor) -> tuple[Lane, Adam]:
        replay = method.recall(lane, inputs, fold(key, 1)) if replaying else None
        batch = Batch(gather(inputs, rows), y[rows], replay)

        def objective(params: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            with torch.autocast(y.device.type, torch.bfloat16) if low else nullcontext():
                return method.loss(model, params, lane, batch, fold(key, 2))

        grads, stats = (gradient if alone else lifted_gradient)(objective, lane.params)
        masked = method.after_grad(grads, lane)
        params, opt = adam_step(lane.params, masked, opt, **optimiser)
        moved = lane._replace(params=params, stats=stats)
        return method.after_step(lane.params, moved, grads), opt

    return step


def learn_site(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    *,
    fit: bool = True,
    tick: Callable[[], Any] = lambda: None,
) -> list[Lane]:
    """Teach one site to every lane of `jobs` and seal the site.

    Parameters
    ----------
    learner : Learner
    jobs : sequence of Job
        Lanes whose states agree in shape; `fcforge.runner` groups them.
    bank : Bank
    training : Training
    fit : bool
        False only shows the site to the method (`joint` waits for the last one).
    tick : callable
        Called after every epoch.
    """
    method, model = learner.method, learner.model
    begun = [method.begin_site(model, j.lane, j.site, j.rng("begin")) for j in jobs]
    jobs = [j._replace(lane=lane) for j, lane in zip(jobs, begun, strict=True)]
    lanes = begun
    if fit and method.fits and training.epochs > 0:
        with products(training.precision):
            lanes = learn_lanes(learner, jobs, bank, training, tick)
    ended = []
    for job, lane in zip(jobs, lanes, strict=True):
        lane = method.end_site(model, lane, job.site, job.rng("end"))
        if job.site.leaked is None:  # a measured leak keeps what it must not, on purpose
            check_kept(method, lane, bank, job.site.name)
        ended.append(lane)
    for job in jobs:
        job.site.seal()
    return ended


def learn_lanes(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    tick: Callable[[], Any] = lambda: None,
    *,
    graphed: bool = True,
) -> list[Lane]:
    """The epochs of one site for all jobs; on a GPU as a CUDA graph unless told otherwise."""
    method, n, epochs = learner.method, len(jobs), training.epochs
    plan = _batches(method, jobs, training, bank)
    counter = torch.arange(epochs * (plan.shape[-2] + 1), dtype=torch.int32, device=bank.device)
    # ([lanes,] one per step and per epoch's begin)
    keys = fold(stack([j.key for j in jobs]).to(bank.device)[..., None], counter)
    lane, opt = stack([j.lane for j in jobs]), stack([adam_start(j.lane.params) for j in jobs])
    begin_epoch, step = _lifted(learner, training, bank, jobs, graphed)
    keeper, t = Keeper(learner, jobs, training, bank), 0
    for epoch in range(epochs):
        if method.wakes(epoch, epochs):
            (lane,) = begin_epoch(lane, keys[..., t])
        factor = method.restart(epoch, epochs)
        opt = opt if factor is None else adam_restart(opt, factor)
        for s in range(plan.shape[-2]):
            t += 1
            lane, opt = step(lane, opt, plan[..., epoch, s, :], keys[..., t])
        t += 1
        keeper.see(lane)
        tick()
    return unstack(keeper.kept(lane), n)


def _batches(method: Method, jobs: Sequence[Job], training: Training, bank: Bank) -> Tensor:
    """Bank rows ([lanes,] epochs, steps, b) of every step."""
    rows = stack([method.rows(j.lane, j.site) for j in jobs])
    size, epochs = training.batch_size, training.epochs
    plans = [minibatches(rows.shape[-1], size, epochs, j.rng("batches")) for j in jobs]
    plan = stack(plans).to(bank.device)
    return torch.gather(rows, -1, plan.flatten(-3)).reshape(plan.shape)  # places -> bank rows


def _lifted(
    learner: Learner, training: Training, bank: Bank, jobs: Sequence[Job], graphed: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`begin_epoch` and the step of all lanes, as CUDA graphs where that pays."""
    method, inputs, n = learner.method, bank.inputs(learner.model), len(jobs)
    replaying = method.replay_size > 0 and jobs[0].site.position > 0
    captured = graphed and bank.device.type == "cuda"
    begin = lift(lambda la, k: (method.begin_epoch(learner.model, la, inputs, k),), n)
    alone = n == 1 and not captured
    one = make_step(learner, training, inputs, bank.y, replaying=replaying, alone=alone)
    step = lift(one, n)
    if captured and method.captures and replaying:
        begin = Graphed(begin, carried=1)
    return begin, Graphed(step, carried=2) if captured else step


def check_kept(method: Method, lane: Lane, bank: Bank, site: str) -> None:
    """Raise when a method holds real subjects although it says that it keeps none."""
    if method.keeps == "real subjects":
        return
    for key in method.row_keys:
        held = bank.real_rows(lane.state[key]) if key in lane.state else ()
        if len(held):
            raise SealedError(
                f"method '{method.name}' says it keeps {method.keeps} but holds {len(held)} "
                f"real subjects in '{key}'.",
                where=f"site '{site}'",
                do="Declare keeps = 'real subjects' or drop them in end_site.",
            )
