"""Run an experiment on a bare GPU machine (torch, numpy, safetensors): no config, no report.

``python -m fcforge.runner EXPERIMENT.json OUT [--device cuda] [--group N]`` where
EXPERIMENT.json is `Experiment.to_json`. The run folder it leaves is an ordinary one.
"""

import argparse
import json
import time
from pathlib import Path

from fcforge.runner.experiment import Experiment
from fcforge.runner.run import open_store, prepare, run_experiment


def main() -> None:
    """Parse, run, say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--group", type=int, default=None)
    args = parser.parse_args()
    experiment = Experiment.from_json(json.loads(args.experiment.read_text()))
    prepared = prepare(experiment)
    store = open_store(prepared, args.out)
    started = time.monotonic()

    def progress(done: int, total: int, what: str) -> None:
        print(
            f"{time.monotonic() - started:7.1f} s  {done}/{total}  {what}", flush=True
        )

    run_experiment(
        prepared, store, device=args.device, group=args.group, progress=progress
    )


if __name__ == "__main__":
    main()
