"""Two hospitals, two folders, two processes; one file travels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from small_chains import SITES, chained, cohort

from fcforge.data.edges import upper_from_fc
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.terminal import described_text
from real_runs import chain_config

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
DATA = ("--data", "data.npz", "--positive", "ASD")


def save_site(name: str, folder: Path) -> None:
    mine = cohort().select_sites([name])
    folder.mkdir()
    np.savez(
        folder / "data.npz",
        fc_upper=upper_from_fc(mine.fc),
        label=np.where(mine.y == 1, "ASD", "TC"),
        site=mine.site,
        subject_id=mine.subject_id,
    )


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
    a = tmp_path / "A"
    b = tmp_path / "B"
    post = tmp_path / "post"
    post.mkdir()
    save_site(SITES[0], a)
    # hospital A learns; hospital B's folder does not exist yet
    chosen = ("--config", str(chain_config(tmp_path / "chain.toml")))
    told = (
        "consortium",
        "chain",
        "begin",
        "--site",
        SITES[0],
        *DATA,
        "--out",
        "a.fcx",
        "--new-ledger",
        *chosen,
    )
    hospital(a, b, *told)
    shutil.copy(a / "a.fcx", post)
    # A's data are gone from this machine before B starts: B has the one file
    shutil.rmtree(a)
    save_site(SITES[1], b)
    arrived = ("--state", str(post / "a.fcx"), "--yes")
    out = post / "b.fcx"
    told = ("consortium", "chain", "continue", "--site", SITES[1], *DATA)
    hospital(b, a, *told, "--out", str(out), "--new-ledger", *arrived)
    shown = hospital(b, a, "consortium", "inspect", str(out))
    travelled = open_exchange(out)
    assert described_text(describe(travelled)) == shown.rstrip("\n")
    # what travelled is what a single process makes, which is the run (tested there)
    alone = chained("analytic", SITES[:2])[-1].model.state.lane
    there = travelled.model.state.lane
    for name, value in alone.params.items():
        np.testing.assert_array_equal(value.numpy(), there.params[name].numpy())
    for name, value in alone.named().items():
        np.testing.assert_array_equal(value.numpy(), there.named()[name].numpy())
