"""The methods, one short file each. To add one, write its file: `METHODS` finds the class."""

from fcforge.components import build, classes_in
from fcforge.methods.base import Batch, Lane, Method, Replay
from fcforge.types import Component

METHODS: dict[str, type[Method]] = classes_in(__name__, Method)

__all__ = ["METHODS", "Batch", "Lane", "Method", "Replay", "make_method"]


def make_method(component: Component) -> Method:
    """Method by name with its hyper-parameters; a wrong name or setting says what is known."""
    return build("method", component, METHODS)
