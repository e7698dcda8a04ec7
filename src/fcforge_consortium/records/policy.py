"""Policy of a consortium: the rules that its hospitals agreed on, part of the signed root."""

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
# Generic names of controls and patients, lower case: they fit the diagnoses of any data.
ANYWHERE = (("0", "1"), ("control", "patient"))
SIGNS = str.maketrans({"+": "plus", "-": "minus"})  # so that MCI+ and MCI- differ
DIAGNOSIS = Target().name
# Columns of a table of predictions. A numeric target becomes a column of its own, so that it must have
# another name.
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
NARROWEST = 1e-9  # smallest distance of the limits, by which numbers are scaled


class Aggregator(Closed):
    """An institution that adds up the shares of a round.

    Attributes
    ----------
    name : str
    key : str
        Ed25519 public key in hex; signs closing records and aggregate shares.
    encryption_key : str
        X25519 public key in hex; shares are encrypted to it.
    proof : str
        Signature of name and encryption key by the first key. Without it the maker of a base model
        could put an encryption key of its own beside an aggregator's known key.
    """

    name: SiteName
    key: PublicKey
    encryption_key: Sha256  # 64 hex digits, as a SHA-256 has
    proof: Signature

    @model_validator(mode="after")
    def _proven(self) -> Self:
        """Validate that the aggregator's key signed its encryption key."""
        if not fits(
            self.key, self.proof, card_statement(self.name, self.encryption_key)
        ):
            raise ValueError("the aggregator's key did not sign its encryption key")
        return self


def card_statement(name: str, encryption_key: str) -> bytes:
    """Return the bytes that an aggregator signs to confirm its encryption key.

    Parameters
    ----------
    name : str
        Name of the aggregator.
    encryption_key : str
        X25519 public key in hex.

    Returns
    -------
    bytes
    """
    return b"fcforge aggregator 1\n" + canonical([name, encryption_key])


class Measured(Closed):
    """A numeric target, such as age, and its limits.

    Attributes
    ----------
    name : str
    limits : (lowest, highest)
        In the unit of the data; all hospitals scale the number by them.
    """

    name: Name
    limits: tuple[Number, Number]

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        """Validate that the limits increase and that the name is free."""
        low, high = self.limits
        if not high - low >= NARROWEST:
            raise ValueError("the first limit must be smaller than the second")
        if self.name == DIAGNOSIS:
            raise ValueError("a numeric target must not be named like the diagnosis")
        if self.name.lower() in COLUMNS:
            raise ValueError("a table of predictions has a column of that name")
        return self


class Policy(Closed):
    """Rules for every hospital of a consortium.

    Attributes
    ----------
    disorder : str
        Disorder of the patients; may be empty.
    control, patient : str
        Names of the two groups in the data.
    others : tuple of str
        Names of further groups, if there are more than two.
    number : Measured or None
        Numeric target, instead of a diagnosis.
    max_epsilon, max_delta : float
        Largest budget that one person may spend over all contributions.
    fewest_people, most_people : int
        Fewest and most people of one contribution. The most bounds its influence on the model.
    most_planned : int
        A second bound of the people of one contribution, as a multiple of the people that the plan of
        the base model expects per hospital.
    fewest_hospitals : int
        Fewest hospitals of a round.
    exact_allowed : bool
        Whether contributions and sums without noise are accepted.
    aggregators : tuple of Aggregator
        Two, or none if there are no rounds.
    """

    disorder: Text = ""
    control: Name = "control"
    patient: Name = "patient"
    # omitted from the canonical form when empty
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
        """Validate that there are no aggregators or two, with different keys and names."""
        if len(self.aggregators) == 1:
            raise ValueError("one aggregator is named; two independent ones are needed")
        for first, other in combinations(self.aggregators, 2):
            shared_keys = {first.key, first.encryption_key} & {
                other.key,
                other.encryption_key,
            }
            if shared_keys or look_alike(first.name, other.name):
                names = f"'{first.name}' and '{other.name}'"
                raise ValueError(f"the aggregators {names} are the same or look alike")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        """Validate that diagnoses differ visibly and do not occur beside a numeric target."""
        diagnoses = (self.control, self.patient, *self.others)
        for one, other in combinations(diagnoses, 2):
            if look_alike(one.translate(SIGNS), other.translate(SIGNS)):
                raise ValueError(f"the diagnoses '{one}' and '{other}' look alike")
        if self.number is not None and self.others:
            raise ValueError("a numeric target has no further groups")
        return self

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], aggregators: Sequence[Aggregator] = ()
    ) -> Self:
        """Make a policy from settings, such as ``--set policy.max_epsilon=2``.

        Parameters
        ----------
        settings : mapping
            Some fields of the policy; the others keep their defaults.
        aggregators : sequence of Aggregator, optional
            Cards of the two aggregators.

        Returns
        -------
        Policy

        Raises
        ------
        ConfigError
            If a setting is invalid.
        """
        fields = dict(settings)
        if aggregators:
            fields["aggregators"] = [
                aggregator.model_dump() for aggregator in aggregators
            ]
        try:
            return cls.model_validate_json(canonical(fields))
        except ValidationError as error:
            raise ConfigError(f"the policy {validation_message(error)}.") from error
        except (TypeError, ValueError) as error:  # infinity, NaN, a date
            raise ConfigError(
                f"the policy holds a value that JSON cannot hold ({error})."
            ) from error

    @property
    def target(self) -> Target:
        """Return the target that the model predicts."""
        if self.number is not None:
            return Target(self.number.name, (), self.number.limits)
        return Target(classes=(self.control, self.patient, *self.others))

    def about(self, target: Target) -> Self:
        """Return the policy with another target.

        Parameters
        ----------
        target : Target
            Diagnoses, or a number with its limits.

        Returns
        -------
        Policy

        Raises
        ------
        ConfigError
            If no policy can have this target.
        """
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

    def with_diagnoses_of(self, target: Target) -> Self:
        """Return the policy with the diagnoses of the data, if its own have generic names.

        Parameters
        ----------
        target : Target
            Target of the data.

        Returns
        -------
        Policy
            The policy itself if its diagnoses have specific names, or those of the data do not.
        """
        is_generic = self.number is None and self.target.classes in ANYWHERE
        is_specific = target.classes not in ANYWHERE
        return self.about(target) if is_generic and is_specific else self

    @property
    def loading(self) -> dict[str, Any]:
        """Return the keyword arguments with which a hospital's people are loaded.

        They are arguments of `fcforge.data.datasets.load_people` that set the target. ``partial``
        allows a hospital to lack some of more than two classes.
        """
        target = self.target
        if target.kind == "number":
            return {"target": target.name, "limits": target.limits}
        if target.kind == "two classes":
            return {}
        # A class of several diagnoses is called "ADHD/autism"; the loader expects "ADHD,autism".
        listed = tuple(name.replace("/", ",") for name in target.classes)
        return {"classes": listed, "partial": True}

    def require_target(self, theirs: Target) -> None:
        """Raise `DataError` for data with another target or exchanged diagnoses.

        The generic names of `ANYWHERE` fit any two classes.

        Parameters
        ----------
        theirs : Target
            Target of the data.
        """
        mine = self.target
        if {mine.kind, theirs.kind} != {"two classes"}:
            if not mine.fits(theirs):
                message = f"this exchange is about {mine}, these data about {theirs}."
                raise DataError(
                    message, do="Give data with the target of the exchange."
                )
            return
        my_names = tuple(word.lower() for word in mine.classes)
        their_names = tuple(word.lower() for word in theirs.classes)
        if my_names == their_names or their_names in ANYWHERE or my_names in ANYWHERE:
            return
        turned = " They are exchanged." if my_names == their_names[::-1] else ""
        about = f" ({self.disorder})" if self.disorder else ""
        control, patient = theirs.classes
        raise DataError(
            f"the patients of this exchange{about} are '{self.patient}' and its controls "
            f"'{self.control}', those of these data '{patient}' and '{control}'.{turned}",
            do=f"Name the diagnosis that is '{self.patient}' with --positive VALUE, and use that "
            "name in the data.",
        )

    def require_people(self, n: int, most: int) -> None:
        """Raise `DataError` if a contribution would be of too few or too many people.

        Parameters
        ----------
        n : int
            People of the contribution.
        most : int
            Most people that policy and plan allow together (`BaseModelRecord.most_people`).
        """
        if not self.fewest_people <= n <= most:
            raise DataError(
                f"{n} people cannot be one contribution: policy and plan allow "
                f"{self.fewest_people} to {most}.",
                do="Gather more people, or ask for a base model that is planned for as many.",
            )

    def require_budget(self, epsilon: float | None, delta: float) -> None:
        """Raise `ConfigError` for a budget that the policy does not allow.

        Parameters
        ----------
        epsilon : float or None
            Budget of one contribution, or of all contributions of a person; None without noise.
        delta : float
        """
        if epsilon is None:
            if not self.exact_allowed:
                raise ConfigError(
                    "the policy accepts nothing without noise (mechanism none).",
                    do="Choose an epsilon, or ask the maker of the base model to allow exact sums.",
                )
            return
        # comparisons with NaN are false, so that NaN is refused
        if not (0 < epsilon <= self.max_epsilon and 0 < delta <= self.max_delta):
            raise ConfigError(
                f"epsilon {epsilon:g} and delta {delta:g} are not within the policy's "
                f"{self.max_epsilon:g} and {self.max_delta:g} per person.",
                do="Choose less. Budgets add up over contributions, and a contribution without "
                "noise spends the whole budget.",
            )
