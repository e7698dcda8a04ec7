"""The training loop: one site, many lanes.

A lane is one training run: one learner, one order of sites, one seed. `learn_site` trains together
all lanes that learn the same site after the same number of sites. On a CPU a group holds one lane, and
the same code runs without ``vmap``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fcforge.core.errors import SealedError
from fcforge.core.spec import Training
from fcforge.core.training_log import SiteLog
from fcforge.methods.base import Lane, Learner, Method
from fcforge.nn.adam import Adam
from fcforge.nn.tensors import Params
from fcforge.replay.bank import Bank, SiteView
from fcforge.replay.state import rows_of
from fcforge.training.best_epoch import BestEpoch
from fcforge.training.lanes import Job, stack, unstack
from fcforge.training.logging import NoRecorder, Recorder
from fcforge.training.schedule import batch_rows, epoch_keys
from fcforge.training.step import capture, lifted_steps

Tick = Callable[[], Any]


def learn_site(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    *,
    fit: bool = True,
    tick: Tick = lambda: None,
    logs: Sequence[SiteLog] | None = None,
) -> list[Lane]:
    """Train every lane of `jobs` on its site, then refuse further access to the site's subjects.

    While the method's hooks run, the bank accepts no subjects but those of `SiteView.synthetic`.

    Parameters
    ----------
    learner : Learner
        Method and model of all lanes.
    jobs : sequence of Job
        Lanes whose states have equal shapes and whose methods differ only in factors of the loss;
        `fcforge.experiments` groups them.
    bank : Bank
        All subjects that the lanes may use.
    training : Training
        Epochs, batch size, learning rate and the like.
    fit : bool
        Whether to train. If False the method only takes note of the site (`begin_site` and
        `end_site`), for methods that train from scratch at a later site.
    tick : callable
        Called after every epoch, for a progress bar.
    logs : sequence of SiteLog, optional
        Empty logs, one per job, that the training is written to.

    Returns
    -------
    list of Lane
        The lanes after the site, in the order of `jobs`.
    """
    with bank.closed():
        jobs = [begin_site(job.learner(learner), job, wanted=fit) for job in jobs]
        lanes = [job.lane for job in jobs]
        if fit and learner.method.fits and training.epochs > 0:
            with matmul_precision(training.precision):
                lanes = learn_lanes(
                    learner, jobs, bank, training, tick, graphed=True, logs=logs
                )
        lanes = [
            end_site(job.learner(learner), job, lane)
            for job, lane in zip(jobs, lanes, strict=True)
        ]
    for job in jobs:
        job.site.seal()
    return lanes


def learn_lanes(
    learner: Learner,
    jobs: Sequence[Job],
    bank: Bank,
    training: Training,
    tick: Tick,
    *,
    graphed: bool,
    logs: Sequence[SiteLog] | None = None,
) -> list[Lane]:
    """Train all epochs of one site for all jobs.

    Parameters
    ----------
    learner, jobs, bank, training, tick, logs
        As for `learn_site`.
    graphed : bool
        Whether a GPU records a training step once, as a CUDA graph, and replays it.

    Returns
    -------
    list of Lane
        The lanes of the last epoch, or of each lane's best epoch.
    """
    method = learner.method
    # the subjects and random keys of every step
    rows = batch_rows(method, jobs, training, bank)  # ([lanes,] epochs, steps, b)
    epochs, steps = rows.shape[-3:-1]
    keys = list(epoch_keys(jobs, epochs, steps, rows.device))
    centre = pretrained_centre(jobs, training)
    # all lanes, stacked, and the functions that change them
    lanes = stack([job.lane for job in jobs])
    optimiser = stack([Adam.start(job.lane.params) for job in jobs])
    captured = graphed and bank.device.type == "cuda" and learner.model.lifts
    begin_epoch, step = lifted_steps(
        learner, training, bank, jobs, captured=captured, logged=logs is not None
    )
    best = BestEpoch(learner, jobs, training, bank)
    recorder = NoRecorder()
    sums: Params = {}  # terms of the loss, summed over an epoch's steps for the log
    if logs is not None:
        recorder = Recorder(learner, jobs, training, bank, logs)
        _, first_keys = keys[0]
        step_inputs = rows[..., 0, 0, :], first_keys[0], *centre
        sums = zero_sums(step, lanes, optimiser, *step_inputs)
    if captured:
        replaying = jobs[0].site.position > 0
        begin_epoch, step = capture(learner, begin_epoch, step, replaying=replaying)
    for epoch, (begin_key, keys_of_steps) in enumerate(keys):
        if method.updates_at(epoch, epochs):
            before = lanes
            (lanes,) = begin_epoch(lanes, begin_key)
            recorder.refreshed(epoch, before, lanes)
        factor = method.restart(epoch, epochs)
        if factor is not None:
            optimiser = optimiser.restart(factor)
        for s, step_key in enumerate(keys_of_steps):
            batch = rows[..., epoch, s, :]
            step_inputs = batch, step_key, *centre
            lanes, optimiser, sums = step(lanes, optimiser, sums, *step_inputs)
        sums = recorder.trained(epoch, lanes, optimiser, sums, steps)
        best.update(lanes)
        tick()
    recorder.close()
    return unstack(best.lanes(lanes), len(jobs))


def zero_sums(
    step: Callable[..., Any], lanes: Lane, optimiser: Adam, *step_inputs: Any
) -> Params:
    """Return a zero for each named term of the loss, before the first step of a logged training.

    One step is taken, of which nothing but the names and shapes of the terms is kept. The arguments are
    those of the step (`make_step`), without the sums.
    """
    _, _, terms = step(lanes, optimiser, {}, *step_inputs)
    return {name: torch.zeros_like(term) for name, term in terms.items()}


def pretrained_centre(jobs: Sequence[Job], training: Training) -> tuple[Params, ...]:
    """Return the pretrained parameters that `Training.public_pull` pulls the lanes to.

    Returns
    -------
    tuple of dict of Tensor
        One element, the stacked parameters of all lanes; none without a pull, or for lanes that were not
        pretrained. It is a tuple, because ``vmap`` takes no None: the loop appends its elements to the
        arguments of a training step (`make_step`).
    """
    if not training.public_pull:
        return ()
    pretrained = [job.pretrained for job in jobs if job.pretrained is not None]
    return (stack(pretrained),) if len(pretrained) == len(jobs) else ()


def begin_site(learner: Learner, job: Job, *, wanted: bool = True) -> Job:
    """Call the method's `begin_site` and return the job with the new lane.

    Parameters
    ----------
    learner : Learner
    job : Job
    wanted : bool
        Whether the model after this site will be evaluated.
    """
    job.site.wanted = wanted
    method, site = learner.method, job.site
    lane = method.begin_site(learner.model, job.lane, site)
    taken = {"rows": method.rows(lane, site), **rows_of(lane.state)}
    check_reach(method, job.lane, site, taken)
    return job._replace(lane=lane)


def end_site(learner: Learner, job: Job, lane: Lane) -> Lane:
    """Call the method's `end_site`, check which subjects the lane keeps, and return the lane."""
    site = job.site
    site.rng = job.rng("end")
    ended = learner.method.end_site(learner.model, lane, site)
    check_reach(learner.method, lane, site, rows_of(ended.state))
    # under the leak `context_on_test` real subjects are kept on purpose
    if site.leaked is None:
        check_kept(learner.method, ended, site.bank, site.name)
    return ended


def check_reach(
    method: Method, before: Lane, site: SiteView, taken: Mapping[str, Tensor]
) -> None:
    """Raise `SealedError` if a method takes real subjects of another site than the open one.

    It may take synthetic and public subjects, and those that its state held before.

    Parameters
    ----------
    method : Method
    before : Lane
        The lane before the hook that took the subjects.
    site : SiteView
        The open site.
    taken : mapping of str to Tensor
        Bank rows by the name of what holds them.
    """
    groups = [site.rows, *rows_of(before.state).values()]
    groups += [] if site.public is None else [site.public.rows]
    groups += [] if site.leaked is None else [site.leaked]
    allowed = torch.cat([rows.flatten() for rows in groups])
    for name, rows in taken.items():
        others = rows[~torch.isin(rows, allowed)]
        real = site.bank.real_rows(others[others >= 0])
        if len(real):
            raise SealedError(
                f"method '{method.name}' takes {len(real)} real subjects in '{name}' that are neither "
                "of this site nor kept before.",
                where=f"site '{site.name}'",
                do="Take rows from site.rows, site.synthetic(n) and the method's own state alone.",
            )


def check_kept(method: Method, lane: Lane, bank: Bank, site: str) -> None:
    """Raise `SealedError` if a method holds real subjects although it declares otherwise.

    The bank rows of its state are looked at. Copies of FC in other tensors, such as statistics, are
    not found here. `fcforge.testing.check_method` looks for them and states which it finds.

    Parameters
    ----------
    method : Method
    lane : Lane
        The lane after the method's `end_site`.
    bank : Bank
    site : str
        Name of the site, for the error message.
    """
    if method.keeps == "real subjects":
        return
    for name, rows in rows_of(lane.state).items():
        real = bank.real_rows(rows)
        if len(real):
            raise SealedError(
                f"method '{method.name}' declares that it keeps {method.keeps} but holds {len(real)} "
                f"real subjects in '{name}'.",
                where=f"site '{site}'",
                do="Declare keeps = 'real subjects' or drop them in end_site.",
            )


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set the precision of float32 products on CUDA in a ``with`` block: "float32" or "tf32"."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
