r"""Learning without forgetting: the last network teaches on the new site's subjects.

.. math:: L = CE + \lambda T^2 \, KL(\mathrm{softmax}(z_{old}/T) \,\|\, \mathrm{softmax}(z/T))

with the logits z of the present network and :math:`z_{old}` of the last, and a temperature T.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fcforge.core.settings import above, at_least, limits
from fcforge.methods.base import Batch, Factor, Lane, Loss, Model, Params, label_loss
from fcforge.methods.shared.teacher import Taught


def distillation(old: Tensor, new: Tensor, temperature: Factor) -> Tensor:
    """Return the divergence of new from old predictions, softened by a temperature.

    Parameters
    ----------
    old, new : Tensor of shape (n, n_outputs)
        Logits of the teacher and of the present network.
    temperature : float or scalar Tensor
        T.

    Returns
    -------
    Tensor, scalar
        KL(softmax(old / T) || softmax(new / T)), mean over subjects.
    """
    target = F.log_softmax(old / temperature, -1)
    log_new = F.log_softmax(new / temperature, -1)
    return (target.exp() * (target - log_new)).sum(-1).mean()


@limits(strength=at_least(0), temperature=above(0))
@dataclass(frozen=True)
class LwF(Taught):
    """Learning without forgetting: the last network's answers on new subjects are distilled.

    Li and Hoiem 2016 with the single head of domain-incremental learning. There is no new head,
    hence no warm-up. Teacher and label contradict each other on every subject that the old network
    misclassifies (the library Mammoth declares LwF unfit for this setting).

    Parameters
    ----------
    strength : float
        lambda; 1 in Avalanche, BeGin and van de Ven.
    temperature : float
        T; 2 in all of them. Avalanche and BeGin leave the factor T^2 (Hinton et al. 2015) out.
    """

    strength: float = 1.0
    temperature: float = 2.0

    name = "lwf"
    factors = ("strength", "temperature")
    title = "LwF"
    source = "Li and Hoiem 2016 (ECCV)"

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Add the distillation of the teacher's logits to the cross-entropy of the labels."""
        teacher = lane.state.teacher
        if not teacher:
            return super().loss(model, params, lane, batch, key)
        out = model.apply(params, lane.stats, batch.inputs, train=True, key=key)
        taught = model.apply(teacher.params, teacher.stats, batch.inputs).logits
        weight = self.strength * self.temperature**2
        current = label_loss(out.logits, batch.y)
        distilled = weight * distillation(taught, out.logits, self.temperature)
        terms = {"current": current, "logits": distilled}
        return Loss(current + distilled, out.stats, terms)
