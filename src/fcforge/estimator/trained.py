"""A model trained site by site in memory: the part of an estimator that learns.

Each site is one call of the training loop, with one torch thread, so that the numbers are those of
`fcforge run` for the same order of sites, seed and subjects. A lane is one training run (one
learner, site order and seed): its network's parameters and its method's state. Between two sites
the model holds the lane and the subjects that the method remembers, and nothing else. During a
training all subjects are rows of one table, the bank.

A site may return. Its second visit is learned as a further place in the order, with a memory of its
own; the sampler distributes the replayed subjects over all visits.

Shapes: n subjects, R ROIs, K classes.
"""

import math
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import counted
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
from fcforge.experiments.site_training import SiteTraining, Tick, starts_anew
from fcforge.generators import GENERATORS
from fcforge.graphs import edges, from_edges
from fcforge.methods import build_learner
from fcforge.methods.base import Lane, Learner, Method
from fcforge.models.attribution import Scorer
from fcforge.models.edge import Linear
from fcforge.nn.resources import one_thread
from fcforge.training.evaluation import class_scores


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
        Whether the temperature of the probabilities is fitted on the validation part.
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
        Parameters and state after the last site; None before the first. The state refers to
        subjects by their position in `remembered`.
    remembered : FCBatch
        Subjects that the method replays, real or synthetic as the method declares.
    temperatures : tuple of float
        Temperature of each visit that was calibrated.
    copies_real : bool
        Whether `remembered` holds real subjects, or copies of them by a generator.
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
            Method, model and the generator of the first site; all are checked.
        target : Target
        n_rois, seed : int
        """
        # An estimator has no public subjects: methods that need a base model are refused here.
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

    # -- parts --------------------------------------------------------------------------------------
    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of their first visits."""
        return tuple(dict.fromkeys(self.visits))

    @cached_property
    def learner(self) -> Learner:
        """Method and model, for scores; a generator is needed only while a site is learned."""
        # Methods with synthetic replay are not built without a generator; any one will do here.
        # Generators have classes, so methods that learn numbers use none.
        spec = replace(self.learner_spec, generator=Component("corr_gauss"))
        if self.target.kind == "number":
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
        needs_val = not settings.trains_on_all or settings.calibrate == "inner_val"
        share = settings.val_fraction if needs_val else 0.0
        site = untested_site(people, self.seed, share)
        if visit > 1:
            site = replace(site, name=visit_name(name, visit))
        self._require_enough(site, settings)
        next_site = _NextSite(self, site, settings)
        train = next_site.training.train
        if site.train.weight is not None:
            method = next_site.learner.method
            if not method.weighs:
                message = f"method '{method.name}' takes no weights of subjects."
                hint = "Leave sample_weight and class_weight out, or choose another method."
                raise ConfigError(message, do=hint)
        lane = train(with_val=settings.trains_on_all, tick=tick)
        packed, remembered = next_site.packed(lane)
        temperatures = self.temperatures
        if settings.calibrate == "inner_val" and len(site.val):
            # The final lane has seen the validation part: calibrate one that has not.
            if settings.trains_on_all:
                lane = train(with_val=False, tick=lambda: None)
            odds = class_scores(self.learner, lane, site.val.fc)
            temperature = temperature_of_odds(odds, site.val.y.numpy())
            temperatures = (*temperatures, round(temperature, 4))
        copies = next_site.copies_real or self.copies_real
        return replace(
            self,
            visits=(*self.visits, name),
            lane=packed,
            remembered=remembered,
            temperatures=temperatures,
            copies_real=copies,
        )

    def _require_enough(self, site: Site, settings: SiteSettings) -> None:
        """Raise `DataError` if a visit has too few subjects for its generator or its validation.

        A visit without a validation part is accepted if only the temperature needs it and an
        earlier visit has one; a warning says so.

        Parameters
        ----------
        site : Site
            The visit, under the name used in random seeds.
        settings : SiteSettings
        """
        where = f"site '{site.name}'"
        whole = counted(len(site.train) + len(site.val), "subject")
        wait = "Wait for further subjects of the site and give them in one call"
        if settings.generator is not None:
            name = settings.generator.name
            least = GENERATORS[name].min_subjects
            n = len(site.learning(with_val=settings.trains_on_all))
            apart = 0 if settings.trains_on_all else len(site.val)
            if n < least:
                beside = f" beside {apart} for validation" if apart else ""
                raise DataError(
                    f"{counted(n, 'training subject')}{beside} are too few for the generator '{name}'. "
                    "Nothing was learned.",
                    where=where,
                    do=f"{wait}, at least {least}{' beside those for validation' if apart else ''}.",
                )
        if len(site.val):
            return
        message = f"none of its {whole} can be set aside for validation."
        if not settings.trains_on_all:
            raise DataError(
                f"{message} Nothing was learned.",
                where=where,
                do=f"{wait}, at least two of a class; or choose no epoch on that part, "
                "training__selection='fixed'. It is always empty with val_fraction=0.",
            )
        if settings.calibrate == "inner_val":
            if not self.temperatures:
                raise DataError(
                    f"{message} Nothing was learned.",
                    where=where,
                    do=f"{wait}, at least two of a class; or set calibrate='none'. The part is "
                    "always empty with val_fraction=0.",
                )
            kept = "The temperature stays as earlier sites made it."
            warnings.warn(f"{where}: {message} {kept}", stacklevel=2)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the visits as used in random seeds: second and later visits are numbered."""
        counts: dict[str, int] = {}
        names = []
        for name in self.visits:
            counts[name] = counts.get(name, 0) + 1
            names.append(visit_name(name, counts[name]))
        return tuple(names)

    # -- scores ------------------------------------------------------------------------------------
    @property
    def trained_lane(self) -> Lane:
        """The lane of a model that has learned at least one site."""
        assert self.lane is not None  # an estimator is fitted before it predicts
        return self.lane

    def calibrated(
        self, fc: np.ndarray, covariates: Mapping[str, np.ndarray], threads: int = 1
    ) -> np.ndarray:
        """Return calibrated scores of scans; each scan is scored alone, so others do not matter.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        covariates : mapping
            Not used: no confound is removed.
        threads : int
            Threads that share the scans. A user's own ``torch.nn.Module`` uses one.

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
                    by_scan = list(pool.map(scores, scans.split(1)))
            else:
                by_scan = [scores(scan) for scan in scans.split(1)]
        columns = (self.target.outputs,) if self.target.kind == "more classes" else ()
        # gives the result its shape if there is no scan
        no_scores = np.zeros((0, *columns))
        return np.concatenate([*by_scan, no_scores]) / self.temperature

    def scored(self, output: int = 1) -> ScoredModel:
        """Return the score of one output in double precision, for explanations.

        Parameters
        ----------
        output : int
            Class whose log odds against all others are explained; ignored for a number, whose
            value in its own unit is explained.
        """
        learner = self.learner
        lane = self.trained_lane.in_double_precision()
        low, high = self.target.limits
        temperature = self.temperature

        def score(fc: Tensor) -> Tensor:
            """Return one score (m,) for each of m FC matrices (m, R, R).

            If the target is a number: its prediction in the target's unit, of which the network
            predicts the range from low to high as -1 to 1. If it is a class: the calibrated log odds
            of class `output` against all others.
            """
            logits = learner.method.logits(
                learner.model, lane, learner.model.prepare(fc)
            )
            if logits.shape[1] == 1:
                return (logits[:, 0] * (high - low) + low + high) / 2
            others = [k for k in range(logits.shape[1]) if k != output]
            return (logits[:, output] - logits[:, others].logsumexp(1)) / temperature

        # a difference of the network's own logits: with more classes logsumexp is not linear
        plain = type(learner.method).logits is Method.logits and self.target.outputs < 3
        return Scorer.of(learner.model, score, plain=plain)

    def linear_weights(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return weights (n_outputs, n_features) and biases (n_outputs,) of a linear model.

        They are divided by the temperature. None for any other model, or a method that changes
        the logits.
        """
        learner = self.learner
        own_logits = type(learner.method).logits is Method.logits
        if not (own_logits and isinstance(learner.model, Linear)):
            return None
        params = self.trained_lane.params
        scale = self.temperature
        weight = params["head.0.weight"].detach().double().numpy() / scale
        return weight, params["head.0.bias"].detach().double().numpy() / scale


class _NextSite:
    """One more site of a model: who is learned, and the training that learns them.

    Parameters
    ----------
    before : TrainedModel
        Model before the site.
    site : Site
        Its name is the one used in random seeds (`TrainedModel.order`).
    settings : SiteSettings
    """

    def __init__(
        self, before: TrainedModel, site: Site, settings: SiteSettings
    ) -> None:
        self.before = before
        self.generator = settings.generator
        spec = replace(before.learner_spec, generator=settings.generator)
        self.learner = build_learner(
            spec, before.n_rois, has_base_model=False, target=before.target
        )
        anew = starts_anew(self.learner, before.lane)
        run = RunSpec(
            dataset=Component("estimator"),
            learner=spec,
            order=(site.name,) if anew else (*before.order, site.name),
            seed=before.seed,
            training=settings.training,
            val_fraction=settings.val_fraction,
        )
        lane = None if anew else before.lane
        self.training = SiteTraining(self.learner, run, site, lane, before.remembered)

    @property
    def copies_real(self) -> bool:
        """Whether the model holds real subjects, or copies of them, after the site."""
        held = [self.learner.method.keeps]
        if self.generator is not None:
            held.append(GENERATORS[self.generator.name].releases)
        return "real subjects" in held

    def packed(self, lane: Lane) -> tuple[Lane, FCBatch]:
        """Return a trained lane without the bank, and the subjects that its method remembers.

        The state then refers to subjects by their position among the remembered ones.
        """
        bank = self.training.loader.bank
        lane, rows = self.training.packed(lane)
        if not len(rows):
            return lane, self.before.remembered.select(slice(0, 0))
        scans = from_edges(edges(bank.fc(rows)).float())
        weight = None if bank.weight is None else bank.weight[rows]
        return lane, FCBatch(scans, bank.y[rows], weight)
