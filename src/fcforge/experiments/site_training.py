"""Training of one site outside a run folder, for an estimator or a step of a chain of hospitals.

A site is one call of the training loop with one torch thread, so that the numbers are those of
`fcforge run` for the same order of sites, seed and subjects. Between two sites only the lane and
the remembered subjects are kept. The lane then refers to subjects by their places among the
remembered ones; during a training it refers to them by their rows in a bank.
"""

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.spec import RunSpec
from fcforge.core.subjects import FCBatch, Site
from fcforge.experiments.site_loader import SiteLoader
from fcforge.methods.base import Lane, Learner
from fcforge.nn.resources import one_thread
from fcforge.replay.bank import PoolName
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import Tick, learn_site

CARRIED = "(from earlier sites)"  # name of the pool of remembered subjects


class SiteTraining:
    """Training of one site: a bank with remembered subjects and those of the site, and the lane.

    Parameters
    ----------
    learner : Learner
    spec : RunSpec
        The run up to and including this site.
    site : Site
    before : Lane or None
        Lane after the sites before this one; None to start a new lane.
    remembered : FCBatch
        Subjects that the state of `before` refers to.

    Attributes
    ----------
    loader : SiteLoader
    remembered_rows : Tensor of shape (m,)
        Bank rows of the remembered subjects.
    lane : Lane
        The lane before the training; its state refers to subjects by their bank rows.
    """

    def __init__(
        self,
        learner: Learner,
        spec: RunSpec,
        site: Site,
        before: Lane | None,
        remembered: FCBatch,
    ) -> None:
        self.learner = learner
        self.spec = spec
        self.site = site
        self.loader = SiteLoader()
        self.remembered_rows = self._add(remembered)
        if before is None:
            self.lane = start_lane(learner, spec.seed)
        else:
            self.lane = self._with_rows(before)

    def _add(self, remembered: FCBatch) -> Tensor:
        """Put the m remembered subjects into the bank and return their rows (m,)."""
        if not len(remembered):
            return torch.zeros(0, dtype=torch.int64)
        # `keeps` is "real subjects" or "synthetic subjects" where any are remembered
        kind = self.learner.method.keeps.removesuffix(" subjects")
        pool = PoolName(kind, CARRIED, self.spec.seed, kind)
        return self.loader.bank.add(pool, remembered)

    def _with_rows(self, lane: Lane) -> Lane:
        """Return a stored lane with bank rows in its state.

        Parameters are sorted by name, because a sum over them (gradient norm, penalties) depends
        on their order in the last digit, and a run reads its lanes from files sorted by name.
        """
        state = self.loader.from_places(lane.state, self.remembered_rows)
        params = dict(sorted(lane.params.items()))
        stats = dict(sorted(lane.stats.items()))
        return Lane(params, stats, state)

    def train(self, *, with_val: bool, tick: Tick) -> Lane:
        """Train the lane on the site and return it.

        Parameters
        ----------
        with_val : bool
            Whether the validation part is trained on too.
        tick : callable
            Called after every epoch.
        """
        view = self.loader.view(self.site, self.spec, with_val=with_val)
        job = Job(self.lane, view, self.spec.seed, self.spec.order)
        bank = self.loader.bank
        with one_thread():
            lanes = learn_site(self.learner, [job], bank, self.spec.training, tick=tick)
        return lanes[0]

    def packed(self, lane: Lane) -> tuple[Lane, Tensor]:
        """Return a trained lane without the bank, and the bank rows of what it remembers (m,).

        The state then refers to subjects by their places in this list of rows.
        """
        # products of strided tensors differ in the last digit from those of stored ones
        lane = pytree.tree_map(_contiguous, lane)
        state, rows = self.loader.to_places(lane.state)
        return lane._replace(state=state), rows


def starts_anew(learner: Learner, before: Lane | None) -> bool:
    """Return whether a site begins with a new lane: the first site, or any if the method says so."""
    return before is None or learner.method.depends_on == "site"


def _contiguous(tensor: Tensor) -> Tensor:
    """Return a copy with the strides of a stored tensor, also where a dimension has length 1."""
    return tensor.clone(memory_format=torch.contiguous_format)
