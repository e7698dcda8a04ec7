"""Options that take several words, as BIDS Apps write them: ``--participant-label 01 02``.

Click gives an option one value; for more it must be repeated. `spread` rewrites a command line so
that both forms work. The words after such an option are its values, up to the next option. If
positional arguments are missing then, the last of these words are taken for them, as in
``fcforge fc --participant-label 01 02 BIDS OUT participant``.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from typer.core import TyperCommand

LEVELS = ("participant", "group")


class Options(NamedTuple):
    """Options of a command, by the number of words that follow them.

    Attributes
    ----------
    several : collection of str
        Options that take one or more words.
    valued : collection of str
        Options that take exactly one word.
    flags : collection of str
        Options that take no word.
    required : int
        Number of positional arguments that must be given.
    """

    several: Collection[str]
    valued: Collection[str]
    flags: Collection[str]
    required: int


class _ValueList(NamedTuple):
    """An option of several words on the command line.

    Attributes
    ----------
    option : str
    words : list of str
        Its values.
    positional : list of str
        Positional arguments that followed the values (`_move_positional`).
    """

    option: str
    words: list[str]
    positional: list[str]


def spread(words: Sequence[str], options: Options) -> list[str]:
    """Return a command line in which the option is repeated before each of its values.

    Parameters
    ----------
    words : sequence of str
        The command line, without program and command.
    options : Options
        Options that the command knows.

    Examples
    --------
    >>> options = Options(["--label"], ["--atlas"], ["--report"], 2)
    >>> spread(["IN", "OUT", "participant", "--label", "01", "02"], options)
    ['IN', 'OUT', 'participant', '--label', '01', '--label', '02']
    >>> spread(["--label", "01", "02", "IN", "OUT", "group"], options)
    ['--label', '01', '--label', '02', 'IN', 'OUT', 'group']
    """
    parts: list[str | _ValueList] = []
    n_positional = 0
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            n_positional += len(rest)
            parts += [word, *rest]
            break
        name = _hyphenated(word, options)
        option = name.partition("=")[0]
        if name in options.several:
            values = _ValueList(name, [], [])
            while rest and not rest[0].startswith("-"):
                values.words.append(rest.pop(0))
            parts.append(values)
            continue
        parts.append(name)
        if not name.startswith("-"):
            n_positional += 1
        elif option == name and name in options.valued and rest:
            parts.append(rest.pop(0))
    value_lists = [part for part in parts if isinstance(part, _ValueList)]
    _move_positional(value_lists, n_positional, options)
    return [word for part in parts for word in _words_of(part)]


def _words_of(part: "str | _ValueList") -> list[str]:
    """Return the words of a part of the command line, values each after their option."""
    if isinstance(part, str):
        return [part]
    values = [word for value in part.words for word in (part.option, value)]
    return [*(values or [part.option]), *part.positional]


def _hyphenated(word: str, options: Options) -> str:
    """Return an option with hyphens where it has underscores: ``--participant_label``."""
    name, equals, value = word.partition("=")
    plain = name.replace("_", "-")
    known = {*options.several, *options.valued, *options.flags}
    return f"{plain}{equals}{value}" if word[:2] == "--" and plain in known else word


def _move_positional(
    lists: Sequence[_ValueList], n_positional: int, options: Options
) -> None:
    """Move missing positional arguments out of the values of one option.

    They are taken from the end of the last option's values, or of values that end in a level of
    BIDS Apps ("participant" or "group"), which is the last positional argument.

    Parameters
    ----------
    lists : sequence of _ValueList
        Changed in place.
    n_positional : int
        Number of positional arguments that stand elsewhere on the command line.
    options : Options
    """
    missing = max(options.required - n_positional, 0)
    level_given = n_positional > options.required  # the level is not required
    for values in sorted(lists, key=_ends_in_level):  # those that end in a level last
        ends_in_level = _ends_in_level(values)
        level_to_move = ends_in_level and not level_given
        n_moved = missing + int(level_to_move)
        is_last = values is lists[-1]
        if n_moved and len(values.words) > n_moved and (ends_in_level or is_last):
            values.positional.extend(values.words[-n_moved:])
            del values.words[-n_moved:]
            return


def _ends_in_level(values: _ValueList) -> bool:
    """Return whether the last value of an option is a level of BIDS Apps."""
    return bool(values.words) and values.words[-1] in LEVELS


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
