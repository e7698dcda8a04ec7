"""A model trained site by site in memory: the part of an estimator that learns.

Each site is one call of the training loop, with one torch thread, so that the numbers are those of
`fcforge run` for the same order of sites, seed and subjects. Between two sites the model holds the
lane and the subjects that the method remembers, and nothing else.

A site may return. Its second visit is learned as a further place in the order, with a memory of its
own; the sampler distributes the replayed subjects over all visits.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.names import visit_name
from fcforge.core.settings import SHARE_BELOW_ONE, Checked, limits
from fcforge.core.spec import Conditions, LearnerSpec, RunSpec, Training
from fcforge.core.subjects import FCBatch, Site
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort
from fcforge.data.splits import untested_site
from fcforge.evaluation.attribution import ScoredModel
from fcforge.evaluation.explanation import NOBODY
from fcforge.evaluation.temperature import temperature_of_odds
from fcforge.experiments.site_loader import SiteLoader
from fcforge.generators import GENERATORS
from fcforge.graphs import edges, from_edges
from fcforge.methods import build_learner
from fcforge.methods.base import Lane, Learner, Method
from fcforge.models.attribution import Scorer
from fcforge.models.edge import Linear
from fcforge.nn.resources import one_thread
from fcforge.replay.bank import PoolName
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from fcforge.training.start import start_lane

CARRIED = "(from earlier sites)"
Tick = Callable[[], Any]


@limits(val_fraction=SHARE_BELOW_ONE)
@dataclass(frozen=True)
class SiteSettings(Checked):
    """Settings of one site's training; they may differ from site to site.

    Attributes
    ----------
    training : Training
    generator : Component or None
        Generator of the synthetic subjects that a replay method keeps of the site.
    calibrate : {"none", "inner_val"}
        Source of the temperature of the probabilities.
    val_fraction : float
        Share of the site's subjects for inner validation, where one is needed.
    """

    kind = "estimator"
    training: Training
    generator: Component | None = None
    calibrate: Literal["none", "inner_val"] = "none"
    val_fraction: float = Conditions.val_fraction

    @property
    def trains_on_all(self) -> bool:
        """Whether the validation part is trained on too, because no epoch is chosen on it."""
        return self.training.selection == "fixed"


@dataclass(frozen=True)
class ExplainedOutput:
    """One output of a trained model, as `fcforge.evaluation.explanation` explains it.

    Attributes
    ----------
    model : TrainedModel
    output : int
        Class whose log odds against all others are explained; ignored for a number.
    """

    model: "TrainedModel"
    output: int

    @property
    def n_rois(self) -> int:
        """Number of ROIs of every scan."""
        return self.model.n_rois

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Names of the ROIs: unknown."""
        return ()

    def reference(self) -> tuple[np.ndarray, str]:
        """Return a scan without any connectivity, for callers that give no reference."""
        return np.eye(self.n_rois), NOBODY

    def attribution(
        self, covariates: Mapping[str, np.ndarray]
    ) -> tuple[ScoredModel, float]:
        """Return the score of the output, and the part of it that covariates add (zero)."""
        return self.model.scored(self.output), 0.0


@dataclass(frozen=True)
class TrainedModel:
    """A learner after some sites.

    Attributes
    ----------
    learner_spec : LearnerSpec
        Method and model, without a generator.
    target : Target
    n_rois, seed : int
    visits : tuple of str
        Sites in the order in which they were learned; a site that returned appears again.
    lane : Lane or None
        None before the first site. Bank rows of its state are places in `remembered`.
    remembered : FCBatch
        Subjects that the method replays, real or synthetic as the method declares.
    temperatures : tuple of float
        Of the visits that were calibrated.
    copies_real : bool
        Whether `remembered` or a generator's copies are real subjects.
    """

    learner_spec: LearnerSpec
    target: Target
    n_rois: int
    seed: int
    visits: tuple[str, ...]
    lane: Lane | None
    remembered: FCBatch
    temperatures: tuple[float, ...] = ()
    copies_real: bool = False

    @classmethod
    def untrained(
        cls, learner_spec: LearnerSpec, target: Target, n_rois: int, seed: int
    ) -> "TrainedModel":
        """Return the model before its first site; a wrong setting raises `ConfigError`.

        Parameters
        ----------
        learner_spec : LearnerSpec
            With the generator of the first site, which is checked too.
        target : Target
        n_rois, seed : int
        """
        learner = build_learner(
            learner_spec, n_rois, has_base_model=False, target=target
        )
        if learner.method.depends_on == "all":
            raise ConfigError(
                f"method '{learner.method.name}' needs all sites at once.",
                do="Choose a continual method; see `fcforge list methods`.",
            )
        y = torch.zeros(0, dtype=torch.int64 if target.classes else torch.float32)
        nobody = FCBatch(torch.zeros(0, n_rois, n_rois), y)
        alone = replace(learner_spec, generator=None)
        return cls(alone, target, n_rois, seed, (), None, nobody)

    # -- what it consists of -----------------------------------------------------------------------
    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of their first visits."""
        return tuple(dict.fromkeys(self.visits))

    @cached_property
    def learner(self) -> Learner:
        """Method and model; a generator is needed only while a site is learned."""
        stand_in = Component("corr_gauss")
        spec = replace(self.learner_spec, generator=stand_in)
        kind = self.target.kind
        if kind == "number":
            spec = self.learner_spec
        return build_learner(
            spec, self.n_rois, has_base_model=False, target=self.target
        )

    @property
    def temperature(self) -> float:
        """Geometric mean of the visits' temperatures; 1 if none was calibrated."""
        logs = [math.log(t) for t in self.temperatures]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    # -- learning ----------------------------------------------------------------------------------
    def after(
        self, people: Cohort, settings: SiteSettings, *, tick: Tick = lambda: None
    ) -> "TrainedModel":
        """Return the model after one more site.

        Parameters
        ----------
        people : Cohort
            Subjects of one site; all of them are trained on.
        settings : SiteSettings
        tick : callable
            Called after every epoch.
        """
        (name,) = people.site_names
        visit = 1 + self.visits.count(name)
        cuts = not settings.trains_on_all or settings.calibrate == "inner_val"
        share = settings.val_fraction if cuts else 0.0
        site = untested_site(people, self.seed, share)
        if visit > 1:
            site = replace(site, name=visit_name(name, visit))
        step = _SiteTraining(self, site, settings)
        if site.train.weight is not None:
            method = step.learner.method
            if not method.weighs:
                what = f"method '{method.name}' takes no weights of subjects."
                do = "Leave sample_weight and class_weight out, or choose another method."
                raise ConfigError(what, do=do)
        lane = step.train(with_val=settings.trains_on_all, tick=tick)
        packed, remembered = step.packed(lane)
        temperatures = self.temperatures
        if settings.calibrate == "inner_val" and len(site.val):
            if (
                settings.trains_on_all
            ):  # nobody is left to measure it on: train once more
                lane = step.train(with_val=False, tick=lambda: None)
            odds = class_scores(self.learner, lane, site.val.fc)
            temperature = temperature_of_odds(odds, site.val.y.numpy())
            temperatures = (*temperatures, round(temperature, 4))
        copies = step.copies_real or self.copies_real
        return replace(
            self,
            visits=(*self.visits, name),
            lane=packed,
            remembered=remembered,
            temperatures=temperatures,
            copies_real=copies,
        )

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the visits as they enter the random seeds: second visits are numbered."""
        counts: dict[str, int] = {}
        names = []
        for name in self.visits:
            counts[name] = counts.get(name, 0) + 1
            names.append(visit_name(name, counts[name]))
        return tuple(names)

    # -- scores ------------------------------------------------------------------------------------
    @property
    def trained_lane(self) -> Lane:
        """The lane, which exists from the first site on."""
        assert self.lane is not None  # an estimator is fitted before it predicts
        return self.lane

    def calibrated(
        self, fc: np.ndarray, covariates: Mapping[str, np.ndarray], threads: int = 1
    ) -> np.ndarray:
        """Return calibrated scores of scans, each computed alone.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        covariates : mapping
            Not used: no confound is removed.
        threads : int
            Threads that share the scans. A ``torch.nn.Module`` of a user takes one.

        Returns
        -------
        ndarray of shape (n,), or (n, K) for more than two classes
            Log odds of the second class of `target`, log probabilities, or scaled numbers.
        """
        scans = torch.from_numpy(np.array(fc, dtype=np.float32))
        lane = self.trained_lane
        learner = self.learner  # built once, before threads share it
        scores = partial(class_scores, learner, lane)
        with one_thread():
            if threads > 1 and learner.model.lifts:
                with ThreadPoolExecutor(threads) as pool:
                    each = list(pool.map(scores, scans.split(1)))
            else:
                each = [scores(scan) for scan in scans.split(1)]
        columns = (self.target.outputs,) if self.target.kind == "more classes" else ()
        return np.concatenate([*each, np.zeros((0, *columns))]) / self.temperature

    def scored(self, output: int = 1) -> ScoredModel:
        """Return the score to explain.

        Parameters
        ----------
        output : int
            Class whose log odds against all others are explained; ignored for a number, whose
            value in its own unit is explained.
        """
        tensors = {
            name: value.cpu() for name, value in self.trained_lane.named().items()
        }
        for name, value in tensors.items():
            tensors[name] = value.double() if value.is_floating_point() else value
        learner = self.learner
        lane = Lane.from_named(tensors, learner.method.State)
        low, high = self.target.limits
        temperature = self.temperature

        def score(fc: Tensor) -> Tensor:
            u = learner.method.logits(learner.model, lane, learner.model.prepare(fc))
            if u.shape[1] == 1:
                return (u[:, 0] * (high - low) + low + high) / 2
            others = [k for k in range(u.shape[1]) if k != output]
            return (u[:, output] - u[:, others].logsumexp(1)) / temperature

        plain = type(learner.method).logits is Method.logits and self.target.outputs < 3
        return Scorer.of(learner.model, score, plain=plain)

    def linear_weights(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return weights (n_outputs, n_features) and biases (n_outputs,) of a linear model.

        They are divided by the temperature. None for any other model, or a method that changes
        the logits.
        """
        learner = self.learner
        plain = type(learner.method).logits is Method.logits
        if not (plain and isinstance(learner.model, Linear)):
            return None
        params = self.trained_lane.params
        scale = self.temperature
        weight = params["head.0.weight"].detach().double().numpy() / scale
        return weight, params["head.0.bias"].detach().double().numpy() / scale


class _SiteTraining:
    """One site's training: the bank with carried subjects, the site and the lane.

    Parameters
    ----------
    before : TrainedModel
    site : Site
        Named as it enters the random seeds.
    settings : SiteSettings
    """

    def __init__(
        self, before: TrainedModel, site: Site, settings: SiteSettings
    ) -> None:
        self.before = before
        self.site = site
        self.generator = settings.generator
        spec = replace(before.learner_spec, generator=settings.generator)
        self.learner = build_learner(
            spec, before.n_rois, has_base_model=False, target=before.target
        )
        method = self.learner.method
        self.loader = SiteLoader()
        self._carried = self._carry()
        fresh = before.lane is None or method.depends_on == "site"
        order = (site.name,) if fresh else (*before.order, site.name)
        self.spec = RunSpec(
            dataset=Component("estimator"),
            learner=spec,
            order=order,
            seed=before.seed,
            training=settings.training,
            val_fraction=settings.val_fraction,
        )
        self.lane = start_lane(self.learner, before.seed) if fresh else self._lane()

    @property
    def copies_real(self) -> bool:
        """Whether real subjects stay after the site."""
        kept = [self.learner.method.keeps]
        if self.generator is not None:
            kept.append(GENERATORS[self.generator.name].releases)
        return "real subjects" in kept

    def _carry(self) -> Tensor:
        """Put the remembered subjects into the bank and return their rows (m,)."""
        remembered = self.before.remembered
        if not len(remembered):
            return torch.zeros(0, dtype=torch.int64)
        kind = self.learner.method.keeps.removesuffix(" subjects")
        pool = PoolName(kind, CARRIED, self.before.seed, kind)
        return self.loader.bank.add(pool, remembered)

    def _lane(self) -> Lane:
        """Return the lane before the site with bank rows in its state.

        Sums over arrays (gradient norm, penalties) depend on their order in the last digit;
        stored lanes are sorted by name.
        """
        lane = self.before.trained_lane
        state = self.loader.from_places(lane.state, self._carried)
        params, stats = ({k: part[k] for k in sorted(part)} for part in lane[:2])
        return Lane(params, stats, state)

    def train(self, *, with_val: bool, tick: Tick) -> Lane:
        """Return the lane after the site.

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

    def packed(self, lane: Lane) -> tuple[Lane, FCBatch]:
        """Return the lane with places instead of bank rows, and the remembered subjects."""
        bank = self.loader.bank
        # products of strided tensors differ in the last digit from those of stored ones
        lane = pytree.tree_map(_contiguous, lane)
        state, rows = self.loader.to_places(lane.state)
        if not len(rows):
            like = self.before.remembered
            return lane._replace(state=state), like.select(slice(0, 0))
        scans = from_edges(edges(bank.fc(rows)).float())
        weight = None if bank.weight is None else bank.weight[rows]
        remembered = FCBatch(scans, bank.y[rows], weight)
        return lane._replace(state=state), remembered


def _contiguous(tensor: Tensor) -> Tensor:
    """Return a copy with the strides of a stored tensor, also where a dimension has length 1."""
    return tensor.clone(memory_format=torch.contiguous_format)


def class_scores(learner: Learner, lane: Lane, fc: Tensor) -> np.ndarray:
    """Return the scores of a lane for scans, not calibrated.

    Parameters
    ----------
    learner : Learner
    lane : Lane
    fc : Tensor of shape (n, R, R)

    Returns
    -------
    ndarray of shape (n,) or (n, K)
        Log odds of patient; for more than two classes the log probability of each; for a number
        the number on its learned scale.
    """
    with torch.no_grad():
        inputs = learner.model.prepare(fc)
        logits = learner.method.logits(learner.model, lane, inputs).double()
    if logits.shape[1] == 1:
        return logits[:, 0].numpy()
    if logits.shape[1] > 2:
        return logits.log_softmax(1).numpy()
    return (logits[:, 1] - logits[:, 0]).numpy()
