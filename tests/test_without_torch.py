"""Commands of a hospital without torch, which plain `pip install fcforge` does not bring."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_cohorts import tiny, write_npz

from real_runs import Answer, finished

BLOCKED = """
import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")


sys.meta_path.insert(0, NoTorch())
from fcforge.cli import main

main(sys.argv[1:])
"""


PYTHON = BLOCKED.partition("from fcforge.cli")[0]


def test_python_finds_its_parts_without_torch():
    code = """
from fcforge import ConfoundRemover, MatrixLog, SiteHarmoniser, load_atlas
from fcforge.core.errors import FCForgeError
try:
    from fcforge import ForgeClassifier
except FCForgeError as error:
    assert "torch" in str(error)
    assert "train" in str(error)
else:
    raise SystemExit("a classifier without torch")
"""
    subprocess.run([sys.executable, "-c", PYTHON + code], check=True, timeout=60)


def test_everything_at_the_top_can_be_asked_for_and_nothing_is_loaded_before():
    code = """
import fcforge
import sys
assert not {"numpy", "sklearn", "torch"} & set(sys.modules)
assert set(fcforge.__all__) <= set(dir(fcforge))
for name in fcforge.__all__:
    getattr(fcforge, name)
try:
    fcforge.nothing
except AttributeError:
    pass
else:
    raise SystemExit("what is not there was found")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def without_torch(*args: object) -> Answer:
    """A command in a process of its own in which every import of torch fails."""
    command = [sys.executable, "-c", BLOCKED, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def series(tmp_path_factory) -> Path:
    """A folder of series in AAL's order."""
    folder = tmp_path_factory.mktemp("series")
    rng = np.random.default_rng(0)
    for subject in ("s1", "s2"):
        np.savetxt(folder / f"{subject}.1D", rng.normal(size=(60, 116)))
    return folder


def test_check_of_data(tmp_path):
    answer = without_torch("check", write_npz(tmp_path / "people.npz", tiny()))
    assert answer.code == 0, answer.err
    assert "ok" in answer.out


def test_fc_of_series(series, tmp_path):
    answer = without_torch("fc", series, tmp_path / "out")
    assert answer.code == 0, answer.err
    assert len(list(tmp_path.glob("out/sub-*/func/*relmat.tsv"))) == 2


def test_report_and_pages_of_a_run(tmp_path):
    folder = shutil.copytree(finished().folder, tmp_path / "run")
    (folder / "report.html").unlink()
    answer = without_torch("report", folder)
    assert answer.code == 0, answer.err
    assert (folder / "report.html").exists()
    answer = without_torch("pages", tmp_path)
    assert answer.code == 0, answer.err
    assert (tmp_path / "pages" / "index.html").exists()


def test_datasets_are_listed():
    answer = without_torch("list", "datasets")
    assert answer.code == 0, answer.err
    assert "rest_meta_mdd" in answer.out
    assert "fcforge list methods" in without_torch("list").out


def test_what_needs_torch_says_so_in_one_line(tmp_path):
    config = tmp_path / "my.toml"
    assert without_torch("init", config).code == 0
    for command in (("run", config, "--out", tmp_path / "run"), ("check", config)):
        answer = without_torch(*command)
        assert answer.code == 2
        (line,) = answer.err.strip().splitlines()
        assert "torch" in line
        assert "train" in line
    assert not (tmp_path / "run").exists()
