"""`fcforge tune` on the main table's rivals, in lanes on the GPU of `benchmarks/run_tables.py`."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from fcforge.errors import FCForgeError
from fcforge.runner.collect import collect
from fcforge.runner.execute import missing_nodes
from fcforge.runner.run import open_store, prepare
from fcforge.runner.workshop import Workshop
from fcforge.studies.tune import as_csv, as_toml, judge_trials, prepare_tuning
from fcforge.types import Component, LearnerSpec


class OutOfTime(RuntimeError):
    """The wall-clock limit has passed."""


def tune(tables: Any) -> None:
    """`fcforge tune` on the main table's learners, then the chosen ones over all orders."""
    main = tables.experiments["main_abide"]
    if not tables.loaded(tables.place(main)):
        first = replace(main, learners=main.learners[:1])
        tables.cohorts[tables.place(main)] = prepare(first)
    mine = [le for le in main.learners if le.title in tables.plan["tune"]]
    mine = [_bounded(le) for le in mine]
    asked = replace(main, learners=tuple(mine))
    folder = tables.root / "tune"
    prepared = prepare_tuning(asked, folder, tables.args.repeats)
    store = open_store(prepared, folder / "runs")
    workshop = Workshop(prepared.cohort, store, tables.args.device, tables.args.group)
    todo = sorted(
        missing_nodes(prepared.plan, store), key=lambda n: (n.spec.learner.title, n.depth)
    )
    tables.say(f"tuning: {len(prepared.experiment.learners)} settings, {len(todo)} nodes")
    try:
        for _, members in groupby(todo, key=lambda n: (n.spec.learner.title, n.depth)):
            if tables.late():
                raise OutOfTime("stopped between two settings")
            workshop.run(list(members), tick=tables.tick)
    except (OutOfTime, FCForgeError, RuntimeError):
        tables.say(f"tuning stopped: {traceback.format_exc()[-600:]}")
        return
    tuned = judge_trials(asked, collect(store)[0])
    orders = [" > ".join(o) for o in prepared.experiment.list_orders(prepared.sites)]
    (folder / "tuned.toml").write_text(as_toml(tuned, orders, main.seeds[0], tables.args.repeats))
    (folder / "trials.csv").write_text(as_csv(tuned))
    print(as_csv(tuned), flush=True)
    changed = [t.learner for t in tuned if t.trials and t.chosen is not t.trials[0]]
    tables.say(f"tuning changed: {', '.join(le.title for le in changed) or 'nothing'}")
    if not changed:
        return
    tables.experiments["main_abide_tuned"] = replace(
        main, learners=tuple(changed), title="Main table on ABIDE: strengths tuned"
    )
    for learner in changed:
        unit = tables.unit("main_abide_tuned", learner.title)
        if tables.late() or not tables.attempt(unit):
            return


def _bounded(learner: LearnerSpec) -> LearnerSpec:
    """TWP's second strength stays at its authors' value, so that six settings are tried."""
    if learner.method.name != "twp":
        return learner
    return replace(learner, method=Component("twp", {"topology_strength": 100.0}))
