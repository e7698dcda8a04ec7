"""A chain: hospitals train one model one after another.

A *chain* is a sequence of records: a root (settings and policy) and one *step* for each hospital, which
builds on the step before. A step trains the received network on the hospital's people. The *state* after
a step is all that the next hospital receives: network, memory of the method, synthetic subjects
(`chains.state`). Only the last step's state travels. Steps of a chain equal, bit by bit, the run that
`fcforge run` would do for that order and seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import count
from typing import Any, Self

import numpy as np
import torch

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.spec import Conditions
from fcforge.core.subjects import Site
from fcforge.core.target import Target
from fcforge.data import scan_checks
from fcforge.data.cohort import Cohort
from fcforge.data.scan_checks import Known, Reference
from fcforge.data.splits import split_site
from fcforge.evaluation import explanation
from fcforge.evaluation.attribution import ScoredModel
from fcforge.experiments import config
from fcforge.methods import scorer_of
from fcforge.methods.base import Learner
from fcforge.nn.resources import one_thread
from fcforge.training.evaluation import class_scores
from fcforge.training.loop import Tick
from fcforge_consortium.base_model.quality import quality, require_labels
from fcforge_consortium.chains.settings import ChainSettings, first_settings
from fcforge_consortium.chains.state import State, empty_state, read_state
from fcforge_consortium.chains.step import FEWEST, SiteStep, people_learned, whole_site
from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.model import Covariates, Model, Scores
from fcforge_consortium.options import ChainBeginRequest, ChainContinueRequest
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import Step
from fcforge_consortium.records.policy import Policy
from fcforge_consortium.step_result import StepResult

REAL_FLAG = "allow_real_subjects"
ACCEPT_LABELS = "accept_labels"
ACCEPT_SCANS = "accept_scans"


def begin(request: ChainBeginRequest, people: Cohort, key: Signer) -> Exchange:
    """Return a chain without steps, with the settings that the first hospital chose by a config.

    Parameters
    ----------
    request : ChainBeginRequest
    people : Cohort
        People of the first hospital; only their ROIs and target are used.
    key : private key or None
        Key of the first hospital, which signs the root.
    """
    experiment = config.load_experiment(request.config, allow_code=request.allow_code)
    settings = first_settings(people, experiment, request.learner)
    target = people.target
    if target == Target():
        target = Target(classes=("control", "patient"))
    return empty_chain(settings, target, request.site, key)


def empty_chain(
    settings: ChainSettings, target: Target, site: str, key: Signer = None
) -> Exchange:
    """Return an exchange with the root of a chain and nothing else.

    Parameters
    ----------
    settings : ChainSettings
    target : Target
        The variable that is learned.
    site : str
        The first hospital, which chose the settings.
    key : private key, optional
    """
    # nothing that a chain hands on has noise
    policy = Policy(exact_allowed=True).about(target)
    plain = settings.to_json()
    root = records.make(records.Chain, site, 0, (), key, settings=plain, policy=policy)
    return Exchange(root)


class Chain(Model):
    """The model computed from the records of a chain.

    Parameters
    ----------
    exchange : Exchange
    state : State, optional
        State after the last step, if it was learned in memory and is not in a record yet.
    """

    def __init__(self, exchange: Exchange, state: State | None = None) -> None:
        self.exchange = exchange
        self.target = exchange.root.policy.target
        self._state = state

    # -- settings, steps and state -----------------------------------------------------------------
    @cached_property
    def settings(self) -> ChainSettings:
        """Return the settings that all hospitals of the chain share."""
        return ChainSettings.from_json(self.exchange.root.settings)

    @cached_property
    def learner(self) -> Learner:
        """Return the learner: method, model and generator."""
        return self.settings.build(self.target)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps in order; raise `ExchangeError` for a chain that forks or has a gap."""
        after: dict[
            str, Step
        ] = {}  # the step that continues a record, by the record's id
        for step in self.exchange.of(Step):
            other = after.setdefault(step.parents[0], step)
            if other is not step:
                raise ExchangeError(
                    f"the chain forks: '{other.site}' and '{step.site}' both continue the same "
                    "step.",
                    do="A chain has one order; one of them must learn after the other.",
                )
        ordered = []
        place = self.exchange.root.id
        while place in after:
            ordered.append(after.pop(place))
            place = ordered[-1].id
        if after:
            lost = next(iter(after.values()))
            raise ExchangeError(
                f"the {lost.title} names a parent that is not a step of the chain."
            )
        return tuple(ordered)

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the hospitals whose steps are in the chain, in order."""
        return tuple(step.site for step in self.steps)

    @property
    def n_rois(self) -> int:
        """Return the number of ROIs of every scan."""
        return self.settings.n_rois

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Return the names of the ROIs; empty if they are unknown."""
        return self.settings.roi_names

    @cached_property
    def state(self) -> State:
        """Return the state after the last step, checked."""
        if self._state is not None:
            return self._state
        if not self.steps:
            return empty_state(self.n_rois, self.target)
        last = self.steps[-1]
        if not last.payload:
            raise ExchangeError(f"the {last.title} has lost its arrays.")
        data = self.exchange.payloads[last.payload]
        known = (len(self.steps), last.title, self.target)
        return read_state(data, self.settings, *known)

    @cached_property
    def temperature(self) -> float:
        """Return the geometric mean of the hospitals' temperatures; 1 if no hospital fitted one."""
        fitted = [step.temperature for step in self.steps]
        logs = [math.log(t) for t in fitted if t is not None]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    def summary(self) -> str:
        """Return the number of steps, parameters and subjects, and the id of the set of records."""
        numbers = sum(v.numel() for v in self.state.lane.params.values())
        remembered = len(self.state.remembered)
        return (
            f"a chain of {len(self.steps)} steps: {numbers} parameters, {remembered} remembered "
            f"and {len(self.state.held_out)} synthetic held-out subjects; state "
            f"{self.exchange.id[:16]}"
        )

    # -- checks ------------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise `ExchangeError` unless steps and arrays are those of one chain."""
        seen = set[str]()
        for place, step in enumerate(self.steps, start=1):
            if step.number != place:
                raise ExchangeError(
                    f"the {step.title} must have the number {place}, by its place in the chain."
                )
            if step.site in seen:
                raise ExchangeError(f"the chain learns site '{step.site}' twice.")
            seen.add(step.site)
            if not seen.issuperset(step.held_out):
                raise ExchangeError(
                    f"the {step.title} measures a site it has not seen."
                )
            limits = [value is None for _, value in step.reference]
            if any(limits) != all(limits):
                raise ExchangeError(f"the {step.title} has lost some limits of scans.")
        flags = self.steps[-1].flags if self.steps else (REAL_FLAG,)
        if self.settings.copies_real and REAL_FLAG not in flags:
            raise ExchangeError("holds real subjects without the flag that allows it.")
        _ = self.state

    def require_next(self, site: str, n_rois: int) -> None:
        """Raise `ExchangeError` if a site cannot be learned next.

        Parameters
        ----------
        site : str
            Name of the site.
        n_rois : int
            Number of ROIs of its scans.
        """
        if self.learner.method.depends_on == "all":
            title = self.settings.learner.title
            raise ExchangeError(
                f"learner '{title}' needs all sites at once: nothing to hand over.",
                do="Choose a continual method; see `fcforge list methods`.",
            )
        if n_rois != self.n_rois:
            raise ExchangeError(
                f"the data have {n_rois} ROIs, the chain {self.n_rois}.",
                do="All hospitals of a chain use one atlas.",
            )
        if site in self.sites:
            raise ExchangeError(
                f"site '{site}' was learned already.",
                do="Give the new site another name.",
            )

    # -- learning ----------------------------------------------------------------------------------
    def learn(
        self,
        people: Cohort,
        asked: ChainBeginRequest | ChainContinueRequest,
        key: Signer,
        tick: Any,
    ) -> StepResult:
        """Train the model on the people of one site; nothing is written.

        Parameters
        ----------
        people : Cohort
            People of the site.
        asked : ChainBeginRequest or ChainContinueRequest
            Name of the site, and the warnings that the hospital accepts.
        key : private key or None
            Key of the hospital.
        tick : callable
            Called after every epoch with the epoch, the number of epochs and a description.

        Returns
        -------
        StepResult
        """
        if self.settings.copies_real:
            require_allowed(self.settings, asked.allow_real_subjects)
        self.require_next(asked.site, people.n_rois)
        site = self.split(people, asked.site)
        accepted = []
        if isinstance(asked, ChainContinueRequest):
            accepted += [ACCEPT_LABELS] if asked.accept_labels else []
            accepted += [ACCEPT_SCANS] if asked.accept_scans else []
        before, flags = self._checked(site, accepted)
        epochs = count(1)
        total = self.settings.training.epochs

        def ticked() -> None:
            tick(next(epochs), total, f"epochs, {site.name}")

        after, entry = self.after(site, flags, tick=ticked)
        made = after.on_record(key, allow_real_subjects=asked.allow_real_subjects)
        known = self.exchange.everything
        # the step; at the first hospital the root, too, if it was signed just now
        new = tuple(record for record in made.everything if record not in known)
        return StepResult(made, new, entry.having_seen(made), before)

    def split(self, people: Cohort, site: str) -> Site:
        """Split a hospital's people as its step trains and tests on them."""
        settings = self.settings
        asked = Conditions(
            test_fraction=settings.test_fraction, val_fraction=settings.val_fraction
        )
        return split_site(people, site, settings.seed, asked)

    def _checked(
        self, site: Site, accept: Sequence[str]
    ) -> tuple[Mapping[str, float], list[str]]:
        """Compare a hospital's people with the received model, before training.

        Names of ROIs are often unknown, but shuffled ROIs show in the FC itself. Swapped diagnoses show
        in the scores of the received model.

        Parameters
        ----------
        site : Site
        accept : sequence of str
            Warnings that the hospital accepts: `ACCEPT_LABELS`, `ACCEPT_SCANS`.

        Returns
        -------
        quality : mapping of str to float
            Metrics of the received model on the people to be learned; empty at the first hospital.
        flags : list of str
            Accepted warnings that applied, for the record.

        Raises
        ------
        DataError
            If a warning applies that was not accepted.
        """
        if not self.steps:
            return {}, []
        learning = site.learning(with_val=True)
        fc = learning.fc.numpy()
        y = learning.y.numpy()
        odds = self.calibrated(fc, {})
        reached = quality(odds, y, self.target)
        flags = []
        if scan_checks.require_alike(self.known, fc, ACCEPT_SCANS in accept):
            flags.append(ACCEPT_SCANS)
        accepted = ACCEPT_LABELS in accept
        if require_labels(odds, y, accepted, self.target):
            flags.append(ACCEPT_LABELS)
        return reached, flags

    def after(
        self, site: Site, flags: Sequence[str] = (), *, tick: Tick = lambda: None
    ) -> tuple[Self, LedgerEntry]:
        """Train one more site in memory.

        Parameters
        ----------
        site : Site
            The hospital's own subjects, split. `test` may be empty.
        flags : sequence of str
            Accepted warnings, to be recorded.
        tick : callable
            Called after every epoch.

        Returns
        -------
        chain : Chain
            With a step that is neither signed nor has arrays yet (`on_record` adds both).
        entry : LedgerEntry
            People who were learned.
        """
        self.require_next(site.name, site.n_rois)
        step = SiteStep(self.settings, self.sites, self.state, site, self.target)
        lane = step.training.train(with_val=self.settings.learns_val, tick=tick)
        state = step.finished(lane)
        people = people_learned(self.settings, site)
        number = len(self.steps) + 1
        entry = LedgerEntry(
            site=site.name, number=number, people=people, epsilon=None, delta=0.0
        )
        figures = step.measured(lane, state.held_out)
        figures |= {"commitment": entry.commitment, "flags": tuple(flags)}
        last = (self.exchange.root, *self.steps)[-1]
        # neither signed nor with arrays yet
        record = records.make(Step, site.name, number, [last.id], None, **figures)
        grown = Exchange(self.exchange.root, (*self.exchange.records, record))
        return type(self)(grown, state), entry

    def with_everybody(self, people: Cohort) -> tuple[Self, LedgerEntry]:
        """Train one more site on all its people, without a test part; return as `after`."""
        return self.after(whole_site(people, self.settings))

    def on_record(
        self, key: Signer = None, *, allow_real_subjects: bool = False
    ) -> Exchange:
        """Return the exchange with all steps that were learned in memory, signed and checked.

        Of several new steps only the last one gets arrays: nobody needs the states between.

        Parameters
        ----------
        key : private key, optional
            Key of the hospital whose steps are new.
        allow_real_subjects : bool
            Permission for a method that keeps real subjects, or a generator that copies them. It is
            written into the step for everyone to read; without it such a method is refused.
        """
        # a step that came in a file has arrays; those after the last of them were learned in memory
        places = [k for k, step in enumerate(self.steps) if step.payload]
        n_kept = places[-1] + 1 if places else 0
        new = self.steps[n_kept:]
        if not new:
            return self.exchange
        root = self.exchange.root
        if not n_kept:  # the chain begins here: its root is new, too
            root = root.signed(key)
        others = tuple(r for r in self.exchange.records if r not in new)
        before = Exchange(root, others, self.exchange.payloads)
        before.require_same_signing(key is not None)
        data = self.state.to_bytes()
        digest = sha256(data)
        last = new[-1].changed(payload=digest, flags=self._flags(allow_real_subjects))
        # a record's id covers the ids of its parents: each new step is made again, on the one before
        made = [self.steps[n_kept - 1] if n_kept else root]
        for step in (*new[:-1], last):
            made.append(step.changed(parents=(made[-1].id,)).signed(key))
        return before.joined(made[1:], {digest: data})

    def _flags(self, allowed: bool) -> tuple[str, ...]:
        """Return the flags of the last step, with `REAL_FLAG` where real subjects travel and may.

        Parameters
        ----------
        allowed : bool
            Whether the hospital has allowed real subjects.
        """
        flags = self.steps[-1].flags
        if not self.settings.copies_real or REAL_FLAG in flags:
            return flags
        require_allowed(self.settings, allowed)
        return (*flags, REAL_FLAG)

    # -- predictions -------------------------------------------------------------------------------
    @cached_property
    def known(self) -> list[Known]:
        """Return, for every site with enough synthetic subjects, what its ordinary scans look like.

        Axes come from the synthetic subjects, limits from the site's step.
        """
        known = []
        for place, step in enumerate(self.steps):
            batch = self.state.held_out.of_site(place)
            if step.reference.inside is not None and len(batch) >= FEWEST:
                reference = Reference.of(batch.fc.numpy())
                limits = step.reference.model_dump()
                known.append(Known(step.site, reference, limits))
        return known

    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return calibrated scores of scans (n, R, R), each computed alone.

        None depends on the others, not even by the rounding of a batch. Covariates are not used.
        """
        scans = torch.from_numpy(np.array(fc, dtype=np.float32))
        lane = self.state.lane
        with one_thread():
            each = [class_scores(self.learner, lane, scan) for scan in scans.split(1)]
        columns = (self.target.outputs,) if self.target.kind == "more classes" else ()
        # with an empty part at the end, so that no scans give no scores
        return np.concatenate([*each, np.zeros((0, *columns))]) / self.temperature

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Return calibrated scores of scans (n, R, R), or reasons why there are none."""
        odds = self.calibrated(fc, covariates)
        if not self.known:
            return Scores(odds, np.full(len(fc), np.nan), ("",) * len(fc))
        strange, why = scan_checks.strangeness(self.known, fc)
        odds[strange > 1] = np.nan
        return Scores(odds, strange, tuple(why))

    def reference(self) -> tuple[np.ndarray, str]:
        """Return the scan (R, R) that others are explained against, and its description."""
        if len(self.state.held_out):
            fc = self.state.held_out.batch().fc.double().mean(0).numpy()
            return fc, "the mean of the chain's synthetic subjects"
        return np.eye(self.n_rois), explanation.NOBODY

    def attribution(self, covariates: Covariates) -> tuple[ScoredModel, float]:
        """Return calibrated log odds, to be explained; covariates add nothing."""
        self.require_two_classes("explanations are")
        return scorer_of(self.learner, self.state.lane, self.temperature), 0.0

    def familiar(self, people: Cohort) -> tuple[str, ...]:
        """Return a warning about people of sites that the chain has learned; empty without one."""
        here = [site for site in self.sites if site in set(people.site.tolist())]
        if not here:
            return ()
        n = int(np.isin(people.site, here).sum())
        return (
            f"{n} of these people are of {' and '.join(here)}, which the chain has learned: if they are "
            "the people it learned, the result is too optimistic. --ledger FILE shows whether they are.",
        )

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of a `ConsortiumClassifier` that continues the chain."""
        settings = self.settings
        training = asdict(settings.training)
        names = ("epochs", "batch_size", "lr")
        parameters: dict[str, Any] = {name: training.pop(name) for name in names}
        for name in ("method", "model", "generator"):
            part = getattr(settings.learner, name)
            parameters[name] = part.name if part else None
            parameters[f"{name}_params"] = dict(part.params) if part else None
        for name in ("seed", "held_out", "calibrate", "val_fraction"):
            parameters[name] = getattr(settings, name)
        return {**parameters, "training": training}


def require_allowed(settings: ChainSettings, allowed: bool) -> None:
    """Raise `ExchangeError` for real subjects unless they were allowed by name."""
    if not allowed:
        raise ExchangeError(
            f"learner '{settings.learner.title}' would carry real subjects to the next hospital.",
            do="Choose a method that keeps none, or give --allow-real-subjects (in Python "
            "allow_real_subjects=True; recorded in the step).",
        )


def chain_of(exchange: Exchange) -> Chain:
    """Return the model of a file with a chain; raise `ConfigError` for a base model."""
    model = exchange.model
    if not isinstance(model, Chain):
        hint = "Use `fcforge consortium contribute`, or name a file with a chain."
        raise ConfigError("this file holds a base model, not a chain.", do=hint)
    return model
