"""Configs: what they mean, and what every kind of mistake says."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.leaks import Leaks
from fcforge.core.overrides import override
from fcforge.core.settings import build
from fcforge.core.spec import BaseModelSpec, LearnerSpec, Training
from fcforge.experiments.config import Experiment, load_experiment, parse_experiment
from fcforge.experiments.run_keys import run_key
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS, build_learner
from fcforge.models import MODELS
from real_runs import fcforge

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "dataset": {"name": "simulated", "n_rois": 12},
    "learner": [{"method": "finetune", "model": "gcn"}],
}


def config(**tables: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALL), **tables}


def parse(data: dict[str, Any]) -> Experiment:
    return parse_experiment(data, Path("x.toml"))


def parse_error(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        [build_learner(learner, 12) for learner in parse(data).learners]
    return str(caught.value)


# -- what a config means -----------------------------------------------------------------------
def test_defaults():
    experiment = parse(config())
    assert experiment.dataset == Component("simulated", {"n_rois": 12})
    assert experiment.learners == (
        LearnerSpec(Component("finetune"), Component("gcn")),
    )
    assert (experiment.seeds, experiment.orders, experiment.protocol) == (
        (0,),
        "all",
        "strict",
    )
    assert experiment.training == Training()
    assert experiment.leaks == Leaks()


def test_everything_said_arrives():
    experiment = parse(
        config(
            experiment={
                "title": "T",
                "seeds": [4, 2],
                "orders": [["B", "A"], ["A"]],
                "test_fraction": 0.25,
                "val_fraction": 0.1,
            },
            training={
                "epochs": 3,
                "lr": 0.1,
                "selection": "inner_val",
                "precision": "tf32",
            },
            leaks={"select_on_test": True},
            learner=[
                {
                    "method": {"name": "forge", "memory": 9},
                    "model": {"name": "gat", "hidden": 8},
                    "generator": {"name": "corr_gauss", "shrink": 0.05},
                    "title": "mine",
                }
            ],
        )
    )
    assert experiment.orders == (("B", "A"), ("A",))
    assert (experiment.seeds, experiment.title) == ((4, 2), "T")
    assert (experiment.test_fraction, experiment.val_fraction) == (0.25, 0.1)
    assert experiment.training.lr == 0.1
    assert experiment.training.precision == "tf32"
    assert experiment.leaks.active() == ("select_on_test",)
    assert experiment.learners == (
        LearnerSpec(
            Component("forge", {"memory": 9}),
            Component("gat", {"hidden": 8}),
            Component("corr_gauss", {"shrink": 0.05}),
            "mine",
        ),
    )
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_the_template_can_be_read(tmp_path):
    fcforge("init", tmp_path / "e.toml")
    experiment = load_experiment(tmp_path / "e.toml")
    titles = [learner.title for learner in experiment.learners]
    assert titles == ["FORGE", "fine-tuning", "ER", "cumulative"]
    assert experiment.learners[0].method.name == "forge"
    assert experiment.learners[0].generator == Component("fcm_vae")


# -- protocol "paper" --------------------------------------------------------------------------
def with_presets(table: dict[str, type]) -> set[str]:
    def has(cls) -> bool:
        return "paper" in cls.presets or "paper" in cls.variants

    return {name for name, cls in table.items() if has(cls)}


def test_protocol_paper_takes_the_papers_presets():
    assert set(METHODS["forge"].variants) == {"stable", "paper", "authors"}
    assert "fcm_vae" in with_presets(GENERATORS)
    learner = {
        "method": "forge",
        "model": "gcn",
        "generator": {"name": "fcm_vae", "epochs": 2},
    }
    data = config(
        experiment={"protocol": "paper"}, learner=[learner, {"method": "ewc"}]
    )
    forge, ewc = parse(data).learners
    assert forge.method == Component("forge", {"variant": "paper"})
    assert forge.generator == Component("fcm_vae", {"epochs": 2, "variant": "paper"})
    assert ewc.method == Component("ewc")  # has no presets
    strict = parse({**data, "experiment": {}}).learners[0]
    assert strict.method == Component("forge")
    for learner_spec in (forge, ewc, strict):
        build_learner(learner_spec, 12)


def test_protocol_paper_leaves_a_preset_that_was_set():
    learner = {
        "method": {"name": "forge", "variant": "stable"},
        "generator": {"name": "fcm_vae", "variant": "authors"},
    }
    spec = parse(config(experiment={"protocol": "paper"}, learner=[learner])).learners[
        0
    ]
    assert spec.method.params["variant"] == "stable"
    assert spec.generator.params["variant"] == "authors"


@pytest.mark.parametrize(
    "table", [METHODS, GENERATORS, MODELS], ids=["method", "gen", "model"]
)
def test_whatever_has_presets_knows_the_papers(table):
    for name in with_presets(table):
        word = "variant" if table[name].variants else "preset"
        made = build("thing", Component(name, {word: "paper"}), table)
        assert getattr(made, "settings", made) != getattr(
            table[name](), "settings", None
        )


def test_folds_say_what_the_seeds_are():
    experiment = parse(
        config(split={"folds": 3, "repeats": 2}, experiment={"seeds": [7]})
    )
    assert (experiment.folds, experiment.seeds) == (3, (0, 1, 2, 3, 4, 5))
    assert {s.folds for s in experiment.specs(["A", "B"])} == {3}
    assert "cannot be used" in parse_error(config(split={"folds": 1}))


def test_an_override_is_checked_like_the_file():
    with pytest.raises(ConfigError, match="Did you mean 'epochs'"):
        parse(override(config(), ["training.epoch=5"]))


# -- mistakes ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (config(trainig={}), "'trainig'. Did you mean 'training'?"),
        (config(training={"epoch": 3}), "'epoch'. Did you mean 'epochs'?"),
        (config(experiment={"sedes": [1]}), "'sedes'. Did you mean 'seeds'?"),
        (config(leaks={"select_on_tests": True}), "Did you mean 'select_on_test'?"),
        (config(learner=[{"method": "ewc", "modle": "gcn"}]), "Did you mean 'model'?"),
        (
            config(learner=[{"method": "ewcc"}]),
            "unknown method 'ewcc'. Did you mean 'ewc'?",
        ),
        (config(learner=[{"method": "ewc", "model": "gnc"}]), "Did you mean 'gcn'?"),
        (
            config(learner=[{"method": "forge", "generator": "corr_gaus"}]),
            "unknown generator 'corr_gaus'. Did you mean 'corr_gauss'?",
        ),
        (config(dataset={"name": "simulatd"}), "Did you mean 'simulated'?"),
        (
            config(learner=[{"method": {"name": "ewc", "strenght": 3.0}}]),
            "'strenght'. Did you mean 'strength'?",
        ),
        (
            config(learner=[{"method": "ewc", "model": {"name": "gcn", "hiden": 3}}]),
            "'hiden'. Did you mean 'hidden'?",
        ),
        (
            config(
                learner=[
                    {
                        "method": "forge",
                        "generator": {"name": "corr_gauss", "shrnk": 0.1},
                    }
                ]
            ),
            "'shrnk'. Did you mean 'shrink'?",
        ),
        (
            config(learner=[{"method": "er", "generator": "corr_gauss"}]),
            "learner 1: method 'er' uses no generator",
        ),
        (config(judge={"title": "T"}), "unknown setting 'judge'"),
        (config(learner=[{"method": {"strength": 3}}]), "a method table needs a name"),
        (config(learner=[]), "[[learner]] is missing"),
        (config(learner=[{"model": "gcn"}]), "learner 1: it names no method"),
        ({"learner": [{"method": "ewc"}]}, "[dataset]: a dataset table needs a name"),
        (
            config(training={"epochs": 0}),
            "training: epochs = 0 is too small. Use 1 or more.",
        ),
        (
            config(training={"epochs": "many"}),
            "training: epochs = 'many' is not a whole number",
        ),
        (config(training={"lr": -1.0}), "training: lr = -1.0 is too small"),
        (
            config(training={"batch_size": 1}),
            "batch_size = 1 is too small. Use 2 or more.",
        ),
        (config(training={"selection": "test"}), "Known: fixed, inner_val."),
        (config(experiment={"protocol": "papper"}), "unknown. Did you mean 'paper'?"),
        (
            config(experiment={"test_fraction": 1.0}),
            "test_fraction = 1.0 is not a fraction",
        ),
        (config(experiment={"seeds": []}), "experiment: seeds = [] is empty"),
        (config(experiment={"seeds": [1, 1]}), "seeds = [1, 1] lists a seed twice"),
        (config(experiment={"orders": "some"}), "orders = 'some' is unknown"),
        (config(experiment={"harmonise": "combat"}), "unknown setting 'harmonise'"),
        (
            config(training={"selection": "inner_val"}, experiment={"val_fraction": 0}),
            "val_fraction = 0",
        ),
        (
            config(learner=[{"method": {"name": "ewc", "strength": "high"}}]),
            "strength = 'high' is not a number",
        ),
        (
            config(
                learner=[{"method": "ewc", "model": {"name": "gcn", "hidden": 2.5}}]
            ),
            "hidden = 2.5 is not a whole number",
        ),
        (
            config(dataset={"name": "simulated", "n_rois": "ten"}),
            "n_rois = 'ten' is not a whole number",
        ),
        (
            config(dataset={"name": "folder", "path": "x", "sites": "A"}),
            "sites = 'A' is not a list",
        ),
        (
            config(learner=[{"method": {"name": "ewc", "strength": -1.0}}]),
            "strength = -1.0",
        ),
        (config(learner=[{"method": "forge"}]), "needs a generator"),
        (config(learner=[{"method": "analytic", "model": "gcn"}]), "Set model = "),
    ],
)
def test_mistakes(data, says):
    text = parse_error(data)
    assert says in text
    assert len(text) < 500


def test_two_learners_of_one_name():
    twice = [{"method": "ewc"}, {"method": {"name": "ewc", "strength": 3.0}}]
    assert "two learners are called 'ewc/gcn'. Give each a title." in parse_error(
        config(learner=twice)
    )
    twice[0]["title"] = "weak"
    assert len(parse(config(learner=twice)).learners) == 2


def test_a_mistake_names_the_file_and_the_learner():
    text = parse_error(config(learner=[{"method": "ewc"}, {"method": "swc"}]))
    assert text.startswith("x.toml: learner 2: unknown method 'swc'")
    titled = {"method": "swc", "title": "My method"}
    text = parse_error(config(learner=[{"method": "ewc"}, titled]))
    assert text.startswith("x.toml: learner 2 'My method': unknown method 'swc'")


def test_dates_are_no_settings(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(
        '[dataset]\nname="simulated"\nseed=2020-01-01\n[[learner]]\nmethod="ewc"\n'
    )
    with pytest.raises(ConfigError, match="date"):
        load_experiment(path)


# -- where data lie ----------------------------------------------------------------------------
def test_relative_data_start_at_the_config(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(
        '[dataset]\nname="folder"\npath="d/x.npz"\n[[learner]]\nmethod="ewc"\n'
    )
    assert load_experiment(path).dataset.params["path"] == str(tmp_path / "d" / "x.npz")


# -- shorter files: rows of a base, settings said once -------------------------------------------
FORGE: list[dict[str, Any]] = [
    {"title": "whole", "method": "forge", "generator": "corr_gauss"},
    {"title": "no GKD", "method": {"name": "forge", "l3": 0.0, "memory": 8}},
    {"title": "Base", "method": "finetune", "model": {"name": "gcn", "hidden": 8}},
]


def test_named_settings_reach_every_row_of_that_name_and_the_row_wins():
    defaults = {"model": {"name": "linear", "features": "log"}, "generator": "fcm_vae"}
    whole, no_gkd, base = parse(
        config(
            learner=FORGE,
            learner_defaults=defaults,
            method={"forge": {"memory": 256, "lambdas": "mdd"}},
            model={"gcn": {"tau": 0.3}},
            generator={"fcm_vae": {"epochs": 2}},
        )
    ).learners
    assert whole.method == Component("forge", {"memory": 256, "lambdas": "mdd"})
    assert no_gkd.method == Component(
        "forge", {"memory": 8, "lambdas": "mdd", "l3": 0.0}
    )
    assert whole.generator == Component("corr_gauss")
    assert no_gkd.generator == Component("fcm_vae", {"epochs": 2})
    assert whole.model == no_gkd.model == Component("linear", {"features": "log"})
    assert base == LearnerSpec(
        Component("finetune"), Component("gcn", {"hidden": 8, "tau": 0.3}), None, "Base"
    )


def test_the_reference_of_differences_is_a_row_and_changes_no_run():
    named = config(evaluation={"reference": "finetune/gcn"})
    experiment = parse(named)
    assert experiment.reference == "finetune/gcn"
    keys = [
        [run_key(spec) for spec in each.specs(["A", "B"])]
        for each in (experiment, parse(config()))
    ]
    assert keys[0] == keys[1]
    message = parse_error(config(evaluation={"reference": "finetune/gnc"}))
    assert "evaluation.reference" in message
    assert "Did you mean 'finetune/gcn'?" in message


def test_learners_picks_rows_by_title_in_the_order_of_the_list():
    picked = parse(config(learner=FORGE, learners=["Base", "whole"])).learners
    assert [row.title for row in picked] == ["whole", "Base"]


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (
            {"learners": ["base"]},
            "x.toml: unknown learner 'base'. Did you mean 'Base'?",
        ),
        (
            {"method": {"forg": {}}},
            "[method.forg]: unknown method 'forg'. Did you mean 'forge'?",
        ),
        (
            {"method": {"ewc": {"strenght": 1.0}}},
            "[method.ewc]: method 'ewc': unknown setting 'strenght'.",
        ),
        (
            {"model": {"gcn": {"hidden": "wide"}}},
            "hidden = 'wide' is not a whole number",
        ),
        ({"learner_defaults": {"generater": "fcm_vae"}}, "Did you mean 'generator'?"),
        ({"method": {"forge": 3}}, "forge = 3 is not a table of settings"),
    ],
)
def test_mistakes_in_what_is_said_once(tables, says):
    assert says in parse_error(config(learner=FORGE, **tables))


# -- files on files ----------------------------------------------------------------------------
BASE = """
[experiment]
seeds = [0, 1]
protocol = "paper"
[dataset]
name = "folder"
path = "d/x.npz"
sites = ["A", "B"]
[training]
epochs = 7
lr = 0.5
[[learner]]
method = "ewc"
[[learner]]
method = "si"
"""


def files(folder: Path, **texts: str) -> dict[str, Path]:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return {name: folder / f"{name}.toml" for name in texts}


def test_a_variant_states_what_differs(tmp_path):
    (tmp_path / "sub").mkdir()
    files(tmp_path, base=BASE)
    variant = 'base = "../base.toml"\nlearners = ["si/gcn"]\n[training]\nepochs = 9\n'
    path = files(tmp_path / "sub", variant=variant)["variant"]
    experiment = load_experiment(path, ["experiment.seeds=[3]"])
    assert [row.title for row in experiment.learners] == ["si/gcn"]
    assert (experiment.training.epochs, experiment.training.lr) == (9, 0.5)
    assert (experiment.seeds, experiment.protocol) == ((3,), "paper")
    # where the base lies, not where the variant does
    assert experiment.dataset.params["path"] == str(tmp_path / "d" / "x.npz")


def test_a_mistake_of_a_base_names_the_file_that_was_asked_for(tmp_path):
    files(tmp_path, base=BASE.replace("epochs = 7", "epochs = 0"))
    bare = files(tmp_path, bare='base = "base.toml"')["bare"]
    with pytest.raises(ConfigError) as caught:
        load_experiment(bare)
    assert str(caught.value).startswith(f"{bare}: training: epochs = 0 is too small")


def test_specs_are_learners_times_seeds_times_orders():
    learners = tuple(LearnerSpec(Component(m), Component("gcn")) for m in ("ewc", "si"))
    experiment = Experiment(
        Component("simulated", {"n_rois": 9}),
        learners,
        seeds=(0, 5),
        training=Training(epochs=2),
        leaks=Leaks(context_on_test=True),
        test_fraction=0.4,
        val_fraction=0.1,
        protocol="paper",
    )
    specs = experiment.specs(("A", "B", "C"), "sha")
    assert len(specs) == len({run_key(s) for s in specs}) == 2 * 2 * 6
    for spec in specs:
        assert spec.dataset == experiment.dataset
        assert spec.training.epochs == 2
        assert spec.leaks.context_on_test
        assert (spec.test_fraction, spec.val_fraction, spec.protocol) == (
            0.4,
            0.1,
            "paper",
        )
        assert spec.data_sha256 == "sha"


@pytest.mark.parametrize("table", ["[start]\nsites = 'others'", "START"])
def test_the_former_word_for_a_base_model_names_the_present_one(table, tmp_path):
    path = tmp_path / "a.toml"
    row = '[[learner]]\nmethod = "finetune"\n'
    text = '[dataset]\nname = "simulated"\n'
    text += row + "start = false\n" if table == "START" else f"{table}\n{row}"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"`start` is called `base_model`"):
        load_experiment(path)


def test_stored_experiments_of_earlier_versions_are_read():
    learner = LearnerSpec(Component("analytic"), Component("linear"), base_model=False)
    public = BaseModelSpec(Component("folder", {"path": "x"}), "abc")
    experiment = Experiment(Component("simulated"), (learner,), base_model=public)
    stored = experiment.to_json()
    stored["start"] = stored.pop("base_model")
    stored["learners"][0]["start"] = stored["learners"][0].pop("base_model")
    stored["harmonise"] = "none"
    assert Experiment.from_json(stored) == experiment
    with pytest.raises(ConfigError, match="harmonised"):
        Experiment.from_json({**stored, "harmonise": "combat"})


def public_config(learner: dict[str, Any], **tables: Any) -> dict[str, Any]:
    dataset = {"name": "simulated", "sites": ["A", "B"]}
    row = {"model": "linear", **learner}
    given = {"base_model": {"sites": ["C"]}, "dataset": dataset, **tables}
    return config(learner=[row], **{k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            public_config({"method": "finetune"}, training={"public_replay": -1}),
            "public_replay = -1 is too small",
        ),
        (
            public_config({"method": "finetune"}, training={"public_pull": "much"}),
            "public_pull = 'much' is not a number",
        ),
        (
            public_config(
                {"method": "er"}, training={"public_replay": 8}, base_model=None
            ),
            "use public subjects, but the run has none. Add a [base_model] table",
        ),
        (
            public_config(
                {"method": "er", "training": {"public_pull": 1.0}, "base_model": False}
            ),
            "which base_model = false takes from this row",
        ),
        (
            public_config({"method": "analytic", "training": {"public_replay": 8}}),
            "belong to gradient steps, and this row takes none",
        ),
    ],
)
def test_uses_of_public_subjects_without_effect_are_refused(data, says):
    assert says in parse_error(data)


def test_uses_of_public_subjects_arrive():
    made = parse(
        public_config(
            {"method": "er", "training": {"public_replay": 8}},
            training={"public_pull": 0.5},
        )
    )
    (spec, *_) = made.specs(["A", "B"])
    assert (spec.training.public_replay, spec.training.public_pull) == (8, 0.5)
    parse(public_config({"method": "analytic"}, training={"public_pull": 0.5}))
