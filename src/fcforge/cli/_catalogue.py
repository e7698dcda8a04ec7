"""What a config can name: one table per kind of thing."""

import inspect
from importlib import import_module
from typing import Any

from fcforge.components import look_up

KINDS = {"datasets": "sites", "models": "models", "generators": "generators", "methods": "methods"}


def catalogue(what: str) -> list[dict[str, str]]:
    """Name and first line of everything of one kind; an unknown kind says what is known.

    Networks that belong to one method (PDGNN's) are left out.
    """
    room = import_module(f"fcforge.{look_up('kind', what, KINDS)}")
    table: dict[str, Any] = getattr(room, what.upper())
    shown = {name: thing for name, thing in table.items() if not getattr(thing, "belongs_to", "")}
    return [{"name": name, "about": _about(thing)} for name, thing in shown.items()]


def _about(thing: Any) -> str:
    first = getattr(thing, "about", None) or (inspect.getdoc(thing) or "").split("\n", 1)[0]
    return f"{first} (keeps {thing.keeps})" if hasattr(thing, "keeps") else first
