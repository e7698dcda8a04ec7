"""Options that take several words, as BIDS Apps write them: ``--participant-label 01 02``.

Click gives an option one value, to be repeated for more. `spread` rewrites the words of a command
line so that both spellings work. The words after such an option are its values until the next
option; the positional arguments that are then missing are the last of them, as in
``fcforge fc --participant-label 01 02 BIDS OUT participant``.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from typer.core import TyperCommand

LEVELS = ("participant", "group")


class Options(NamedTuple):
    """Options of a command, by what follows them.

    Attributes
    ----------
    several : collection of str
        Options that take one or more words.
    valued : collection of str
        Options that take exactly one.
    flags : collection of str
        Options that take none.
    required : int
        Number of positional arguments that must be given.
    """

    several: Collection[str]
    valued: Collection[str]
    flags: Collection[str]
    required: int


class _Run(NamedTuple):
    """Words that follow an option of several words."""

    option: str
    words: list[str]
    positional: list[str]


def spread(words: Sequence[str], options: Options) -> list[str]:
    """Return a command line in which every value has its option before it.

    Parameters
    ----------
    words : sequence of str
    options : Options

    Examples
    --------
    >>> options = Options(["--label"], ["--atlas"], ["--report"], 2)
    >>> spread(["IN", "OUT", "participant", "--label", "01", "02"], options)
    ['IN', 'OUT', 'participant', '--label', '01', '--label', '02']
    >>> spread(["--label", "01", "02", "IN", "OUT", "group"], options)
    ['--label', '01', '--label', '02', 'IN', 'OUT', 'group']
    """
    parts: list[str | _Run] = []
    given = 0
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            given += len(rest)
            parts += [word, *rest]
            break
        name = _spelled(word, options)
        option = name.partition("=")[0]
        if name in options.several:
            run = _Run(name, [], [])
            while rest and not rest[0].startswith("-"):
                run.words.append(rest.pop(0))
            parts.append(run)
            continue
        parts.append(name)
        if not name.startswith("-"):
            given += 1
        elif option == name and name in options.valued and rest:
            parts.append(rest.pop(0))
    _give_back([part for part in parts if isinstance(part, _Run)], given, options)
    return [word for part in parts for word in _written(part)]


def _written(part: "str | _Run") -> list[str]:
    if isinstance(part, str):
        return [part]
    values = [word for value in part.words for word in (part.option, value)]
    return [*(values or [part.option]), *part.positional]


def _spelled(word: str, options: Options) -> str:
    """Return an option with hyphens where it has underscores: ``--participant_label``."""
    name, equals, value = word.partition("=")
    plain = name.replace("_", "-")
    known = {*options.several, *options.valued, *options.flags}
    return f"{plain}{equals}{value}" if word[:2] == "--" and plain in known else word


def _give_back(runs: Sequence[_Run], given: int, options: Options) -> None:
    """Move the positional arguments that are missing from the end of one run."""
    missing = max(options.required - given, 0)
    for run in sorted(runs, key=lambda run: run.words[-1:] in ([x] for x in LEVELS)):
        ends_in_level = bool(run.words) and run.words[-1] in LEVELS
        level_given = given > options.required
        take = missing + (ends_in_level and not level_given)
        last = run is runs[-1]
        if take and len(run.words) > take and (ends_in_level or last):
            run.positional.extend(run.words[-take:])
            del run.words[-take:]
            return


class SeveralValues(TyperCommand):
    """Command some of whose options take several words; `several` names them."""

    several: frozenset[str] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line in which an option may have several words."""
        named = [param for param in self.params if param.param_type_name == "option"]
        flags = {
            name
            for param in named
            for name in (*param.opts, *param.secondary_opts)
            if getattr(param, "is_flag", False)
        }
        everything = {name for param in named for name in param.opts} | flags
        arguments = [param for param in self.params if param not in named]
        required = sum(param.required for param in arguments)
        valued = everything - flags - self.several
        options = Options(self.several, valued, flags | {"--help"}, required)
        return super().parse_args(ctx, spread(args, options))
