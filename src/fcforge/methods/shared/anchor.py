r"""A quadratic pull of every parameter to an anchor, shared by EWC, SI and TWP.

.. math:: \sum_k \sum_j I_{k,j} (\theta_j - \theta^*_{k,j})^2

The sum over past sites k of quadratics is itself one quadratic (up to a constant), with
importance :math:`\sum_k I_k` and the importance-weighted mean of the :math:`\theta^*_k` as its
anchor. So the state never grows: two numbers per parameter, whatever the number of sites
(Huszar, On quadratic penalties in elastic weight consolidation, 2018). Batch-norm running
statistics are not parameters and are not protected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.methods.base import (
    Batch,
    Factor,
    Inputs,
    Lane,
    Method,
    Model,
    Params,
    PublicView,
    eval_output,
    prediction,
)

CHUNK = 16  # subjects whose gradients are held at a time


class Anchor(NamedTuple):
    """Importance of every parameter and its anchor; empty before a site has ended."""

    importance: Params
    anchor: Params


@dataclass(frozen=True)
class Anchored(Method):
    """A method that pulls parameters to their anchor.

    A subclass adds to the state in `end_site` with `add_anchor` or `move_anchor`. Its state has at
    least the fields of `Anchor`.
    """

    State: ClassVar[type] = Anchor
    keeps = "statistics"

    @property
    def pull(self) -> Factor:
        """Weight of the penalty in the loss."""
        return 1.0

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane without an anchor."""
        return lane._replace(state=Anchor({}, {}))

    def after_grad(
        self, model: Model, lane: Lane, grads: Params, batch: Batch, key: Tensor
    ) -> Params:
        r"""Add the gradient :math:`2 s I_j (\theta_j - a_j)` of the penalty, s being `pull`.

        Written out instead of differentiated: cheaper, in full precision, and `after_step` still
        gets the gradient of the cross-entropy alone (which SI needs). Nothing is added before the
        first site has ended.
        """
        importance = lane.state.importance
        if not importance:
            return grads
        anchor = lane.state.anchor
        twice: Factor = 2.0 * self.pull
        if isinstance(twice, Tensor):  # lanes that differ in it
            importance = {k: twice * v for k, v in importance.items()}
            twice = 1.0
        return {
            k: torch.addcmul(g, importance[k], lane.params[k] - anchor[k], value=twice)
            for k, g in grads.items()
        }

    def penalties(self, lane: Lane) -> dict[str, Tensor]:
        """Return the penalty of the present parameters; nothing before the first site has ended."""
        importance, anchor = lane.state.importance, lane.state.anchor
        if not importance:
            return {}
        each = [
            (importance[k] * (lane.params[k] - anchor[k]).square()).sum()
            for k in importance
        ]
        return {"penalty": self.pull * torch.stack(each).sum()}


def add_anchor(lane: Lane, importance: Params) -> Lane:
    """Add ``sum_j importance_j (theta_j - params_j)^2`` to the pull of the past sites."""
    before = lane.state.importance
    anchor = lane.state.anchor
    if not before:
        return move_anchor(lane, importance)
    total = {k: before[k] + v for k, v in importance.items()}
    # a parameter without importance so far follows the network
    merged = {}
    for k, t in total.items():
        share = torch.where(t > 0, importance[k] / t, 1.0)
        merged[k] = torch.lerp(anchor[k], lane.params[k], share)
    return lane.with_state(importance=total, anchor=merged)


def move_anchor(lane: Lane, importance: Params) -> Lane:
    """Pull with `importance` to this network alone (online EWC, SI)."""
    anchor = {k: p.clone() for k, p in lane.params.items()}
    return lane.with_state(importance=importance, anchor=anchor)


def by_subject(function: Callable[..., Params], model: Model) -> Callable[..., Params]:
    """Return `function` of (parameters, subject) for all subjects of a batch at once.

    Subjects are taken one by one if the model's `apply` does not work under vmap.
    """
    if model.lifts:
        return torch.func.vmap(function, in_dims=(None, 0))

    def one_by_one(params: Params, inputs: Inputs) -> Params:
        n = len(next(iter(inputs.values())))
        rows = [
            function(params, {k: v[i] for k, v in inputs.items()}) for i in range(n)
        ]
        return {k: torch.stack([row[k] for row in rows]) for k in params}

    return one_by_one


def margin_gradients(
    model: Model, lane: Lane, inputs: Inputs, weight: Tensor
) -> Params:
    r"""Return the mean over subjects of :math:`w_n (\partial (z_1 - z_0) / \partial \theta)^2`.

    The network is in evaluation mode, and the gradient is taken subject by subject. With two
    classes every derivative of a log-probability is a multiple of the margin's; a number is its
    own margin.

    Parameters
    ----------
    model : Model
    lane : Lane
    inputs : dict of Tensor
    weight : Tensor of shape (n,) or (n, classes)
        w. For more than two classes (n, classes): weights of the squared derivatives of
        :math:`\log p_c`, which are summed over the classes.
    """

    def value(params: Params, subject: Inputs) -> Tensor:
        one = {k: v[None] for k, v in subject.items()}
        z = model.apply(params, lane.stats, one).logits[0]
        if len(z) > 2:
            return torch.log_softmax(z, -1)
        return z[-1] - z[0] if len(z) > 1 else z[0]

    derivative = torch.func.jacrev if weight.ndim > 1 else torch.func.grad
    each = by_subject(derivative(value), model)
    total = {k: torch.zeros_like(p) for k, p in lane.params.items()}
    for i in range(0, len(weight), CHUNK):
        chunk = {k: v[i : i + CHUNK] for k, v in inputs.items()}
        grads = each(lane.params, chunk)
        w = weight[i : i + CHUNK].flatten() / len(weight)
        for k, g in grads.items():
            square = g.square().reshape(len(w), *total[k].shape)
            total[k] += torch.einsum("n,n...->...", w, square)
    return total


def predictions(model: Model, lane: Lane, inputs: Inputs) -> Tensor:
    """Return the `prediction` for some subjects in evaluation mode."""
    return prediction(eval_output(model, lane, inputs).logits)


def loss_gradients(model: Model, lane: Lane, inputs: Inputs, y: Tensor) -> Params:
    r"""Return the mean over subjects of :math:`(\partial CE(G_n, y_n) / \partial \theta)^2`.

    The network is in evaluation mode. The derivative of the loss is :math:`-(1 - p_y)` times that
    of the margin towards y.
    """
    if model.n_outputs > 2:
        return margin_gradients(model, lane, inputs, F.one_hot(y, model.n_outputs))
    p = predictions(model, lane, inputs)
    wrong = torch.where(y == 1, 1 - p, p)
    return margin_gradients(model, lane, inputs, wrong.square())
