"""The sentences of the demo follow the scores, whoever wins."""

from fake_runs import fake_learner
from fcforge.core.formatting import number
from fcforge.core.result import RunResult
from fcforge.evaluation.resampling import means
from fcforge.evaluation.tables import by_learner
from fcforge.report.forgetting_sentences import (
    DEMO_WORLD,
    ONE_SEED,
    demo_sentences,
    forgetting_sentences,
)

ORDERS = [("NYU", "UM", "USM", "UCLA"), ("UCLA", "USM", "UM", "NYU")]


def made(**forgets: float) -> list[RunResult]:
    """Runs of learners, METHOD_MODEL, that lose so much of their skill at every later site."""
    runs = []
    for name, lost in forgets.items():
        method, model = name.split("_")
        runs += fake_learner(
            name,
            method=method,
            model=model,
            skill=2.0,
            forgets=lost,
            orders=ORDERS,
            n_test=100,
        )
    return runs


def sentences(**forgets: float) -> tuple[str, ...]:
    """Sentences about the learners of `made`."""
    return forgetting_sentences(made(**forgets), n_draws=400)


def test_forge_that_keeps_what_fine_tuning_forgets():
    finetuning, forgetting, accuracy = sentences(
        finetune_gcn=0.6, forge_gcn=0.0, cumulative_gcn=0.0
    )
    assert finetuning.startswith("Fine-tuning forgets earlier hospitals on the GCN (")
    assert forgetting.startswith("FORGE forgets less than fine-tuning on the GCN (")
    assert accuracy.startswith(
        "Without keeping a real scan, FORGE cannot be told from training on all hospitals' "
        "scans together on the GCN ("
    )


def test_forge_that_loses():
    finetuning, forgetting, accuracy = sentences(
        finetune_gcn=0.0, forge_gcn=0.6, cumulative_gcn=0.0
    )
    assert finetuning.startswith("Fine-tuning shows no clear forgetting on the GCN (")
    assert forgetting.startswith("FORGE forgets more than fine-tuning on the GCN (")
    assert "FORGE is less accurate than training on all" in accuracy


def test_forge_that_changes_nothing():
    _, forgetting, _ = sentences(finetune_gcn=0.5, forge_gcn=0.5, cumulative_gcn=0.0)
    assert forgetting.startswith(
        "FORGE cannot be told from fine-tuning in what it forgets on the"
    )


def test_forge_that_is_above_training_on_all_scans():
    *_, accuracy = sentences(finetune_gcn=0.5, forge_gcn=0.0, cumulative_gcn=0.6)
    assert "FORGE is more accurate than training on all" in accuracy


def test_models_of_one_verdict_share_a_clause_and_others_get_their_own():
    same = {"finetune_gcn": 0.6, "finetune_linear": 0.6}
    finetuning, forgetting = sentences(**same, forge_gcn=0.0, forge_linear=0.0)
    assert finetuning.count("forgets earlier hospitals") == 1
    assert " and the linear model (accuracy lost there, FM: 0." in finetuning
    assert forgetting.count("less than fine-tuning") == 1
    _, mixed = sentences(**same, forge_gcn=0.0, forge_linear=0.6)
    assert "less than fine-tuning on the GCN (FM " in mixed
    assert (
        "; FORGE cannot be told from fine-tuning in what it forgets on the linear model ("
        in mixed
    )


def test_numbers_are_those_of_the_scores():
    runs = made(finetune_mlp=0.6, forge_mlp=0.1, cumulative_mlp=0.0)
    _, forgetting, accuracy = forgetting_sentences(runs, n_draws=400)
    values = {
        learner[0].spec.learner.method.name: means(learner, "accuracy", ("fm", "aaa"))
        for learner in by_learner(runs).values()
    }

    def both(summary: str, partner: str) -> str:
        ours = number(values["forge"][summary])
        theirs = number(values[partner][summary])
        return f"({summary.upper()} {ours} against {theirs}, difference "

    assert f"on the model 'mlp' {both('fm', 'finetune')}" in forgetting
    assert f"on the model 'mlp' {both('aaa', 'cumulative')}" in accuracy


def test_what_is_not_there_is_not_compared():
    assert len(sentences(finetune_gcn=0.6)) == 1
    assert sentences(er_gcn=0.0) == ()


def test_only_the_world_of_the_demo_has_them_on_its_page():
    runs = made(finetune_gcn=0.6, forge_gcn=0.0, cumulative_gcn=0.0)
    world = {"name": "simulated", "params": {"preset": "systems"}}
    found = demo_sentences(runs, {"dataset": world})
    assert found[-1] == DEMO_WORLD
    assert len(found) == 4
    for other in ({"name": "simulated", "params": {}}, {"name": "abide"}):
        assert demo_sentences(runs, {"dataset": other}) == ()


def test_a_single_seed_is_stated():
    names = {"finetune_gcn": 0.6, "forge_gcn": 0.0}
    runs = [run for run in made(**names) if run.spec.seed == 0]
    *_, last = forgetting_sentences(runs, n_draws=100)
    assert last == ONE_SEED
    assert ONE_SEED not in forgetting_sentences(made(**names), n_draws=100)
    other = [run for run in made(er_gcn=0.0) if run.spec.seed == 0]
    assert forgetting_sentences(other, n_draws=100) == ()
