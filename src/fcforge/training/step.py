"""The training step, written for one lane (training run), executed for all lanes at once.

`make_step` returns the step of one lane, `lifted_steps` applies it to all lanes by
``torch.func.vmap``, and `capture` records the result as a CUDA graph, which a GPU replays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.errors import ConfigError
from fcforge.core.randomness import fold
from fcforge.core.spec import Training
from fcforge.methods.base import Batch, Lane, Learner, Loss, Method
from fcforge.nn.adam import Adam
from fcforge.nn.cuda_graphs import Graphed
from fcforge.nn.tensors import Inputs, Params
from fcforge.replay.bank import Bank, gather
from fcforge.replay.memory import Replay, drawn_by_weight
from fcforge.training.lanes import Job, lift_learner

TOTAL = "total"  # name of the whole loss among its terms


def gradient(
    objective: Callable[..., Any], params: Params, *, unlifted: bool
) -> tuple[Params, Any]:
    """Differentiate an objective by the parameters.

    Parameters
    ----------
    objective : callable
        ``objective(params) -> (loss, auxiliary)``.
    params : dict of Tensor
        Point at which the gradient is taken.
    unlifted : bool
        Whether the call is never under `torch.func.vmap`. Plain autograd is then possible, which
        takes two thirds of the time of `torch.func.grad`.

    Returns
    -------
    gradient : dict of Tensor
    auxiliary : pytree of Tensor
        The second result of `objective`, detached.
    """
    if not unlifted:
        return torch.func.grad(objective, has_aux=True)(params)
    leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss, auxiliary = objective(leaves)
    grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    by_name = dict(zip(leaves, grads, strict=True))
    return by_name, pytree.tree_map(torch.detach, auxiliary)


def recalled(
    method: Method, lane: Lane, inputs: Inputs, key: Tensor, weight: Tensor | None
) -> Replay | None:
    """Return the remembered subjects that a step replays, in proportion to their training weights.

    Parameters
    ----------
    method : Method
    lane : Lane
    inputs : dict of Tensor
        Prepared inputs of all rows of the bank.
    key : Tensor, int32 scalar
        Random key.
    weight : Tensor or None
        Training weights of all rows of the bank; None if all are equal.

    Returns
    -------
    Replay or None
        None if the method replays nothing.

    Raises
    ------
    ConfigError
        If subjects have weights, but the method does not tell which ones it replays.
    """
    replay = method.recall(lane, inputs, key)
    if replay is None or weight is None:
        return replay
    if replay.rows is None:
        raise ConfigError(
            f"method '{method.name}' cannot replay subjects with weights.",
            do="Let its `recall` return rows, or leave the weights out.",
        )
    # a key of its own for this draw; any number that `recall` does not fold in will do
    return drawn_by_weight(replay, weight, fold(key, 7))


def pull(grads: Params, params: Params, centre: Params, strength: float) -> Params:
    """Return `grads` plus the gradient of ``strength / 2`` times the squared distance to `centre`."""
    return {k: g + strength * (params[k] - centre[k]) for k, g in grads.items()}


def distance(params: Params, centre: Params) -> Tensor:
    """Return the squared distance of parameters to `centre`, a scalar."""
    return torch.stack([(params[k] - centre[k]).square().sum() for k in centre]).sum()


def make_step(
    learner: Learner,
    training: Training,
    inputs: Inputs,
    y: Tensor,
    *,
    replaying: bool,
    unlifted: bool = False,
    weight: Tensor | None = None,
    logged: bool = False,
) -> Callable[..., tuple[Lane, Adam, Params]]:
    """Return one training step of one lane as a pure function.

    Parameters
    ----------
    learner : Learner
    training : Training
    inputs : dict of Tensor
        Prepared inputs of all rows of the bank.
    y : Tensor
        Labels of all rows of the bank.
    replaying : bool
        Whether the step also replays remembered subjects.
    unlifted : bool
        Whether the step is never under `torch.func.vmap`; see `gradient`.
    weight : Tensor, optional
        Training weights of all rows of the bank; replayed subjects are drawn in proportion.
    logged : bool
        Whether the step adds the terms of its loss to `sums`.

    Returns
    -------
    callable
        ``step(lane, optimiser, sums, rows, keys[, pretrained]) -> (lane, optimiser, sums)``. `rows`
        are the bank rows (b,) of the batch, `keys` (2,) the random keys of the recall and of the
        loss (`step_keys`), `pretrained` the parameters that `Training.public_pull` pulls to. `sums`
        has the sum of each term of the loss over the steps so far; it is empty before the first
        step, and always without a log.
    """
    method = learner.method
    model = learner.model
    lr = model.lr if training.lr is None else training.lr
    settings = {"lr": lr, "weight_decay": training.weight_decay, "clip": training.clip}

    def step(
        lane: Lane,
        optimiser: Adam,
        sums: Params,
        rows: Tensor,
        keys: Tensor,
        pretrained: Params | None = None,
    ) -> tuple[Lane, Adam, Params]:
        """Recall, compute loss and gradient, step the optimiser, and call the method's hooks.

        Arguments and results are those that `make_step` describes.
        """
        recall_key, loss_key = keys.unbind(-1)
        replay = None
        if replaying:
            replay = recalled(method, lane, inputs, recall_key, weight)
        batch = Batch(gather(inputs, rows), y[rows], replay)

        def objective(params: Params) -> tuple[Tensor, tuple[Params, Params]]:
            """Return the loss, and beside it batch-norm statistics and terms to log."""
            loss = Loss.of(method.loss(model, params, lane, batch, loss_key))
            terms = {**loss.terms, TOTAL: loss.total} if logged else {}
            return loss.total, (loss.stats, terms)

        grads, (stats, terms) = gradient(objective, lane.params, unlifted=unlifted)
        with_pull = grads  # `after_step` gets the gradient of the loss alone
        if pretrained is not None:
            with_pull = pull(grads, lane.params, pretrained, training.public_pull)
        changed = method.after_grad(model, lane, with_pull, batch, loss_key)
        params, optimiser = optimiser.step(lane.params, changed, **settings)
        new_lane = lane._replace(params=params, stats=stats)
        if logged:
            penalties = method.penalties(lane)
            if pretrained is not None:
                value = distance(lane.params, pretrained) * training.public_pull / 2
                penalties = {**penalties, "public pull": value}
            sums = add_terms(sums, terms, penalties)
        return method.after_step(lane.params, new_lane, grads), optimiser, sums

    return step


def add_terms(sums: Params, terms: Params, penalties: Params) -> Params:
    """Return the sums of the loss's terms with those of one more step added.

    Parameters
    ----------
    sums : dict of Tensor
        Sums so far; empty before the first step.
    terms : dict of Tensor
        The step's terms, the total loss among them.
    penalties : dict of Tensor
        Terms that act on the gradient only; they are added to the logged total.
    """
    terms = {**terms, **penalties, TOTAL: sum(penalties.values(), terms[TOTAL])}
    return {name: sums.get(name, 0.0) + term for name, term in terms.items()}


def lifted_steps(
    learner: Learner,
    training: Training,
    bank: Bank,
    jobs: Sequence[Job],
    *,
    captured: bool,
    logged: bool = False,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the method's `begin_epoch` and the training step, both for all lanes at once.

    Parameters
    ----------
    learner, training, bank, jobs
        As for `fcforge.training.loop.learn_lanes`.
    captured : bool
        Whether the step will be recorded as a CUDA graph (`capture`).
    logged : bool
        As for `make_step`.

    Returns
    -------
    begin_epoch : callable
        ``begin_epoch(lane, key) -> (lane,)`` of all lanes; a tuple, because `Graphed` needs one.
    step : callable
        The step of `make_step`, of all lanes.
    """
    inputs = bank.inputs(learner.model)
    settings = {
        "replaying": jobs[0].site.position > 0,
        "unlifted": len(jobs) == 1 and not captured,
        "logged": logged,
    }

    def begin_one(lane_learner: Learner, lane: Lane, key: Tensor) -> tuple[Lane]:
        """Call `begin_epoch` of one lane's method."""
        return (lane_learner.method.begin_epoch(lane_learner.model, lane, inputs, key),)

    def one_step(lane_learner: Learner, *args: Any) -> tuple[Lane, Adam, Params]:
        """Take a training step of one lane."""
        # made in every call: under vmap the factors of the lane's own method are tensors of this call
        step = make_step(
            lane_learner, training, inputs, bank.y, weight=bank.weight, **settings
        )
        return step(*args)

    begin_epoch = lift_learner(begin_one, learner, jobs)
    return begin_epoch, lift_learner(one_step, learner, jobs)


def capture(
    learner: Learner,
    begin_epoch: Callable[..., Any],
    step: Callable[..., Any],
    *,
    replaying: bool,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Record both functions of `lifted_steps` as CUDA graphs.

    Parameters
    ----------
    learner : Learner
    begin_epoch, step : callable
        As `lifted_steps` returns them.
    replaying : bool
        Whether there are sites to replay. Only then a graph of `begin_epoch` saves time, and only
        for methods that declare so (`Method.captures`).

    Returns
    -------
    begin_epoch, step : callable
        They overwrite the tensors that they returned before (`Graphed`).
    """
    # `carried` counts the leading arguments that are state: lane; lane, optimiser and sums
    if learner.method.captures and replaying:
        begin_epoch = Graphed(begin_epoch, carried=1)
    return begin_epoch, Graphed(step, carried=3)
