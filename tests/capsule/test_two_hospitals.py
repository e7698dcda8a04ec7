"""Two hospitals, two folders, two processes; one file travels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from capsule_chains import SITES, chain, cohort, same_lane

from fcforge.capsule import open_capsule
from fcforge.report.inspect import inspect_words
from fcforge.sites.cohort import upper_from_fc

# Runs one command and writes down every file it opens; opening a forbidden one ends it.
HOSPITAL = """
import os, sys
forbidden = os.environ["FORBIDDEN"]
def watch(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(forbidden):
        os.write(2, b"LOOKED AT THE OTHER HOSPITAL")
        os._exit(77)
sys.addaudithook(watch)
import torch
torch.set_num_threads(1)
from fcforge.cli import main
main()
"""


def save_site(name: str, folder: Path) -> Path:
    mine = cohort().select_sites([name])
    folder.mkdir()
    np.savez(
        folder / "data.npz",
        fc_upper=upper_from_fc(mine.fc),
        label=mine.y,
        site=mine.site,
        subject_id=mine.subject_id,
    )
    return folder / "data.npz"


def hospital(cwd: Path, forbidden: Path, *args: str) -> str:
    env = {**os.environ, "FORBIDDEN": str(forbidden), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", HOSPITAL, *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hand_over(tmp_path) -> None:
    a, b, post = tmp_path / "A", tmp_path / "B", tmp_path / "post"
    post.mkdir()
    save_site(SITES[0], a)
    # hospital A learns and seals; hospital B's folder does not exist yet
    first = hospital(
        a,
        b,
        "learn",
        "--site",
        SITES[0],
        "--data",
        "data.npz",
        "--out",
        "a.capsule",
        "--method",
        "analytic",
        "--epochs",
        "3",
        "--held-out",
        "16",
    )
    assert SITES[0] in first
    shutil.copy(a / "a.capsule", post)
    # A's data are gone from this machine before B starts: B has the one file
    shutil.rmtree(a)
    save_site(SITES[1], b)
    arrived = str(post / "a.capsule")
    hospital(
        b,
        a,
        "learn",
        "--state",
        arrived,
        "--site",
        SITES[1],
        "--data",
        "data.npz",
        "--out",
        str(post / "b.capsule"),
        "--yes",
    )
    shown = hospital(b, a, "inspect", str(post / "b.capsule"))
    # A's accuracy after B is printed, from A's synthetic held-out set
    travelled = open_capsule(post / "b.capsule")
    after = travelled.entries[-1]["metrics"]["held_out"][SITES[0]]["accuracy"]
    line = next(
        x
        for x in shown.splitlines()
        if x.strip().startswith(SITES[0] + " ") and "%" in x
    )
    assert line.rstrip().endswith(f"{100 * after:.1f} %")
    # and the travelled capsule is the one a single process makes, which is the run (tested there)
    (tmp_path / "one").mkdir()
    alone = open_capsule(chain("analytic", SITES[:2], tmp_path / "one")[-1])
    assert same_lane(alone, travelled)
    assert alone.entries[-1]["metrics"] == travelled.entries[-1]["metrics"]
    assert "\n".join(inspect_words(travelled)) == shown.rstrip("\n")
