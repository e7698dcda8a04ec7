"""Tables of the documentation, made from the registries so that they cannot go stale.

    python docs/tables.py

writes them into the pages, between ``<!-- made by docs/tables.py: NAME -->`` and ``<!-- end -->``, where
GitHub shows them, too. A test compares. What is too long for that is written into docs/generated when
Sphinx runs.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fcforge.data.datasets import DATASETS
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS

PAPER = Path(__file__).parents[1] / "paper"
RIDGE_ROW = "ForgeClassifier, defaults"  # title of `ForgeClassifier("ridge")` in the stored benchmark
GENERATOR_SOURCES = {
    "fcm_vae": "FORGE paper and its code",
    "regate": "Liu et al. 2021, public code read",
    "brainnetgan": "Li et al. 2021, from its abstract: a reconstruction",
    "gr_spd_gan": "Tan et al. 2022/2025, from the abstract: a reconstruction",
    "corr_gauss": "Archakov and Hansen 2021 (coordinates)",
    "contributed": "a base model and one hospital's contribution",
    "bootstrap": "reference: leaks everything",
    "edge_gauss": "reference: independent edges",
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def first_line(thing: object) -> str:
    """First line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def basis(source: str) -> str:
    """What a method was written from."""
    if "abstract" in source:
        return "reconstruction"
    if "reference" in source or not source:
        return "reference"
    if "Mammoth" in source:
        return "paper, public code read"
    return (
        "paper"
        if "paper" in source or re.search(r"\b(19|20)\d\d\b", source)
        else "textbook"
    )


def methods() -> str:
    """Every method: what it does, what it keeps, where it is from."""
    rows = [
        (
            f"`{name}`",
            cls.title,
            first_line(cls),
            cls.keeps,
            cls.source,
            basis(cls.source),
        )
        for name, cls in shipped(METHODS).items()
    ]
    return markdown(
        ("name", "method", "what it does", "keeps", "source", "written from"), rows
    )


def shipped(registry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a registry, without those that a config in this process named "module:object"."""
    return {name: part for name, part in registry.items() if ":" not in name}


def models() -> str:
    """Every classifier."""
    rows = [
        (f"`{name}`", first_line(cls), f"{cls.lr:g}")
        for name, cls in shipped(MODELS).items()
    ]
    return markdown(("name", "what it is", "learning rate"), rows)


def generators() -> str:
    """Every generator."""
    rows = [
        (f"`{name}`", first_line(cls), cls.releases, GENERATOR_SOURCES[name])
        for name, cls in shipped(GENERATORS).items()
    ]
    return markdown(("name", "what it does", "releases", "source"), rows)


def _title(learner: str) -> str:
    """Name of a row of the stored benchmark of estimators, as a reader would type it."""
    return '`ForgeClassifier("ridge")`' if learner == RIDGE_ROW else learner


def estimators() -> str:
    """Ridge in closed form beside scikit-learn and nilearn, from the stored benchmark."""
    stored = json.loads((PAPER / "results" / "estimators.json").read_text())

    def shown(cell: Sequence[float]) -> str:
        return f"{cell[0]:.3f} ({cell[1]:.3f} to {cell[2]:.3f})"

    rows = [
        (
            people,
            _title(row["learner"]),
            shown(row["accuracy"]),
            shown(row["auroc"]),
            shown(row["first minus this, auroc"]),
            f"{row['seconds']:.1f} s",
        )
        for people in ("444", "529")
        for row in stored["tested"][people]["rows"]
    ]
    head = (
        "subjects",
        "classifier",
        "accuracy",
        "AUROC",
        "AUROC, first row minus this",
        "CPU time",
    )
    return markdown(head, rows)


def defaults() -> str:
    """Features of ridge beside each other, from the stored benchmark."""
    stored = json.loads((PAPER / "results" / "estimators.json").read_text())
    rows = [
        (
            people,
            _title(row["learner"]),
            f"{row['accuracy']:.3f}",
            f"{row['auroc']:.3f}",
            " / ".join(f"{value:.3f}" for value in row["auroc by seed"]),
        )
        for people in ("444", "529")
        for row in stored["seeds"][people]["rows"]
    ]
    return markdown(
        ("subjects", "classifier", "accuracy", "AUROC", "AUROC by seed"), rows
    )


def first_day() -> str:
    """What a base model adds for a hospital with thirty people, from the benchmark."""
    stored = json.loads((PAPER / "results" / "published_base_model.json").read_text())
    rows = [
        (
            f"{row['site']} ({row['tested']} tested)",
            row["way"],
            f"{row['accuracy']:.3f}",
            f"{row['auroc']:.3f}",
        )
        for row in stored["hospitals"]
    ]
    return markdown(("hospital", "trained on", "accuracy", "AUROC"), rows)


def explanations() -> str:
    """Whether explanations name what matters, from the stored benchmark."""
    stored = json.loads((PAPER / "results" / "explanations.json").read_text())

    def shown(row: Mapping[str, Any], name: str) -> str:
        value = row.get(name, "")
        return f"{value:.2f}" if isinstance(value, float) else str(value)

    names = ("truth", "deletion", "random", "stable", "shuffled")
    rows = [
        (
            f"{row['people']} ({row['n']})",
            row["model"],
            *(shown(row, name) for name in names),
        )
        for row in stored["rows"]
    ]
    head = (
        "people",
        "model",
        "agrees with the disease",
        "1 % of edges deleted",
        "as many random",
        "stable",
        "stable, shuffled diagnoses",
    )
    return markdown(head, rows)


def datasets() -> str:
    """Every dataset."""
    return markdown(
        ("name", "what it is"), [(f"`{k}`", v.about) for k, v in DATASETS.items()]
    )


def _option(p: Any) -> tuple[str, str, str]:
    """Name, meaning with its choices, and default of an argument or option."""
    argument = p.param_type_name == "argument"
    shown = (p.metavar or p.name).upper() if argument else ", ".join(p.opts)
    meaning = re.sub(r"(--[a-z][a-z-]+)", r"`\1`", getattr(p, "help", None) or "")
    allowed = p.type_descriptor.annotation
    if get_origin(allowed) is Literal:
        choices = ", ".join(f"`{choice}`" for choice in get_args(allowed) if choice)
        meaning += f" One of {choices}."
    return f"`{shown}`", meaning.replace("<", "&lt;"), _default(p)


def _default(p: Any) -> str:
    """What is taken where nothing is given, as far as the program says it."""
    if p.default is True:
        return f"on (`{p.secondary_opts[0]}` is off)"
    if p.required:
        return "required"
    unsaid = p.default is None or p.default is False or callable(p.default)
    return "" if unsaid or p.default in ((), [], "") else f"`{p.default}`"


def commands() -> str:
    """Every command with its arguments and options, read from the program itself."""
    import typer.main

    from fcforge import cli

    group = typer.main.get_command(cli.app)
    parts = []
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        if not command.hidden:
            parts += _with_subcommands(f"fcforge {name}", command, "##")
    return "\n".join(parts)


def command_list() -> str:
    """Every command and the first sentence of its help, read from the program itself."""
    import typer.main

    from fcforge import cli

    group = typer.main.get_command(cli.app)
    rows = []
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        if not command.hidden:
            rows += _named_commands(name, command)
    return markdown(("command", "what it does"), rows)


def _named_commands(name: str, command: Any) -> list[tuple[str, str]]:
    """Return name and first line of help of a command and of the commands below it."""
    parts = getattr(command, "commands", {})
    below = [
        r
        for part, inner in parts.items()
        for r in _named_commands(f"{name} {part}", inner)
    ]
    first = inspect.cleandoc(command.help or "").split("\n", 1)[0]
    return [(f"`{name}`", first), *below]


def _with_subcommands(name: str, command: Any, level: str) -> list[str]:
    """Return the text of a command and of the commands below it."""
    parts = _command(f"{level} {name}", command)
    for part, inner in getattr(command, "commands", {}).items():
        parts += _with_subcommands(f"{name} {part}", inner, f"{level}#")
    return parts


def _command(heading: str, command: Any) -> list[str]:
    """Heading, meaning and table of one command, what must be given first."""
    named = [p for p in command.params if "--help" not in p.opts]
    named.sort(key=lambda p: (p.param_type_name != "argument", not p.required))
    parts = [f"{heading}\n\n{inspect.cleandoc(command.help or '')}\n"]
    if named:
        head = ("argument or option", "meaning", "default")
        parts.append(markdown(head, map(_option, named)))
    return parts


def reproducibility() -> str:
    """paper/RESULTS.md below a page's own title, with links as seen from this folder."""
    record = PAPER / "RESULTS.md"
    _title, _, told = record.read_text().partition("\n")
    told = told.replace("](../docs/", "](")
    return re.sub(r"\[([^]]+)\]\(benchmarks/[^)]+\)", r"\1", told)


def code_of(example: str) -> str:
    """Return an example's code as a block of a page."""
    path = Path(__file__).parents[1] / "examples" / f"{example}.py"
    return f"```python\n{path.read_text()}```\n"


TABLES = {
    "agem": partial(code_of, "agem"),
    "generative_replay": partial(code_of, "generative_replay"),
    "mas": partial(code_of, "mas"),
    "methods": methods,
    "models": models,
    "generators": generators,
    "datasets": datasets,
    "estimators": estimators,
    "defaults": defaults,
    "first_day": first_day,
    "explanations": explanations,
    "command_list": command_list,
}
INCLUDED = {"commands": commands, "reproducibility": reproducibility}
HERE = Path(__file__).parent
MARKED = re.compile(
    r"(<!-- made by docs/tables\.py: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL
)


def filled(text: str) -> str:
    """Return a page with its tables made anew."""
    return MARKED.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n{m[4]}", text)


def fill_pages(folder: Path = HERE) -> None:
    """Write the tables into the pages of a folder that hold them, touching only what changed."""
    for path in sorted(folder.glob("*.md")):
        text = path.read_text()
        if (new := filled(text)) != text:
            path.write_text(new)
            print(f"wrote {path}")


def write_all(folder: Path) -> None:
    """Write what Sphinx includes below `folder`, touching only what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: make() for name, make in INCLUDED.items()}
    for name, text in texts.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    fill_pages()
