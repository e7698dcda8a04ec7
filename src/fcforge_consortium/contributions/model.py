"""The model that contributions and the sums of rounds make of a base model.

The model is a function of the set of records alone and is never stored, so it cannot be forged.
Sums of whole numbers are exact: any order of hospitals and any tree of merges give the same model.
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

# rise of the agreement with the base model when a contribution is left out: honest simulated hospitals
# reach .06, 50 people who all point against the base model 1.8
TURNED = 0.3
# agreement with the base model that contributions of honest people keep: sixteen sites of ABIDE alone
# reach .74 and more at every epsilon, small simulated hospitals .47
LEAST_AGREEMENT = 0.2
LUCK = 8.0  # standard deviations of the noise that no honest contribution exceeds


class Summand(NamedTuple):
    """A summand of the model: a hospital's contribution, or the sum of a round.

    Attributes
    ----------
    name : str
        The hospital, or the round.
    sites : tuple of str
    numbers : ndarray of shape (m,), int64
        In units of the grid.
    variance : Fraction
        Variance of the noise on each number, in squared units.
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
        for summand in given:
            numbers = numbers + summand.numbers
        variance = sum((summand.variance for summand in given), Fraction())
        return cls(numbers, variance, len(given))

    def without(self, part: "Total") -> "Total":
        """Return the sum without a part of it."""
        return Total(
            self.numbers - part.numbers,
            self.variance - part.variance,
            self.contributions - part.contributions,
        )


class ContributionModel(Model):
    """A base model with the contributions of hospitals.

    Parameters
    ----------
    exchange : Exchange
        A file whose root is a base model.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.target = exchange.root.policy.target

    # -- base model and sites --------------------------------------------------------------------------------
    @cached_property
    def start(self) -> PublicBaseModel:
        """The base model, its claims checked."""
        return public_start.read_base_model(self.exchange)

    @property
    def n_rois(self) -> int:
        """Number of ROIs of every scan."""
        return self.exchange.root.n_rois

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Names of the ROIs; empty where unknown."""
        return self.exchange.root.roi_names

    @property
    def needs(self) -> tuple[str, ...]:
        """Covariates that every scan must have."""
        return self.exchange.root.removes

    @cached_property
    def temperature(self) -> float:
        """Divisor of scores that makes them log odds; 1 for a number."""
        if not self.target.classes:
            return 1.0
        return vector.temperature(self.start.space, self.head)

    @property
    def sites(self) -> tuple[str, ...]:
        """Hospitals that contributed, or the public sites if none did."""
        return self.hospitals or tuple(self.exchange.root.sites)

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Hospitals that contributed."""
        return tuple(sorted({site for given in self.given for site in given.sites}))

    # -- contributions ----------------------------------------------------------------------------
    @cached_property
    def given(self) -> tuple[Summand, ...]:
        """Contributions and sums of rounds, every number read from the file."""
        summands = []
        for record in self.exchange.of(Contribution):
            numbers = self.read_numbers(record)
            variance = Fraction(record.variance)
            summands.append(Summand(record.site, (record.site,), numbers, variance))
        for closed in [each for each in self.rounds if each.published]:
            words = [self.read_numbers(half) for half in closed.aggregate_shares]
            numbers = rounds.signed_numbers(rounds.added(words))
            variance = sum(
                (Fraction(h.variance) for h in closed.aggregate_shares), Fraction()
            )
            name = f"round {closed.name}"
            summands.append(Summand(name, closed.hospitals, numbers, variance))
        return tuple(summands)

    @cached_property
    def rounds(self) -> tuple[rounds.Round, ...]:
        """Rounds that at least one aggregator has closed."""
        return rounds.rounds_of(self.exchange)

    @property
    def size(self) -> int:
        """Length of a contribution."""
        return self.start.space.n_numbers

    @property
    def grid(self) -> float:
        """Value of one unit: about a millionth of the clip."""
        return self.start.space.grid

    def spent(self, record: Charged) -> tuple[float, float]:
        """Return the largest epsilon and delta that one person behind a record has spent."""
        return record.spent_epsilon, record.spent_delta

    def read_numbers(self, record: NoisyVector) -> np.ndarray:
        """Return the numbers (m,) of a contribution or of an aggregate share.

        Raises
        ------
        ExchangeError
            If the arrays of the record have another name, shape or type.
        """
        kind = "uint64" if isinstance(record, AggregateShare) else "int64"
        arrays = self.exchange.arrays(record)
        shapes = {name: (a.shape, str(a.dtype)) for name, a in arrays.items()}
        if shapes != {NUMBERS: ((self.size,), kind)}:
            raise ExchangeError(
                f"the {record.title} holds {shapes!r:.80}; a contribution to this base model "
                f"has {self.size} whole numbers."
            )
        return arrays[NUMBERS]

    def head_count(self, given: Summand) -> tuple[float, float]:
        """Return the noisy number of people in a summand, and its standard deviation."""
        uncertain = math.sqrt(given.variance) / vector.COUNT
        return int(given.numbers[-1]) / vector.COUNT, uncertain

    # -- the linear model ----------------------------------------------------------------------------------
    @cached_property
    def total(self) -> Total:
        """Sum of all contributions and rounds."""
        return Total.of(self.given, self.size)

    def beta(self, local: Any = 0) -> np.ndarray:
        """Return the step from the base model.

        Parameters
        ----------
        local : ndarray of shape (n, m), or 0
            Numbers to leave out of the sum, one row per step to return.
        """
        total = self.total
        sums = total.numbers.astype(np.float64) - local
        return self._step(sums, total.variance, total.contributions)

    def beta_without(self, name: str) -> np.ndarray:
        """Return the step from the base model without one hospital or round."""
        left_out = [given for given in self.given if given.name == name]
        return self._step_without(left_out)

    def _step_without(self, given: Sequence[Summand]) -> np.ndarray:
        """Return the step from the base model without some of the summands."""
        rest = self.total.without(Total.of(given, self.size))
        sums = rest.numbers.astype(np.float64)
        return self._step(sums, rest.variance, rest.contributions)

    def _step(
        self, sums: np.ndarray, variance: Fraction, contributions: int
    ) -> np.ndarray:
        """Return the step from the base model that noisy sums give.

        Parameters
        ----------
        sums : ndarray of shape (..., m)
        variance : Fraction
            Variance of the noise on each number, in squared units.
        contributions : int
            Number of summands.
        """
        return vector.solve(self.start.space, sums, float(variance), contributions)

    def odds_without(self, x: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Return the log odds (n,) of people by the model without their own contributions.

        Parameters
        ----------
        x : ndarray of shape (n, p)
            Features, confounds removed.
        local : ndarray of shape (n, m)
            Numbers that each person added to the sum.
        """
        space = self.start.space
        z = space.base.standardise(x)
        moved = (space.coordinates(z) * self.beta(local=local)).sum(1)
        return (space.base.score(z) + moved) / self.temperature

    @cached_property
    def head(self) -> vector.LinearModel:
        """Linear model on standardised features."""
        return vector.stepped_model(self.start.space, self.beta())

    def odds(self, x: np.ndarray) -> np.ndarray:
        """Return calibrated scores of features (n, p), as in `Scores`."""
        z = self.start.space.base.standardise(x)
        score = z @ self.head.weight + self.head.bias
        return calibrated(score, self.temperature)

    def summary(self) -> str:
        """Return a short description for `verify`."""
        moved = np.linalg.norm(self.beta())
        return (
            f"model computed from {counted(len(self.given), 'contribution')}, {moved:.4f} away "
            f"from the base model; state {self.exchange.id[:16]}"
        )

    # -- checks ------------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise `ExchangeError` unless base model, budgets, noise and counts are consistent."""
        _ = self.start
        for record in self.exchange.of(Budgeted):
            with at(f"the {record.title}", kind=ExchangeError):
                self.check_budget(record)
                if isinstance(record, NoisyVector):
                    self.check_noise(record)
        for given in self.given:
            with at(f"contribution of '{given.name}'"):
                self.check_possible(given)

    def check_budget(self, record: Budgeted) -> None:
        """Raise an error if a record's budget is above the policy's or below its own cost.

        Raises
        ------
        ExchangeError, ConfigError
        """
        exact = record.mechanism == "none"
        budgets = [(record.epsilon, record.delta)]
        if isinstance(record, Charged):
            budgets.append((record.spent_epsilon, record.spent_delta))
        for epsilon, delta in budgets:
            if exact and (epsilon or delta):
                raise ExchangeError("exact sums cannot have a budget.")
            self.exchange.root.policy.require_budget(None if exact else epsilon, delta)
            if record.epsilon > epsilon or record.delta > delta:
                raise ExchangeError(
                    f"states that its people spent epsilon {epsilon:g} and delta {delta:g} in all, "
                    "less than the record alone costs them."
                )
        # raises for a budget whose noise cannot be drawn
        vector.noise_units(*record.budget, self.size)

    def check_noise(self, record: NoisyVector) -> None:
        """Raise `ExchangeError` unless numbers, noise, grid and budget fit each other."""
        self.read_numbers(record)
        wanted = vector.noise_units(*record.budget, self.size)
        stated = math.sqrt(Fraction(record.variance))
        if record.grid != self.grid or abs(stated - wanted) > 1:
            raise ExchangeError(
                f"states noise of {stated:.6g} units of {record.grid:.4g}; epsilon "
                f"{record.epsilon:g} needs {wanted} units of {self.grid:.4g}.",
                do="The stated budget does not hold; ask the hospital for a new contribution.",
            )

    def check_possible(self, given: Summand) -> None:
        """Raise `ExchangeError` for a sum that no group of people within the policy can have."""
        policy = self.exchange.root.policy
        people, uncertain = self.head_count(given)
        noise = math.sqrt(given.variance) * self.grid
        fewest = policy.fewest_people * len(given.sites)
        most = self.exchange.root.most_people * len(given.sites)
        margin = LUCK * uncertain + 1e-6
        moved = math.hypot(*(given.numbers[:-1] * self.grid))
        reach = (max(people, 0.0) + margin) * self.start.space.clip
        farthest = reach + LUCK * noise * math.sqrt(len(given.numbers))
        if not fewest - margin <= people <= most + margin or moved > farthest:
            raise ExchangeError(
                f"its numbers cannot come from {fewest} to {most} people: they count about "
                f"{people:.0f} and move the model by {moved:.4g} (at most {farthest:.4g}).",
                do="`fcforge consortium contribute` does not write such a file; ask the hospital "
                "for a new contribution.",
            )

    # -- for the estimator
    def on_record(
        self, key: Signer = None, *, allow_real_subjects: bool = False
    ) -> Exchange:
        """Return the exchange itself: a contribution is recorded when it is made.

        Parameters
        ----------
        key : private key, optional
            Refused: a contribution is signed when it is made.
        allow_real_subjects : bool
            Ignored: contributions contain no subjects.
        """
        if key is not None:
            message = "a contribution is signed when it is made."
            raise ConfigError(message, do="Use `fcforge consortium contribute --sign`.")
        return self.exchange

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of a `ConsortiumClassifier` that continues from the model."""
        return {"method": "contributions", "base_model": self.exchange}

    # -- predictions -----------------------------------------------------------------------------------
    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return calibrated scores of scans (n, R, R), however unusual they are.

        Raises
        ------
        DataError
            If a covariate that the base model removes is missing or out of range.
        """
        ids = [f"subject {k + 1}" for k in range(len(fc))]
        self.start.require_covariates(covariates, ids)
        return self.odds(self.start.features(fc, covariates))

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Return calibrated scores of scans (n, R, R), or the reasons for abstaining.

        The model abstains from scans that are unlike the public people's, and from scans without a
        covariate that the base model removes.
        """
        why = self.start.wrong_covariates(covariates, len(fc))
        unknown = np.full(len(fc), np.nan)
        known = {name: covariates.get(name, unknown) for name in self.needs}
        x = self.start.features(fc, known)
        odds = self.odds(x)
        apart = self.start.strangeness(x)
        every = np.stack([*apart.values()])
        strange = every.max(0)
        for i, kind in enumerate(every.argmax(0)):
            if why[i]:
                strange[i] = np.nan
            elif strange[i] > 1:
                why[i] = [*apart][kind]
            if why[i]:
                odds[i] = np.nan
        return Scores(odds, strange, tuple(why))

    def baselines(self) -> Mapping[str, "ContributionModel"]:
        """Return the base model alone, which shows the gain of the contributions."""
        if not self.given:
            return {}
        alone = Exchange(self.exchange.root, (), self.exchange.payloads)
        return {"base model alone": ContributionModel(alone)}

    def reference(self) -> tuple[np.ndarray, str]:
        """Return the scan (R, R) that explanations compare others with, and its description."""
        space = self.start.space
        mean = from_log_features(space.base.mean[None], space.base.shrink)[0]
        return mean, "the mean of the public people"

    def influence(self) -> dict[str, float]:
        """Return how far the model moves without each hospital or round.

        The distance is the standard deviation, over the public people, of the change in scores,
        divided by the temperature of the base model. The model's own temperature would not do: a
        contribution that makes scores large also raises it. A round counts as one summand, because
        nobody can see inside its sum.
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

    @cached_property
    def agreement(self) -> float:
        """Return the correlation of the model's scores with the base model's on public people."""
        return vector.agreement(self.start.space, self.head.weight)

    @cached_property
    def agreement_without(self) -> dict[str, float]:
        """Return `agreement` without each hospital that contributed alone, and without each round.

        It is the effect of leaving one out on public people, whose scans the file does not hold: the
        base model's variances stand for them. A round is left out as a whole, because nobody can
        see inside its sum.
        """
        return {
            name: self._agreement_of(self.beta_without(name)) for name in self._names
        }

    @cached_property
    def agreement_alone(self) -> dict[str, float]:
        """Return `agreement` with the contributions of one hospital, or with one round, alone.

        Two hospitals that turn the model together hide each other from `agreement_without`; here
        nothing that others contribute changes a value.
        """
        values = {}
        for name in self._names:
            contributions = [given for given in self.given if given.name == name]
            total = Total.of(contributions, self.size)
            sums = total.numbers.astype(np.float64)
            values[name] = self._agreement_of(
                self._step(sums, total.variance, len(contributions))
            )
        return values

    @property
    def _names(self) -> list[str]:
        """Return the hospitals that contributed alone, and the rounds, sorted."""
        return sorted({given.name for given in self.given})

    def _agreement_of(self, beta: np.ndarray) -> float:
        """Return `agreement` after a step from the base model."""
        space = self.start.space
        return vector.agreement(space, vector.stepped_model(space, beta).weight)

    def turning(self) -> list[str]:
        """Return hospitals and rounds that turn the model away from the base model.

        Without them the model agrees much more with the base model, or with them alone it agrees
        less than with honest people.
        """
        without, alone = self.agreement_without, self.agreement_alone
        return [
            name
            for name in self._names
            if without[name] - self.agreement > TURNED or alone[name] < LEAST_AGREEMENT
        ]

    def outliers(self) -> list[str]:
        r"""Return hospitals and rounds whose people move the model one way, beyond noise and chance.

        The base model errs in one direction for one person and in the other for the next. The
        vectors of n people therefore add up to about :math:`\sqrt n` times the clip, and noise on d
        numbers to :math:`\sqrt{d V}`. ABIDE's sites reach n / 10 to n / 5 times the clip. A
        hospital that falsifies diagnoses to turn the model reaches n times the clip.
        """
        one_sided = set()
        for given in self.given:
            by_column = given.numbers[:-1].reshape(self.start.space.columns, -1)
            moved = by_column[:, :-1].astype(np.float64).ravel()  # without intercepts
            n = max(self.head_count(given)[0], 1.0)
            noise = math.sqrt(len(moved) * given.variance)
            noise *= 1 + 5 / math.sqrt(len(moved))
            chance = vector.UNIT * (n / 4 + 2 * math.sqrt(n))
            if np.linalg.norm(moved) > noise + chance:
                one_sided.add(given.name)
        return sorted(one_sided)

    def attribution(
        self, covariates: Covariates
    ) -> "tuple[ScoredModel, np.ndarray | float]":
        """Return the linear model on the matrix logarithm, and the score that confounds add.

        Parameters
        ----------
        covariates : mapping of str to ndarray of shape (n,)
        """
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
        """Return a note about people who are among the public ones; empty if none is."""
        x = self.start.features(people.fc, people.covariates)
        public = self.start.public_among(people.subject_id.tolist(), x)
        if not public:
            return ()
        return (
            f"{len(public)} of these people are among the public ones (first: {public[0]}): "
            "the result is too optimistic.",
        )


def contributions_of(exchange: Exchange) -> ContributionModel:
    """Return the model of a file with a base model; raise `ConfigError` for a chain."""
    model = exchange.model
    if not isinstance(model, ContributionModel):
        hint = (
            "Use `fcforge consortium chain continue`, or name a file with a base model."
        )
        raise ConfigError("this file holds a chain, not a base model.", do=hint)
    return model
