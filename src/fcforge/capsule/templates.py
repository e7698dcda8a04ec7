"""Files that a method draws on besides its subjects, named by their content and never by a path.

A path means another file at every hospital, and would carry a user's name along.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from fcforge.errors import CapsuleError, ConfigError
from fcforge.types import Component, LearnerSpec

SETTING, PREFIX = "public", "sha256:"
MAX_BYTES = 1 << 28


def _digest(path: str | Path) -> str:
    path = Path(path)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:  # a pipe would never end
        raise ConfigError("the template is not a readable file.", where=str(path))
    return PREFIX + hashlib.sha256(path.read_bytes()).hexdigest()


def check_pinned(component: Component) -> None:
    """Raise `CapsuleError` for a component that names a template by anything but its content."""
    named = component.params.get(SETTING, "")
    if named and not (isinstance(named, str) and re.fullmatch(PREFIX + "[0-9a-f]{64}", named)):
        raise CapsuleError(f"'{component.name}' names a file by its path.")


def template_of(learner: LearnerSpec) -> str | None:
    """Path of the template that a learner names, if it does."""
    named = [str(p.params.get(SETTING, "")) for p in (learner.method, learner.generator) if p]
    return next((n for n in named if n and not n.startswith(PREFIX)), None)


def pinned(learner: LearnerSpec) -> LearnerSpec:
    """The learner with its templates named by content."""

    def pin(part: Component) -> Component:
        named = str(part.params.get(SETTING, ""))
        if not named or named.startswith(PREFIX):
            return part
        return replace(part, params={**part.params, SETTING: _digest(named)})

    generator = pin(learner.generator) if learner.generator is not None else None
    return replace(learner, method=pin(learner.method), generator=generator)


def unpinned(learner: LearnerSpec, template: str | Path | None) -> LearnerSpec:
    """The learner with the path of this hospital's own copy; another content is refused."""

    def find(part: Component) -> Component:
        named = part.params.get(SETTING, "")
        if not named:
            return part
        if template is None or _digest(template) != named:
            raise ConfigError(
                f"'{part.name}' needs the template {str(named)[:23]}..."
                + ("" if template is None else f", which '{template}' is not."),
                do="Ask the first hospital for the public template and name it with --template.",
            )
        return replace(part, params={**part.params, SETTING: str(template)})

    generator = find(learner.generator) if learner.generator is not None else None
    return replace(learner, method=find(learner.method), generator=generator)
