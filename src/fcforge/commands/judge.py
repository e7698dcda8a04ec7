"""`fcforge judge`: reads the config, hands it to the judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fcforge.commands.run import pick_device
from fcforge.judge.commands import judge_command
from fcforge.runner.config import resolve_dataset
from fcforge.runner.config_files import read_config

Say = Callable[..., None]


def judge_config(config: Path, settings: Sequence[str], out: Path, device: str, say: Say) -> str:
    """Judge the generators of a config file; returns the tables as Markdown."""
    data = read_config(config, settings).data
    dataset = resolve_dataset(dict(data.get("dataset", {})), str(config), config.resolve().parent)
    found = judge_command(data, out=out, dataset=dataset, device=pick_device(device), say=say)
    for warning in found["warnings"]:
        say(warning, style="red")
    return (out / "tables.md").read_text()
