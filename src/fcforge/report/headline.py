"""The sentence at the top of a run's page.

AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

from fcforge.core.formatting import counted
from fcforge.evaluation.tables import UNKNOWN
from fcforge.report.run_numbers import RunNumbers
from fcforge.report.run_warnings import difference_text
from fcforge.report.tables import interval_text


def headline(numbers: RunNumbers) -> str:
    """Return a sentence that names the best learner and counts those that beat the baseline."""
    sound = [
        row for row in numbers.learners if numbers.levels.get(row.learner) != "serious"
    ]
    if not numbers.learners:
        return "No learner has usable scores."
    if not sound:
        return (
            "Every learner has a serious warning; read no winner from this run."
            if len(numbers.learners) > 1
            else "The only learner has a serious warning; read no result from this run."
        )
    best = sound[0]  # learners are sorted by falling AAA
    keeps = "" if best.keeps == UNKNOWN else f" (keeps {best.keeps})"
    text = (
        f"Highest {numbers.words.metric} along the way: {best.learner}{keeps}, {numbers.words.average} "
        f"{interval_text(best.estimates['aaa'])}"
    )
    baseline = numbers.forests["baseline"]
    if best.learner in baseline:
        text += f", which is {difference_text(baseline[best.learner])} against {numbers.words.naive}"
    beaten_by = {learner for learner, gap in baseline.items() if gap.low > 0}
    n_above = sum(row.learner in beaten_by for row in sound)
    return (
        f"{text}. {n_above} of {counted(len(sound), 'learner')} without a serious warning "
        "beat that baseline with an interval above zero."
    )
