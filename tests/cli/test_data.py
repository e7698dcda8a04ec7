"""The typer commands: flags reach the functions, exit codes and streams, light imports."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fcforge.cli import app as commands
from fcforge.cli import main


@pytest.fixture
def app() -> typer.Typer:
    return commands


def test_fc_makes_files_talks_on_stderr_and_says_by_its_code(
    app: typer.Typer, tmp_path: Path
):
    rng = np.random.default_rng(0)
    for name, n in (("a", 6), ("b", 6), ("c", 7)):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(40, n)), delimiter=",")
    out = tmp_path / "out"
    words = [
        "fc",
        str(tmp_path),
        str(out),
        "participant",
        "--atlas",
        "six",
        "--no-report",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "failed: sub-c: " in done.stderr
    assert "2 of 3 subjects have FC" in done.stderr
    only = CliRunner().invoke(
        app, [*words, "--participant-label", "a", "--participant-label", "b"]
    )
    assert only.exit_code == 0
    assert "(0 made now, 2 from before)" in only.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["preprocess"], "no *_bold.nii[.gz] and no NIfTI file found"),
        (["fc"], "no scan and no time series found"),
        (["fc", "--denoise", "simpel"], "Did you mean 'simple'?"),
        (["fc", "partcipant"], "is not one of"),
        (["fc", "--layout", "fmriperp"], "is not one of"),
        (["fc", "--max-empty", "1.5"], "max_empty = 1.5 is out of bounds"),
    ],
)
def test_nothing_can_be_done_is_one_error_and_code_2(
    words, said, tmp_path: Path, capsys
):
    with pytest.raises(SystemExit) as stop:
        main([words[0], str(tmp_path), str(tmp_path / "o"), *words[1:]])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_help_imports_nothing_heavy():
    code = (
        "import sys, fcforge.cli\n"
        "heavy = {'nilearn', 'nibabel', 'pandas', 'torch', 'matplotlib', 'ants', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
