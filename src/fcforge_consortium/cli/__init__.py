"""Commands under ``fcforge consortium``, mounted on fcforge's command line by an entry point."""

from collections.abc import Callable

import typer

from fcforge.core.errors import ConfigError
from fcforge_consortium.cli import commands, keys, ledger

HELP = (
    "Build a model across hospitals by exchanging signed files, without sending scans."
)
TOGETHER = "One round"
READING = "Read and check files"
KEYS = "Keys"
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    TOGETHER: (
        commands.demo,
        commands.base_model,
        commands.contribute,
        commands.close,
        commands.aggregate,
        commands.merge,
        commands.withdraw,
    ),
    READING: (
        commands.predict,
        commands.evaluate,
        commands.threshold,
        commands.inspect,
        commands.verify,
        commands.audit,
    ),
}
# Present commands by former names, which stood at the top level. Each stands between backticks in the
# message of `_moved`; "learn" has become two commands, so its text closes and opens them.
MOVED = {
    "start": "base-model",
    "learn": "contribute`, or `fcforge consortium chain",
    "keep": "aggregate",
    "merge": "merge",
    "withdraw": "withdraw",
    "threshold": "threshold",
    "evaluate": "evaluate",
    "predict": "predict",
    "inspect": "inspect",
    "verify": "verify",
    "keys": "keys",
    "keepers": "aggregators",
}
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the consortium's commands to the command line.

    Parameters
    ----------
    app : typer.Typer
        The command line of fcforge.
    """
    consortium = typer.Typer(no_args_is_help=True, help=HELP)
    for panel, members in PANELS.items():
        for command in members:
            name = command.__name__.replace("_", "-")
            consortium.command(name, rich_help_panel=panel)(command)
    consortium.add_typer(commands.chain, name="chain", rich_help_panel=TOGETHER)
    consortium.add_typer(ledger.ledger, name="ledger", rich_help_panel=TOGETHER)
    consortium.add_typer(keys.keys, name="keys", rich_help_panel=KEYS)
    consortium.add_typer(keys.aggregators, name="aggregators", rich_help_panel=KEYS)
    app.add_typer(consortium, name="consortium", rich_help_panel="Consortium")
    for old in MOVED:
        app.command(
            old, hidden=True, add_help_option=False, context_settings=ANY_ARGUMENTS
        )(_moved)


def _moved(context: typer.Context) -> None:
    """Refuse a command's former name and name the present one."""
    old = str(context.info_name)
    raise ConfigError(
        f"`fcforge {old}` has moved.", do=f"Use `fcforge consortium {MOVED[old]}`."
    )
