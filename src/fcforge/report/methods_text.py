"""The methods paragraphs for a paper, generated from the specification of every run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.core.component import Component
from fcforge.core.formatting import counted, memory
from fcforge.core.names import site_of_visit
from fcforge.core.result import RunResult, RunResults
from fcforge.core.spec import RunSpec
from fcforge.core.version import __version__
from fcforge.evaluation.majority import WORDS, is_majority
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.catalogue import learning_rate, settings_of, trains_network
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.html import comma_list

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
    "FWT (the same work) against the untrained network; FOR by the formula of the FORGE paper, "
    "which includes sites not learned yet (literal), and without them (triangular); balanced "
    "accuracy and AUROC averaged like AAA. The baseline predicts the commonest class of each site's own "
    "training part; the row 'majority class' that of the sites learned so far."
)
OF_NUMBERS = (
    "MAE and Spearman's correlation averaged like it. The baseline says the mean of each site's "
    "own training part; the row 'mean of all sites' that of the sites learned so far."
)


def methods_paragraphs(results: RunResults, n_draws: int) -> tuple[str, str, str, str]:
    """Return the methods section of a paper about these runs.

    Parameters
    ----------
    results : sequence of RunResult
    n_draws : int
        Draws of the bootstrap and permutations.

    Returns
    -------
    tuple of str
        Data and design, the learners one by one, the measures, and the uncertainty.
    """
    kind = results[0].kind
    more = OF_NUMBERS if kind == "number" else OF_CLASSES
    measures = MEASURED.format(**WORDS[kind]._asdict()) + more
    n_seeds = len({r.spec.seed for r in results})
    over = "test subjects and trainings" if n_seeds > 2 else "test subjects"
    uncertainty = (
        "Values are means over orders and seeds, with the standard deviation over orders. "
        f"Intervals are 95 % bootstrap intervals over {over} ({n_draws} draws, Bayesian bootstrap "
        "stratified by site and class, the same weight for a subject in every order, seed and "
        "learner; AUROC to first order); they do not cover the choice of sites. Differences are "
        "paired over orders, seeds and subjects. Their p-values come from a permutation test that "
        "exchanges the two learners' scores subject by subject, and are also given with Holm's "
        "correction within each list."
    )
    return _design(results), _learners(results), measures, uncertainty


def sources(results: RunResults) -> str:
    """Return the names of the data files, or of the datasets that have none, in one line."""
    datasets = [r.spec.dataset for r in results]
    paths = [Path(d.params.get("path", d.name)) for d in datasets]
    return comma_list([*dict.fromkeys(path.name for path in paths)])


# -- data and design -------------------------------------------------------------------------------
def _design(results: RunResults) -> str:
    """Describe data, splits, orders, seeds, protocol and the use of test subjects."""
    specs = [r.spec for r in results]
    first = results[0]
    learners = list(by_learner(results))
    own_models = [title for title in learners if not title.endswith(OWN)]
    also = ""
    if len(own_models) < len(learners):
        also = ", each also with every site's own threshold, fitted on its training subjects"
    target = "the number" if first.kind == "number" else "diagnosis"
    sites = [name for name in first.sites if name == site_of_visit(name)]
    n_tested = sum(len(first.y[name]) for name in sites)
    return (
        f"Results were produced with fcforge {__version__}. Data: {sources(results)}, "
        f"{counted(len(sites), 'site')} ({comma_list(sites)}). Within each site "
        f"{_test_split(first.spec)}, stratified by {target} ({n_tested} test subjects in the "
        f"first split); {100 * first.spec.val_fraction:.0f} % of the remainder served as "
        f"validation part where one was needed. {counted(len(own_models), 'learner')} "
        f"({'; '.join(own_models)}{also}) met the sites one after another in "
        f"{counted(len({s.order for s in specs}), 'order')}, with "
        f"{counted(len({s.seed for s in specs}), 'random seed')} for split, initialisation and "
        f"minibatches.{_visits(first.spec)}{_confounds(first.spec)} Protocol: "
        f"{comma_list(sorted({s.protocol for s in specs}))}; {_use_of_test_subjects(results)}"
    )


def _test_split(spec: RunSpec) -> str:
    """Describe how test subjects are chosen."""
    if spec.folds:
        return f"every subject was tested once by {spec.folds}-fold cross-validation"
    return f"{100 * spec.test_fraction:.0f} % of subjects were held out for testing"


def _visits(spec: RunSpec) -> str:
    """State in how many portions the training subjects of a site arrived."""
    if spec.visits == 1:
        return ""
    return (
        f" The training subjects of every site arrived in {spec.visits} visits of disjoint subjects, "
        "the order of sites being gone through once per visit; every visit counts as a site of the "
        "order and has the site's test subjects."
    )


def _confounds(spec: RunSpec) -> str:
    """Name the covariates that were removed from the scans."""
    if not spec.confounds:
        return ""
    return (
        f" {comma_list(spec.confounds).capitalize()} were regressed out of every scan."
    )


def _use_of_test_subjects(results: RunResults) -> str:
    """State that test subjects were used for scores alone, or which leaks were on."""
    leaks = {leak for r in results for leak in r.spec.leaks.active()}
    if not leaks:
        return "test subjects were used for nothing but the final scores."
    on = comma_list(sorted(leaks))
    return f"WARNING: test data were allowed to leak in on purpose ({on})."


# -- the learners ----------------------------------------------------------------------------------
def _learners(results: RunResults) -> str:
    """Describe every learner from the specification of its own runs."""
    sentences = [
        _learner(title, runs)
        for title, runs in by_learner(results).items()
        if not title.endswith(OWN) and not is_majority(runs[0])
    ]
    return " ".join(sentences)


def _learner(title: str, runs: Sequence[RunResult]) -> str:
    """Describe one learner: method, model, generator, training, base model and memory."""
    spec = runs[0].spec
    learner = spec.learner
    parts = [
        f"method {_component('methods', learner.method)}",
        f"model {_component('models', learner.model)}",
    ]
    if learner.generator is not None:
        parts.append(f"generator {_component('generators', learner.generator)}")
    parts += [_training(spec), _base_model(spec)]
    memory_kept = max(float(run.memory_bytes.max(initial=0)) for run in runs)
    if memory_kept:
        parts.append(f"memory between sites of at most {memory(memory_kept)}")
    return f"{title}: {'; '.join(part for part in parts if part)}."


def _component(kind: str, component: Component) -> str:
    """Return a component's name with all of its settings."""
    settings = settings_of(kind, component)
    return f"{component.name} ({_settings(settings)})" if settings else component.name


def _settings(settings: Mapping[str, Any]) -> str:
    """Return settings as ``name = value``, separated by commas."""
    return ", ".join(f"{name} = {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    """Return the text of a setting."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return f"({_settings(value)})"
    if isinstance(value, list | tuple):
        return " / ".join(map(_value, value))
    return "not set" if value is None else str(value)


def _training(spec: RunSpec) -> str:
    """Describe how a learner's network was trained; empty where it has a closed form."""
    learner = spec.learner
    if not trains_network(learner):
        return ""
    training = replace(spec.training, **learner.training)
    rate = learning_rate(learner, training)
    shown_rate = (
        "the model's published learning rate"
        if rate is None
        else f"learning rate {rate:g}"
    )
    return (
        f"trained with Adam ({shown_rate}, batches of {training.batch_size}, "
        f"weight decay {training.weight_decay:g}, gradient norm clipped at {training.clip:g}) for "
        f"{counted(training.epochs, 'epoch')} per site, and {KEPT_EPOCH[training.selection]}"
    )


def _base_model(spec: RunSpec) -> str:
    """Name the base model that a learner starts from, and what else its public subjects did.

    Empty where the run has none.
    """
    if spec.base_model is None:
        return ""
    if not spec.learner.base_model:
        return "without the base model"
    dataset = _component("datasets", spec.base_model.dataset)
    text = f"with a base model of public subjects ({dataset})"
    training = replace(spec.training, **spec.learner.training)
    if not trains_network(spec.learner):
        return text
    if training.public_replay:
        joined = counted(training.public_replay, "public subject")
        text += f", {joined} in every batch"
    if training.public_pull:
        text += (
            f", a penalty of {training.public_pull / 2:g} times the squared distance from the "
            "parameters of the network trained on the public subjects"
        )
    return text
