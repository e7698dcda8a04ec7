"""A learner of more than two classes, or of a number, in memory.

What hospitals hand on (`fcforge.exchange`) speaks of controls and patients. An estimator of another
target learns by the same engine, step by step as `fcforge run` does, and stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fcforge.engine import Job, Learner, learn_site, start_lane
from fcforge.errors import ConfigError
from fcforge.exchange.chains.chain_settings import ChainSettings
from fcforge.exchange.chains.chain_step import whole_site
from fcforge.methods.base import Lane, answer
from fcforge.runner.learners import build_learner
from fcforge.runner.site_loader import SiteLoader
from fcforge.speed import one_thread
from fcforge.types import Target

if TYPE_CHECKING:
    from fcforge.sites.cohort import Cohort


@dataclass(frozen=True)
class Several:
    """What some sites taught a lane.

    Attributes
    ----------
    settings : ChainSettings
        Learner, training and seed.
    target : Target
    lane : Lane
    sites : tuple of str
    """

    settings: ChainSettings
    target: Target
    lane: Lane
    sites: tuple[str, ...] = ()

    @classmethod
    def begun(cls, settings: ChainSettings, target: Target) -> Several:
        """Before the first site; `ConfigError` by name where the target cannot be learned."""
        learner = build_learner(settings.learner, settings.n_rois, False, target)
        if learner.method.row_keys:
            what = (
                f"method '{learner.method.name}' remembers subjects, and the target is"
            )
            do = "Choose a method that remembers none, e.g. 'analytic', or use `fcforge run`."
            raise ConfigError(f"{what} {target.kind}.", do=do)
        return cls(settings, target, start_lane(learner, settings.seed))

    @property
    def learner(self) -> Learner:
        """Method and model."""
        settings = self.settings
        return build_learner(settings.learner, settings.n_rois, False, self.target)

    def added(
        self, people: Cohort, weight: np.ndarray | None, tick: Callable[[], Any]
    ) -> Several:
        """The same after everybody of one more site; see `fcforge.exchange.model.Model`."""
        settings = self.settings
        site, weights = whole_site(people, settings, weight)
        if site.name in self.sites:
            do = "Give every site once, under a name of its own."
            raise ConfigError(f"site '{site.name}' was learned already.", do=do)
        learner = self.learner
        sites = (*self.sites, site.name)
        fresh = not self.sites or learner.method.depends_on == "site"
        lane = start_lane(learner, settings.seed) if fresh else self.lane
        spec = settings.spec(sites[-1:] if fresh else sites)
        loader = SiteLoader()
        view = replace(loader.view(site, spec), weight=weights)
        job = Job(lane, view, spec.seed, spec.order)
        with one_thread():
            (lane,) = learn_site(learner, [job], loader.bank, spec.training, tick=tick)
        return replace(self, lane=lane, sites=sites)

    def answers(self, fc: np.ndarray) -> np.ndarray:
        """Probability of each class (n, K), or the number (n,), of whatever scans (n, R, R)."""
        learner = self.learner
        scans = torch.from_numpy(np.array(fc, dtype=np.float32))
        found = []
        with one_thread(), torch.no_grad():
            for scan in scans.split(1):  # nobody's depends on who else is asked
                inputs = learner.model.prepare(scan)
                logits = learner.method.logits(learner.model, self.lane, inputs)
                found.append(answer(logits.double()).numpy())
        empty = np.zeros((0, *found[0].shape[1:])) if found else np.zeros(0)
        values = np.concatenate([*found, empty])
        return values if self.target.classes else self.target.restored(values)
