"""What is said of a run in words: the headline, warnings, and methods for a paper."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fcforge import __version__
from fcforge.core.formatting import bracket, counted, number
from fcforge.core.result import RunResults
from fcforge.core.spec import Training
from fcforge.evaluation.comparison import Comparison
from fcforge.evaluation.forgetting import constant_predictor, finite
from fcforge.evaluation.resampling import pair_of
from fcforge.evaluation.tables import WORDS, group, is_majority
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.rendering import listed
from fcforge.report.tables import interval_text

if TYPE_CHECKING:
    from fcforge.report.run_page import Contents

FEW_SEEDS = 3
ONE_CLASS_SHARE = 0.05
"""A learner is flagged when this share of its tests at learned sites names one class throughout."""


# -- what a reader must know before believing a table ---------------------------------------------
class Finding(NamedTuple):
    """One warning: how bad, about which learner (empty: the whole experiment), what."""

    level: Literal["serious", "caution"]
    learner: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: " + f"{self.learner} {self.text}".strip()


def leaks_on(results: RunResults) -> dict[str, tuple[str, ...]]:
    """Leak switches that are on, by learner title; empty when the experiment is clean."""
    specs = [r.spec for r in results if r.spec.leaks.active()]
    return {spec.learner.title: tuple(spec.leaks.active()) for spec in specs}


def findings(
    results: RunResults,
    *,
    expected: int | None = None,
    against_majority: Mapping[str, Comparison] | None = None,
) -> list[Finding]:
    """All warnings of an experiment, serious ones first.

    Parameters
    ----------
    results : sequence of RunResult
        Without the computed majority reference.
    expected : int, optional
        Number of runs that were asked for.
    against_majority : mapping of learner title to Comparison, optional
        AAA of each learner minus that of the majority class of each site.
    """
    found = [Finding("serious", *said) for said in _serious(results, expected)]
    said = WORDS[results[0].kind]
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            text = f"is {word} {said.naive}: {said.average} differs by {gap_words(c)}."
            found.append(Finding("caution", title, text))
    seeds = len({r.spec.seed for r in results})
    if seeds < FEW_SEEDS:
        few = (
            f"only {counted(seeds, 'seed')}: differences may come from one lucky split."
        )
        found.append(Finding("caution", "", few))
    return found


def gap_words(c: Comparison) -> str:
    """A difference with its interval, both signed."""
    return f"{number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"


def _serious(results: RunResults, expected: int | None) -> Iterator[tuple[str, str]]:
    for title, active in leaks_on(results).items():
        yield title, f"was run with test data leaking in: {', '.join(active)}."
    if expected is not None and len(results) < expected:
        missing = f"{expected - len(results)} of {expected} runs are missing"
        yield "", f"{missing}: the numbers are provisional."
    asked = len(set(map(pair_of, results)))
    for title, runs in group(results).items():
        own = len(set(map(pair_of, runs)))
        if own < asked:
            lacks = f"lacks {asked - own} of {asked}"
            yield title, f"{lacks} (order, seed) pairs that others have."
        if bad := [r.spec for r in runs if not finite(r)]:
            first = f"e.g. seed {bad[0].seed}, order {' → '.join(bad[0].order)}"
            some = f"{len(bad)} of {len(runs)} runs diverged"
            text = f"{some} (scores that are not finite, {first}); they are left out of its "
            yield title, text + "numbers, which flatters it."
        if text := _constant([r for r in runs if finite(r)] or runs):
            yield title, text


def _constant(runs: RunResults) -> str:
    """What is said of a learner that calls many alike; empty where it does not."""
    if is_majority(runs[0]):
        return ""
    one = 0
    cells = 0
    for r in runs:
        learned = np.tri(len(r.spec.order), dtype=bool)
        one += int(constant_predictor(r)[learned].sum())
        cells += int(learned.sum())
    if one < ONE_CLASS_SHARE * cells:
        return ""
    return (
        f"calls everybody the same in {one} of {cells} tests at sites it had learned "
        f"({one / cells:.0%}); where nothing was learned, low forgetting means little."
    )


# -- the headline ---------------------------------------------------------------------------------
def headline(c: "Contents") -> str:
    """Who is best, how many beat the baseline, and who forgets most."""
    sound = [row for row in c.learners if c.levels.get(row.learner) != "serious"]
    if not sound:
        return "No learner has usable scores and no serious warning."
    best = sound[0]
    text = (
        f"Highest {c.words.metric} along the way: {best.learner}, {c.words.average} "
        f"{interval_text(best.estimates['aaa'])}"
    )
    baseline = c.forests["baseline"]
    if best.learner in baseline:
        text += (
            f", which is {gap_words(baseline[best.learner])} against {c.words.naive}"
        )
    beaten_by = {learner for learner, gap in baseline.items() if gap.low > 0}
    n_above = sum(row.learner in beaten_by for row in sound)
    return (
        f"{text}. {n_above} of {counted(len(sound), 'learner')} without a serious warning "
        "beat that baseline with an interval above zero."
    )


# -- methods for a paper, written from the settings of the runs -----------------------------------
KEPT_EPOCH = {
    "fixed": "the model after the last epoch was kept",
    "inner_val": "the epoch with the lowest loss on the validation part was kept",
}
MEASURED = (
    "After every site the model was tested on all sites. With a(t, i) the {metric} on the i-th "
    "site of the order after learning the t-th of T, we report {average}, the mean over t of the "
    "mean {metric} on the sites learned so far; its final value, the mean of a(T, i); FM (Chaudhry "
    "et al. 2018), the mean over i < T of the best {metric} since learning site i minus the final "
    "one; BWT (Lopez-Paz and Ranzato 2017); "
)
OF_CLASSES = (
    "FWT (the same work) against the untrained network; FOR as the paper's formula reads, which "
    "includes sites not learned yet (literal), and without them (triangular); balanced accuracy "
    "and AUROC averaged like AAA. The baseline names the commonest class of each site's own "
    "training part; the row 'majority class' that of the sites learned so far."
)
OF_NUMBERS = (
    "MAE and Spearman's correlation averaged like it. The baseline says the mean of each site's "
    "own training part; the row 'mean of all sites' that of the sites learned so far."
)


def methods_paragraphs(results: RunResults, n_draws: int) -> tuple[str, str, str]:
    """What was run, what was measured, and how sure `n_draws` of the bootstrap are."""
    kind = results[0].kind
    more = OF_NUMBERS if kind == "number" else OF_CLASSES
    measured = MEASURED.format(**WORDS[kind]._asdict()) + more
    n_seeds = len({r.spec.seed for r in results})
    over = "test subjects and trainings" if n_seeds > 2 else "test subjects"
    sure = (
        "Values are means over orders and seeds, with the standard deviation over orders. "
        f"Intervals are 95 % bootstrap intervals over {over} ({n_draws} draws, Bayesian bootstrap "
        "stratified by site and class, the same weight for a subject in every order, seed and "
        "learner; AUROC to first order); they do not cover the choice of sites. Differences are "
        "paired over orders, seeds and subjects; their p-values come from a permutation test that "
        "exchanges the two learners' scores subject by subject, and are given with Holm's "
        "correction within each list, too."
    )
    return (_what_was_run(results), measured, sure)


def sources(results: RunResults) -> str:
    """Where the people are from: the file where there is one, else the dataset's name."""
    datasets = [r.spec.dataset for r in results]
    paths = [Path(d.params.get("path", d.name)) for d in datasets]
    return listed([*dict.fromkeys(path.name for path in paths)])


def _what_was_run(results: RunResults) -> str:
    specs = [r.spec for r in results]
    first = results[0]
    learners = list(dict.fromkeys(s.learner.title for s in specs))
    common = [title for title in learners if not title.endswith(OWN)]
    also = ", each also with every site's own threshold, fitted on its training people"
    shares = "the number" if first.kind == "number" else "diagnosis"
    n_tested = sum(map(len, first.y.values()))
    return (
        f"Results were produced with fcforge {__version__}. Data: {sources(results)}, "
        f"{counted(len(first.sites), 'site')} ({listed(first.sites)}). Within each site "
        f"{100 * first.spec.test_fraction:.0f}% of subjects, stratified by {shares}, were held "
        f"out for testing ({n_tested} subjects in the first split); "
        f"{100 * first.spec.val_fraction:.0f}% of the remainder served as validation part where "
        f"one was needed. {counted(len(common), 'learner')} ({'; '.join(common)}"
        f"{also if len(common) < len(learners) else ''}) met the sites one after another in "
        f"{counted(len({s.order for s in specs}), 'order')}, with "
        f"{counted(len({s.seed for s in specs}), 'random seed')} for split, initialisation and "
        f"minibatches. {_training(first.spec.training)} Protocol: "
        f"{listed(sorted({s.protocol for s in specs}))}; {_used(results)}"
    )


def _used(results: RunResults) -> str:
    """What test people were used for."""
    leaks = {leak for r in results for leak in r.spec.leaks.active()}
    if not leaks:
        return "test subjects were used for nothing but the final scores."
    on = listed(sorted(leaks))
    return f"WARNING: test data were allowed to leak in on purpose ({on})."


def _training(t: Training) -> str:
    rate = "the model's published learning rate"
    if t.lr is not None:
        rate = f"learning rate {t.lr:g}"
    return (
        f"What has no closed form was trained with Adam ({rate}, batches of {t.batch_size}, "
        f"weight decay {t.weight_decay:g}, gradient norm clipped at {t.clip:g}) for "
        f"{counted(t.epochs, 'epoch')} per site; {KEPT_EPOCH[t.selection]}."
    )
