"""A request becomes a command: arguments, options, bounds and exit code. Progress is shown."""

import re
import sys
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from fcforge.cli import app, main, messages
from fcforge.cli.messages import progress_on_stderr
from fcforge.cli.options import takes
from fcforge.core.errors import ConfigError
from fcforge.core.options import Request, option
from fcforge.core.settings import at_least, limits


@limits(portions=at_least(1))
@dataclass(frozen=True)
class Order(Request):
    dish: str = option(metavar="DISH", help="What to cook.")
    size: Literal["small", "large"] = option("small", "How much.")
    portions: int | None = option(1, "How many.")
    extra: list[str] = option([], "What else; may be repeated.")
    hot: bool = option(True, "Serve it hot.")
    to_go: bool = option(False, "Wrap it up.")
    as_json: bool = option(False, "For a program.", flag="--json")


kitchen = typer.Typer()


@kitchen.command()
@takes
def cook(order: Order) -> int | None:
    """Cook a dish."""
    print(order)
    return 3 if order.dish == "poison" else None


@kitchen.command()
def wash() -> None:
    """Wash up."""


def kitchen_run(*words: str):
    return CliRunner().invoke(kitchen, words)


def test_fields_are_arguments_and_options():
    said = kitchen_run(
        "cook", "soup", "--size", "large", "--extra", "salt", "--extra", "bread"
    )
    assert said.exit_code == 0, said.output
    order = Order("soup", size="large", extra=["salt", "bread"])
    assert said.stdout == f"{order}\n"
    assert kitchen_run("cook", "soup").stdout == f"{Order('soup')}\n"


def test_flags():
    said = kitchen_run("cook", "soup", "--no-hot", "--to-go", "--json")
    assert said.stdout == f"{Order('soup', hot=False, to_go=True, as_json=True)}\n"
    assert kitchen_run("cook", "soup", "--no-to-go").exit_code == 2
    assert kitchen_run("cook", "soup", "--as-json").exit_code == 2


def test_what_the_command_returns_is_the_exit_code():
    assert kitchen_run("cook", "poison").exit_code == 3


@pytest.mark.parametrize(
    "words", [(), ("soup", "--portions", "many"), ("soup", "--size", "huge")]
)
def test_what_typer_can_refuse_it_refuses(words):
    assert kitchen_run("cook", *words).exit_code == 2


def test_bounds_are_those_of_the_field():
    refused = kitchen_run("cook", "soup", "--portions", "0").exception
    assert isinstance(refused, ConfigError)
    assert (refused.where, refused.do) == ("order", "Use 1 or more.")


def test_help_comes_from_the_fields_and_the_docstring():
    text = kitchen_run("cook", "--help").output
    for part in ("Cook a dish.", "What to cook.", "--size", "How much.", "--no-hot"):
        assert part in text
    assert "--as-json" not in text


# -- what is shown while something works --------------------------------------------------------
def test_lines_say_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(messages, "EVERY", 0.0)
    with progress_on_stderr("training") as report:
        report(3, 5, "")
        report(5, 5, "ewc A>B")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 3/5", "training: 5/5 ewc A>B"]


def test_lines_say_how_long_it_will_take(capsys, monkeypatch):
    """By the pieces since the first report: others may have been there before."""
    now = iter([0.0, 10.0, 30.0, 60.0, 90.0])
    monkeypatch.setattr(messages.time, "monotonic", lambda: next(now))
    with progress_on_stderr("training", every=0.0) as report:
        for done in (10, 11, 13, 14, 100):
            report(done, 100, "A>B")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "training: 10/100 A>B",
        "training: 11/100 A>B",
        "training: 13/100 (about 14 min left) A>B",  # 10 s each, 87 to come
        "training: 14/100 (about 22 min left) A>B",  # 15 s each, 86 to come
        "training: 100/100 A>B",
    ]


def test_a_terminal_gets_a_line_that_is_no_markup(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_on_stderr("training") as report:
        report(1, 2, "[red]A")
    assert "training: 1/2 [red]A" in capsys.readouterr().err


# -- the real commands -------------------------------------------------------------------------
def commands(group=None, path="") -> dict[str, Any]:
    """Every visible command by its path, e.g. "analyse unseen"."""
    import typer.main

    group = group or typer.main.get_command(app)
    known = {}
    for name, command in group.commands.items():
        if not command.hidden:
            known[f"{path}{name}"] = command
            if hasattr(command, "commands"):
                known |= commands(command, f"{path}{name} ")
    return known


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_has_a_help_text(name):
    command = commands()[name]
    assert command.help, name
    for parameter in command.params:
        assert parameter.name == "help" or parameter.help, f"{name} {parameter.name}"
        # the terminal would take [all] for markup and not show it
        assert not re.search(r"\[[a-z#/@]", parameter.help or ""), (
            f"{name} {parameter.name}"
        )


def test_help_shows_the_groups():
    text = CliRunner().invoke(app, ["--help"]).output
    parts = ("─ Experiments", "─ Data", "─ Generators", "│ judge ", "─ Consortium")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["unseen", "calibration", "subgroups", "motion"])
def test_a_former_name_is_refused_with_the_present_one(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "runs/demo", "--json"])
    assert stopped.value.code == 2
    assert f"Use `fcforge analyse {name}`" in capsys.readouterr().err


DATASET = '[dataset]\nname = "own_people:load"\n'
LEARNER = '[[learner]]\nmethod = "finetune"\nmodel = "linear"\n'
GENERATOR = '[[generator]]\nname = "corr_gauss"\n'


@pytest.mark.parametrize("command", ["check", "tune", "judge", "analyse motion"])
def test_code_beside_a_config_is_run_only_when_it_is_allowed(
    command, tmp_path, monkeypatch, capsys
) -> None:
    """The module leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # undone after the test
    ran = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nraise RuntimeError\n"
    (tmp_path / "own_people.py").write_text(code)
    config = tmp_path / "a.toml"
    config.write_text(DATASET + (GENERATOR if command == "judge" else LEARNER))
    words = [*command.split(), str(config)]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "--allow-code" in " ".join(capsys.readouterr().err.split())
    assert not ran.exists()
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--allow-code"])
    assert ran.exists()
