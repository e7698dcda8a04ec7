"""The methods paragraphs for a paper, generated from the settings of the runs."""

from pathlib import Path

from fcforge import __version__
from fcforge.core.formatting import counted
from fcforge.core.result import RunResults
from fcforge.core.spec import Training
from fcforge.evaluation.majority import WORDS
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.html import comma_list

"""A learner is flagged when this share of its tests at learned sites names one class throughout."""


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
    return comma_list([*dict.fromkeys(path.name for path in paths)])


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
        f"{counted(len(first.sites), 'site')} ({comma_list(first.sites)}). Within each site "
        f"{100 * first.spec.test_fraction:.0f}% of subjects, stratified by {shares}, were held "
        f"out for testing ({n_tested} subjects in the first split); "
        f"{100 * first.spec.val_fraction:.0f}% of the remainder served as validation part where "
        f"one was needed. {counted(len(common), 'learner')} ({'; '.join(common)}"
        f"{also if len(common) < len(learners) else ''}) met the sites one after another in "
        f"{counted(len({s.order for s in specs}), 'order')}, with "
        f"{counted(len({s.seed for s in specs}), 'random seed')} for split, initialisation and "
        f"minibatches. {_training(first.spec.training)} Protocol: "
        f"{comma_list(sorted({s.protocol for s in specs}))}; {_used(results)}"
    )


def _used(results: RunResults) -> str:
    """What test people were used for."""
    leaks = {leak for r in results for leak in r.spec.leaks.active()}
    if not leaks:
        return "test subjects were used for nothing but the final scores."
    on = comma_list(sorted(leaks))
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
