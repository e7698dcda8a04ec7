"""Checks of a model's settings: one clear error each."""

from __future__ import annotations

from fcforge import components
from fcforge.errors import ConfigError


def check_choice(model: str, field: str, value: str, known: tuple[str, ...]) -> None:
    """Raise when a setting is none of the known ones."""
    components.check_choice(f"model '{model}'", field, value, known)


def check_positive(model: str, **values: int) -> None:
    """Raise when a size is not a positive integer."""
    for field, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"{field} = {value!r} is not a positive integer.",
                where=f"model '{model}'",
                do="Use 1 or more.",
            )


def check_dropout(model: str, value: float) -> None:
    """Raise when a drop probability is not in [0, 1)."""
    if not 0.0 <= value < 1.0:
        raise ConfigError(
            f"dropout = {value!r} is no drop probability.",
            where=f"model '{model}'",
            do="Use a number from 0 to below 1.",
        )


def check_heads(model: str, heads: int, hidden: int) -> None:
    """Raise when the heads do not divide the width."""
    check_positive(model, heads=heads)
    if hidden % heads:
        raise ConfigError(
            f"hidden = {hidden} cannot be shared among heads = {heads}.",
            where=f"model '{model}'",
            do="Make hidden a multiple of heads.",
        )


def check_not_negative(model: str, **values: float) -> None:
    """Raise when a weight is negative."""
    for field, value in values.items():
        if not value >= 0.0:
            raise ConfigError(
                f"{field} = {value!r} is negative.", where=f"model '{model}'", do="Use 0 or more."
            )
