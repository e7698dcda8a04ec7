"""What commands print besides tables: plain lines, none of which a foreign name can break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fcforge.text import counted, duration, memory, printable

if TYPE_CHECKING:
    from fcforge.capsule.prediction import Prediction
    from fcforge.capsule.sealing import Check
    from fcforge.runner.collect import RunProgress
    from fcforge.runner.environment import Place
    from fcforge.runner.plan import Plan
    from fcforge.runner.run import Cost
    from fcforge.studies.check import Verdict


def joined(lines: Sequence[str]) -> str:
    """Lines as one text, each without what cannot be seen."""
    return "\n".join(map(printable, lines))


def plan_text(plan: Plan, place: Place) -> str:
    """How much will be trained, and where."""
    runs = counted(len(plan.stages), "run")
    trainings = counted(plan.trainings, "site training")
    workers = counted(place.jobs, "worker")
    if place.cluster:
        workers = f"cluster {place.cluster}"
    return printable(f"{runs} = {trainings}{plan.saving} on {place.device}, {workers}")


def cost_text(cost: Cost, plan: Plan, jobs: int) -> str:
    """What a run would cost."""
    workers = counted(jobs, "idle CPU worker")
    return joined(
        [
            f"site trainings  {cost.trainings}{plan.saving}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training on {workers}",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def status_text(found: RunProgress) -> str:
    """How much of a run is done."""
    width = max(map(len, found.learners))
    done = f"{found.trained} of {found.trainings} site trainings done"
    lines = [f"{found.title}: {done}"]
    for title, runs in found.learners.items():
        lines.append(f"  {title:<{width}}  {runs['done']}/{runs['asked']} runs")
    lines.append(f"  {memory(found.disk)} in {found.folder}")
    return joined(lines)


def check_lines(verdict: Verdict) -> list[tuple[str, str]]:
    """Lines of `fcforge check`, each with its colour ("" for none)."""
    cohort = verdict.cohort
    plain = [f"{verdict.what}: {len(cohort)} subjects, {cohort.n_rois} ROIs"]
    for site, count in verdict.sites().items():
        people = f"{count['subjects']} subjects, {count['patients']} patients"
        plain.append(f"  {site}: {people}")
    plain += [f"  {note}" for note in verdict.notes]
    lines = [(line, "") for line in plain]
    n_errors = 0
    for finding in verdict.complaints:
        is_error = finding.severity == "error"
        n_errors += is_error
        colour = "red" if is_error else "yellow"
        lines.append((f"{finding.severity}: {finding}", colour))
    n_warnings = len(verdict.complaints) - n_errors
    warnings = counted(n_warnings, "warning")
    if not verdict.ok:
        last = f"{counted(n_errors, 'error')}, {warnings}: nothing would be trained"
        lines.append((last, "red"))
    else:
        lines.append((f"ok, {warnings}" if n_warnings else "ok", "green"))
    return [(printable(line), colour) for line, colour in lines]


def prediction_text(rows: Sequence[Prediction], sites: Sequence[str]) -> str:
    """How many scans were answered."""
    statuses = [row.status for row in rows]
    unlike = statuses.count("unlike anything seen")
    lacking = statuses.count("abstained")
    parts = [
        counted(len(rows), "scan"),
        f"{unlike} unlike anything seen at {', '.join(sites)}",
    ]
    if lacking:
        parts.append(f"{lacking} without a covariate that is needed")
    unusable = sum(not row.usable for row in rows)
    parts.append(f"{unusable} cannot be used.")
    return printable("; ".join(parts))


def verify_text(checks: Sequence[Check]) -> str:
    """Every check and what it comes to."""
    lines = [
        f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.detail}"
        for check in checks
    ]
    good = all(check.ok for check in checks)
    return joined([*lines, "intact" if good else "DO NOT USE THIS FILE"])
