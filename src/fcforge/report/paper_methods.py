"""Methods of a run for a paper, written from the settings of its runs."""

from collections.abc import Sequence

from fcforge import __version__
from fcforge.report.rendering import listed
from fcforge.text import counted
from fcforge.types import RunResult, Training

KEPT_EPOCH = {
    "fixed": "the network after the last epoch was kept",
    "inner_val": "the epoch with the lowest loss on the validation part was kept",
}
MEASURED = (
    "After every site the model was tested on all sites. With a(t, i) the accuracy on the i-th "
    "site of the order after learning the t-th of T, we report AAA, the mean over t of the mean "
    "accuracy on the sites learned so far; final ACC, the mean of a(T, i); FM (Chaudhry et al. "
    "2018), the mean over i < T of the best accuracy since learning site i minus the final one; "
    "FOR as the paper's formula reads, which includes zero-shot values (literal), and on the lower "
    "triangle alone (triangular); BWT and FWT (Lopez-Paz and Ranzato 2017), FWT against the "
    "untrained network; balanced accuracy and AUROC averaged like AAA. The baseline names the "
    "commonest class of each site's own training part; the row 'majority class' that of the sites "
    "learned so far."
)


def methods_paragraphs(
    results: Sequence[RunResult], leaks: Sequence[str], n_draws: int
) -> tuple[str, str, str]:
    """What was run, what was measured, and how sure it is.

    Parameters
    ----------
    results : sequence of RunResult
    leaks : sequence of str
        Leak switches that were on.
    n_draws : int
        Of the bootstrap.
    """
    return (_what_was_run(results, leaks), MEASURED, _how_sure(results, n_draws))


def _what_was_run(results: Sequence[RunResult], leaks: Sequence[str]) -> str:
    specs = [r.spec for r in results]
    first = results[0]
    learners = list(dict.fromkeys(s.learner.title for s in specs))
    datasets = dict.fromkeys(s.dataset.name for s in specs)
    n_tested = sum(map(len, first.y.values()))
    used = "test subjects were used for nothing but the final scores."
    if leaks:
        on = listed(sorted(set(leaks)))
        used = f"WARNING: test data were allowed to leak in on purpose ({on})."
    return (
        f"Results were produced with fcforge {__version__}. Data: {listed([*datasets])}, "
        f"{counted(len(first.sites), 'site')} ({listed(first.sites)}). Within each site "
        f"{100 * first.spec.test_fraction:.0f}% of subjects, stratified by diagnosis, were held "
        f"out for testing ({n_tested} subjects in the first split); "
        f"{100 * first.spec.val_fraction:.0f}% of the remainder served as validation part where "
        f"one was needed. {counted(len(learners), 'learner')} ({listed(learners)}) met the sites "
        f"one after another in {counted(len({s.order for s in specs}), 'order')}, with "
        f"{counted(len({s.seed for s in specs}), 'random seed')} for split, initialisation and "
        f"minibatches. {_training(first.spec.training)} Protocol: "
        f"{listed(sorted({s.protocol for s in specs}))}; {used}"
    )


def _training(t: Training) -> str:
    rate = "the model's published learning rate"
    if t.lr is not None:
        rate = f"learning rate {t.lr:g}"
    return (
        f"Networks were trained with Adam ({rate}, batches of {t.batch_size}, weight decay "
        f"{t.weight_decay:g}, gradient norm clipped at {t.clip:g}) for "
        f"{counted(t.epochs, 'epoch')} per site; {KEPT_EPOCH[t.selection]}."
    )


def _how_sure(results: Sequence[RunResult], n_draws: int) -> str:
    n_seeds = len({r.spec.seed for r in results})
    over = "test subjects and trainings" if n_seeds > 2 else "test subjects"
    return (
        "Values are means over orders and seeds, with the standard deviation over orders. "
        f"Intervals are 95 % bootstrap intervals over {over} ({n_draws} draws, Bayesian bootstrap "
        "stratified by site and class, the same weight for a subject in every order, seed and "
        "learner; AUROC to first order); they do not cover the choice of sites. Differences are "
        "paired over orders, seeds and subjects; their p-values come from a permutation test that "
        "exchanges the two learners' scores subject by subject, and are given with Holm's "
        "correction within each list, too."
    )
