"""Field types of all records and of other files from outside, and the schema that holds them.

A schema is *closed*: a file that has one field more or less, or a field of another type, is refused.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fcforge.core.names import name_fault
from fcforge_consortium.records.canonical import TIME
from fcforge_consortium.records.signatures import key_fault

LAST_YEAR = 2100  # of a timestamp


class Closed(BaseModel):
    """Immutable value with exactly its declared fields, each strictly of its type."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False
    )

    def changed(self, **fields: Any) -> Self:
        """Return a copy in which some fields have other values.

        The copy is validated; pydantic's own `model_copy` validates nothing.

        Parameters
        ----------
        **fields
            New values by field name.

        Returns
        -------
        Closed
            A value of the same class.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**values, **fields})


def without(fault: Callable[[str], str]) -> AfterValidator:
    """Return a pydantic validator that accepts the texts without a fault.

    Parameters
    ----------
    fault : callable
        Returns the fault of a text as the predicate of an error message, or an empty string.

    Returns
    -------
    AfterValidator
    """

    def check(text: str) -> str:
        """Return the text; raise `ValueError` if it has a fault."""
        if message := fault(text):
            raise ValueError(message)
        return text

    return AfterValidator(check)


def _time_fault(text: str) -> str:
    """Return the fault of a timestamp, or an empty string."""
    time = datetime.strptime(text, TIME)
    if time.year > LAST_YEAR:
        return f"lies after the year {LAST_YEAR}"
    if time.strftime(TIME) != text:
        return "is not a timestamp in its canonical form"
    return ""


def _unprintable(text: str) -> str:
    """Return the fault of a text that cannot be printed, or an empty string."""
    return "" if text.isprintable() else "holds characters that cannot be printed"


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PublicKey = Annotated[str, without(key_fault)]
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Time = Annotated[str, without(_time_fault)]
Version = Annotated[str, Field(pattern="^[0-9A-Za-z.+-]{1,40}$")]
Text = Annotated[str, Field(max_length=200), without(_unprintable)]
Name = Annotated[Text, Field(min_length=1, max_length=80)]
SiteName = Annotated[str, without(name_fault)]
# an exact number: an integer, or a fraction of two integers
Rational = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?$")]

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Budget = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
Estimate = tuple[Share, Share, Share]  # value, lower and upper limit
