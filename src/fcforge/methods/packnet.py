"""PackNet: every site gets weights of its own, frozen ever after; no site id at test.

At site t the free weights are trained, the smallest are set to zero and stay free for later
sites, the survivors are trained on and then belong to site t. The network of site t is made of
the weights of sites 1..t. A subject comes without its site, so all t networks look at it.

T is the number of sites learned, the open one (that is being learned) included.
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.core.errors import ConfigError
from fcforge.core.settings import FRACTION, above, limits
from fcforge.methods.base import (
    Batch,
    Inputs,
    Lane,
    Loss,
    Method,
    Model,
    Params,
    PublicView,
    SiteView,
    label_loss,
)


class PackNetState(NamedTuple):
    """State of PackNet.

    Attributes
    ----------
    sites : Tensor of shape (T,), int64
        One place per site so far; its length is the number of sites.
    pruned : Tensor, int64 scalar
        1 after the open site's pruning, else 0.
    owner : dict of Tensor, int16
        Number of the site (from 1) that each weight of a matrix belongs to; 0 for a free weight.
    """

    sites: Tensor
    pruned: Tensor
    owner: dict[str, Tensor]


def smallest(weight: Tensor, free: Tensor, share: Tensor) -> Tensor:
    """Return a mask of the ``floor(share * free.sum())`` free weights of least magnitude.

    Ranks, not a threshold: among equal weights the first go, so the count is exact.

    Parameters
    ----------
    weight : Tensor
        A matrix of weights.
    free : Tensor of the same shape, bool
        Which of them belong to no site yet.
    share : Tensor, float64 scalar
        Share of the free weights to choose.
    """
    magnitude = torch.where(free, weight.abs(), float("inf")).reshape(-1)
    order = torch.argsort(magnitude, stable=True)
    rank = torch.argsort(order)  # inverse permutation
    # the counts are whole numbers: the nudge undoes a product that fell just below one
    return (rank < (share * free.sum() + 1e-6).long()).reshape(weight.shape)


@limits(
    prune_first=FRACTION,
    prune_later=FRACTION,
    train_share=FRACTION,
    retrain_rate=above(0),
)
@dataclass(frozen=True)
class PackNet(Method):
    """PackNet: every site gets weights of its own by pruning; networks vote without a site id.

    Mallya and Lazebnik 2018. All matrices are shared out, the single head included. Biases, norm
    scales and batch-norm statistics are fixed after the first site (authors' nobias-nobn): batch
    norm then applies its statistics instead of the batch's. Adam's momentum and weight decay also
    move weights whose gradient is zero, so after every step all that is not being trained is put
    back, bit for bit.

    Parameters
    ----------
    prune_first, prune_later : float
        Share of the free weights given up again at the first and at later sites (authors:
        0.5, 0.75). The number of sites is not known, so the last is pruned like the others.
    train_share : float
        Share of the epochs before pruning; the rest re-trains the survivors. Total cost is
        that of the other methods. Meant for a fixed number of epochs: where the best epoch is
        chosen and lies before pruning, the survivors are not re-trained.
    retrain_rate : float
        Factor of the learning rate while the survivors are re-trained, with a fresh optimiser
        (authors: 1e-3, then 1e-4).
    """

    prune_first: float = 0.5
    prune_later: float = 0.75
    train_share: float = 2 / 3
    retrain_rate: float = 0.1

    name = "packnet"
    title = "PackNet"
    source = "Mallya and Lazebnik 2018 (CVPR)"
    keeps = "statistics"
    State = PackNetState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with all matrices free (owner 0) and no site yet."""
        owner = {
            k: torch.zeros(p.shape, dtype=torch.int16, device=p.device)
            for k, p in lane.params.items()
            if p.dim() >= 2
        }
        none = torch.zeros(0, dtype=torch.int64, device=lane.device)
        return lane._replace(state=PackNetState(none, none.new_zeros(()), owner))

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Count one more site; its weights are the free ones until pruning."""
        owners = lane.state.owner.values()
        if all(bool((owner != 0).all()) for owner in owners):
            raise ConfigError(
                f"no free weight is left for site '{site.name}'.",
                where=f"method '{self.name}'",
                do="Raise prune_later, or use a wider model.",
            )
        return lane.with_state(
            sites=F.pad(lane.state.sites, (0, 1)),
            pruned=torch.zeros_like(lane.state.pruned),
        )

    def updates_at(self, epoch: int, epochs: int) -> bool:
        """Prune once, before the epochs that re-train."""
        return epoch == max(1, round(epochs * self.train_share)) and epoch < epochs

    def restart(self, epoch: int, epochs: int) -> float | None:
        """Re-train with a fresh optimiser at a lower rate."""
        return self.retrain_rate if self.updates_at(epoch, epochs) else None

    def begin_epoch(self, model: Model, lane: Lane, bank: Inputs, key: Tensor) -> Lane:
        """Prune: the smallest free weights become zero and stay free, the rest are owned."""
        present_site = lane.state.sites.shape[0]  # from 1
        params = dict(lane.params)
        owner = dict(lane.state.owner)
        given_up = self.prune_first if present_site == 1 else self.prune_later
        share = torch.full_like(lane.state.pruned, given_up, dtype=torch.float64)
        for k, owner_so_far in owner.items():
            free = owner_so_far == 0
            cut = smallest(params[k], free, share)
            params[k] = torch.where(cut, 0.0, params[k])
            new_owner = torch.where(free & ~cut, present_site, owner_so_far)
            owner[k] = new_owner.to(owner_so_far.dtype)
        pruned = torch.ones_like(lane.state.pruned)
        return lane._replace(params=params).with_state(pruned=pruned, owner=owner)

    def _trained(self, lane: Lane) -> Params:
        """Return masks of the parameters that may move now (scalars for biases and norms).

        Biases and norms move at the first site only. Of a matrix the free weights move before
        pruning, those that the present site owns after it.
        """
        present_site = lane.state.sites.shape[0]  # from 1
        pruned = lane.state.pruned > 0
        first_site = torch.full_like(pruned, present_site == 1)
        trained = dict.fromkeys(lane.params, first_site)
        for k, owner in lane.state.owner.items():
            trained[k] = torch.where(pruned, owner == present_site, owner == 0)
        return trained

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Return the cross-entropy, with batch norm as the first site left it."""
        # a network without statistics has nothing to freeze and stays in training mode
        frozen = bool(lane.stats) and lane.state.sites.shape[0] > 1
        out = model.apply(params, lane.stats, batch.inputs, train=not frozen, key=key)
        current = label_loss(out.logits, batch.y)
        return Loss(current, out.stats, {"current": current})

    def after_grad(
        self, model: Model, lane: Lane, grads: Params, batch: Batch, key: Tensor
    ) -> Params:
        """Set the gradient of parameters that are not trained to zero, before it is clipped."""
        trained = self._trained(lane)
        return {k: torch.where(trained[k], g, 0.0) for k, g in grads.items()}

    def after_step(self, before: Params, lane: Lane, grads: Params) -> Lane:
        """Restore all parameters that the optimiser must not have moved."""
        trained = self._trained(lane)
        params = {
            k: torch.where(trained[k], p, before[k]) for k, p in lane.params.items()
        }
        return lane._replace(params=params)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Prune if no epoch was left for it."""
        if bool(lane.state.pruned):
            return lane
        # pruning looks at weights only: it needs neither subjects nor a random key
        return self.begin_epoch(model, lane, {}, torch.zeros((), dtype=torch.int32))

    def network(self, lane: Lane, site: int) -> Params:
        """Return the parameters of the network of the `site`-th site (from 1).

        That of the last site is the network as it is; an earlier one has zeros in place of the weights
        of later sites and of free ones.
        """
        if site == lane.state.sites.shape[0]:
            return lane.params
        params = dict(lane.params)
        for k, owner in lane.state.owner.items():
            earlier = (owner > 0) & (owner <= site)
            params[k] = torch.where(earlier, params[k], 0.0)
        return params

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """Return log-probabilities by each subject's least uncertain network, that of least entropy.

        While there is one network, its logits are returned.
        """
        sites = lane.state.sites.shape[0]
        if sites < 2:
            return super().logits(model, lane, inputs)
        networks = [self.network(lane, site) for site in range(1, sites + 1)]
        logits = [model.apply(p, lane.stats, inputs).logits for p in networks]
        log_p = torch.log_softmax(torch.stack(logits), -1)  # (sites, n, classes)
        entropy = -(log_p.exp() * log_p).sum(-1)  # (sites, n)
        best = entropy.argmin(0)[None, :, None]  # number of each subject's network
        best = best.expand(1, -1, log_p.shape[-1])
        return log_p.gather(0, best)[0]
