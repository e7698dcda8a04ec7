r"""Elastic weight consolidation: hold on to the parameters past sites need.

.. math:: L = CE + \frac{\lambda}{2} \sum_{k<t} \sum_j F_{k,j} (\theta_j - \theta^*_{k,j})^2

with the sum over past sites k and parameters j; F is the Fisher information and :math:`\theta^*_k` are
the parameters after site k.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass

import torch

from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    EVERY_TARGET,
    Factor,
    Inputs,
    Lane,
    Model,
    Params,
    SiteView,
)
from fcforge.methods.shared import anchor


def exact_fisher(model: Model, lane: Lane, inputs: Inputs) -> Params:
    r"""Return the diagonal of the Fisher information of every parameter.

    .. math:: F_j = \frac1N \sum_n \sum_c p(c|G_n) (\partial_j \log p(c|G_n))^2
                  = \frac1N \sum_n p_n (1 - p_n) (\partial_j (z_1 - z_0))^2

    over N subjects n with graphs G, logits z and probabilities p of the labels c; the second form is that
    of two classes. The expectation over labels is exact, not sampled; derivatives are taken per subject
    in evaluation mode. For logistic regression this is the mean of :math:`p (1 - p) x_j^2`. Where the
    target is a number, noise of variance 1 is assumed: the mean of :math:`(\partial_j z)^2`.

    Parameters
    ----------
    model : Model
    lane : Lane
    inputs : dict of Tensor
        Prepared inputs of the site's training subjects.

    Returns
    -------
    dict of Tensor
        Tensors of the shapes of the parameters, by their names.
    """
    p = anchor.predictions(model, lane, inputs)
    if model.n_outputs == 1:  # a number
        weight = torch.ones_like(p)
    elif model.n_outputs == 2:
        weight = p * (1 - p)
    else:  # (n, classes)
        weight = p
    return anchor.margin_gradients(model, lane, inputs, weight)


@limits(strength=at_least(0), gamma=at_least(0))
@dataclass(frozen=True)
class EWC(anchor.Anchored):
    """Elastic weight consolidation: Fisher information holds parameters past sites need.

    Kirkpatrick et al. 2017, with the 1/2 of the paper; ``online`` is Schwarz et al. 2018.

    Parameters
    ----------
    strength : float
        lambda. Depends on the Fisher by orders of magnitude: 0.7 (Mammoth, domain-IL MNIST) to
        1e10 (van de Ven, split MNIST); ours is to be chosen on a log grid 1 .. 1e7.
    online : bool
        One anchor, the last network, and ``F <- gamma F + F_t``; else one per past site.
    gamma : float
        Decay of the online Fisher.

    Notes
    -----
    The Fisher information is exact over labels and per subject, which van de Ven (2025) found to be
    the best; the libraries Avalanche, BeGin and CGLB use the true label or the square of a batch's
    mean gradient.
    """

    strength: float = 1e3
    online: bool = False
    gamma: float = 1.0

    name = "ewc"
    factors = ("strength", "gamma")
    learns = EVERY_TARGET
    title = "EWC"
    source = "Kirkpatrick et al. 2017 (PNAS); online: Schwarz et al. 2018 (ICML)"

    @property
    def pull(self) -> Factor:
        """Weight of the penalty in the loss."""
        return self.strength / 2

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add the site's Fisher information and parameters to the penalty."""
        new = exact_fisher(model, lane, site.inputs(model))
        if not self.online:
            return anchor.add_anchor(lane, new)
        old = lane.state.importance
        total = {k: self.gamma * old[k] + v if old else v for k, v in new.items()}
        return anchor.move_anchor(lane, total)
