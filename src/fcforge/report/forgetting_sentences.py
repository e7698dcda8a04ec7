"""Three sentences about a run: what fine-tuning forgets, and what FORGE keeps and costs.

They are computed from the stored scores, model by model, and follow the intervals: where FORGE is
worse than its partner, or cannot be told from it, they say so.

AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fcforge.core.formatting import number
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.comparison import Comparer, Comparison
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.resampling import N_DRAWS, estimate, means
from fcforge.evaluation.tables import by_learner
from fcforge.report.html import comma_list
from fcforge.report.run_warnings import difference_text
from fcforge.report.tables import interval_text

DEMO_WORLD = (
    "These hospitals are simulated and were made to disagree; on real ones (ABIDE-I) little is "
    "forgotten, and FORGE gains at most a point or two of accuracy."
)
ONE_SEED = (
    "A single seed was run: the intervals are over people of these hospitals, and another seed may "
    "give other differences."
)
MODEL_TITLES = {"gcn": "the GCN", "linear": "the linear model"}

Methods = dict[str, Sequence[RunResult]]  # runs on one model by name of the method


def forgetting_sentences(
    results: RunResults, n_draws: int = N_DRAWS
) -> tuple[str, ...]:
    """Compare FORGE with fine-tuning and with training on all scans, in words.

    Parameters
    ----------
    results : sequence of RunResult
        Runs of the methods ``finetune``, ``forge`` and ``cumulative`` on one or more models;
        others are ignored. Of several learners with one method and model the first counts.
    n_draws : int
        Bootstrap draws behind the intervals, which decide the wording.

    Returns
    -------
    tuple of str
        How much fine-tuning forgets; whether FORGE forgets less; whether FORGE is as accurate
        as training on the scans of all sites so far; that a single seed was run. A sentence is
        left out where no model has the methods that it compares.
    """
    models = _by_model(results)
    sentences = (
        _finetuning_sentence(models, n_draws),
        _forgetting_sentence(models, n_draws),
        _accuracy_sentence(models, n_draws),
    )
    told = tuple(filter(None, sentences))
    one_seed = len({run.spec.seed for run in results}) == 1
    return (*told, ONE_SEED) if told and one_seed else told


def demo_sentences(results: RunResults, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sentences about a run in the world of ``fcforge demo``; none for other data.

    Parameters
    ----------
    results : sequence of RunResult
    settings : mapping
        Settings of the experiment, as a run folder stores them.

    Returns
    -------
    tuple of str
        The sentences of `forgetting_sentences`, and that real hospitals differ.
    """
    dataset = settings.get("dataset", {})
    if dataset.get("name") != "simulated":
        return ()
    if dataset.get("params", {}).get("preset") != "systems":
        return ()
    return (*forgetting_sentences(results), DEMO_WORLD)


def _by_model(results: RunResults) -> dict[str, Methods]:
    """Group runs with finite scores by model title, then by method name."""
    models: dict[str, Methods] = {}
    for runs in by_learner(results).values():
        learner = runs[0].spec.learner
        name = learner.model.name
        title = MODEL_TITLES.get(name, f"the model '{name}'")
        if usable := [run for run in runs if finite(run)]:
            models.setdefault(title, {}).setdefault(learner.method.name, usable)
    return models


def _finetuning_sentence(models: Mapping[str, Methods], n_draws: int) -> str:
    """Return how much accuracy fine-tuning loses at earlier sites."""
    cases = []
    for model, methods in models.items():
        if "finetune" in methods:
            runs = methods["finetune"]
            fm = estimate(runs, "accuracy", ("fm",), n_draws=n_draws)["fm"]
            verdict = "fine-tuning shows no clear forgetting"
            if fm.low > 0:
                verdict = "fine-tuning forgets earlier hospitals"
            lost = f"accuracy lost there, FM: {interval_text(fm)}"
            cases.append((verdict, f"{model} ({lost})"))
    return _joined(cases)


def _forgetting_sentence(models: Mapping[str, Methods], n_draws: int) -> str:
    """Return whether FORGE forgets less than fine-tuning."""
    verdicts = (
        "FORGE forgets less than fine-tuning",
        "FORGE cannot be told from fine-tuning in what it forgets",
        "FORGE forgets more than fine-tuning",
    )
    return _compared(models, "finetune", "fm", verdicts, n_draws)


def _accuracy_sentence(models: Mapping[str, Methods], n_draws: int) -> str:
    """Return whether FORGE is as accurate as training on the scans of all sites so far."""
    partner = "training on all hospitals' scans together"
    verdicts = (
        f"without keeping a real scan, FORGE is less accurate than {partner}",
        f"without keeping a real scan, FORGE cannot be told from {partner}",
        f"without keeping a real scan, FORGE is more accurate than {partner}",
    )
    return _compared(models, "cumulative", "aaa", verdicts, n_draws)


def _compared(
    models: Mapping[str, Methods],
    partner: str,
    summary: str,
    verdicts: tuple[str, str, str],
    n_draws: int,
) -> str:
    """Compare FORGE with a partner in one summary.

    Parameters
    ----------
    models : mapping of model title to runs by method
    partner : str
        Method that FORGE is compared with.
    summary : {"aaa", "fm"}
    verdicts : (str, str, str)
        FORGE's value is lower, not distinguishable, higher.
    n_draws : int
    """
    comparer = Comparer("accuracy", summary, n_draws)
    cases = []
    for model, methods in models.items():
        if "forge" in methods and partner in methods:
            gap = comparer.compare(methods["forge"], methods[partner])
            values = [
                means(methods[name], "accuracy", (summary,))[summary]
                for name in ("forge", partner)
            ]
            two_values = " against ".join(map(number, values))
            detail = (
                f"{summary.upper()} {two_values}, difference {difference_text(gap)}"
            )
            cases.append((_verdict(gap, verdicts), f"{model} ({detail})"))
    return _joined(cases)


def _verdict(gap: Comparison, verdicts: tuple[str, str, str]) -> str:
    """Return the verdict that fits the interval of a difference."""
    lower, unclear, higher = verdicts
    if gap.high < 0:
        return lower
    return higher if gap.low > 0 else unclear


def _joined(cases: Sequence[tuple[str, str]]) -> str:
    """Join (verdict, model with details) into one sentence, models of one verdict together."""
    by_verdict: dict[str, list[str]] = {}
    for verdict, model in cases:
        by_verdict.setdefault(verdict, []).append(model)
    clauses = [
        f"{verdict} on {comma_list(model_list)}"
        for verdict, model_list in by_verdict.items()
    ]
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else ""
