"""A consortium as hospitals type it: start, learn, merge, inspect, predict, and every refusal."""

import csv
import io
import json
import shutil

import numpy as np
import pytest

from fcforge.sites.simulated import simulate
from real_runs import Answer, fcforge

R = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Five simulated sites: two public, three hospitals with a file and a key each."""
    folder = tmp_path_factory.mktemp("consortium")
    made = simulate("easy", n_rois=R, n_sites=5, scale=0.4, seed=3)
    age = np.random.default_rng(0).uniform(8, 40, len(made))
    for name in ("public", *made.site_names[2:]):
        here = np.isin(made.site, made.site_names[:2] if name == "public" else [name])
        np.savez(
            folder / f"{name}.npz",
            fc=made.fc[here],
            label=made.y[here],
            site=made.site[here],
            subject_id=made.subject_id[here],
            age=age[here],
            roi_names=np.array(made.roi_names),
        )
        good(fcforge("keys", "new", folder / f"{name}.pem"))
    made_of = (
        "--data",
        folder / "public.npz",
        "--remove",
        "age",
        "--set",
        "start.axes=6",
    )
    said = good(fcforge("start", *made_of, "--out", folder / "public.capsule"))
    (folder / "start.txt").write_text(said.out)
    return folder, made.site_names[2:]


def good(answer: Answer) -> Answer:
    assert answer.code == 0, answer.err
    return answer


def refused(answer: Answer, says: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


def learn(world, site, out, *more, state="public.capsule"):
    folder = world[0]
    if "--local" not in more:
        more = (*more, "--local", out.parent / f"{site}.home.json")
    return fcforge(
        "learn",
        "--state",
        folder / state,
        "--site",
        site,
        "--data",
        folder / f"{site}.npz",
        "--out",
        out,
        "--yes",
        *more,
    )


@pytest.fixture(scope="module")
def merged(world):
    """Three hospitals learned apart: a capsule each, the third sends its release alone."""
    folder, sites = world
    parts = [folder / "0.capsule", folder / "1.capsule", folder / "2.release"]
    for site, out in zip(sites, parts, strict=True):
        good(learn(world, site, out, "--sign", folder / f"{site}.pem"))
    good(fcforge("merge", *parts, "--out", folder / "all.capsule"))
    return folder / "all.capsule"


def test_a_start_says_everything_in_words(world):
    folder, _ = world
    text = (folder / "start.txt").read_text()
    for words in (
        "Sim-NYU ",
        "removed     age (",
        "at a public site it has not seen: accuracy",
        "majority class",
        "6 (principal axes); a release holds 8 numbers",
        "clip ",
        "between sites, on each axis",
    ):
        assert words in text
    assert text in fcforge("inspect", folder / "public.capsule").out
    good(
        fcforge(
            "start",
            "--data",
            folder / "public.npz",
            "--remove",
            "age",
            "--set",
            "start.axes=6",
            "--out",
            folder / "again.capsule",
        )
    )
    assert (folder / "again.capsule").read_bytes() == (
        folder / "public.capsule"
    ).read_bytes()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--remove", "weight"), "no covariate 'weight'"),
        (("--sites", "Nowhere"), "unknown site 'Nowhere'"),
        (("--set", "start.axis=3"), "Did you mean 'axes'?"),
        (("--set", "starts.axes=3"), "only start.* and dataset.* can be set"),
        (("--set", "start.axes=300"), "too few for 300 axes"),
        (("--dataset", "simulated"), "needs --sites"),
    ],
)
def test_a_start_that_cannot_be_meant(world, tmp_path, more, says):
    folder, _ = world
    out = tmp_path / "x.capsule"
    refused(
        fcforge("start", "--data", folder / "public.npz", "--out", out, *more), says
    )
    assert not out.exists()


def test_learning_tells_what_it_found_and_spends(world, tmp_path):
    site = world[1][0]
    answer = good(learn(world, site, tmp_path / "x.capsule", "--epsilon", 2))
    assert "The model that came in reaches accuracy" in answer.err
    assert "8 numbers leave. Each person spends epsilon 2 (delta 1e-06)." in answer.err
    assert answer.out.startswith(f"Release 1 of {site}")
    home = tmp_path / f"{site}.home.json"
    assert json.loads(home.read_text())["receipts"][0]["epsilon"] == 2
    exact = good(
        learn(
            world,
            site,
            tmp_path / "y.capsule",
            "--mechanism",
            "none",
            "--local",
            tmp_path / "other.json",
        )
    )
    assert "no promise of privacy is made" in exact.err


def test_a_release_is_asked_for_or_said(world, merged, tmp_path):
    folder, sites = world
    args = (
        "learn",
        "--state",
        merged,
        "--site",
        sites[0],
        "--data",
        folder / f"{sites[0]}.npz",
        "--local",
        folder / f"{sites[0]}.home.json",
        "--again",
        "--epsilon",
        0.5,
        "--sign",
        folder / f"{sites[0]}.pem",
        "--out",
        tmp_path / "x.capsule",
    )
    answer = fcforge(*args)
    refused(answer, "add --yes")
    for words in (
        f"sites so far: {', '.join(sorted(sites))}",
        "epsilon 0.5 (delta 1e-06)",
        "6 axes, removes age",
        "around start ",
    ):
        assert words in answer.err
    assert not (tmp_path / "x.capsule").exists()


def test_the_same_people_again_are_told_and_add_up(world, tmp_path):
    site, state = world[1][0], tmp_path / "1.capsule"
    good(learn(world, site, state))
    refused(learn(world, site, tmp_path / "2.capsule", state=state), "--again")
    twice = good(learn(world, site, tmp_path / "2.capsule", "--again", state=state))
    assert "with earlier releases 2" in twice.err
    shown = good(fcforge("inspect", tmp_path / "2.capsule", "--release", site)).out
    assert shown.count("Release ") == 2
    refused(
        learn(
            world,
            site,
            tmp_path / "3.capsule",
            "--local",
            tmp_path / "lost.json",
            state=state,
        ),
        "does not know, so nobody can tell who has spent what",
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--epsilon", 0), "budget"),
        (("--mechanism", "none", "--epsilon", 1), "has no epsilon"),
        (("--method", "ewc"), "--method is for chained capsules"),
        (("--allow-real-subjects",), "is for chained capsules"),
        (("--sign", "nothing.pem"), "no private key can be read"),
    ],
)
def test_a_release_that_cannot_be_meant(world, tmp_path, more, says):
    refused(learn(world, world[1][0], tmp_path / "x.capsule", *more), says)
    assert list(tmp_path.iterdir()) == []


def test_the_home_file_is_beside_the_data_wherever_a_release_goes(world, tmp_path):
    folder, sites = world
    data = tmp_path / "house" / "own.npz"
    data.parent.mkdir()
    shutil.copy(folder / f"{sites[0]}.npz", data)
    args = (
        "learn",
        "--state",
        folder / "public.capsule",
        "--site",
        sites[0],
        "--data",
        data,
        "--yes",
    )
    good(fcforge(*args, "--out", tmp_path / "one.release"))
    assert (data.parent / f"{sites[0]}.home.json").exists()
    refused(
        fcforge(*args, "--out", tmp_path / "other" / "two.release"),
        "in an earlier release",
    )


def test_options_of_a_release_do_not_fit_a_chain(world, tmp_path):
    folder, sites = world
    answer = fcforge(
        "learn",
        "--site",
        sites[0],
        "--data",
        folder / f"{sites[0]}.npz",
        "--out",
        tmp_path / "x.capsule",
        "--method",
        "analytic",
        "--delta",
        0.1,
    )
    refused(answer, "--delta is for releases around a public start")


def test_merged_in_any_order_is_the_same_file(world, merged, tmp_path):
    folder, _ = world
    parts = [folder / "2.release", folder / "1.capsule", folder / "0.capsule", merged]
    good(fcforge("merge", *parts, "--out", tmp_path / "x.capsule"))
    assert (tmp_path / "x.capsule").read_bytes() == merged.read_bytes()
    refused(fcforge("merge", merged, "--out", merged), "exists")
    refused(
        fcforge("merge", folder / "2.release", "--out", tmp_path / "y.capsule"),
        "releases alone do not make a capsule",
    )


def test_inspect_shows_every_number_on_half_a_page(world, merged):
    site = world[1][1]
    shown = good(fcforge("inspect", merged, "--release", site)).out
    third = good(fcforge("inspect", world[0] / "2.release")).out
    assert third == good(fcforge("inspect", merged, "--release", world[1][2])).out
    assert len(shown.splitlines()) <= 28
    numbers = json.loads(
        good(fcforge("inspect", merged, "--release", site, "--json")).out
    )
    for value in numbers["releases"][0]["numbers"]:
        assert f"{value:.9g}" in shown
    whole = json.loads(good(fcforge("inspect", merged, "--json")).out)
    assert [r["site"] for r in whole["releases"]] == sorted(world[1])
    refused(fcforge("inspect", merged, "--release", "X"), "no release of site 'X'")


def test_verify_names_every_signer(world, merged, tmp_path):
    folder, sites = world
    answer = good(fcforge("verify", merged))
    assert answer.out.count("signed by key") == 3
    assert answer.out.splitlines()[-1] == "intact"
    keys = [arg for s in sites for arg in ("--trust", folder / f"{s}.pem.pub")]
    assert (
        json.loads(good(fcforge("verify", merged, *keys, "--json")).out)["ok"] is True
    )
    short = fcforge("verify", merged, *keys[:4])
    assert short.code == 1
    assert "which is not trusted" in short.out
    refused(fcforge("inspect", merged, *keys[:4]), "which is not trusted")
    broken = tmp_path / "broken.capsule"
    data = bytearray(merged.read_bytes())
    data[len(data) // 2] ^= 1
    broken.write_bytes(data)
    bad = fcforge("verify", broken)
    assert (bad.code, bad.out.splitlines()[-1]) == (1, "DO NOT USE THIS FILE")


def test_an_unsigned_release_beside_signed_ones_is_refused(world, merged, tmp_path):
    folder, sites = world
    bare, alone = tmp_path / "bare.release", tmp_path / "bare.capsule"
    good(learn(world, sites[0], bare))
    apart = (folder / "1.capsule", bare, "--out", tmp_path / "mixed.capsule")
    refused(fcforge("merge", *apart), "is not signed, though others are")
    refused(
        learn(world, sites[0], alone, state="1.capsule"), "Sign yours, too: --sign KEY"
    )
    good(fcforge("merge", folder / "public.capsule", bare, "--out", alone))
    assert fcforge("verify", alone).code == 0
    must = fcforge("verify", alone, "--require-signature")
    assert (must.code, must.out.count("is not signed.")) == (1, 1)
    assert fcforge("verify", merged, "--require-signature").code == 0


def test_withdrawing_needs_the_key_and_is_exact(world, merged, tmp_path):
    folder, sites = world
    args = ("withdraw", sites[0], "--state", merged, "--out")
    refused(fcforge(*args, tmp_path / "x.capsule"), "Name that private key with --sign")
    good(fcforge(*args, tmp_path / "x.capsule", "--sign", folder / f"{sites[0]}.pem"))
    good(fcforge(*args, tmp_path / "x.release", "--sign", folder / f"{sites[0]}.pem"))
    assert "Withdrawal by " in good(fcforge("inspect", tmp_path / "x.release")).out
    good(
        fcforge(
            "merge", merged, tmp_path / "x.release", "--out", tmp_path / "y.capsule"
        )
    )
    never = good(
        fcforge(
            "merge",
            folder / "1.capsule",
            folder / "2.release",
            "--out",
            tmp_path / "never.capsule",
        )
    )
    assert sites[0] not in never.out
    steps = [
        json.loads(good(fcforge("inspect", tmp_path / f"{n}.capsule", "--json")).out)[
            "head_step"
        ]
        for n in ("x", "y", "never")
    ]
    assert steps[0] == steps[1] == steps[2]
    shown = good(fcforge("inspect", tmp_path / "x.capsule")).out
    assert f"Withdrawn by {sites[0]} on " in shown


def test_predict_with_and_without_the_own_threshold(world, merged, tmp_path):
    folder, sites = world
    home = tmp_path / "home.json"
    shutil.copy(folder / f"{sites[0]}.home.json", home)
    data = folder / f"{sites[0]}.npz"
    answer = good(fcforge("predict", merged, data, "--local", home))
    assert "fits it again at home" in answer.err
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    predicted = [r for r in rows if r["status"] == "ok"]
    assert len(predicted) > 0.9 * len(rows)  # 12 ROIs make some scans look strange
    assert all(0 < float(r["own_probability"]) < 1 for r in predicted)
    fitted = good(
        fcforge(
            "threshold", merged, "--data", data, "--site", sites[0], "--local", home
        )
    )
    assert fitted.out.startswith("own log odds = ")
    again = good(fcforge("predict", merged, data, "--local", home, "--json"))
    assert "fits it again" not in again.err
    assert json.loads(again.out)["sites_learned"] == sorted(sites)
    assert "own_probability" not in good(fcforge("predict", merged, data)).out
    refused(
        fcforge("predict", merged, data, "--local", tmp_path / "none.json"),
        "not a home file",
    )
    np.save(tmp_path / "scan.npy", np.eye(R))
    lone = fcforge("predict", merged, tmp_path / "scan.npy")
    assert "1 without a covariate that is needed" in lone.err
    assert "has no age, which the start removes" in lone.out


def test_evaluate_either_kind_of_capsule(world, merged, tmp_path):
    folder, sites = world
    data = folder / f"{sites[2]}.npz"
    text = good(fcforge("evaluate", merged, data, "--site", sites[2])).out
    for words in (
        "consortium",
        "public head alone",
        "majority class",
        "balanced accuracy",
        "ECE",
    ):
        assert words in text
    chained = tmp_path / "chain.capsule"
    good(
        fcforge(
            "learn",
            "--site",
            sites[0],
            "--data",
            folder / f"{sites[0]}.npz",
            "--out",
            chained,
            "--method",
            "analytic",
        )
    )
    found = json.loads(good(fcforge("evaluate", chained, data, "--json")).out)
    value, low, high = found["rows"]["the capsule"]["auroc"]
    assert low <= value <= high
    refused(fcforge("evaluate", merged, data, "--site", "X"), "unknown site 'X'")
    refused(
        fcforge("predict", chained, data, "--local", data),
        "is for capsules of releases",
    )
    refused(fcforge("inspect", chained, "--release", "X"), "holds no releases")
