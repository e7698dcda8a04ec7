"""The typer commands: flags reach the functions, exit codes and streams, light imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fcforge.cli import app as commands


@pytest.fixture
def app() -> typer.Typer:
    return commands


def test_fc_makes_files_talks_on_stderr_and_says_by_its_code(app: typer.Typer, tmp_path: Path):
    rng = np.random.default_rng(0)
    for name, n in (("a", 6), ("b", 6), ("c", 7)):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(40, n)), delimiter=",")
    out = tmp_path / "out"
    words = ["fc", str(tmp_path), str(out), "participant", "--atlas", "six", "--no-report"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "sub-c failed: " in done.stderr
    assert "2 of 3 subjects have FC" in done.stderr
    only = CliRunner().invoke(app, [*words, "--participant-label", "a", "--participant-label", "b"])
    assert only.exit_code == 0
    assert "(0 made now, 2 from before)" in only.stderr


def test_preprocess_with_nothing_to_do(app: typer.Typer, tmp_path: Path):
    done = CliRunner().invoke(app, ["preprocess", str(tmp_path), str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "nothing done" in done.stderr


def test_unknown_settings_are_one_line(app: typer.Typer, tmp_path: Path):
    done = CliRunner().invoke(
        app, ["fc", str(tmp_path), str(tmp_path / "o"), "--denoise", "simpel"]
    )
    assert done.exit_code == 2
    assert "Did you mean 'simple'?" in done.stderr
    done = CliRunner().invoke(app, ["fc", str(tmp_path), str(tmp_path / "o"), "partcipant"])
    assert done.exit_code == 2
    assert "Known: group, participant" in done.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys, fcforge.cli\n"
        "heavy = {'nilearn', 'nibabel', 'pandas', 'torch', 'matplotlib', 'ants', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
