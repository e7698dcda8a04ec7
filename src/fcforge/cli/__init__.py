"""Command line: parse arguments, call the library, print. It holds no logic.

Results go to stdout, messages and progress to stderr. Everything heavy is imported inside
the commands, so that ``fcforge --help`` answers at once. Other packages add commands through the
entry-point group ``fcforge.commands``: a function that receives the `typer.Typer` app.
"""

from functools import cache
from typing import Any

import typer

from fcforge.cli import application, data, experiments, generators
from fcforge.cli.analyse import analyse
from fcforge.cli.messages import say
from fcforge.core.errors import ConfigError
from fcforge.core.registry import load_plugins

__all__ = ["app", "main"]

EXPERIMENTS = "Experiments"
PANELS = {
    EXPERIMENTS: experiments.COMMANDS,
    "Data": data.COMMANDS,
    "Generators": generators.COMMANDS,
}
MOVED = ("unseen", "calibration", "subgroups", "motion")  # to `fcforge analyse`
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def _moved(context: typer.Context) -> None:
    """Raise an error that names the new command; `context.info_name` is the old one."""
    name = context.info_name
    raise ConfigError(
        f"`fcforge {name}` has moved.", do=f"Use `fcforge analyse {name}`."
    )


def _warn(problem: ConfigError) -> None:
    """Print a warning that a plug-in's commands could not be loaded; all other commands work."""
    say(f"warning: {problem}", style="yellow")


@cache
def _complete_app() -> typer.Typer:
    """Return the application with the commands of fcforge and of all plug-ins.

    It is made at its first use and not while this module is imported: a plug-in's module that is
    imported first imports this one, and has not defined its commands yet.
    """
    app = application.app
    for panel, members in PANELS.items():
        for command in members:
            name = command.__name__.removesuffix("_things")  # `list` is Python's own
            kind = getattr(command, "command_class", None)
            app.command(name, cls=kind, rich_help_panel=panel)(command)
    app.add_typer(analyse, name="analyse", rich_help_panel=EXPERIMENTS)
    for name in MOVED:
        app.command(
            name, hidden=True, add_help_option=False, context_settings=ANY_ARGUMENTS
        )(_moved)
    for _, register, _ in load_plugins("fcforge.commands", _warn):
        register(app)
    return app


def __getattr__(name: str) -> Any:
    """Return `app`, the complete application, when it is first asked for."""
    if name == "app":
        return _complete_app()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; see `fcforge.cli.application.run`.

    Parameters
    ----------
    argv : list of str, optional
        Words of the command line without the program; by default those of this process.
    """
    return application.run(_complete_app, argv)
