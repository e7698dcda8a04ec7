"""The training loop, all of it: one site, many lanes.

A lane is one (method, order so far, seed). Lanes that learn the same site at the same depth are
trained together by `learn_site`; on a CPU a group holds one lane and the same code runs unlifted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fcforge.core.errors import SealedError
from fcforge.core.randomness import fold, torch_rng
from fcforge.core.spec import Training
from fcforge.methods.base import Batch, Lane, Learner, Method
from fcforge.methods.finetune import Finetune
from fcforge.models.base import Model
from fcforge.nn.adam import Adam
from fcforge.nn.cuda_graphs import Graphed
from fcforge.nn.tensors import Inputs
from fcforge.replay.bank import Bank, PublicView, SiteView, gather
from fcforge.training.lanes import Job, Keeper, gradient, lift, stack, unstack

Tick = Callable[[], Any]


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
    model = learner.model
    method = learner.method
    lane = method.start(model, pretrained or untrained(model, seed, device))
    if public is None:
        return lane
    return method.learn_public(model, lane, public)


def pretrain(
    model: Model,
    public: PublicView,
    seed: int,
    training: Training,
    device: torch.device | str,
) -> Lane:
    """A network trained on the public people as if they were one site, by plain fine-tuning."""
    site = SiteView("(public)", 0, public.bank, public.rows, public.rows[:0])
    job = Job(untrained(model, seed, device), site, seed, ("(public)",))
    # nothing is chosen on public people here
    fixed = replace(training, selection="fixed")
    (lane,) = learn_site(Learner(Finetune(), model), [job], public.bank, fixed)
    return lane


def minibatches(n: int, batch_size: int, epochs: int, rng: torch.Generator) -> Tensor:
    """Places (epochs, steps, b) into n training rows: a fresh permutation each epoch.

    All batches have one size: b = ceil(n / ceil(n / batch_size)); the last one wraps around to
    the start of the permutation, so every subject is used at least once per epoch and shapes
    never change.
    """
    steps = -(-n // batch_size)
    b = -(-n // steps)
    order = torch.argsort(torch.rand(epochs, n, generator=rng), dim=1)
    return torch.cat([order, order[:, : steps * b - n]], dim=1).reshape(
        epochs, steps, b
    )


def make_step(
    learner: Learner,
    training: Training,
    inputs: Inputs,
    y: Tensor,
    *,
    replaying: bool,
    alone: bool = False,
) -> Callable[[Lane, Adam, Tensor, Tensor], tuple[Lane, Adam]]:
    """One optimiser step of one lane, as a pure function of (lane, optimiser, rows, keys).

    Its keys (2,) are those of what is recalled and of the loss (`step_keys`). A step that runs
    `alone` is never lifted.
    """
    method = learner.method
    model = learner.model
    lr = model.lr if training.lr is None else training.lr
    optimiser = {"lr": lr, "weight_decay": training.weight_decay, "clip": training.clip}

    def step(lane: Lane, opt: Adam, rows: Tensor, keys: Tensor) -> tuple[Lane, Adam]:
        recalled, lost = keys.unbind(-1)
        replay = method.recall(lane, inputs, recalled) if replaying else None
        batch = Batch(gather(inputs, rows), y[rows], replay)

        def objective(params: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return method.loss(model, params, lane, batch, lost)

        grads, stats = gradient(objective, lane.params, alone)
        masked = method.after_grad(grads, lane)
        params, opt = opt.step(lane.params, masked, **optimiser)
        moved = lane._replace(params=params, stats=stats)
        return method.after_step(lane.params, moved, grads), opt

    return step


def step_keys(key: Tensor) -> Tensor:
    """Both keys (..., 2) of steps with the keys (...): folded once for a whole site."""
    return torch.stack([fold(key, 1), fold(key, 2)], -1)


def learn_site(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    *,
    fit: bool = True,
    tick: Tick = lambda: None,
) -> list[Lane]:
    """Teach one site to every lane of `jobs` and seal the site.

    Parameters
    ----------
    learner : Learner
    jobs : sequence of Job
        Lanes whose states agree in shape; `fcforge.experiments` groups them.
    bank : Bank
    training : Training
    fit : bool
        False only shows the site to the method, which is to learn it with a later one.
    tick : callable
        Called after every epoch.
    """
    jobs = [begin(learner, job, fit) for job in jobs]
    lanes = [job.lane for job in jobs]
    if fit and learner.method.fits and training.epochs > 0:
        with products(training.precision):
            lanes = learn_lanes(learner, jobs, bank, training, tick, graphed=True)
    ended = [end(learner, job, lane) for job, lane in zip(jobs, lanes, strict=True)]
    for job in jobs:
        job.site.seal()
    return ended


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Let float32 matrix products on CUDA round their factors to TF32, or not; then as before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def begin(learner: Learner, job: Job, wanted: bool = True) -> Job:
    """The job after the method's first look at its site."""
    job.site.wanted = wanted
    lane = learner.method.begin_site(learner.model, job.lane, job.site)
    return job._replace(lane=lane)


def end(learner: Learner, job: Job, lane: Lane) -> Lane:
    """The lane after the method's last look at its site; it may keep what it says it keeps."""
    site = job.site
    site.rng = job.rng("end")
    ended = learner.method.end_site(learner.model, lane, site)
    if site.leaked is None:  # a measured leak keeps what it must not, on purpose
        check_kept(learner.method, ended, site.bank, site.name)
    return ended


def learn_lanes(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    tick: Tick,
    graphed: bool,
) -> list[Lane]:
    """The epochs of one site for all jobs; on a GPU as a CUDA graph unless told otherwise."""
    method = learner.method
    epochs = training.epochs
    plan = _batches(method, jobs, training, bank)
    lane = stack([j.lane for j in jobs])
    opt = stack([Adam.start(j.lane.params) for j in jobs])
    begin_epoch, step = _lifted(learner, training, bank, jobs, graphed)
    keeper = Keeper(learner, jobs, training, bank)
    for epoch, (first, steps) in enumerate(_keys(jobs, plan)):
        if method.updates_at(epoch, epochs):
            (lane,) = begin_epoch(lane, first)
        factor = method.restart(epoch, epochs)
        opt = opt if factor is None else opt.restart(factor)
        for s, keys in enumerate(steps):
            lane, opt = step(lane, opt, plan[..., epoch, s, :], keys)
        keeper.see(lane)
        tick()
    return unstack(keeper.kept(lane), len(jobs))


def _keys(
    jobs: Sequence[Job], plan: Tensor
) -> Iterator[tuple[Tensor, Sequence[Tensor]]]:
    """Key ([lanes]) of every epoch's begin, and keys ([lanes,] 2) of its steps."""
    *_, epochs, steps, _ = plan.shape
    counter = torch.arange(epochs * (steps + 1), dtype=torch.int32, device=plan.device)
    own = stack([j.key for j in jobs]).to(plan.device)
    by_epoch = fold(own[..., None], counter).unflatten(-1, (epochs, steps + 1))
    begins = by_epoch[..., 0].unbind(-1)
    of_steps = step_keys(by_epoch[..., 1:]).unbind(-3)
    for first, keys in zip(begins, of_steps, strict=True):
        yield first, keys.unbind(-2)


def _batches(
    method: Method, jobs: Sequence[Job], training: Training, bank: Bank
) -> Tensor:
    """Bank rows ([lanes,] epochs, steps, b) of every step."""
    rows = stack([method.rows(j.lane, j.site) for j in jobs])
    size = training.batch_size
    epochs = training.epochs
    plans = []
    for job in jobs:
        rng = job.rng("batches")
        plans.append(minibatches(rows.shape[-1], size, epochs, rng))
    plan = stack(plans).to(bank.device)
    return torch.gather(rows, -1, plan.flatten(-3)).reshape(
        plan.shape
    )  # places -> bank rows


def _lifted(
    learner: Learner, training: Training, bank: Bank, jobs: Sequence[Job], graphed: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`begin_epoch` and the step of all lanes, as CUDA graphs where that pays."""
    method = learner.method
    inputs = bank.inputs(learner.model)
    n = len(jobs)
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


# -- how many lanes a card holds: one lane is tried, the rest is arithmetic ------------------------
SHARE = 0.7  # of the free memory; the rest is for fragments and the libraries' own workspaces
UNBOUNDED = 1 << 30


def lanes_that_fit(learner: Learner, job: Job, bank: Bank, training: Training) -> int:
    """Lanes like `job` that the bank's device can train together, from one epoch of one lane.

    Peak memory of that epoch is what a lane needs; a CUDA graph holds no more. A CPU has no limit
    here: its groups are small anyway.
    """
    if bank.device.type != "cuda" or not learner.method.fits:
        return UNBOUNDED
    job = begin(learner, job)
    each = 1
    short = replace(training, epochs=1)
    # the first epoch also prepares the bank and the libraries' workspaces
    for _ in range(2):
        torch.cuda.synchronize(bank.device)
        torch.cuda.reset_peak_memory_stats(bank.device)
        before = torch.cuda.memory_allocated(bank.device)
        learn_lanes(learner, [job], bank, short, lambda: None, graphed=False)
        each = max(1, torch.cuda.max_memory_allocated(bank.device) - before)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(bank.device)
    return max(1, int(SHARE * free / each))
