"""The model of releases and sums around a public start: order-free, mergeable, numpy only.

The head is a function of the set of records alone and never stored, so it cannot be forged: sums of
whole numbers are exact, and any order of hospitals and any tree of merges ends in the same head.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fcforge.base_model.calibration import calibrated
from fcforge.base_model.features import from_log_features
from fcforge.core.errors import ConfigError, ExchangeError, at
from fcforge.core.formatting import counted
from fcforge.data.cohort import Cohort
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.aggregation.rounds import NUMBERS
from fcforge_consortium.base_model import record as public_start
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.record import PublicBaseModel
from fcforge_consortium.model import Covariates, Model, Scores
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import (
    AggregateShare,
    Budgeted,
    Charged,
    Contribution,
    NoisyVector,
)

if TYPE_CHECKING:
    from fcforge.evaluation.attribution import ScoredModel

LUCK = 8.0  # standard deviations of the noise that no honest release exceeds


class Summand(NamedTuple):
    """Something that counts toward the head: a release, or the sum of a round.

    Attributes
    ----------
    name : str
        The hospital, or the round.
    sites : tuple of str
    numbers : ndarray of shape (m,), int64
        In units of the grid.
    variance : Fraction
        Of the noise on each number, in squared units.
    """

    name: str
    sites: tuple[str, ...]
    numbers: np.ndarray
    variance: Fraction


class Total(NamedTuple):
    """Sum of contributions: exact whole numbers (m,) of Python, variance of the noise, count."""

    numbers: np.ndarray
    variance: Fraction
    contributions: int

    @classmethod
    def of(cls, given: Sequence[Summand], size: int) -> Self:
        """Add contributions of `size` numbers each."""
        numbers = np.zeros(size, dtype=object)
        for one in given:
            numbers = numbers + one.numbers
        return cls(numbers, sum((g.variance for g in given), Fraction()), len(given))

    def without(self, part: "Total") -> "Total":
        """Return the sum without a part of it."""
        return Total(
            self.numbers - part.numbers,
            self.variance - part.variance,
            self.contributions - part.contributions,
        )


class ContributionModel(Model):
    """A start with everything that hospitals gave around it.

    Parameters
    ----------
    exchange : Exchange
        Its root is a start.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.target = exchange.root.policy.target

    # -- what it is --------------------------------------------------------------------------------
    @cached_property
    def start(self) -> PublicBaseModel:
        """The start, its claims checked."""
        return public_start.read_base_model(self.exchange)

    @property
    def n_rois(self) -> int:
        """ROIs of every scan."""
        return self.exchange.root.n_rois

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Empty where unknown."""
        return self.exchange.root.roi_names

    @property
    def needs(self) -> tuple[str, ...]:
        """Covariates that every scan must have."""
        return self.exchange.root.removes

    @cached_property
    def temperature(self) -> float:
        """Log odds are scores divided by it; a number has none."""
        if not self.target.classes:
            return 1.0
        return vector.temperature(self.start.space, self.head)

    @property
    def sites(self) -> tuple[str, ...]:
        """Hospitals that gave something, or the public sites where none did."""
        return self.hospitals or tuple(self.exchange.root.sites)

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Those that gave something."""
        return tuple(sorted({site for given in self.given for site in given.sites}))

    # -- what was given ----------------------------------------------------------------------------
    @cached_property
    def given(self) -> tuple[Summand, ...]:
        """Releases and sums of rounds, every number read from the file."""
        found = []
        for release in self.exchange.of(Contribution):
            numbers = self.read_numbers(release)
            variance = Fraction(release.variance)
            found.append(Summand(release.site, (release.site,), numbers, variance))
        for closed in [one for one in self.rounds if one.closed]:
            words = [self.read_numbers(half) for half in closed.aggregate_shares]
            numbers = rounds.signed_numbers(rounds.added(words))
            variance = sum(
                (Fraction(h.variance) for h in closed.aggregate_shares), Fraction()
            )
            name = f"round {closed.name}"
            found.append(Summand(name, closed.hospitals, numbers, variance))
        return tuple(found)

    @cached_property
    def rounds(self) -> tuple[rounds.Round, ...]:
        """Rounds that at least one aggregator has published."""
        return rounds.rounds_of(self.exchange)

    @property
    def size(self) -> int:
        """Numbers of a release."""
        return self.start.space.n_numbers

    @property
    def grid(self) -> float:
        """What one unit is worth: a millionth of the clip."""
        return self.start.space.grid

    def spent(self, record: Charged) -> tuple[float, float]:
        """Epsilon and delta of one of its people at most, every publication of a round counted."""
        return record.spent_epsilon, record.spent_delta

    def read_numbers(self, record: NoisyVector) -> np.ndarray:
        """The numbers (m,) of a release, or the words of a half; `ExchangeError` for others."""
        kind = "uint64" if isinstance(record, AggregateShare) else "int64"
        arrays = self.exchange.arrays(record)
        shapes = {name: (a.shape, str(a.dtype)) for name, a in arrays.items()}
        if shapes != {NUMBERS: ((self.size,), kind)}:
            raise ExchangeError(
                f"the {record.title} holds {shapes!r:.80} where the start asks for "
                f"{self.size} whole numbers."
            )
        return arrays[NUMBERS]

    def head_count(self, given: Summand) -> tuple[float, float]:
        """About how many people something is of, and the standard deviation of that."""
        uncertain = math.sqrt(given.variance) / vector.COUNT
        return int(given.numbers[-1]) / vector.COUNT, uncertain

    # -- the head ----------------------------------------------------------------------------------
    @cached_property
    def total(self) -> Total:
        """Sum of all contributions and rounds."""
        return Total.of(self.given, self.size)

    def beta(self, own: Any = 0) -> np.ndarray:
        """Return the step from the base model; without `own` (n, m) of the sum's numbers."""
        total = self.total
        sums = total.numbers.astype(np.float64) - own
        return self._step(sums, total.variance, total.contributions)

    def beta_without(self, name: str) -> np.ndarray:
        """Return the step from the base model without one hospital or round."""
        mine = [given for given in self.given if given.name == name]
        return self._step_without(mine)

    def _step_without(self, given: Sequence[Summand]) -> np.ndarray:
        rest = self.total.without(Total.of(given, self.size))
        sums = rest.numbers.astype(np.float64)
        return self._step(sums, rest.variance, rest.contributions)

    def _step(
        self, sums: np.ndarray, variance: Fraction, contributions: int
    ) -> np.ndarray:
        return vector.solve(self.start.space, sums, float(variance), contributions)

    def odds_without(self, x: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Log odds (n,) of features (n, p), each without `own` (n, m) of the numbers given."""
        space = self.start.space
        z = space.base.standardise(x)
        moved = (space.coordinates(z) * self.beta(own=own)).sum(1)
        return (space.base.score(z) + moved) / self.temperature

    @cached_property
    def head(self) -> vector.LinearModel:
        """The head on standardised features."""
        return vector.stepped_model(self.start.space, self.beta())

    def odds(self, x: np.ndarray) -> np.ndarray:
        """Calibrated scores of features (n, p), as in `Scores`."""
        z = self.start.space.base.standardise(x)
        score = z @ self.head.weight + self.head.bias
        return calibrated(score, self.temperature)

    def summary(self) -> str:
        """What follows from the records, in a few words."""
        moved = np.linalg.norm(self.beta())
        return (
            f"head recomputed from {counted(len(self.given), 'contribution')}, {moved:.4f} away from "
            f"the public head; state {self.exchange.id[:16]}"
        )

    # -- checks ------------------------------------------------------------------------------------
    def check(self) -> None:
        """Start, budgets, noise and counts are what they claim to be."""
        _ = self.start
        for record in self.exchange.of(Budgeted):
            with at(f"the {record.title}", kind=ExchangeError):
                self.check_budget(record)
                if isinstance(record, NoisyVector):
                    self.check_noise(record)
        for given in self.given:
            with at(f"what '{given.name}' gave"):
                self.check_possible(given)

    def check_budget(self, record: Budgeted) -> None:
        """Raise for what the policy lets nobody spend, or less than this costs its people."""
        exact = record.mechanism == "none"
        budgets = [(record.epsilon, record.delta)]
        if isinstance(record, Charged):
            budgets.append((record.spent_epsilon, record.spent_delta))
        for epsilon, delta in budgets:
            if exact and (epsilon or delta):
                raise ExchangeError("exact sums cannot have a budget.")
            self.exchange.root.policy.require_budget(None if exact else epsilon, delta)
            if record.epsilon > epsilon or record.delta > delta:
                said = f"its people spent epsilon {epsilon:g} and delta {delta:g}"
                raise ExchangeError(f"says that {said}, less than it costs them.")
        vector.noise_units(
            *record.budget, self.size
        )  # raises where there can be no such noise

    def check_noise(self, record: NoisyVector) -> None:
        """Raise `ExchangeError` unless numbers, noise, grid and budget fit each other."""
        self.read_numbers(record)
        wanted = vector.noise_units(*record.budget, self.size)
        stated = math.sqrt(Fraction(record.variance))
        if record.grid != self.grid or abs(stated - wanted) > 1:
            raise ExchangeError(
                f"states noise of {stated:.6g} units of {record.grid:.4g} where epsilon "
                f"{record.epsilon:g} asks for {wanted} of {self.grid:.4g}.",
                do="Its budget is not what it says; ask the hospital for a new release.",
            )

    def check_possible(self, given: Summand) -> None:
        """Refuse sums that no group of people within the policy can give."""
        policy = self.exchange.root.policy
        people, uncertain = self.head_count(given)
        noise = math.sqrt(given.variance) * self.grid
        fewest = policy.fewest_people * len(given.sites)
        most = self.exchange.root.most_people * len(given.sites)
        room = LUCK * uncertain + 1e-6
        moved = math.hypot(*(given.numbers[:-1] * self.grid))
        reach = (max(people, 0.0) + room) * self.start.space.clip
        farthest = reach + LUCK * noise * math.sqrt(len(given.numbers))
        if not fewest - room <= people <= most + room or moved > farthest:
            raise ExchangeError(
                f"its numbers are not of {fewest} to {most} people: about "
                f"{people:.0f}, who moved the head by {moved:.4g} (at most {farthest:.4g}).",
                do="It was not made by `fcforge consortium contribute`; ask the hospital for a new release.",
            )

    # -- for the estimator
    def on_record(
        self, key: Signer = None, *, allow_real_subjects: bool = False
    ) -> Exchange:
        """The exchange: a release is on record as soon as it is made."""
        if key is not None:
            what = "a release is signed when it is made."
            raise ConfigError(what, do="Use `fcforge consortium contribute --sign`.")
        return self.exchange

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of a `ConsortiumClassifier` that continues from the model."""
        return {"method": "forge_release", "start": self.exchange}

    # -- answers -----------------------------------------------------------------------------------
    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Calibrated scores of whatever scan; `DataError` where a covariate is missing."""
        ids = [f"subject {k + 1}" for k in range(len(fc))]
        self.start.require_covariates(covariates, ids)
        return self.odds(self.start.features(fc, covariates))

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Calibrated scores of scans (n, R, R), or why there are none.

        It abstains from a scan that is unlike the public people's, and from one that lacks a
        covariate which the start removes: a guess there would look like an answer.
        """
        why = self.start.wrong_covariates(covariates, len(fc))
        unknown = np.full(len(fc), np.nan)
        known = {name: covariates.get(name, unknown) for name in self.needs}
        x = self.start.features(fc, known)
        odds = self.odds(x)
        apart = self.start.strangeness(x)
        every = np.stack([*apart.values()])
        strange = every.max(0)
        for i, which in enumerate(every.argmax(0)):
            if why[i]:
                strange[i] = np.nan
            elif strange[i] > 1:
                why[i] = [*apart][which]
            if why[i]:
                odds[i] = np.nan
        return Scores(odds, strange, tuple(why))

    def baselines(self) -> Mapping[str, "ContributionModel"]:
        """The public head, beside which what hospitals gave must show its worth."""
        if not self.given:
            return {}
        alone = Exchange(self.exchange.root, (), self.exchange.payloads)
        return {"public head alone": ContributionModel(alone)}

    def reference(self) -> tuple[np.ndarray, str]:
        """The scan (R, R) that others are explained against, and who it is."""
        space = self.start.space
        mean = from_log_features(space.base.mean[None], space.base.shrink)[0]
        return mean, "the mean of the public people"

    def influence(self) -> dict[str, float]:
        """Return how far the model moves without each hospital or round.

        That is the standard deviation, over the public people, by which scores change, divided by
        the temperature of the base model: who makes the model's own scores large could hide behind
        its temperature. Nobody can see inside the sum of a round.
        """
        space = self.start.space
        parts: dict[str, list[Summand]] = {}
        for given in self.given:
            parts.setdefault(given.name, []).append(given)
        moved = {}
        for name in sorted(parts):
            other = vector.stepped_model(space, self._step_without(parts[name]))
            step = vector.spread(space, self.head.weight - other.weight)
            level = np.sum((self.head.bias - other.bias) ** 2)
            size = math.sqrt(space.n_features * step + level)
            moved[name] = size / space.base.temperature
        return moved

    def outliers(self) -> list[str]:
        r"""Hospitals and rounds whose people seem to be of one mind, beyond noise and chance.

        The public head errs one way for one person and the other way for the next, so that what n
        people give adds up to about :math:`\sqrt n` of what one may give, and noise on d numbers
        to :math:`\sqrt{d V}`. ABIDE's sites reach n / 10 to n / 5 of what n may give; who lies
        about people to turn the head reaches for all of it.
        """
        found = set()
        for given in self.given:
            by_column = given.numbers[:-1].reshape(self.start.space.columns, -1)
            moved = by_column[:, :-1].astype(np.float64).ravel()  # without intercepts
            n = max(self.head_count(given)[0], 1.0)
            noise = math.sqrt(len(moved) * given.variance)
            noise *= 1 + 5 / math.sqrt(len(moved))
            chance = vector.UNIT * (n / 4 + 2 * math.sqrt(n))
            if np.linalg.norm(moved) > noise + chance:
                found.add(given.name)
        return sorted(found)

    def attribution(
        self, covariates: Covariates
    ) -> "tuple[ScoredModel, np.ndarray | float]":
        """The head on the matrix logarithm, and what removing the covariates adds."""
        self.require_two_classes("explanations are")
        from fcforge.evaluation.attribution import LogHead  # brings pandas

        space = self.start.space
        head = vector.on_features(space, self.head)
        scale = self.temperature
        scored = LogHead(head.weight / scale, head.bias / scale, space.base.shrink)
        if self.start.confounds is None:
            return scored, 0.0
        removed = self.start.confounds.effect(covariates)
        return scored, -(removed @ scored.weight)

    def familiar(self, people: Cohort) -> tuple[str, ...]:
        """People who are among the public ones."""
        x = self.start.features(people.fc, people.covariates)
        public = self.start.public_among(people.subject_id.tolist(), x)
        if not public:
            return ()
        said = f"{len(public)} of these people are among the public ones"
        return (f"{said} (first: {public[0]}): too good to be true.",)


def contributions_of(exchange: Exchange) -> ContributionModel:
    """Return the model of a file with a base model; raise `ConfigError` for a chain."""
    model = exchange.model
    if not isinstance(model, ContributionModel):
        do = (
            "Use `fcforge consortium chain continue`, or name a file with a base model."
        )
        raise ConfigError("this file holds a chain, not a base model.", do=do)
    return model
