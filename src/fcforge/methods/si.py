r"""Synaptic intelligence: importance from how much each parameter lowered the loss on its way.

.. math::
    \omega_j = -\sum_{steps} g_j \, \Delta\theta_j, \quad
    \Omega_j \mathrel{+}= \frac{\max(0, \omega_j)}{(\theta^*_j - \theta^{start}_j)^2 + \xi}, \quad
    L = CE + c \sum_j \Omega_j (\theta_j - \theta^*_j)^2

For every parameter j, :math:`\omega` (`path` in the code) is the path integral over the training steps at
a site, with the gradient g; :math:`\Omega` is the importance, :math:`\theta^{start}` (`origin`) and
:math:`\theta^*` (`anchor`) are the parameters before and after the site.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fcforge.core.settings import above, at_least, limits
from fcforge.methods.base import (
    EVERY_TARGET,
    Factor,
    Lane,
    Model,
    Params,
    PublicView,
    SiteView,
)
from fcforge.methods.shared import anchor


class SIState(NamedTuple):
    """State of SI.

    Attributes
    ----------
    importance, anchor : dict of Tensor
        As in `fcforge.methods.shared.anchor.Anchor`.
    path, origin : dict of Tensor
        Path integral and the parameters at its start; empty between sites.
    """

    importance: Params
    anchor: Params
    path: Params
    origin: Params


@limits(strength=at_least(0), damping=above(0))
@dataclass(frozen=True)
class SI(anchor.Anchored):
    """Synaptic intelligence: parameters that lowered the loss on their way are held.

    Zenke et al. 2017. g is the gradient of the cross-entropy alone, before clipping; the step
    is the one Adam really took. Omega is never negative (Avalanche and Mammoth do not clamp
    it). The importances depend on model and features by orders of magnitude: on a linear model of
    the matrix logarithm of FC in a simulated world, strengths up to 100 left accuracy as it
    was, 1e4 changed it a little and 1e6 much.

    Parameters
    ----------
    strength : float
        c; 0.5 to 1 in Mammoth, 10 in van de Ven (permuted MNIST, domain-IL).
    damping : float
        xi; 0.1 in van de Ven and Mammoth.
    """

    strength: float = 1.0
    damping: float = 0.1

    name = "si"
    factors = ("strength", "damping")
    learns = EVERY_TARGET
    State = SIState
    title = "SI"
    source = "Zenke, Poole and Ganguli 2017 (ICML)"

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane without an anchor."""
        return lane._replace(state=SIState({}, {}, {}, {}))

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Set the path integral to zero."""
        zero = {k: torch.zeros_like(p) for k, p in lane.params.items()}
        return lane.with_state(origin=lane.params, path=zero)

    @property
    def pull(self) -> Factor:
        """Weight of the penalty in the loss."""
        return self.strength

    def after_step(self, before: Params, lane: Lane, grads: Params) -> Lane:
        """Subtract gradient times step from the path integral of every parameter."""
        path = lane.state.path
        longer = {
            k: torch.addcmul(path[k], g, lane.params[k] - before[k], value=-1.0)
            for k, g in grads.items()
        }
        return lane.with_state(path=longer)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Turn the path integral into importance, and move the anchor to the present parameters."""
        path = lane.state.path
        origin = lane.state.origin
        importance = dict(lane.state.importance)
        for k, p in lane.params.items():
            damped_distance = (p - origin[k]).square() + self.damping
            new = path[k].clamp_min(0.0) / damped_distance
            importance[k] = importance[k] + new if k in importance else new
        return anchor.move_anchor(lane.with_state(path={}, origin={}), importance)
