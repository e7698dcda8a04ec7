"""What a config can name: one table per kind of thing."""

from __future__ import annotations

import inspect

from fcforge.components import look_up


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def datasets() -> list[dict[str, str]]:
    """Datasets and where they come from."""
    from fcforge.sites import DATASETS

    return [{"name": name, "about": entry.about} for name, entry in DATASETS.items()]


def models() -> list[dict[str, str]]:
    """Classifiers for any method; networks that belong to one method (PDGNN's) are left out."""
    from fcforge.models import MODELS

    found = [(name, cls) for name, cls in MODELS.items() if not cls.belongs_to]
    return [{"name": name, "about": _first_line(cls)} for name, cls in found]


def methods() -> list[dict[str, str]]:
    """Continual-learning methods and what each keeps."""
    from fcforge.methods import METHODS

    return [
        {"name": name, "about": f"{_first_line(cls)} (keeps {cls.keeps})"}
        for name, cls in METHODS.items()
    ]


def generators() -> list[dict[str, str]]:
    """Generators of synthetic FC."""
    from fcforge.generators import GENERATORS

    return [{"name": name, "about": _first_line(cls)} for name, cls in GENERATORS.items()]


KINDS = {"datasets": datasets, "models": models, "generators": generators, "methods": methods}


def catalogue(what: str) -> list[dict[str, str]]:
    """Rows of one kind; an unknown kind says what is known."""
    return look_up("kind", what, KINDS)()
