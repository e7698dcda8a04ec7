"""Commands of experiments: stdout and stderr, exit codes, lists, no torch for --help."""

import errno
import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from fcforge import __version__
from fcforge.cli import experiments
from fcforge.data.datasets import DATASETS
from fcforge.data.edges import upper_from_fc
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_cohort
from fcforge.experiments.catalogue import PACKAGES, catalogue
from fcforge.experiments.collect import collect
from fcforge.experiments.config import load_experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.store import Store
from fcforge.experiments.work import missing_nodes
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.methods.forge import Forge
from fcforge.models import MODELS
from fcforge.report.forgetting_sentences import DEMO_WORLD, forgetting_sentences
from real_runs import fcforge, finished, scratch, small_config

HELP = """
import resource, sys
from fcforge.cli import main
try:
    main(["--help"])
except SystemExit as stop:
    assert stop.code == 0
heavy = {"torch", "numpy", "scipy", "pandas", "sklearn", "nilearn", "matplotlib"}
print("HEAVY", sorted(heavy & set(sys.modules)), file=sys.stderr)
print("CPU", sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def shared_layout(tmp_path_factory) -> Path:
    """An .npz in the layout of the shared data, with the four required arrays only, 9 ROIs."""
    cohort = simulate(n_rois=9, n_sites=2, scale=0.1, seed=1)
    path = tmp_path_factory.mktemp("npz") / "mine.npz"
    np.savez(
        path,
        fc_upper=upper_from_fc(cohort.fc).astype(np.float16),
        label=cohort.y.astype(np.int8),
        site=cohort.site,
        subject_id=np.arange(len(cohort)),
    )
    return path


@pytest.mark.parametrize("module", ["fcforge", "fcforge.cli"])
def test_the_command_line_runs_as_a_module(module):
    command = [sys.executable, "-m", module, "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == f"fcforge {__version__}"


def test_help_is_quick_and_light():
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True
    )
    assert "HEAVY []" in done.stderr
    # processor time, not the clock: a busy machine is no slow command
    assert float(done.stderr.split("CPU")[1]) < 0.4
    for command in ("init", "check", "run", "status", "report", "list"):
        assert command in done.stdout


def test_the_embedded_demo_runs(tmp_path, monkeypatch):
    """The command with its own config; one epoch, one order and few ROIs suffice."""

    def train_here(prepared, folder, place):
        run_experiment(prepared, open_store(prepared, folder), group=1)

    monkeypatch.setattr(experiments, "_train", train_here)
    folder = tmp_path / "run"
    small = (
        "training.epochs=1",
        "experiment.orders=1",
        "dataset.subjects_per_site=20",
        "dataset.n_rois=12",
        "generator.fcm_vae.epochs=1",
    )
    settings = [word for setting in small for word in ("--set", setting)]
    demo = fcforge("demo", "--out", folder, *settings)
    assert demo.code == 0, demo.err
    results, asked = collect(Store(folder))
    assert len(results) == asked == 8
    assert all(np.isfinite(p).all() for r in results for p in r.scores.values())
    table, _, words = demo.out.partition("SD over orders")
    for title in ("AAA", "FM", "FOR", *(r.spec.learner.title for r in results)):
        assert title in table
    text = " ".join(words.split())
    assert text == " ".join([*forgetting_sentences(results), DEMO_WORLD])
    # what fine-tuning and FORGE forget, FORGE beside cumulative training, and that one seed was run
    assert len(forgetting_sentences(results)) == 4
    assert demo.err.splitlines()[-1] == f"report: {folder / 'report.html'}"
    page = (folder / "report.html").read_text()
    for sentence in (*forgetting_sentences(results), DEMO_WORLD):
        assert f'<p class="lead">{escape(sentence)}</p>' in page


def test_the_demos_learners_are_the_papers_system():
    config = files("fcforge.cli").joinpath("demo.toml")
    learners = load_experiment(config).learners
    methods = {"finetune", "er", "forge", "cumulative"}
    for model in ("gcn", "linear"):
        rows = {x.method.name: x for x in learners if x.model.name == model}
        assert rows.keys() == methods
        assert rows["forge"].generator.name == "fcm_vae"
        forge = Forge(**rows["forge"].method.params)
        assert all(forge.weights)  # replay, logits and readout
        assert forge.sampling == "hcts"
        assert len({str(x.training) for x in rows.values()}) == 1


def test_version_and_no_arguments():
    assert fcforge("--version").out == f"fcforge {__version__}\n"
    assert "Usage" in fcforge().out + fcforge().err
    assert fcforge("runn", "x").code == 2


@pytest.mark.parametrize("kind", ["datasets", "models", "generators", "methods"])
def test_list(kind):
    names = json.loads(fcforge("list", kind, "--json").out)
    text = fcforge("list", kind)
    assert (text.code, text.err) == (0, "")
    assert [line.split()[0] for line in text.out.splitlines()] == names
    known = {
        "datasets": {"simulated", "folder"},
        "models": {"gcn", "gat", "sage", "graph_transformer", "gae", "linear", "mlp"},
        "generators": {"fcm_vae", "corr_gauss"},
        "methods": {
            "finetune",
            "joint",
            "cumulative",
            "independent",
            "majority",
            "analytic",
        },
    }
    assert known[kind] <= set(names)


def test_list_of_something_unknown():
    answer = fcforge("list", "model")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: unknown kind 'model'. Did you mean 'models'?")


def test_init_then_check_then_no_overwriting(tmp_path):
    path = tmp_path / "new" / "experiment.toml"
    answer = fcforge("init", path)
    assert (answer.code, answer.out) == (0, "")
    assert f"fcforge check {path}" in answer.err
    assert fcforge("init", path).code == 2
    assert "exists" in fcforge("init", path).err
    checked = fcforge("check", path)
    assert checked.code == 0, checked.err
    assert "4 learners, 32 runs" in checked.out
    assert checked.out.splitlines()[-1].startswith("ok")


# -- check -------------------------------------------------------------------------------------
def test_check_takes_the_shared_layout_as_it_is(shared_layout):
    answer = fcforge("check", shared_layout)
    assert answer.code == 0, answer.err
    assert "9 ROIs" in answer.out
    assert answer.out.splitlines()[-1] == "ok"
    found = json.loads(fcforge("check", shared_layout, "--json").out)
    assert (found["ok"], found["n_rois"], found["findings"]) == (True, 9, [])
    assert sorted(found["sites"]) == ["Sim-NYU", "Sim-UCLA"]
    assert all(0 < s["patients"] < s["subjects"] for s in found["sites"].values())


def test_a_config_may_point_at_such_a_file(shared_layout, tmp_path):
    config = tmp_path / "e.toml"
    config.write_text(
        f'[dataset]\nname = "folder"\npath = "{shared_layout}"\n'
        '[[learner]]\nmethod = "finetune"\nmodel = "linear"\n[leaks]\nselect_on_test = true\n'
    )
    answer = fcforge("check", config)
    assert answer.code == 0, answer.err
    assert "1 learner, 2 runs = 4 site trainings\n" in answer.out
    assert "LEAK ON: select_on_test" in answer.out
    dry = fcforge(
        "run", config, "--dry-run", "--out", tmp_path / "run", "--device", "cpu"
    )
    assert dry.code == 0, dry.err
    assert "LEAK ON: select_on_test" in dry.err
    assert "measured: 1/1 finetune/linear" in dry.err
    assert not (tmp_path / "run").exists()


def test_check_says_which_groups_and_columns(tmp_path):
    cohort = simulate(n_rois=9, n_sites=2, scale=0.1, seed=1)
    words = np.where(cohort.y == 1, "ASD", "HC").astype("U4")
    words[:3] = ("ADHD", "", "ADHD")
    arrays = {"dx": words, "scanner": cohort.site, "subject_id": cohort.subject_id}
    np.savez(tmp_path / "three.npz", fc_upper=upper_from_fc(cohort.fc), **arrays)
    named = ("check", tmp_path / "three.npz", "--columns", "site=scanner,label=dx")
    several = fcforge(*named)
    assert several.code == 2
    assert "ADHD (2)" in several.err
    groups = ("--positive", "ASD", "--negative", "HC")
    unlabelled = fcforge(*named, *groups)
    assert unlabelled.code == 1
    assert "has no diagnosis" in unlabelled.out
    fine = fcforge(*named, *groups, "--drop-unlabelled")
    assert fine.code == 0, fine.out
    assert "3 subjects left out (ADHD: 2, no diagnosis: 1)" in fine.out
    config = fcforge("check", small_config(), "--positive", "ASD")
    assert config.code == 2
    assert "dataset.positive" in config.err
    listed = ("--set", 'dataset.classes=["HC", "ASD", "ADHD"]')
    told = fcforge(*named, "--drop-unlabelled", *listed)
    assert "3 diagnoses: HC" in told.out, told.err
    other = fcforge(*named, "--set", "training.epochs=5")
    assert other.code == 2
    assert "only dataset.* can be set" in other.err
    for twice in (("path=other.npz",), ("positive=ADHD", *groups)):
        both = fcforge(*named, "--set", f"dataset.{twice[0]}", *twice[1:])
        assert both.code == 2
        assert f"--set dataset.{twice[0].partition('=')[0]}: another" in both.err


def test_check_of_the_real_data(shared_data):
    answer = fcforge("check", shared_data / "abide1_aal116.npz", "--json")
    found = json.loads(answer.out)
    assert found["n_rois"] == 116
    assert sum(s["subjects"] for s in found["sites"].values()) == 871
    # the small sites cannot be split: named, not trained on
    assert answer.code == (0 if found["ok"] else 1)


def test_check_says_when_the_split_cannot_be(shared_layout, tmp_path):
    config = tmp_path / "e.toml"
    config.write_text(
        f'[experiment]\ntest_fraction = 0.9\n[dataset]\nname = "folder"\npath = "{shared_layout}"\n'
        '[[learner]]\nmethod = "finetune"\n'
    )
    answer = fcforge("check", config)
    assert answer.code == 2
    assert "too small to split" in answer.err


# -- run, status, report -----------------------------------------------------------------------
def test_run_prints_the_table_on_stdout_and_talks_on_stderr():
    folder, answer = finished()
    titles = [le.title for le in load_experiment(small_config()).learners]
    for title in titles:
        assert title.split("/")[0] in answer.out
    assert "training: 60/60" in answer.err
    assert f"report: {folder / 'report.html'}" in answer.err
    assert "report:" not in answer.out
    assert "training:" not in answer.out
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock",
        "experiment.json",
        "generators",
        "nodes",
        "report.html",
        "table.csv",
    ]
    page = (folder / "report.html").read_text()
    assert "<title>" in page
    assert "Small" in page
    rows = (folder / "table.csv").read_text().splitlines()
    assert len(rows) >= 1 + len(titles)


def test_a_config_finds_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(finished().folder)
    found = json.loads(fcforge("status", "mine.toml", "--json").out)
    assert found["folder"] == str(Path("runs", "mine"))
    answer = fcforge("status", "other.toml")
    assert answer.code != 0
    assert str(Path("runs", "other")) in answer.err


def test_status_and_report_of_a_finished_run(tmp_path):
    folder = finished().folder
    status = json.loads(fcforge("status", folder, "--json").out)
    assert status["trained"] == status["trainings"] == 60
    assert all(row == {"done": 6, "asked": 6} for row in status["learners"].values())
    text = fcforge("status", folder)
    assert (text.code, text.err) == (0, "")
    assert text.out.startswith("Small: 60 of 60 site trainings done")
    page = tmp_path / "page.html"
    report = fcforge("report", folder, "--out", page, "--json")
    assert report.code == 0
    assert page.stat().st_size > 10_000
    table = json.loads(report.out)
    assert len(table) >= 6
    assert f"report: {page}" in report.err
    # what the page warns of, the terminal does too: one line each, away from the table
    assert (
        "caution: only 1 seed: differences may come from one lucky split.\n"
        in report.err
    )


def test_a_report_of_nothing_says_so(tmp_path):
    open_store(prepare(load_experiment(small_config())), tmp_path / "run")
    assert json.loads(fcforge("status", tmp_path / "run", "--json").out)["trained"] == 0
    answer = fcforge("report", tmp_path / "run")
    assert (answer.code, answer.out) == (2, "")
    assert "none of the 36 runs is complete yet" in answer.err
    for command in ("status", "report"):
        answer = fcforge(command, tmp_path)
        assert answer.code == 2
        assert "not a run folder" in answer.err
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--set", "training.epochs=0"), "epochs = 0 is too small"),
        (("--set", "training.epoch=5"), "Did you mean 'epochs'?"),
        (("--set", 'experiment.orders=[["Sim-NYU","X"]]'), "unknown site in order"),
        (
            ("--set", "dataset.colour=3"),
            "dataset 'simulated': unknown setting 'colour'",
        ),
    ],
)
def test_a_run_that_cannot_be_is_one_line_and_writes_nothing(args, says, tmp_path):
    answer = fcforge(
        "run", small_config(), "--out", tmp_path / "run", "--jobs", 1, *args
    )
    assert (answer.code, answer.out) == (2, "")
    last = answer.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert says in last
    assert "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("fcforge.experiments.run.run_experiment", interrupted)
    answer = fcforge("run", small_config(), "--out", tmp_path / "run", "--jobs", 1)
    assert (answer.code, answer.out) == (130, "")
    assert answer.err.splitlines()[-1] == "stopped; the same command again continues."


def test_trouble_with_the_disk_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    answer = fcforge(
        "run", small_config(), "--out", tmp_path / "file" / "run", "--jobs", 1
    )
    assert answer.code == 2
    assert answer.err.splitlines()[-1].startswith("error: ")
    assert str(tmp_path / "file") in answer.err


def test_a_full_disk_names_the_remedy(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "write_experiment", fail)
    answer = fcforge("run", small_config(), "--out", tmp_path / "run", "--jobs", 1)
    assert answer.code == 2
    assert "No space left on device. Free some disk space" in answer.err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["training.epochs=4"], "for learner 'analytic/linear'"),
        (["experiment.test_fraction=0.4"], "for learner 'analytic/linear'"),
        (["leaks.select_on_test=true"], "for learner 'analytic/linear'"),
        (["method.er.strength=0.7"], "for learner 'er/mlp'"),
        (['learner=[{method="ewc", model="linear"}]'], "and learners"),
    ],
)
def test_a_folder_of_another_experiment_is_refused(settings, says):
    folder = finished().folder
    before = (folder / "experiment.json").read_bytes()
    changes = [word for setting in settings for word in ("--set", setting)]
    answer = fcforge("run", small_config(), "--out", folder, "--jobs", 1, *changes)
    assert (answer.code, answer.out) == (2, "")
    last = answer.err.splitlines()[-1]
    assert "this folder holds another experiment ('Small')" in last
    assert f"other data or settings {says}" in last
    assert "Choose another --out" in last
    assert (folder / "experiment.json").read_bytes() == before


def test_more_learners_and_seeds_may_be_added():
    prepared = prepare(load_experiment(small_config(), ["experiment.seeds=[0,1]"]))
    copy = scratch() / "added"
    shutil.copytree(finished().folder, copy)
    store = open_store(prepared, copy)
    assert len(missing_nodes(prepared.plan, store)) == len(prepared.plan.nodes) // 2


# -- what it will cost -------------------------------------------------------------------------
def test_dry_run_of_a_finished_run_has_nothing_to_do():
    answer = fcforge("run", small_config(), "--dry-run", "--out", finished().folder)
    assert answer.code == 0
    assert "still to do     0" in answer.out


@pytest.mark.parametrize(
    ("kind", "registry"),
    [("datasets", DATASETS), ("generators", GENERATORS), ("methods", METHODS)],
)
def test_every_name_is_listed(kind, registry):
    assert list(catalogue(kind)) == list(registry)


def test_networks_of_one_method_are_left_out():
    assert set(MODELS) - set(catalogue("models")) == {"tem"}


@pytest.mark.parametrize("kind", ["datasets", "models", "generators", "methods"])
def test_every_row_says_what_it_is_in_one_line(kind):
    for name, about in catalogue(kind).items():
        assert 10 < len(about) < 160, name
        assert "\n" not in about


def test_methods_say_what_they_keep():
    rows = catalogue("methods")
    assert rows["er"].endswith("(keeps real subjects)")
    assert rows["finetune"].endswith("(keeps nothing)")


def test_list_alone_says_what_it_lists():
    lines = fcforge("list").out.splitlines()
    assert [line.split()[0] for line in lines] == [*PACKAGES]
    assert json.loads(fcforge("list", "methods", "--json").out) == list(METHODS)


def test_an_unknown_kind():
    answer = fcforge("list", "method")
    assert answer.code == 2
    assert "'method'" in answer.err
    assert "'methods'" in answer.err


# -- warnings about the data -----------------------------------------------------------------------
JUDGED = """
[judge]
seeds = [0]
classifiers = ["linear"]
augment = ["linear"]

[[generator]]
name = "edge_gauss"
"""
TRAINED = """
[training]
epochs = 1

[[learner]]
method = "lwf"
model = "linear"
"""


@pytest.fixture(scope="module")
def suspicious(tmp_path_factory) -> Path:
    """An .npz in which one site has swapped diagnoses and one person two look-alike scans."""
    cohort = simulate("easy", n_rois=24, n_sites=3, seed=0)
    swapped = cohort.site == cohort.site_names[1]
    # both in the test part: a pair in training and test would be refused
    parts = split_cohort(cohort, cohort.site_names[0], seed=0)
    tested = np.isin(cohort.subject_id, parts["test"].subject_id)
    first, second = np.flatnonzero(tested)[:2]
    fc = cohort.fc.copy()
    fc[second] = 0.9 * fc[first] + 0.1 * fc[second]
    path = tmp_path_factory.mktemp("suspicious") / "people.npz"
    np.savez(
        path,
        fc=fc,
        label=np.where(swapped, 1 - cohort.y, cohort.y),
        site=cohort.site,
        subject_id=cohort.subject_id,
        mean_fd=np.linspace(0.1, 0.5, len(cohort)),
    )
    return path


@pytest.mark.parametrize(
    ("words", "content"),
    [
        (("run", "--dry-run"), TRAINED),
        (("tune", "--repeats", "1", "--jobs", "1"), TRAINED),
        (("judge",), JUDGED),
        (("analyse", "motion"), TRAINED),
    ],
)
def test_all_commands_that_train_print_the_same_warnings_first(
    words, content, suspicious, tmp_path
):
    config = tmp_path / "config.toml"
    dataset = f'[dataset]\nname = "folder"\npath = "{suspicious}"\n'
    config.write_text(content + dataset)
    checked = fcforge("check", str(suspicious)).out.splitlines()
    expected = [
        line.replace("warning: ", "WARNING: ", 1)
        for line in checked
        if "look swapped" in line or "looks like the scan" in line
    ]
    assert len(expected) == 2
    out = () if words[0] == "analyse" else ("--out", str(tmp_path / "out"))
    answer = fcforge(*words, str(config), *out)
    assert answer.code == 0, answer.err
    lines = answer.err.splitlines()
    printed = [line for line in lines if line.startswith("WARNING: ")]
    assert sorted(printed) == sorted(expected)
    assert lines[: len(printed)] == printed


def test_data_without_faults_bring_no_warning(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(JUDGED + '[dataset]\nname = "simulated"\nn_rois = 24\n')
    answer = fcforge("judge", str(config), "--out", str(tmp_path / "out"))
    assert answer.code == 0
    assert "WARNING" not in answer.err
