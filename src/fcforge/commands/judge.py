"""`fcforge judge`: reads the config, hands it to the judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fcforge.commands.run import pick_device
from fcforge.config import override, read_toml, resolve_dataset
from fcforge.judge.commands import judge_command

Say = Callable[..., None]


def judge_config(config: Path, settings: Sequence[str], out: Path, device: str, say: Say) -> str:
    """Judge the generators of a config file; returns the tables as Markdown."""
    data = override(read_toml(config), settings)
    dataset = resolve_dataset(dict(data.get("dataset", {})), str(config), config.resolve().parent)
    found = judge_command(data, out=out, dataset=dataset, device=pick_device(device), say=say)
    for warning in found["warnings"]:
        say(warning, style="red")
    return (out / "tables.md").read_text()
