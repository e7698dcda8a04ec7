"""Checks of a method's settings: one clear error each."""

from __future__ import annotations

from fcforge.components import check_choice
from fcforge.errors import ConfigError
from fcforge.models.base import Model
from fcforge.models.edge import PLAIN


def one_of(method: str, field: str, value: str, known: tuple[str, ...]) -> None:
    """Raise when a setting is none of the known ones."""
    check_choice(f"method '{method}'", field, value, known)


def at_least(method: str, minimum: float, **values: float) -> None:
    """Raise when a number is below its minimum (or is no number)."""
    for field, value in values.items():
        if not value >= minimum:
            raise ConfigError(
                f"{field} = {value!r} is too small.",
                where=f"method '{method}'",
                do=f"Use {minimum} or more.",
            )


def fraction(method: str, **values: float) -> None:
    """Raise when a number is not strictly between 0 and 1."""
    for field, value in values.items():
        if not 0.0 < value < 1.0:
            raise ConfigError(
                f"{field} = {value!r} is no fraction.",
                where=f"method '{method}'",
                do="Use a number between 0 and 1.",
            )


def share(method: str, **values: float) -> None:
    """Raise when a number is not between 0 and 1, both allowed."""
    for field, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise ConfigError(
                f"{field} = {value!r} is no share.",
                where=f"method '{method}'",
                do="Use a number from 0 to 1.",
            )


def plain_edges(method: str, model: Model, do: str) -> None:
    """Raise when a model's inputs are not one number per edge: such have no ROI strength."""
    kind = getattr(model, "features", "z")
    if kind not in PLAIN:
        raise ConfigError(
            f"ROI strength can be taken out of edges, not out of features = '{kind}'.",
            where=f"method '{method}'",
            do=do,
        )
