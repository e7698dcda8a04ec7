"""Text that the commands print: cost, progress and checks of a run."""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fcforge.core.formatting import abbreviated, counted, duration, memory
from fcforge.report.text import printable_lines

if TYPE_CHECKING:
    from fcforge.data.verdict import Verdict
    from fcforge.experiments.collect import RunProgress
    from fcforge.experiments.cost import Cost
    from fcforge.experiments.plan import Plan
    from fcforge.report.run_numbers import RunNumbers

COLOURS = {"error": "red", "warning": "yellow"}


class Line(NamedTuple):
    """A line of text and its colour on a terminal; "" is the default colour."""

    text: str
    colour: str = ""


def cost_text(cost: "Cost", plan: "Plan", jobs: int) -> str:
    """Return the estimated cost of a run as text."""
    workers = counted(jobs, "idle CPU worker")
    return printable_lines(
        [
            f"site trainings  {plan.trainings}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training and fitting generators on {workers},",
            "                without start-up of the workers, reading of data and report: up to a minute",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def status_text(progress: "RunProgress") -> str:
    """Return the progress of a run as text."""
    width = max(map(len, progress.learners))
    done = f"{progress.trained} of {progress.trainings} site trainings done"
    lines = [f"{progress.title}: {done}"]
    for title, runs in progress.learners.items():
        lines.append(f"  {title:<{width}}  {runs['done']}/{runs['asked']} runs")
    if progress.damaged:
        nodes = counted(progress.damaged, "damaged site training")
        lines.append(f"  {nodes}: `fcforge run` with the same config repeats them")
    lines.append(f"  {memory(progress.disk)} in {progress.folder}")
    return printable_lines(lines)


def differences_text(numbers: "RunNumbers", reference: str) -> str:
    """Return every learner's difference from the reference that the config names; "" without one."""
    from fcforge.report.run_warnings import difference_text

    differences = numbers.forests["reference"]
    if not differences:
        return ""
    width = max(map(len, differences))
    lines = [f"{numbers.words.average} minus that of {reference}, paired [95 %]:"]
    for learner, difference in differences.items():
        lines.append(f"  {learner:<{width}}  {difference_text(difference)}")
    return printable_lines(lines)


def check_lines(verdict: "Verdict") -> list[Line]:
    """Return the lines of `fcforge check`: the dataset, its faults and the conclusion.

    Equal faults of several subjects are one line.
    """
    cohort = verdict.cohort
    subjects = counted(len(cohort), "subject")
    lines = [Line(f"{verdict.what}: {subjects}, {counted(cohort.n_rois, 'ROI')}")]
    if len(cohort):
        lines.append(Line(f"  {verdict.target}"))
    for site, counts in verdict.sites().items():
        people = ", ".join(_people(n, group) for group, n in counts.items())
        lines.append(Line(f"  {site}: {people}"))
    lines += [Line(f"  {note}") for note in verdict.notes]
    for fault in verdict.complaints:
        lines.append(Line(f"{fault.severity}: {fault}", COLOURS[fault.severity]))
    numbers = Counter(fault.severity for fault in verdict.complaints)
    summary = [counted(n, severity) for severity, n in numbers.items()]
    if verdict.has_errors:
        lines.append(Line(", ".join([*summary, "nothing would be trained"]), "red"))
    elif verdict.unsplittable:
        lines.append(Line(_on_unsplittable(verdict, summary), "yellow"))
    else:
        lines.append(Line(", ".join(["ok", *summary]), "green"))
    return lines


def _people(n: int, group: str) -> str:
    """Return a number of people with their group: subjects, patients or the name of a class."""
    plural = ("subjects", "patients")
    return counted(n, group.removesuffix("s")) if group in plural else f"{n} {group}"


def _on_unsplittable(verdict: "Verdict", summary: list[str]) -> str:
    """Return the conclusion of `fcforge check` on data without errors that a run refuses.

    Parameters
    ----------
    verdict : Verdict
    summary : list of str
        Numbers of findings in words.
    """
    refused = f"`fcforge run` refuses these data: {abbreviated(verdict.unsplittable)} cannot be split"
    usable = "as public subjects of a base model"
    if verdict.public:
        return f"{', '.join([f'ok {usable}', *summary])}. {refused}."
    text = ", ".join([refused, *summary, "nothing would be trained"])
    return f"{text}. They are ok {usable} alone: add --public."


def check_text(verdict: "Verdict") -> str:
    """Return the lines of `fcforge check` without colours."""
    return printable_lines([line.text for line in check_lines(verdict)])
