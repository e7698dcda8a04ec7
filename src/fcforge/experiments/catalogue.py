"""Names that a config can use, with a one-line description each."""

import inspect
from importlib import import_module
from typing import Any

from fcforge.core.names import look_up

# Package that holds the registry of each kind.
PACKAGES = {
    "datasets": "data.datasets",
    "models": "models",
    "generators": "generators",
    "methods": "methods",
}


def catalogue(kind: str) -> dict[str, str]:
    """Return everything of a kind that a config can name, with its description.

    Models that belong to one method (PDGNN's) are left out. Only the package of that kind is
    imported, so that datasets can be listed where torch is not installed.

    Parameters
    ----------
    kind : {"datasets", "models", "generators", "methods"}
    """
    package = import_module(f"fcforge.{look_up('kind', kind, PACKAGES)}")
    return {
        name: _description(member)
        for name, member in getattr(package, kind.upper()).items()
        if not getattr(member, "belongs_to", "")
    }


def _description(member: Any) -> str:
    """Return the first line of a member's docstring, and what a method keeps between sites."""
    lines = (inspect.getdoc(member) or "").splitlines()
    first = getattr(member, "about", None) or lines[0]
    return f"{first} (keeps {member.keeps})" if hasattr(member, "keeps") else first
