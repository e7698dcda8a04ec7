"""Text that the commands print: cost, progress and checks of a run."""

from collections import Counter
from typing import TYPE_CHECKING

from fcforge.core.formatting import counted, duration, memory

if TYPE_CHECKING:
    from fcforge.experiments.check import Verdict
    from fcforge.experiments.collect import RunProgress
    from fcforge.experiments.plan import Plan
    from fcforge.experiments.timing import Cost
from fcforge.report.text import printable_lines


def cost_text(cost: "Cost", plan: "Plan", jobs: int) -> str:
    """What a run would cost."""
    workers = counted(jobs, "idle CPU worker")
    return printable_lines(
        [
            f"site trainings  {plan.trainings}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training on {workers}",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def status_text(found: "RunProgress") -> str:
    """How much of a run is done."""
    width = max(map(len, found.learners))
    done = f"{found.trained} of {found.trainings} site trainings done"
    lines = [f"{found.title}: {done}"]
    for title, runs in found.learners.items():
        lines.append(f"  {title:<{width}}  {runs['done']}/{runs['asked']} runs")
    if found.damaged:
        nodes = counted(found.damaged, "damaged site training")
        lines.append(f"  {nodes}: `fcforge run` with the same config repeats them")
    lines.append(f"  {memory(found.disk)} in {found.folder}")
    return printable_lines(lines)


def check_text(verdict: "Verdict") -> str:
    """What `fcforge check` prints."""
    cohort = verdict.cohort
    lines = [f"{verdict.what}: {len(cohort)} subjects, {cohort.n_rois} ROIs"]
    if len(cohort):
        lines.append(f"  {verdict.target}")
    for site, count in verdict.sites().items():
        people = ", ".join(f"{n} {who}" for who, n in count.items())
        lines.append(f"  {site}: {people}")
    lines += [f"  {note}" for note in verdict.notes]
    lines += [f"{found.severity}: {found}" for found in verdict.complaints]
    told = Counter(finding.severity for finding in verdict.complaints)
    counts = [counted(n, severity) for severity, n in told.items()]
    end = ["ok", *counts] if verdict.ok else [*counts, "nothing would be trained"]
    return printable_lines([*lines, ", ".join(end)])
