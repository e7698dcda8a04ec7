"""Policy of a consortium: what its hospitals agreed on, in the root, signed by its maker."""

import operator
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.names import look_alike
from fcforge.core.target import Target
from fcforge_consortium.privacy.noise import MOST_EPSILON
from fcforge_consortium.records.canonical import canonical, validation_message
from fcforge_consortium.records.fields import (
    Closed,
    Name,
    Number,
    PublicKey,
    Sha256,
    Signature,
    SiteName,
    Size,
    Text,
)
from fcforge_consortium.records.signatures import fits

# -- the policy of an exchange ---------------------------------------------------------------------
# What diagnoses are called in any data: they mean the same everywhere.
ANYWHERE = (("0", "1"), ("control", "patient"))
SIGNS = str.maketrans(
    {"+": "plus", "-": "minus"}
)  # of MCI+ and MCI- they are the point
DIAGNOSIS = Target().name
# of a table of predictions: a number of such a name would stand in place of what it is about
COLUMNS = frozenset(
    {
        "subject",
        "status",
        "probability",
        "own",
        "own_probability",
        "strangeness",
        "note",
        "sites_learned",
    }
)
NARROWEST = 1e-9  # of limits: numbers are scaled by how far they lie apart


class Aggregator(Closed):
    """Somebody who adds up the shares of a round.

    Attributes
    ----------
    name : str
    key : str
        Ed25519 public key that signs the halves, hex.
    encryption_key : str
        X25519 public key that shares are encrypted to, hex.
    proof : str
        The first key's signature of name and second key: whoever makes a start cannot put an
        encryption key of his own beside an aggregator's known key.
    """

    name: SiteName
    key: PublicKey
    encryption_key: Sha256  # as many digits
    proof: Signature

    @model_validator(mode="after")
    def _proven(self) -> Self:
        if not fits(
            self.key, self.proof, card_statement(self.name, self.encryption_key)
        ):
            raise ValueError("the aggregator's key did not sign its encryption key")
        return self


def card_statement(name: str, encryption_key: str) -> bytes:
    """What an aggregator signs: that this encryption key is its own."""
    return b"fcforge aggregator 1\n" + canonical([name, encryption_key])


class Measured(Closed):
    """A number that is learned instead of a diagnosis, and the limits that everybody agreed on."""

    name: Name
    limits: tuple[Number, Number]

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        low, high = self.limits
        if not high - low >= NARROWEST:
            raise ValueError("the smaller limit comes first")
        if self.name == DIAGNOSIS:
            raise ValueError("a diagnosis is no number")
        if self.name.lower() in COLUMNS:
            raise ValueError("a table of predictions has a column of that name")
        return self


class Policy(Closed):
    """What every hospital of an exchange is held to.

    Attributes
    ----------
    disorder : str
        What the patients have; empty where it is not said.
    control, patient : str
        What the data call them.
    others : tuple of str
        Further groups, where more than two are told apart.
    number : Measured or None
        What is learned where it is no diagnosis.
    max_epsilon, max_delta : float
        Largest that one person may spend in all.
    most_planned : int
        Largest size of a contribution, as a multiple of the planned people per hospital.
    fewest_people, most_people : int
        Of one release. The most also bounds what one release can do to the model.
    fewest_hospitals : int
        Of one sum.
    exact_allowed : bool
        Whether releases and sums without noise are taken.
    aggregators : tuple of Aggregator
        Two, or none where nobody adds up shares.
    """

    disorder: Text = ""
    control: Name = "control"
    patient: Name = "patient"
    # written only where they say something: files of before stay as they are
    others: Annotated[
        tuple[Name, ...], Field(max_length=18, exclude_if=operator.not_)
    ] = ()
    number: Annotated[Measured | None, Field(exclude_if=operator.not_)] = None
    max_epsilon: Annotated[float, Field(ge=0, le=MOST_EPSILON)] = 8.0
    max_delta: Annotated[float, Field(ge=0, lt=1)] = 1e-5
    fewest_people: Size = 10
    most_people: Size = 10_000
    most_planned: Size = 5
    fewest_hospitals: Annotated[int, Field(ge=2, le=10_000)] = 3
    exact_allowed: bool = False
    aggregators: Annotated[tuple[Aggregator, ...], Field(max_length=2)] = ()

    @model_validator(mode="after")
    def _two_apart(self) -> Self:
        if len(self.aggregators) == 1:
            raise ValueError(
                "one aggregator is named; two must know nothing of each other"
            )
        for first, other in combinations(self.aggregators, 2):
            both = {first.key, first.encryption_key} & {other.key, other.encryption_key}
            if both or look_alike(first.name, other.name):
                named = f"'{first.name}' and '{other.name}'"
                raise ValueError(f"the aggregators {named} are one and the same")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        """A number, or diagnoses that can be told apart."""
        named = (self.control, self.patient, *self.others)
        for one, other in combinations(named, 2):
            if look_alike(one.translate(SIGNS), other.translate(SIGNS)):
                raise ValueError(f"the diagnoses '{one}' and '{other}' look alike")
        if self.number is not None and self.others:
            raise ValueError("a number has no further groups")
        return self

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], aggregators: Sequence[Aggregator] = ()
    ) -> Self:
        """A policy from a config or ``--set policy.max_epsilon=2``; else `ConfigError`."""
        given = dict(settings)
        if aggregators:
            given["aggregators"] = [
                aggregator.model_dump() for aggregator in aggregators
            ]
        try:
            return cls.model_validate_json(canonical(given))
        except ValidationError as error:
            raise ConfigError(f"the policy {validation_message(error)}.") from error

    @property
    def target(self) -> Target:
        """What is learned of a person."""
        if self.number is not None:
            return Target(self.number.name, (), self.number.limits)
        return Target(classes=(self.control, self.patient, *self.others))

    def about(self, target: Target) -> Self:
        """The policy, for what some data are about; `ConfigError` where no policy can say it."""
        try:
            if target.kind == "number":
                number = Measured(name=target.name, limits=target.limits)
                return self.changed(number=number)
            control, patient, *others = target.classes
            return self.changed(control=control, patient=patient, others=tuple(others))
        except ValidationError as error:
            raise ConfigError(
                f"the target '{target.name}' {validation_message(error)}."
            ) from error

    def spoken(self, target: Target) -> Self:
        """The policy, with what the data say of the target where it says nothing itself."""
        unsaid = self.number is None and self.target.classes in ANYWHERE
        told = target.classes not in ANYWHERE
        return self.about(target) if unsaid and told else self

    @property
    def loading(self) -> dict[str, Any]:
        """Settings with which people are read that are learned here (`sites.load_people`)."""
        target = self.target
        if target.kind == "number":
            return {"target": target.name, "limits": target.limits}
        if target.kind == "two classes":
            return {}
        listed = tuple(name.replace("/", ",") for name in target.classes)
        return {"classes": listed, "partial": True}

    def require_target(self, theirs: Target) -> None:
        """Raise `DataError` for data about something else, or with diagnoses turned round.

        0 and 1 are controls and patients everywhere, and so are the words.
        """
        mine = self.target
        if {mine.kind, theirs.kind} != {"two classes"}:
            if not mine.fits(theirs):
                what = f"this exchange is about {mine}, these data about {theirs}."
                do = "Give people of whom the same is known."
                raise DataError(what, do=do)
            return
        own = tuple(word.lower() for word in mine.classes)
        other = tuple(word.lower() for word in theirs.classes)
        if own == other or other in ANYWHERE or own in ANYWHERE:
            return
        turned = " The other way round." if own == other[::-1] else ""
        about = f" ({self.disorder})" if self.disorder else ""
        control, patient = theirs.classes
        raise DataError(
            f"the patients of this exchange{about} are '{self.patient}' and its controls "
            f"'{self.control}', those of these data '{patient}' and '{control}'.{turned}",
            do=f"Say which diagnosis is '{self.patient}': --positive VALUE, and name it so in the "
            "data.",
        )

    def require_people(self, n: int, most: int) -> None:
        """Raise `DataError` if a contribution would be of too few or too many people.

        Parameters
        ----------
        n : int
        most : int
            Limit by policy and plan (`BaseModelRecord.most_people`).
        """
        if not self.fewest_people <= n <= most:
            raise DataError(
                f"{n} people cannot be one contribution: policy and plan allow "
                f"{self.fewest_people} to {most}.",
                do="Gather more people, or ask for a base model that is planned for as many.",
            )

    def require_budget(self, epsilon: float | None, delta: float) -> None:
        """Raise `ConfigError` for what the policy does not let a person spend; None: exact."""
        if epsilon is None:
            if not self.exact_allowed:
                raise ConfigError(
                    "the policy takes nothing without noise (mechanism none).",
                    do="Choose an epsilon, or ask the start's maker to allow exact sums.",
                )
            return
        # a budget that is no number fits no comparison
        if not (0 < epsilon <= self.max_epsilon and 0 < delta <= self.max_delta):
            raise ConfigError(
                f"epsilon {epsilon:g} and delta {delta:g} are not within the policy's "
                f"{self.max_epsilon:g} and {self.max_delta:g} per person.",
                do="Choose less; what a person spends adds up over releases, and whoever was given "
                "without noise has spent all there is.",
            )
