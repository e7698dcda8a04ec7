"""Every experiment that ships can be loaded, and every learner in it can be built."""

import tomllib
from pathlib import Path

import pytest

from fcforge.experiments.config import load_experiment
from fcforge.experiments.pipelines import pipeline_of
from fcforge.methods import build_learner, make_method

FOLDER = Path(__file__).parents[2] / "paper" / "experiments"
FILES = sorted(
    p.stem for p in FOLDER.glob("*.toml") if "judge" not in tomllib.loads(p.read_text())
)
MUST_SHIP = {
    *("main_gcn_529", "main_gcn_444", "main_linear_529", "main_linear_444"),
    *("main_brainnetcnn_529", "main_mdd", "main_bsnip", "ablation_gcn_529"),
    *("buffer_gcn_529", "tau_gcn_529", "ladder_gcn_529", "lambda_gcn_529"),
    *("development_sites", "harmonise_site_demean", "harmonise_combat"),
}


@pytest.mark.parametrize("name", FILES)
def test_experiment_can_be_built(name):
    experiment = load_experiment(FOLDER / f"{name}.toml")
    for learner in experiment.learners:
        if pipeline := pipeline_of(learner):
            pipeline.make()
        else:
            build_learner(learner, int(experiment.dataset.params.get("n_rois", 116)))


def test_every_experiment_is_there():
    assert set(FILES) >= MUST_SHIP


@pytest.mark.parametrize("name", sorted(MUST_SHIP))
def test_all_orders_and_no_leak(name):
    experiment = load_experiment(FOLDER / f"{name}.toml")
    assert experiment.orders == "all"
    assert len(experiment.seeds) >= 3
    assert not experiment.leaks.active()
    assert experiment.protocol == "strict"


def test_main_tables_hold_every_method_of_the_paper():
    paper = {
        "finetune",
        "joint",
        "cumulative",
        "er",
        "der",
        "derpp",
        "ewc",
        "si",
        "lwf",
    }
    paper |= {"packnet", "twp", "ugcl", "pdgnn", "forge", "analytic"}
    for name, weights in (
        ("main_gcn_529", "asd"),
        ("main_mdd", "mdd"),
        ("main_bsnip", "bsnip"),
    ):
        learners = load_experiment(FOLDER / f"{name}.toml").learners
        assert {le.method.name for le in learners} == paper
        forge = [le for le in learners if le.method.name == "forge"]
        assert {le.generator.name for le in forge} == {"fcm_vae", "corr_gauss"}
        assert {le.method.params.get("lambdas", "asd") for le in forge} == {weights}


def test_development_sites_are_tested_nowhere_else():
    groups = load_experiment(FOLDER / "development_sites.toml").dataset.params["merge"]
    small = {site for group in groups.values() for site in group}
    assert len(small) == sum(map(len, groups.values())) == 14
    main = load_experiment(FOLDER / "main_gcn_529.toml").dataset.params
    tested = {
        site for name in main["sites"] for site in main["merge"].get(name, [name])
    }
    assert not small & tested


def test_lambda_grid_is_the_papers():
    """One at a time around .20 / .35 / .15: 13 points, every value of the grid once or more."""
    both = load_experiment(FOLDER / "lambda_gcn_529.toml").learners
    rows = [le for le in both if le.method.params.get("variant") != "paper"]
    assert len(both) == 2 * len(rows)
    points = {make_method(le.method).weights for le in rows}
    assert len(points) == len(rows) == 13
    centre = (0.2, 0.35, 0.15)
    assert all(sum(a != b for a, b in zip(p, centre, strict=True)) <= 1 for p in points)
    assert (
        {p[0] for p in points} == {p[1] for p in points} == {0.2, 0.25, 0.3, 0.35, 0.4}
    )
    assert {p[2] for p in points} == {0.1, 0.15, 0.2, 0.25, 0.3}
    for learner in rows:  # labels say what is run
        words = learner.title.split()
        assert make_method(learner.method).weights == tuple(map(float, words[1::2]))
