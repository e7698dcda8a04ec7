r"""What EWC, SI and TWP share, a quadratic pull of every parameter to an anchor; and a teacher.

.. math:: \sum_k \sum_j I_{k,j} (\theta_j - \theta^*_{k,j})^2

The sum over past sites k of quadratics is itself one quadratic (up to a constant), with
importance :math:`\sum_k I_k` and the importance-weighted mean of the :math:`\theta^*_k` as its
anchor. So the state never grows: two numbers per parameter, whatever the number of sites
(Huszar, On quadratic penalties in elastic weight consolidation, 2018). Batch-norm running
statistics are not parameters and are not protected.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.methods.base import (
    Declared,
    Inputs,
    Lane,
    Method,
    Model,
    Params,
    State,
    alike,
    answer,
    seen,
)

CHUNK = 16  # subjects whose gradients are held at a time


@dataclass(frozen=True)
class Anchored(Method):
    """A method that pulls parameters to their anchor."""

    keeps = "statistics"

    @property
    def pull(self) -> float:
        """What the penalty counts in the loss."""
        return 1.0

    def after_grad(self, grads: Params, lane: Lane) -> Params:
        r"""Add the gradient :math:`2 s I_j (\theta_j - a_j)` of the penalty, s being `pull`.

        Written out instead of differentiated: cheaper, in full precision, and `after_step` still
        gets the gradient of the cross-entropy alone (which SI needs). Nothing is added before the
        first site has ended.
        """
        importance = part(lane.state, "importance")
        anchor = part(lane.state, "anchor")
        if not importance:
            return grads
        twice = 2.0 * self.pull
        return {
            k: torch.addcmul(g, importance[k], lane.params[k] - anchor[k], value=twice)
            for k, g in grads.items()
        }

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Importance and anchor of every parameter."""
        return alike(
            {**named("importance", lane.params), **named("anchor", lane.params)}
        )


def part(state: State, name: str) -> Params:
    """Tensors ``name/<parameter>`` of a state, by parameter."""
    return {k[len(name) + 1 :]: v for k, v in state.items() if k.startswith(f"{name}/")}


def named(name: str, values: Params) -> State:
    """Inverse of `part`."""
    return {f"{name}/{k}": v for k, v in values.items()}


def without(lane: Lane, *names: str) -> Lane:
    """Lane whose state lacks some of its parts."""
    left = {k: v for k, v in lane.state.items() if k.split("/", 1)[0] not in names}
    return lane._replace(state=left)


def add_anchor(lane: Lane, importance: Params) -> Lane:
    """Pull of the past sites plus ``sum_j importance_j (theta_j - params_j)^2``."""
    old = part(lane.state, "importance")
    anchor = part(lane.state, "anchor")
    if not old:
        return move_anchor(lane, importance)
    total = {k: old[k] + v for k, v in importance.items()}
    # a parameter nobody needed yet follows the network
    merged = {}
    for k, t in total.items():
        share = torch.where(t > 0, importance[k] / t, 1.0)
        merged[k] = torch.lerp(anchor[k], lane.params[k], share)
    return lane.holding(named("importance", total) | named("anchor", merged))


def move_anchor(lane: Lane, importance: Params) -> Lane:
    """Pull with `importance` to this network alone (online EWC, SI)."""
    anchor = {k: p.clone() for k, p in lane.params.items()}
    return lane.holding(named("importance", importance) | named("anchor", anchor))


def margin_gradients(
    model: Model, lane: Lane, inputs: Inputs, weight: Tensor
) -> Params:
    r"""Mean over subjects of :math:`w_n (\partial (z_1 - z_0) / \partial \theta)^2`, eval mode.

    Two classes: every derivative of a log-probability is a multiple of the margin's. A number is
    its own margin. `weight` is (n,); the gradient is taken subject by subject. More classes:
    `weight` is (n, classes), of the squared derivatives of :math:`\log p_c`, which are summed.
    """

    def value(params: Params, subject: Inputs) -> Tensor:
        one = {k: v[None] for k, v in subject.items()}
        z = model.apply(params, lane.stats, one).logits[0]
        if len(z) > 2:
            return torch.log_softmax(z, -1)
        return z[-1] - z[0] if len(z) > 1 else z[0]

    derivative = torch.func.jacrev if weight.ndim > 1 else torch.func.grad
    each = torch.func.vmap(derivative(value), in_dims=(None, 0))
    total = {k: torch.zeros_like(p) for k, p in lane.params.items()}
    for i in range(0, len(weight), CHUNK):
        some = {k: v[i : i + CHUNK] for k, v in inputs.items()}
        grads = each(lane.params, some)
        w = weight[i : i + CHUNK].flatten() / len(weight)
        for k, g in grads.items():
            square = g.square().reshape(len(w), *total[k].shape)
            total[k] += torch.einsum("n,n...->...", w, square)
    return total


def answers(model: Model, lane: Lane, inputs: Inputs) -> Tensor:
    """`answer` about some subjects in eval mode."""
    return answer(seen(model, lane, inputs).logits)


def loss_gradients(model: Model, lane: Lane, inputs: Inputs, y: Tensor) -> Params:
    r"""Mean over subjects of :math:`(\partial CE(G_n, y_n) / \partial \theta)^2`, eval mode.

    The derivative of the loss is :math:`-(1 - p_y)` times that of the margin towards y.
    """
    if model.n_outputs > 2:
        own = F.one_hot(y, model.n_outputs)
        return margin_gradients(model, lane, inputs, own)
    p = answers(model, lane, inputs)
    wrong = torch.where(y == 1, 1 - p, p)
    return margin_gradients(model, lane, inputs, wrong.square())
