r"""A quadratic penalty that pulls every parameter to an anchor, shared by EWC, SI and TWP.

.. math:: \sum_k \sum_j I_{k,j} (\theta_j - \theta^*_{k,j})^2

where :math:`\theta^*_k` are the parameters after site k and :math:`I_k` their importance for it. The
sum over past sites of quadratics is itself one quadratic (up to a constant): its importance is
:math:`\sum_k I_k`, its anchor the importance-weighted mean of the :math:`\theta^*_k`. So the state
never grows: two numbers per parameter, whatever the number of sites (Huszar, On quadratic penalties
in elastic weight consolidation, 2018). Batch-norm running statistics are not parameters and are not
protected.

A lane is one training run: one learner, order of sites and seed.
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
    """Importance and anchor of every parameter, by name; both empty before a site has ended."""

    importance: Params
    anchor: Params


@dataclass(frozen=True)
class Anchored(Method):
    """A method with a penalty that pulls parameters to their anchor.

    A subclass calls `add_anchor` or `move_anchor` in `end_site`. Its state has at least the fields of
    `Anchor`.
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
        r"""Add the gradient of the penalty, :math:`2 s I_j (\theta_j - a_j)`.

        s is `pull`, I the importance and a the anchor. The gradient is written out, not
        differentiated: this is cheaper and in full precision, and `after_step` still gets the gradient
        of the cross-entropy alone, which SI needs. Nothing is added before the first site has ended.
        """
        importance = lane.state.importance
        if not importance:
            return grads
        anchor = lane.state.anchor
        twice: Factor = 2.0 * self.pull
        # `addcmul` takes a number only; where lanes differ in the weight, it is a tensor
        if isinstance(twice, Tensor):
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
        by_tensor = [
            (importance[k] * (lane.params[k] - anchor[k]).square()).sum()
            for k in importance
        ]
        return {"penalty": self.pull * torch.stack(by_tensor).sum()}


def add_anchor(lane: Lane, importance: Params) -> Lane:
    """Add a quadratic around the present parameters to the penalty of the past sites.

    Parameters
    ----------
    lane : Lane
        The lane at the end of a site.
    importance : dict of Tensor
        Importance of the present parameters for this site, by name.

    Returns
    -------
    Lane
        The lane with the summed importances and the merged anchor.
    """
    past = lane.state.importance
    anchor = lane.state.anchor
    if not past:
        return move_anchor(lane, importance)
    total = {k: past[k] + v for k, v in importance.items()}
    # the anchor of a parameter without importance so far is its present value
    merged = {}
    for k, t in total.items():
        share = torch.where(t > 0, importance[k] / t, 1.0)
        merged[k] = torch.lerp(anchor[k], lane.params[k], share)
    return lane.with_state(importance=total, anchor=merged)


def move_anchor(lane: Lane, importance: Params) -> Lane:
    """Replace the penalty by one quadratic around the present parameters (online EWC, SI)."""
    anchor = {k: p.clone() for k, p in lane.params.items()}
    return lane.with_state(importance=importance, anchor=anchor)


def by_subject(function: Callable[..., Params], model: Model) -> Callable[..., Params]:
    """Turn a function of (parameters, one subject) into one of (parameters, batch of subjects).

    The results gain a first dimension, the subject. Subjects are taken one by one if the model's
    `apply` does not work under ``vmap``.

    Parameters
    ----------
    function : callable
        ``function(params, subject)``; `subject` is the prepared input of one subject, without the
        batch's dimension. It returns a tensor per parameter.
    model : Model
        Its `lifts` says whether `apply` works under ``vmap``.
    """
    if model.lifts:
        return torch.func.vmap(function, in_dims=(None, 0))

    def one_by_one(params: Params, inputs: Inputs) -> Params:
        """Call the function for every subject and stack the results."""
        n = len(next(iter(inputs.values())))
        rows = [
            function(params, {k: v[i] for k, v in inputs.items()}) for i in range(n)
        ]
        return {k: torch.stack([row[k] for row in rows]) for k in params}

    return one_by_one


def margin_gradients(
    model: Model, lane: Lane, inputs: Inputs, weight: Tensor
) -> Params:
    r"""Return the weighted mean over subjects of the squared derivatives of the margin.

    .. math:: \frac1n \sum_i w_i (\partial (z_{i1} - z_{i0}) / \partial \theta)^2

    where z are the logits and their difference is the margin. For more than two classes the
    log-probabilities of all classes take its place. The network is in evaluation mode, and the
    gradient is taken subject by subject. With two classes every derivative of a log-probability is a
    multiple of the margin's; a predicted number is its own margin.

    Parameters
    ----------
    model : Model
    lane : Lane
    inputs : dict of Tensor
        Prepared inputs of n subjects.
    weight : Tensor of shape (n,) or (n, classes)
        w, one number per subject for one or two logits. For more classes (n, classes): weights of
        the squared derivatives of :math:`\log p_c`, which are summed over the classes c.

    Returns
    -------
    dict of Tensor
        Tensors of the shapes of the parameters, by their names.
    """

    def value(params: Params, subject: Inputs) -> Tensor:
        """Return the margin of one subject, or its log-probabilities of more than two classes."""
        one = {k: v[None] for k, v in subject.items()}
        z = model.apply(params, lane.stats, one).logits[0]
        if len(z) > 2:
            return torch.log_softmax(z, -1)
        return z[-1] - z[0] if len(z) > 1 else z[0]

    # `value` is a vector for more than two classes, a scalar otherwise
    derivative = torch.func.jacrev if weight.ndim > 1 else torch.func.grad
    derivatives = by_subject(derivative(value), model)
    total = {k: torch.zeros_like(p) for k, p in lane.params.items()}
    for i in range(0, len(weight), CHUNK):
        chunk = {k: v[i : i + CHUNK] for k, v in inputs.items()}
        grads = derivatives(lane.params, chunk)
        # subjects, or pairs of subject and class, in one dimension
        w = weight[i : i + CHUNK].flatten() / len(weight)
        for k, g in grads.items():
            square = g.square().reshape(len(w), *total[k].shape)
            total[k] += torch.einsum("n,n...->...", w, square)
    return total


def predictions(model: Model, lane: Lane, inputs: Inputs) -> Tensor:
    """Return the probabilities that `prediction` makes of the lane's logits, in evaluation mode.

    `inputs` are the prepared subjects.
    """
    return prediction(eval_output(model, lane, inputs).logits)


def loss_gradients(model: Model, lane: Lane, inputs: Inputs, y: Tensor) -> Params:
    r"""Return the mean over subjects of the squared gradient of each subject's cross-entropy.

    The network is in evaluation mode. With two classes the gradient of the cross-entropy is
    :math:`-(1 - p_y)` times that of the margin, the logit of y less that of the other class: its square
    is :math:`(1 - p_y)^2` times the margin's. With more classes it is that of :math:`-\log p_y` itself.

    Parameters
    ----------
    model : Model
        A classifier, of two classes or more.
    lane : Lane
    inputs : dict of Tensor
        Prepared inputs of n subjects.
    y : Tensor of shape (n,)
        Their labels.

    Returns
    -------
    dict of Tensor
        One tensor per parameter, by name.
    """
    if model.n_outputs > 2:
        return margin_gradients(model, lane, inputs, F.one_hot(y, model.n_outputs))
    p = predictions(model, lane, inputs)  # of class 1
    p_other = torch.where(y == 1, 1 - p, p)  # 1 - p_y
    return margin_gradients(model, lane, inputs, p_other.square())
