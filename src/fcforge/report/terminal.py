"""What the commands print besides tables: checks, costs, progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fcforge.text import counted, duration, memory, printable

if TYPE_CHECKING:
    from fcforge.capsule.opening import Check
    from fcforge.capsule.prediction import Prediction
    from fcforge.runner.collect import RunProgress
    from fcforge.runner.environment import Place
    from fcforge.runner.plan import Plan
    from fcforge.runner.run import Cost
    from fcforge.studies.check import Verdict


def check_lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Lines of `fcforge check` and their colours."""
    cohort = verdict.cohort
    yield f"{verdict.what}: {len(cohort)} subjects, {cohort.n_rois} ROIs", ""
    for site, count in verdict.sites().items():
        text = f"  {site}: {count['subjects']} subjects, {count['patients']} patients"
        yield printable(text), ""
    for note in verdict.notes:
        yield printable(f"  {note}"), ""
    for finding in verdict.findings:
        style = "red" if finding.severity == "error" else "yellow"
        yield printable(f"{finding.severity}: {finding}"), style
    errors = sum(f.severity == "error" for f in verdict.findings)
    warnings = len(verdict.findings) - errors
    if verdict.ok:
        yield f"ok, {counted(warnings, 'warning')}" if warnings else "ok", "green"
    else:
        found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        yield f"{found}: nothing would be trained", "red"


def plan_text(plan: Plan, place: Place) -> str:
    """What a run is about to train, and where."""
    workers = f"cluster {place.cluster}" if place.cluster else counted(place.jobs, "worker")
    return (
        f"{counted(len(plan.stages), 'run')} = {counted(plan.trainings, 'site training')}"
        f"{plan.saving} on {place.device}, {workers}"
    )


def cost_text(cost: Cost, plan: Plan, jobs: int) -> str:
    """What a run would cost."""
    workers = counted(jobs, "idle CPU worker")
    return "\n".join(
        [
            f"site trainings  {cost.trainings}{plan.saving}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training on {workers}",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def status_text(found: RunProgress) -> str:
    """Progress of a run, learner by learner."""
    lines = [f"{found.title}: {found.trained} of {found.trainings} site trainings done"]
    width = max(map(len, found.learners))
    lines += [f"  {t:<{width}}  {r['done']}/{r['asked']} runs" for t, r in found.learners.items()]
    lines.append(f"  {memory(found.disk)} in {found.folder}")
    return "\n".join(map(printable, lines))


def prediction_text(rows: Sequence[Prediction], sites: Sequence[str]) -> str:
    """How many scans were predicted, how many were not and why."""
    strange = sum(row.status == "unlike anything seen" for row in rows)
    lacking = sum(row.status == "abstained" for row in rows)
    unusable = sum(not row.usable for row in rows)
    return printable(
        f"{counted(len(rows), 'scan')}; {strange} unlike anything seen at {', '.join(sites)}; "
        + (f"{lacking} without a covariate that is needed; " if lacking else "")
        + f"{unusable} cannot be used."
    )


def verify_text(checks: Sequence[Check], ok: bool) -> str:
    """Every check of a capsule on a line, then what follows from them."""
    lines = [f"{'ok ' if c.ok else 'BAD'}  {c.name}: {c.detail}" for c in checks]
    lines.append("intact" if ok else "DO NOT USE THIS CAPSULE")
    return "\n".join(printable(line) for line in lines)


def verify_json(checks: Sequence[Check], ok: bool) -> str:
    """The checks of a capsule for a program."""
    return json.dumps({"ok": ok, "checks": [asdict(c) for c in checks]}, indent=1)
