"""Field types shared by all record schemas, and the closed table that they stand in."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fcforge.core.names import name_fault
from fcforge_consortium.records.canonical import TIME
from fcforge_consortium.records.signatures import key_fault

LAST_YEAR = 2100


# -- fields and tables -----------------------------------------------------------------------------
class Closed(BaseModel):
    """A table with exactly its fields, each strictly of its type, that never changes."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False
    )

    def changed(self, **fields: Any) -> Self:
        """The same with other values, checked anew (`model_copy` would check nothing)."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**own, **fields})


def without(fault: Callable[[str], str]) -> AfterValidator:
    """Texts of which a function finds no fault."""

    def check(text: str) -> str:
        if why := fault(text):
            raise ValueError(why)
        return text

    return AfterValidator(check)


def _time_fault(text: str) -> str:
    when = datetime.strptime(text, TIME)
    if when.year <= LAST_YEAR and when.strftime(TIME) == text:
        return ""
    return "is not a time that can be meant"


def _unprintable(text: str) -> str:
    return "" if text.isprintable() else "holds what cannot be printed"


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PublicKey = Annotated[str, without(key_fault)]
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Time = Annotated[str, without(_time_fault)]
Version = Annotated[str, Field(pattern="^[0-9A-Za-z.+-]{1,40}$")]
Text = Annotated[str, Field(max_length=200), without(_unprintable)]
Name = Annotated[Text, Field(min_length=1, max_length=80)]
SiteName = Annotated[str, without(name_fault)]
# whole numbers, or one over another: exact where a float is not
Rational = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?$")]

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Budget = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
Estimate = tuple[Share, Share, Share]  # value, lower and upper limit
