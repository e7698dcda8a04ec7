"""The capsule commands as a hospital types them: what is printed where, and the exit codes."""

import json

import numpy as np
import pytest

from fcforge.sites.simulated import simulate
from real_runs import Answer, fcforge

SITES = ("Sim-NYU", "Sim-UM")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    cohort = simulate(preset="easy", n_rois=10, n_sites=2, scale=0.3, seed=2)
    path = tmp_path_factory.mktemp("data") / "both.npz"
    np.savez(
        path,
        fc=cohort.fc,
        label=cohort.y,
        site=cohort.site,
        subject_id=cohort.subject_id,
    )
    return path, cohort


@pytest.fixture(scope="module")
def chain(data, tmp_path_factory) -> tuple:
    """Two capsules: after the first site and after both."""
    folder = tmp_path_factory.mktemp("capsules")
    path, cohort = data
    names = cohort.site_names
    first, second = folder / "1.capsule", folder / "2.capsule"
    started = fcforge(
        "learn",
        "--site",
        names[0],
        "--data",
        path,
        "--out",
        first,
        "--method",
        "analytic",
    )
    went_on = fcforge(
        "learn",
        "--site",
        names[1],
        "--data",
        path,
        "--out",
        second,
        "--state",
        first,
        "--yes",
    )
    return first, second, started, went_on


def test_learn_prints_what_is_inside_and_messages_go_to_stderr(chain):
    first, second, started, went_on = chain
    for answer, path in ((started, first), (went_on, second)):
        assert answer.code == 0, answer.err
        assert "Analytic ridge on linear" in answer.out
        assert f"sealed {path}; send this one file on, nothing else." in answer.err
        assert "sealed" not in answer.out


def refused(answer: Answer, says: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith("error: ")
    assert says in answer.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "the first site needs a method"),
        (("--method", "analytics"), "Did you mean 'analytic'?"),
        (("--learner", "x"), "--learner was given without --config"),
        (("--method", "analytic", "--calibrate", "inner"), "Did you mean 'inner_val'?"),
    ],
)
def test_a_first_site_that_says_too_little_or_too_much(words, says, data, tmp_path):
    path, cohort = data
    site = (
        "--site",
        cohort.site_names[0],
        "--data",
        path,
        "--out",
        tmp_path / "x.capsule",
    )
    refused(fcforge("learn", *site, *words), says)
    assert not (tmp_path / "x.capsule").exists()


def test_a_later_site_follows_the_capsule(chain, data, tmp_path):
    path, cohort = data
    site = (
        "--site",
        cohort.site_names[1],
        "--data",
        path,
        "--out",
        tmp_path / "x.capsule",
    )
    answer = fcforge("learn", *site, "--state", chain[0], "--held-out", 3)
    refused(answer, "--held-out was given together with --state")


def test_going_on_is_asked_for_or_said(chain, data, tmp_path):
    path, cohort = data
    site = (
        "--site",
        cohort.site_names[1],
        "--data",
        path,
        "--out",
        tmp_path / "x.capsule",
    )
    answer = fcforge("learn", *site, "--state", chain[0])
    refused(answer, "add --yes")
    for words in (
        f"sites so far: {cohort.site_names[0]}",
        f"{cohort.site_names[0]}: nobody",
        "analytic/linear, 10 ROIs, seed 0",
        "nothing is promised",
    ):
        assert words in answer.err
    assert not (tmp_path / "x.capsule").exists()


def test_evaluate_compares_the_classes(data, tmp_path):
    _, cohort = data
    words = np.where(cohort.y == 1, "ASD", "TC")
    names = {"site": cohort.site, "subject_id": cohort.subject_id}
    np.savez(tmp_path / "words.npz", fc=cohort.fc, label=words, **names)
    np.savez(
        tmp_path / "other.npz",
        fc=cohort.fc,
        label=np.where(words == "TC", "NC", "MDD"),
        **names,
    )
    out = tmp_path / "x.capsule"
    site = (
        "--site",
        cohort.site_names[0],
        "--data",
        tmp_path / "words.npz",
        "--out",
        out,
    )
    assert (
        fcforge("learn", *site, "--method", "majority", "--positive", "ASD").code == 0
    )
    refused(
        fcforge("evaluate", out, tmp_path / "other.npz", "--positive", "MDD"),
        "the capsule's patients are 'ASD'",
    )
    refused(
        fcforge("evaluate", out, tmp_path / "words.npz", "--positive", "TC"),
        "The other way round",
    )
    assert (
        fcforge("evaluate", out, tmp_path / "words.npz", "--positive", "ASD").code == 0
    )


def test_a_config_gives_the_settings(data, tmp_path):
    path, cohort = data
    config = tmp_path / "e.toml"
    config.write_text(
        f'[experiment]\nseeds = [7]\n[dataset]\nname = "folder"\npath = "{path}"\n'
        '[[learner]]\nmethod = "analytic"\nmodel = "linear"\n'
        '[[learner]]\nmethod = "finetune"\nmodel = "linear"\n'
    )
    site = (
        "--site",
        cohort.site_names[0],
        "--data",
        path,
        "--out",
        tmp_path / "x.capsule",
    )
    refused(fcforge("learn", *site, "--config", config), "the config has 2 learners")
    refused(
        fcforge("learn", *site, "--config", config, "--method", "ewc"), "Use --learner"
    )
    answer = fcforge("learn", *site, "--config", config, "--learner", "analytic/linear")
    assert answer.code == 0, answer.err
    inside = json.loads(fcforge("inspect", tmp_path / "x.capsule", "--json").out)
    assert inside["settings"]["seed"] == 7


# -- predict -----------------------------------------------------------------------------------
def test_predict_to_stdout_and_to_a_file(chain, data, tmp_path):
    np.save(tmp_path / "a.npy", data[1].fc[0])
    answer = fcforge("predict", chain[1], tmp_path / "a.npy")
    assert answer.code == 0, answer.err
    head, row = answer.out.splitlines()
    assert head.startswith("subject,status,probability")
    assert row.startswith("a.npy,ok,0.")
    assert answer.err.startswith("1 scan; 0 unlike anything seen at ")
    out = tmp_path / "o.csv"
    answer = fcforge("predict", chain[1], tmp_path / "a.npy", "--out", out)
    assert (answer.code, answer.out) == (0, "")
    assert out.read_text().splitlines() == [head, row]


def test_predict_fails_when_nothing_could_be_used(chain, data, tmp_path):
    np.save(tmp_path / "small.npy", np.eye(4))
    answer = fcforge("predict", chain[1], tmp_path / "small.npy")
    assert answer.code == 1
    assert "cannot be used" in answer.out
    assert "1 cannot be used." in answer.err
    np.save(tmp_path / "right.npy", data[1].fc[0])
    assert fcforge("predict", chain[1], tmp_path).code == 0  # one of two is something
    refused(
        fcforge("predict", chain[1], tmp_path / "none.npy"), "no such file or folder"
    )


# -- inspect, verify, keys ---------------------------------------------------------------------
def test_inspect_and_verify(chain, tmp_path):
    assert fcforge("inspect", chain[1]).out.count("\n") > 5
    checked = fcforge("verify", chain[1])
    assert checked.code == 0
    assert checked.out.splitlines()[-1] == "intact"
    assert json.loads(fcforge("verify", chain[1], "--json").out)["ok"] is True
    broken = tmp_path / "broken.capsule"
    text = bytearray(chain[1].read_bytes())
    text[len(text) // 2] ^= 1
    broken.write_bytes(text)
    checked = fcforge("verify", broken)
    assert checked.code == 1
    assert checked.out.splitlines()[-1] == "DO NOT USE THIS FILE"
    assert any(line.startswith("BAD") for line in checked.out.splitlines())


def test_keys_are_never_overwritten(tmp_path):
    made = fcforge("keys", "new", tmp_path / "k.pem")
    assert made.code == 0
    assert f"wrote {tmp_path / 'k.pem'} (private: keep it)" in made.out
    before = (tmp_path / "k.pem").read_bytes()
    refused(fcforge("keys", "new", tmp_path / "k.pem"), "exists already")
    assert (tmp_path / "k.pem").read_bytes() == before


def test_predict_says_why(chain, data, tmp_path):
    path, _ = data
    out = tmp_path / "why"
    answer = fcforge("predict", chain[1], path, "--explain", out)
    assert answer.code == 0, answer.err
    assert "index.html, edges.csv and matrices.npz" in answer.err
    lines = (out / "edges.csv").read_text().splitlines()
    assert lines[0].startswith("subject,roi_a,roi_b,fc,reference_fc,contribution")
    explained = {line.split(",")[0] for line in lines[1:]}
    ok = {line.split(",")[0] for line in answer.out.splitlines() if ",ok," in line}
    assert explained == ok
    assert np.load(out / "matrices.npz")["contribution"].shape == (len(ok), 10, 10)
    page = (out / "index.html").read_text()
    assert "Deletion test" in page
    refused_atlas = fcforge(
        "predict", chain[1], path, "--explain", out, "--atlas", "AAL116"
    )
    assert refused_atlas.code == 2
    assert "116 ROIs, the model 10" in refused_atlas.err
