"""The model that contributions and the sums of rounds make of a base model.

A *contribution* is a vector of m whole numbers, the sum over a hospital's people (`base_model.vectors`).
A *round* gives the sum of several hospitals at once. Either is a *summand* of the model: the base model
takes one step that follows from the sum of all summands. The numbers are in *units* of a grid, so that
sums are exact: any order of hospitals and any tree of merges give the same model. The model is computed
from the records whenever a file is opened and is never stored, so that it cannot be forged.

Shapes: n people, R ROIs, p features of a scan, d coordinates, m numbers of a contribution.
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
from fcforge.core.names import look_alike
from fcforge.data.cohort import Cohort
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.aggregation.rounds import NUMBERS
from fcforge_consortium.base_model import record as base_model_record
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
    Notice,
)

if TYPE_CHECKING:
    from fcforge.evaluation.attribution import ScoredModel

# rise of the agreement with the base model when a contribution is left out: honest simulated hospitals
# reach .06, 50 people who all point against the base model 1.8
TURNED = 0.3
# agreement with the base model that contributions of honest people keep: sixteen sites of ABIDE alone
# reach .74 and more at every epsilon, small simulated hospitals .47
LEAST_AGREEMENT = 0.2
ROUND = "round {}"  # name of the sum of a round, beside the names of hospitals
LUCK = 8.0  # standard deviations of the noise that no honest contribution exceeds


class Summand(NamedTuple):
    """A summand of the model: a hospital's contribution, or the sum of a round.

    Attributes
    ----------
    name : str
        The hospital, or "round NAME".
    sites : tuple of str
        Hospitals whose people are in it.
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
    """Sum of several summands.

    Attributes
    ----------
    numbers : ndarray of shape (m,), of Python integers
        Exact sum, in units of the grid.
    variance : Fraction
        Variance of all noise on each number, in squared units.
    contributions : int
        Number of summands.
    """

    numbers: np.ndarray
    variance: Fraction
    contributions: int

    @classmethod
    def of(cls, summands: Sequence[Summand], size: int) -> Self:
        """Add summands of `size` numbers each."""
        numbers = np.zeros(size, dtype=object)
        for summand in summands:
            numbers = numbers + summand.numbers
        variance = sum((summand.variance for summand in summands), Fraction())
        return cls(numbers, variance, len(summands))

    def without(self, part: "Total") -> "Total":
        """Return the sum without some of its summands, given as their sum."""
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

    # -- base model and sites ----------------------------------------------------------------------
    @cached_property
    def base_model(self) -> PublicBaseModel:
        """Return the base model, after checking that its statements are consistent."""
        return base_model_record.read_base_model(self.exchange)

    @property
    def n_rois(self) -> int:
        """Return the number of ROIs of every scan."""
        return self.exchange.root.n_rois

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Return the names of the ROIs; empty if they are unknown."""
        return self.exchange.root.roi_names

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the covariates that every scan must have: the base model removes their effects."""
        return self.exchange.root.removes

    @cached_property
    def temperature(self) -> float:
        """Return the divisor of scores that makes them log odds; 1 for a number."""
        if not self.target.classes:
            return 1.0
        return vector.temperature(self.base_model.space, self.head)

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the hospitals that contributed, or the public sites if none did."""
        return self.hospitals or tuple(self.exchange.root.sites)

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Return the hospitals whose people are in the model."""
        sites = {site for summand in self.given for site in summand.sites}
        return tuple(sorted(sites))

    # -- contributions ----------------------------------------------------------------------------
    @cached_property
    def given(self) -> tuple[Summand, ...]:
        """Return the summands of the model: contributions published alone, then published rounds."""
        summands = []
        for record in self.exchange.of(Contribution):
            numbers = self.read_numbers(record)
            variance = Fraction(record.variance)
            summands.append(Summand(record.site, (record.site,), numbers, variance))
        for published in [each for each in self.rounds if each.published]:
            shares = published.aggregate_shares
            # each aggregate share is random by itself; their sum modulo 2^64 is the noisy sum
            words = [self.read_numbers(share) for share in shares]
            numbers = rounds.signed_numbers(rounds.added(words))
            variance = sum((Fraction(share.variance) for share in shares), Fraction())
            name = ROUND.format(published.name)
            summands.append(Summand(name, published.hospitals, numbers, variance))
        return tuple(summands)

    @cached_property
    def rounds(self) -> tuple[rounds.Round, ...]:
        """Return the rounds that at least one aggregator has closed."""
        return rounds.rounds_of(self.exchange)

    def absent(self) -> tuple[str, ...]:
        """Return a sentence about each round, and each late hospital, that is not in the model."""
        sentences = [
            f"Round '{each.name}' is not in the model: {each.state}."
            for each in self.rounds
            if not each.published
        ]
        notices_in = {each.name: each.notices for each in self.rounds}
        waiting: dict[str, list[str]] = {}
        for notice in self.exchange.of(Notice):
            if notice.id not in notices_in.get(notice.round, ()):
                waiting.setdefault(notice.round, []).append(notice.site)
        for name, sites in sorted(waiting.items()):
            hospitals = ", ".join(sites)
            if name in notices_in:
                sentences.append(f"Round '{name}' was closed without {hospitals}.")
            else:
                sentences.append(
                    f"Round '{name}' ({hospitals}) is not in the model: not closed yet."
                )
        return tuple(sentences)

    @property
    def size(self) -> int:
        """Return the length m of a contribution."""
        return self.base_model.space.n_numbers

    @property
    def grid(self) -> float:
        """Return the real value of one unit: about a millionth of the largest norm of a person's vector."""
        return self.base_model.space.grid

    def spent(self, record: Charged) -> tuple[float, float]:
        """Return the epsilon and delta that its hospital's ledger has spent, this record included."""
        return record.spent_epsilon, record.spent_delta

    def read_numbers(self, record: NoisyVector) -> np.ndarray:
        """Return the numbers (m,) of a contribution (int64) or of an aggregate share (uint64).

        Those of a contribution are integers with a sign. An aggregate share is uniformly random modulo
        2^64 and has no sign: only the sum of both shares of a round is read as signed integers.

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

    def head_count(self, summand: Summand) -> tuple[float, float]:
        """Return the noisy number of people in a summand, and the standard deviation of that noise."""
        deviation = math.sqrt(summand.variance) / vector.COUNT
        return int(summand.numbers[-1]) / vector.COUNT, deviation

    # -- the linear model --------------------------------------------------------------------------
    @cached_property
    def total(self) -> Total:
        """Return the sum of all summands."""
        return Total.of(self.given, self.size)

    def beta(self, left_out: Any = 0) -> np.ndarray:
        """Return the step from the base model that the sum of all summands gives.

        Parameters
        ----------
        left_out : ndarray of shape (n, m), or 0
            Numbers to leave out of the sum, one row for each of n steps to return.

        Returns
        -------
        ndarray of shape (d + 1,) or (n, d + 1)
            With a further axis before the last for targets of several columns (`vectors.solve`).
        """
        total = self.total
        sums = total.numbers.astype(np.float64) - left_out
        return self._step(sums, total.variance, total.contributions)

    def beta_without(self, name: str) -> np.ndarray:
        """Return the step from the base model without one hospital or round.

        Parameters
        ----------
        name : str
            Name of its summands.
        """
        return self._step_without(self.given_by.get(name, []))

    def _step_without(self, left_out: Sequence[Summand]) -> np.ndarray:
        """Return the step from the base model without some of the summands."""
        rest = self.total.without(Total.of(left_out, self.size))
        sums = rest.numbers.astype(np.float64)
        return self._step(sums, rest.variance, rest.contributions)

    def _step(
        self, sums: np.ndarray, variance: Fraction, contributions: int
    ) -> np.ndarray:
        """Return the step from the base model that noisy sums give.

        Parameters
        ----------
        sums : ndarray of shape (..., m)
            In units of the grid.
        variance : Fraction
            Variance of the noise on each number, in squared units.
        contributions : int
            Number of summands.
        """
        return vector.solve(self.base_model.space, sums, float(variance), contributions)

    def odds_without(self, x: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Return the log odds (n,) of people by the model without their own contributions.

        Parameters
        ----------
        x : ndarray of shape (n, p)
            Features, confounds removed.
        added : ndarray of shape (n, m)
            Numbers that each person added to the sum, in units of the grid.
        """
        space = self.base_model.space
        standardised = space.base.standardise(x)
        # person by person: coordinates times the step of the model without that person
        change = (space.coordinates(standardised) * self.beta(left_out=added)).sum(1)
        return (space.base.score(standardised) + change) / self.temperature

    @cached_property
    def head(self) -> vector.LinearModel:
        """Return the linear model on standardised features."""
        return vector.stepped_model(self.base_model.space, self.beta())

    def odds(self, x: np.ndarray) -> np.ndarray:
        """Return calibrated scores of features (n, p), as in `Scores`."""
        standardised = self.base_model.space.base.standardise(x)
        score = standardised @ self.head.weight + self.head.bias
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
        """Raise `ExchangeError` unless base model, names, budgets, noise and counts are consistent."""
        _ = self.base_model
        self.check_names()
        for record in self.exchange.of(Budgeted):
            with at(f"the {record.title}", kind=ExchangeError):
                self.check_budget(record)
                if isinstance(record, NoisyVector):
                    self.check_noise(record)
        for summand in self.given:
            with at(f"contribution of '{summand.name}'"):
                self.check_possible(summand)

    def check_names(self) -> None:
        """Raise `ExchangeError` for a hospital that is named like a round.

        Summands are shown and judged by name (`given_by`): a contribution under the name of a round
        would be hidden in the sum of that round.
        """
        for each in self.rounds:
            for record in self.exchange.of(Contribution):
                if look_alike(record.site, ROUND.format(each.name)):
                    raise ExchangeError(
                        f"the hospital '{record.site}' is named like the round '{each.name}'.",
                        do="A hospital needs a name of its own. Ask whoever sent its contribution.",
                    )

    def check_budget(self, record: Budgeted) -> None:
        """Raise an error for a budget above the policy's, or a spent sum below the record's own budget.

        Raises
        ------
        ExchangeError
            If the stated budgets contradict each other.
        ConfigError
            If the policy does not allow one of them, or no noise of this size can be drawn.
        """
        exact = record.mechanism == "none"
        stated = [(record.epsilon, record.delta)]
        if isinstance(record, Charged):
            stated.append((record.spent_epsilon, record.spent_delta))
        for epsilon, delta in stated:
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
        """Raise `ExchangeError` unless the record's grid and noise are those that its budget needs."""
        self.read_numbers(record)
        wanted = vector.noise_units(*record.budget, self.size)
        stated = math.sqrt(Fraction(record.variance))
        if record.grid != self.grid or abs(stated - wanted) > 1:
            raise ExchangeError(
                f"states noise of {stated:.6g} units of {record.grid:.4g}; epsilon "
                f"{record.epsilon:g} needs {wanted} units of {self.grid:.4g}.",
                do="The stated budget does not hold; ask the hospital for a new contribution.",
            )

    def check_possible(self, summand: Summand) -> None:
        """Raise `ExchangeError` for a summand that no group of people within the policy can have.

        Its count must lie within the policy, and its norm must not exceed that of so many clipped
        vectors; `LUCK` standard deviations of the noise are allowed for.
        """
        policy = self.exchange.root.policy
        people, deviation = self.head_count(summand)
        noise = math.sqrt(summand.variance) * self.grid
        fewest = policy.fewest_people * len(summand.sites)
        most = self.exchange.root.most_people * len(summand.sites)
        margin = LUCK * deviation + 1e-6
        norm = math.hypot(*(summand.numbers[:-1] * self.grid))
        norm_of_people = (max(people, 0.0) + margin) * self.base_model.space.clip
        largest_norm = norm_of_people + LUCK * noise * math.sqrt(len(summand.numbers))
        if not fewest - margin <= people <= most + margin or norm > largest_norm:
            raise ExchangeError(
                f"its numbers cannot come from {fewest} to {most} people: they count about "
                f"{people:.0f} and move the model by {norm:.4g} (at most {largest_norm:.4g}).",
                do="`fcforge consortium contribute` does not write such a file; ask the hospital "
                "for a new contribution.",
            )

    # -- for the estimator -------------------------------------------------------------------------
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

    # -- predictions -------------------------------------------------------------------------------
    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return calibrated scores of scans, however unusual they are.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        covariates : mapping of str to ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,), or (n, classes) for more than two classes
            As `Scores.odds`.

        Raises
        ------
        DataError
            If a covariate that the base model removes is missing or out of range.
        """
        ids = [f"subject {k + 1}" for k in range(len(fc))]
        self.base_model.require_covariates(covariates, ids)
        return self.odds(self.base_model.features(fc, covariates))

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Return calibrated scores of scans, or the reasons for abstaining.

        The model abstains from scans that are unlike the public people's, and from scans without a
        covariate that the base model removes.

        Parameters
        ----------
        fc : ndarray of shape (n, R, R)
        covariates : mapping of str to ndarray of shape (n,)
        """
        reasons = self.base_model.wrong_covariates(covariates, len(fc))
        unknown = np.full(len(fc), np.nan)
        complete = {name: covariates.get(name, unknown) for name in self.needs}
        x = self.base_model.features(fc, complete)
        odds = self.odds(x)
        distances = self.base_model.strangeness(x)
        descriptions = list(distances)
        stacked = np.stack([*distances.values()])
        largest = stacked.max(0)
        for i, kind in enumerate(stacked.argmax(0)):
            if reasons[
                i
            ]:  # without its covariates the distance of a scan means nothing
                largest[i] = np.nan
            elif largest[i] > 1:
                reasons[i] = descriptions[kind]
            if reasons[i]:
                odds[i] = np.nan
        return Scores(odds, largest, tuple(reasons))

    def baselines(self) -> Mapping[str, "ContributionModel"]:
        """Return the base model alone, which shows the gain of the contributions."""
        if not self.given:
            return {}
        alone = Exchange(self.exchange.root, (), self.exchange.payloads)
        return {"base model alone": ContributionModel(alone)}

    def reference(self) -> tuple[np.ndarray, str]:
        """Return the scan (R, R) that explanations compare others with, and its description."""
        space = self.base_model.space
        mean = from_log_features(space.base.mean[None], space.base.shrink)[0]
        return mean, "the mean of the public people"

    def influence(self) -> dict[str, float]:
        """Return how far the model moves without each hospital or round.

        The distance is the standard deviation, over the public people, of the change in scores,
        divided by the temperature of the base model. The model's own temperature would not do: a
        contribution that makes scores large also raises it. A round counts as one summand, because
        nobody can see inside its sum.
        """
        space = self.base_model.space
        parts: dict[str, list[Summand]] = {}
        for summand in self.given:
            parts.setdefault(summand.name, []).append(summand)
        distances = {}
        for name in sorted(parts):
            without = vector.stepped_model(space, self._step_without(parts[name]))
            variance = vector.spread(space, self.head.weight - without.weight)
            shift = np.sum((self.head.bias - without.bias) ** 2)
            distance = math.sqrt(space.n_features * variance + shift)
            distances[name] = distance / space.base.temperature
        return distances

    @cached_property
    def agreement(self) -> float:
        """Return the correlation of the model's scores with the base model's on public people."""
        return vector.agreement(self.base_model.space, self.head.weight)

    @cached_property
    def agreement_without(self) -> dict[str, float]:
        """Return `agreement` without each hospital that contributed alone, and without each round.

        It is the effect of leaving one out on public people, whose scans the file does not hold: the
        base model's variances stand for them. A round is left out as a whole, because nobody can
        see inside its sum.
        """
        return {
            name: self._agreement_of(self.beta_without(name)) for name in self.given_by
        }

    @cached_property
    def agreement_alone(self) -> dict[str, float]:
        """Return `agreement` with the contributions of one hospital, or with one round, alone.

        Two hospitals that turn the model together hide each other from `agreement_without`; here
        nothing that others contribute changes a value.
        """
        values = {}
        for name, summands in self.given_by.items():
            total = Total.of(summands, self.size)
            sums = total.numbers.astype(np.float64)
            beta = self._step(sums, total.variance, len(summands))
            values[name] = self._agreement_of(beta)
        return values

    @cached_property
    def given_by(self) -> dict[str, list[Summand]]:
        """Return the summands of each hospital that contributed alone, and of each round, sorted by name."""
        by_name: dict[str, list[Summand]] = {}
        for summand in sorted(self.given, key=lambda summand: summand.name):
            by_name.setdefault(summand.name, []).append(summand)
        return by_name

    def _agreement_of(self, beta: np.ndarray) -> float:
        """Return the `agreement` of the model after a step `beta` from the base model."""
        space = self.base_model.space
        return vector.agreement(space, vector.stepped_model(space, beta).weight)

    def turning(self) -> list[str]:
        """Return the hospitals and rounds that turn the model against the base model, sorted.

        Without them the model agrees much more with the base model (`TURNED`), or with them alone it
        agrees less than with contributions of honest people (`LEAST_AGREEMENT`).
        """
        without, alone = self.agreement_without, self.agreement_alone
        return [
            name
            for name in self.given_by
            if without[name] - self.agreement > TURNED or alone[name] < LEAST_AGREEMENT
        ]

    def outliers(self) -> list[str]:
        r"""Return the hospitals and rounds whose people all move the model in one direction, sorted.

        The norm of their sum is compared with what noise and chance can give. The base model errs in
        one direction for one person and in the other for the next. The vectors of n people therefore
        add up to about :math:`\sqrt n` times the clip, and noise of variance V on d numbers to
        :math:`\sqrt{d V}`. ABIDE's sites reach n / 10 to n / 5 times the clip. A hospital that falsifies
        diagnoses to turn the model reaches n times the clip.
        """
        one_sided = set()
        for summand in self.given:
            by_column = summand.numbers[:-1].reshape(self.base_model.space.columns, -1)
            numbers = by_column[:, :-1].astype(np.float64).ravel()  # without intercepts
            n = max(self.head_count(summand)[0], 1.0)
            noise = math.sqrt(len(numbers) * summand.variance)
            # seven standard deviations of the norm of so much noise
            noise *= 1 + 5 / math.sqrt(len(numbers))
            # in units, of which `UNIT` are the clip: above what ABIDE's sites reach, and above chance
            chance = vector.UNIT * (n / 4 + 2 * math.sqrt(n))
            if np.linalg.norm(numbers) > noise + chance:
                one_sided.add(summand.name)
        return sorted(one_sided)

    def attribution(
        self, covariates: Covariates
    ) -> "tuple[ScoredModel, np.ndarray | float]":
        """Return the linear model on the matrix logarithm, and what removing confounds adds to scores.

        Parameters
        ----------
        covariates : mapping of str to ndarray of shape (n,)
            Those that the base model removes.

        Returns
        -------
        scored : LogHead
        offset : ndarray of shape (n,), or 0.0
        """
        self.require_two_classes("explanations are")
        from fcforge.evaluation.attribution import LogHead  # brings pandas

        space = self.base_model.space
        head = vector.on_features(space, self.head)
        scale = self.temperature
        scored = LogHead(head.weight / scale, head.bias / scale, space.base.shrink)
        if self.base_model.confounds is None:
            return scored, 0.0
        removed = self.base_model.confounds.effect(covariates)
        return scored, -(removed @ scored.weight)

    def familiar(self, people: Cohort) -> tuple[str, ...]:
        """Return a warning if some people are among the public subjects of the base model.

        The base model was trained on these subjects, so a result on them is too optimistic. A person is
        recognised by id or by the scan.

        Returns
        -------
        tuple of str
            One warning, or nothing.
        """
        x = self.base_model.features(people.fc, people.covariates)
        public = self.base_model.public_among(people.subject_id.tolist(), x)
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
