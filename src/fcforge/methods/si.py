r"""Synaptic intelligence: importance from how much each parameter lowered the loss on its way.

.. math::
    \omega_j = -\sum_{steps} g_j \, \Delta\theta_j, \quad
    \Omega_j \mathrel{+}= \frac{\max(0, \omega_j)}{(\theta^*_j - \theta^{start}_j)^2 + \xi}, \quad
    L = CE + c \sum_j \Omega_j (\theta_j - \theta^*_j)^2
"""

from dataclasses import dataclass

import torch

from fcforge.core.settings import above, at_least, limits
from fcforge.methods.base import EVERY, Lane, Model, Params, SiteView
from fcforge.methods.shared import anchor


@limits(strength=at_least(0), damping=above(0))
@dataclass(frozen=True)
class SI(anchor.Anchored):
    """Synaptic intelligence: parameters that lowered the loss on their way are held.

    Zenke et al. 2017. g is the gradient of the cross-entropy alone, before clipping; the step
    is the one Adam really took. Omega is never negative (Avalanche and Mammoth do not clamp
    it).

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
    learns = EVERY
    title = "SI"
    source = "Zenke, Poole and Ganguli 2017 (ICML)"

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Path integral at zero."""
        zero = {k: torch.zeros_like(p) for k, p in lane.params.items()}
        begun = anchor.named("origin", lane.params) | anchor.named("path", zero)
        return lane.holding(begun)

    @property
    def pull(self) -> float:
        """Strength of the penalty."""
        return self.strength

    def after_step(self, before: Params, lane: Lane, grads: Params) -> Lane:
        """Path integral: omega -= g * step."""
        path = anchor.part(lane.state, "path")
        moved = {
            k: torch.addcmul(path[k], g, lane.params[k] - before[k], value=-1.0)
            for k, g in grads.items()
        }
        return lane.holding(anchor.named("path", moved))

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Omega from the path integral; the anchor moves to this network."""
        path = anchor.part(lane.state, "path")
        origin = anchor.part(lane.state, "origin")
        omega = anchor.part(lane.state, "importance")
        for k, p in lane.params.items():
            way = (p - origin[k]).square() + self.damping
            gained = path[k].clamp_min(0.0) / way
            omega[k] = omega[k] + gained if k in omega else gained
        left = anchor.without(lane, "path", "origin")
        return anchor.move_anchor(left, omega)
