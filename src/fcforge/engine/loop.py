"""The training loop, all of it: one site, many lanes.

A lane is one (method, order so far, seed). Lanes that learn the same site at the same depth are
trained together by `learn_site`; on a CPU a group holds one lane and the same code runs unlifted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcforge.engine.graphed import Graphed, products
from fcforge.engine.lift import clone, lift, stack, unstack, where_better
from fcforge.engine.optim import Adam, adam_start, adam_step
from fcforge.errors import SealedError
from fcforge.methods.base import Batch, Lane, Method, cross_entropy
from fcforge.models.base import Inputs, Model, gather
from fcforge.randomness import derive, fold, torch_rng
from fcforge.replay.bank import Bank, SiteView
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


def start_lane(learner: Learner, seed: int, device: torch.device | str = "cpu") -> Lane:
    """Lane before any site; equal for all orders of a seed."""
    params = learner.model.init(torch_rng(seed, "init", learner.model.name))
    lane = Lane(
        {k: v.to(device) for k, v in params.items()},
        {k: v.to(device) for k, v in learner.model.init_stats().items()},
        {},
    )
    return learner.method.start(learner.model, lane, torch_rng(seed, "start"))


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
    learner: Learner, training: Training, inputs: Inputs, y: Tensor, *, replaying: bool
) -> Callable[[Lane, Adam, Tensor, Tensor], tuple[Lane, Adam]]:
    """One optimiser step of one lane, as a pure function of (lane, optimiser, rows, key)."""
    method, model = learner.method, learner.model
    lr = model.lr if training.lr is None else training.lr
    optimiser = {"lr": lr, "weight_decay": training.weight_decay, "clip": training.clip}
    low = training.precision == "bfloat16"

    def step(lane: Lane, opt: Adam, rows: Tensor, key: Tensor) -> tuple[Lane, Adam]:
        batch = Batch(gather(inputs, rows), y[rows])
        replay = method.recall(lane, inputs, fold(key, 1)) if replaying else None

        def objective(params: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            with torch.autocast(y.device.type, torch.bfloat16) if low else nullcontext():
                return method.loss(model, params, lane, batch, replay, fold(key, 2))

        grads, stats = torch.func.grad(objective, has_aux=True)(lane.params)
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
    lanes = [method.begin_site(model, j.lane, j.site, j.rng("begin")) for j in jobs]
    if fit and method.fits and training.epochs > 0:
        with products(training.precision):
            lanes = learn_lanes(learner, jobs, lanes, bank, training, tick)
    ended = []
    for job, lane in zip(jobs, lanes, strict=True):
        lane = method.end_site(model, lane, job.site, job.rng("end"))
        if job.site.leaked is None:  # a measured leak keeps what it must not, on purpose
            check_kept(method, lane, bank, job.site.name)
        ended.append(lane)
    for job in jobs:
        job.site.seal.close()
    return ended


def learn_lanes(
    learner: Learner,
    jobs: Sequence[Job],
    lanes: Sequence[Lane],
    bank: Bank,
    training: Training,
    tick: Callable[[], Any] = lambda: None,
    *,
    graphed: bool = True,
) -> list[Lane]:
    """The epochs of one site for all lanes; on a GPU as a CUDA graph unless told otherwise."""
    method, model, n = learner.method, learner.model, len(jobs)
    inputs = bank.inputs(model)
    rows = stack([method.rows(lane, j.site) for lane, j in zip(lanes, jobs, strict=True)])
    size, epochs = training.batch_size, training.epochs
    plans = [minibatches(rows.shape[-1], size, epochs, j.rng("batches")) for j in jobs]
    plan = stack(plans).to(bank.device)  # ([lanes,] epochs, steps, b)
    plan = torch.gather(rows, -1, plan.flatten(-3)).reshape(plan.shape)  # places -> bank rows
    steps = plan.shape[-2]
    counter = torch.arange(epochs * (steps + 1), dtype=torch.int32, device=bank.device)
    key = stack([j.key for j in jobs]).to(bank.device)
    keys = fold(key[..., None], counter)  # ([lanes,] one per step and per epoch's begin)
    lane, opt = stack(lanes), stack([adam_start(la.params) for la in lanes])
    replaying = method.replay_size > 0 and jobs[0].site.position > 0

    step = lift(make_step(learner, training, inputs, bank.y, replaying=replaying), n)
    begin_epoch = lift(lambda la, e, k: (method.begin_epoch(model, la, inputs, e, k),), n)
    if graphed and bank.device.type == "cuda":
        step = Graphed(step, carried=2)
        if method.captures and replaying:
            begin_epoch = Graphed(begin_epoch, carried=1)
    keep_best = _monitor(learner, jobs, training, bank)

    t = 0
    for epoch in range(epochs):
        if method.wakes(epoch, epochs):
            (lane,) = begin_epoch(lane, _per_lane(counter[epoch], n), keys[..., t])
        for s in range(steps):
            t += 1
            lane, opt = step(lane, opt, plan[..., epoch, s, :], keys[..., t])
        t += 1
        keep_best(lane)
        tick()
    return unstack(keep_best(lane, last=True), n)


def _per_lane(value: Tensor, n: int) -> Tensor:
    return value if n == 1 else value.expand(n)


def _monitor(
    learner: Learner, jobs: Sequence[Job], training: Training, bank: Bank
) -> Callable[..., Lane]:
    """Keep the best epoch of each lane, or the last where nothing is chosen.

    Chosen on the validation part cut from train, or, under the `select_on_test` leak, on the
    open site's test split, which is what the authors' code does.
    """
    if jobs[0].peek is None and training.selection == "fixed":
        return lambda lane, last=False: lane
    method, model = learner.method, learner.model
    inputs = bank.inputs(model)
    if jobs[0].peek is not None:
        watched = [j.peek for j in jobs if j.peek is not None]
    else:
        watched = [(gather(inputs, j.site.val), bank.y[j.site.val]) for j in jobs]
    x, y = stack(watched)
    on_test = jobs[0].peek is not None

    def quality(lane: Lane, inputs: Inputs, y: Tensor) -> Tensor:
        logits = method.logits(model, lane, inputs)
        if on_test:
            return (logits.argmax(-1) == y).float().mean()
        return -cross_entropy(logits, y)

    score = lift(quality, len(jobs))
    best: dict[str, Any] = {}

    def keep_best(lane: Lane, last: bool = False) -> Lane:
        if last:
            return best["lane"]
        value = score(lane, x, y)
        if not best:
            best.update(lane=clone(lane), value=value)
        better = value > best["value"]
        best["lane"] = where_better(better, lane, best["lane"])
        best["value"] = torch.where(better, value, best["value"])
        return lane

    return keep_best


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
