"""Sentences of the report: the headline, the methods paragraph, how to cite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fcforge import __version__
from fcforge.stats import Comparison, Estimate, Row
from fcforge.text import bracket, counted, number, with_interval
from fcforge.types import RunResult

BIBTEX = """@article{chen2026forge,
  title   = {Continual Learning for {fMRI}-Based Brain Disorder Diagnosis via
             Functional Connectivity Matrices Generative Replay},
  author  = {Chen, Qianyu and Yu, Shujian},
  year    = {2026}
}

@software{fcforge,
  title   = {fcforge: continual learning for {fMRI}-based diagnosis across hospitals},
  author  = {{The fcforge developers}},
  version = {%s},
  year    = {2026}
}
"""


MEASURES = (
    "After every site the model was tested on all sites. With a(t, i) the accuracy on the i-th "
    "site of the order after learning the t-th of T, we report AAA, the mean over t of the mean "
    "accuracy on the sites learned so far; final ACC, the mean of a(T, i); FM (Chaudhry et al. "
    "2018), the mean over i < T of the best accuracy since learning site i minus the final one; "
    "FOR as the paper's formula reads, which includes zero-shot values (literal), and on the "
    "lower triangle alone (triangular); BWT and FWT (Lopez-Paz and Ranzato 2017), FWT against "
    "the untrained network; balanced accuracy and AUROC averaged like AAA. The majority row "
    "predicts the commonest class of the sites learned so far."
)

STATISTICS = (
    "Values are means over orders and seeds, with the standard deviation over orders. Intervals "
    "are 95 % bootstrap intervals over test subjects ({} draws, Bayesian bootstrap stratified by "
    "site and class, the same weight for a subject in every order, seed and learner; AUROC to "
    "first order); they do not cover the choice of sites. Differences are paired over orders, "
    "seeds and subjects; their p-values come from a permutation test that exchanges the two "
    "learners' scores subject by subject, without correction for multiple comparisons."
)


def bibtex() -> str:
    """BibTeX of the FORGE paper and of this software."""
    return BIBTEX % __version__


def join(items: Sequence[str]) -> str:
    """Comma-separated list with a final 'and'."""
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def _interval(e: Estimate) -> str:
    return with_interval(e.mean, e.low, e.high)


def headline(
    rows: Sequence[Row], against_majority: dict[str, Comparison], leaky: Collection[str] = ()
) -> str:
    """Two or three sentences a reader in a hurry may take away; leaky learners are passed over.

    Parameters
    ----------
    rows : sequence of Row
        By falling AAA.
    against_majority : dict of learner title to Comparison
    leaky : collection of learner titles
    """
    learners = [r for r in rows if not r.is_majority and r.n_runs and r.learner not in leaky]
    if not learners:
        return "No learner has usable scores obtained without test data."
    best, worst = learners[0], max(learners, key=lambda r: r.estimates["fm"].mean)
    text = f"Highest accuracy along the way: {best.learner}, AAA "
    text += _interval(best.estimates["aaa"])
    c = against_majority.get(best.learner)
    if c is not None:
        text += f", which is {number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"
        text += " against always naming the commonest class"
    compared = [against_majority[r.learner] for r in learners if r.learner in against_majority]
    beaten = sum(c.low > 0 for c in compared)
    n = counted(len(learners), "learner")
    text += f". {beaten} of {n} beat that majority class with an interval above zero."
    if worst.estimates["fm"].mean > 0:
        text += f" Most is forgotten by {worst.learner}: FM {_interval(worst.estimates['fm'])}."
    return text


def _training(result: RunResult) -> str:
    t, spec = result.spec.training, result.spec
    chosen = {
        "fixed": "the network after the last epoch was kept",
        "inner_val": "the epoch with the lowest loss on the validation part was kept",
    }[t.selection]
    rate = "the model's published learning rate" if t.lr is None else f"learning rate {t.lr:g}"
    return (
        f"Networks were trained with Adam ({rate}, batches of {t.batch_size}, weight decay "
        f"{t.weight_decay:g}, gradient norm clipped at {t.clip:g}) for "
        f"{counted(t.epochs, 'epoch')} per site; {chosen}. "
        f"Harmonisation: {spec.harmonise.replace('_', ' ')}."
    )


def methods_paragraphs(results: Sequence[RunResult], n_draws: int) -> list[str]:
    """Text for a paper, generated from the settings of the runs.

    Parameters
    ----------
    results : sequence of RunResult
        Without the computed majority reference.
    n_draws : int
        Bootstrap draws behind the intervals.
    """
    first = results[0]
    spec, sites = first.spec, first.sites
    orders, seeds = {r.spec.order for r in results}, {r.spec.seed for r in results}
    learners = list(dict.fromkeys(r.spec.learner.title for r in results))
    datasets = list(dict.fromkeys(r.spec.dataset.name for r in results))
    n = sum(len(first.y[s]) for s in sites)
    data = (
        f"Results were produced with fcforge {__version__}. Data: {join(datasets)}, "
        f"{counted(len(sites), 'site')} ({join(sites)}). Within each site "
        f"{spec.test_fraction:.0%} of subjects, stratified by diagnosis, were held out for testing "
        f"({n} subjects in the first split); {spec.val_fraction:.0%} of the remainder served as "
        f"validation part where one was needed. {counted(len(learners), 'learner')} "
        f"({join(learners)}) met the sites one after another in {counted(len(orders), 'order')}, "
        f"with {counted(len(seeds), 'random seed')} for split, initialisation and "
        f"minibatches. {_training(first)}"
    )
    leaks = sorted({x for r in results for x in r.spec.leaks.active()})
    protocols = join(sorted({r.spec.protocol for r in results}))
    data += f" Protocol: {protocols}; "
    if leaks:
        data += f"WARNING: test data were allowed to leak in on purpose ({join(leaks)})."
    else:
        data += "test subjects were used for nothing but the final scores."
    return [data, MEASURES, STATISTICS.format(n_draws)]
