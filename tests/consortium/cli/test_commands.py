"""Commands of an exchange as hospitals type them, for both models: streams, codes, refusals."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from fcforge.data.simulated import simulate
from fcforge_consortium.records.exchange import open_exchange
from real_runs import Answer, chain_config, consortium, fcforge

R = 10
COHORT = simulate("easy", n_rois=R, n_sites=5, scale=0.4, seed=3)
PUBLIC = COHORT.site_names[:2]
SITES = COHORT.site_names[2:]


def good(answer: Answer) -> Answer:
    assert answer.code == 0, answer.err
    return answer


def refused(answer: Answer, *says: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    last = answer.err.splitlines()[-1]
    assert last.startswith("error: ")
    for said in says:
        assert said in last


def write(path: Path, sites, label=None) -> Path:
    here = np.isin(COHORT.site, sites)
    words = COHORT.y if label is None else np.where(COHORT.y == 1, *label)
    np.savez(
        path,
        fc=COHORT.fc[here],
        label=words[here],
        site=COHORT.site[here],
        subject_id=COHORT.subject_id[here],
    )
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A file and a key of every hospital; a start and a chain, both with two hospitals."""
    folder = tmp_path_factory.mktemp("hospitals")
    write(folder / "public.npz", PUBLIC)
    for site in SITES:
        (folder / site).mkdir()
        write(folder / site / "data.npz", [site])
        for key in ("pem", "chain.pem"):
            good(consortium("keys", "new", folder / f"{site}.{key}"))
    axes = ("--set", "base_model.axes=4")
    out = folder / "start.fcx"
    good(consortium("base-model", "--data", folder / "public.npz", *axes, "--out", out))
    first, second = SITES[:2]
    step(folder, first, "r1.fcx", "--state", out)
    step(folder, second, "r2.fcx", "--state", folder / "r1.fcx")
    chosen = ("--config", chain_config(folder / "chain.toml"))
    step(folder, first, "c1.fcx", *chosen)
    step(folder, second, "c2.fcx", "--state", folder / "c1.fcx")
    return folder


BEGIN = ("chain", "begin")
CONTINUE = ("chain", "continue")


def words(folder: Path, site: str, out, *command: str) -> tuple:
    data = folder / site / "data.npz"
    key = folder / f"{site}.{'chain.pem' if 'chain' in command else 'pem'}"
    own = ("--site", site, "--data", data, "--sign", key)
    return (*(command or ("contribute",)), *own, "--out", out)


def step(folder: Path, site: str, out: str, *more) -> Answer:
    command = ("contribute", "--yes")
    ledger = folder / site / "start.private"
    if out.startswith("c"):
        ledger = folder / site / "chain.private"
        command = BEGIN if "--config" in more else (*CONTINUE, "--yes")
    told = (*words(folder, site, folder / out, *command), "--ledger", ledger)
    return good(consortium(*told, "--new-ledger", *more))


BOTH = pytest.mark.parametrize("file", ["r2.fcx", "c2.fcx"])


def test_a_merged_file_says_where_it_is(world, tmp_path):
    out = tmp_path / "all.fcx"
    told = good(consortium("merge", world / "r1.fcx", world / "r2.fcx", "--out", out))
    assert f"wrote {out}; `fcforge consortium inspect`" in told.err


@BOTH
def test_inspect_answers_four_questions(world, file):
    said = good(consortium("inspect", world / file)).out
    places = [
        said.index(question)
        for question in (
            "Who signed it?",
            "What travels?",
            "Does it work on real people?",
            "Can an attacker tell who took part?",
        )
    ]
    assert places == sorted(places)
    found = json.loads(consortium("inspect", world / file, "--json").out)
    assert set(found["sites"]) == set(SITES[:2])
    assert len(found["answers"]) == 4


@BOTH
def test_the_page_for_an_ethics_board(world, file, tmp_path):
    good(consortium("inspect", world / file, "--html", tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    for said in ("Intended use", "not a medical device", "Who signed it?", SITES[0]):
        assert said in text


@BOTH
def test_verify(world, file, tmp_path):
    checked = good(consortium("verify", world / file))
    assert checked.out.splitlines()[-1] == "intact"
    before = world / file.replace("2", "1")
    good(consortium("verify", world / file, "--expect", before))
    older = consortium("verify", before, "--expect", world / file)
    assert older.code == 1
    assert "missing" in older.out
    data = bytearray((world / file).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.fcx").write_bytes(data)
    broken = consortium("verify", tmp_path / "x.fcx", "--json")
    assert broken.code == 1
    assert json.loads(broken.out)["ok"] is False


@BOTH
def test_predict_evaluate_and_explain(world, file, tmp_path):
    scan = tmp_path / "a.npy"
    np.save(scan, COHORT.fc[0])
    answer = good(consortium("predict", world / file, scan))
    (row,) = csv.DictReader(io.StringIO(answer.out))
    assert (row["subject"], row["status"]) == ("a.npy", "ok")
    assert answer.err.startswith("1 scan: 1 ok.")
    out = tmp_path / "o.csv"
    assert consortium("predict", world / file, scan, "--out", out).out == ""
    assert out.read_text() == answer.out
    why = tmp_path / "why"
    good(consortium("predict", world / file, scan, "--explain", why))
    assert "Deletion test" in (why / "index.html").read_text()
    refused(consortium("predict", world / file, scan, "--atlas", "AAL116"), "--explain")
    data = write(tmp_path / "third.npz", SITES[2:])
    text = good(consortium("evaluate", world / file, data)).out
    assert "majority class" in text
    found = json.loads(consortium("evaluate", world / file, data, "--json").out)
    assert found["people"] + found["abstained"] == (COHORT.site == SITES[2]).sum()
    np.save(tmp_path / "small.npy", np.eye(4))
    assert consortium("predict", world / file, tmp_path / "small.npy").code == 1
    assert out.stat().st_mode & 0o777 == 0o600


def test_abstaining_from_everybody_is_no_success(world, tmp_path):
    np.save(tmp_path / "strange.npy", np.eye(R) * 0.9 + 0.1)
    told = consortium("predict", world / "r2.fcx", tmp_path / "strange.npy")
    assert (told.code, told.out.count("unlike anything seen")) == (1, 1)


def test_the_own_threshold_of_a_hospital(world, tmp_path):
    site = SITES[0]
    private = world / site / "start.private"
    data = world / site / "data.npz"
    told = ("--data", data, "--site", site, "--ledger", private)
    refused(consortium("threshold", world / "r2.fcx", *told), "you gave no key")
    told = (*told, "--sign", world / f"{site}.pem")
    own = good(consortium("threshold", world / "r2.fcx", *told)).out
    assert own.startswith("own log odds = ")
    shown = good(consortium("predict", world / "r2.fcx", data, "--ledger", private))
    assert "own_probability" in shown.out.splitlines()[0]
    assert "fitted with another state" not in shown.err
    first = consortium("predict", world / "r1.fcx", data, "--ledger", private)
    assert "fitted with another state" in good(first).err
    refused(
        consortium("threshold", world / "c2.fcx", *told), "a chain has no threshold"
    )
    chain = world / site / "chain.private"
    refused(
        consortium("predict", world / "c2.fcx", data, "--ledger", chain),
        "does not hold a threshold",
    )


@BOTH
def test_going_on_is_asked_for_or_said(world, file, tmp_path):
    command = CONTINUE if file.startswith("c") else ()
    told = words(world, SITES[2], tmp_path / "x.fcx", *command)
    private = ("--ledger", tmp_path / "x.private")
    answer = consortium(*told, "--state", world / file, *private)
    refused(answer, "add --yes")
    so_far = ", ".join(open_exchange(world / file).model.sites)
    assert f"sites so far: {so_far}" in answer.err
    assert "each person of this site spends: " in answer.err
    assert list(tmp_path.iterdir()) == []


def test_learning_tells_what_it_found_and_spends(world, tmp_path):
    told = words(world, SITES[2], tmp_path / "x.record")
    private = ("--ledger", tmp_path / "x.private", "--new-ledger")
    state = ("--state", world / "start.fcx", "--yes", "--epsilon", "0.5")
    answer = good(consortium(*told, *state, *private))
    assert "Each person spends epsilon 0.5 (delta 1e-06)." in answer.err
    assert f"{tmp_path / 'x.private'} must not" in answer.err
    alone = good(consortium("inspect", tmp_path / "x.record")).out
    assert alone.startswith(f"contribution 1 of '{SITES[2]}'")
    page = ("--html", tmp_path / "p.html")
    refused(consortium("inspect", tmp_path / "x.record", *page), "single records")
    both = (tmp_path / "x.record", world / "r2.fcx")
    good(consortium("merge", *both, "--out", tmp_path / "a.fcx"))
    good(consortium("merge", *both[::-1], "--out", tmp_path / "b.fcx"))
    assert (tmp_path / "a.fcx").read_bytes() == (tmp_path / "b.fcx").read_bytes()


def test_withdrawing_needs_the_key_and_is_exact(world, tmp_path):
    state = ("--state", world / "r2.fcx", "--out", tmp_path / "less.fcx")
    key = world / f"{SITES[1]}.pem"
    refused(consortium("withdraw", SITES[1], *state), "signed by key")
    good(consortium("withdraw", SITES[1], *state, "--sign", key))
    less = open_exchange(tmp_path / "less.fcx").model
    before = open_exchange(world / "r1.fcx").model
    np.testing.assert_array_equal(less.head.weight, before.head.weight)
    chain = ("--state", world / "c2.fcx", "--out", tmp_path / "c.fcx")
    refused(consortium("withdraw", SITES[1], *chain, "--sign", key), "has nothing")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--config", "{}/chain.toml", "--learner", "x"), "unknown learner 'x'"),
        (("--config", "{}/missing.toml"), "missing.toml"),
    ],
)
def test_a_first_site_that_says_too_little_or_too_much(world, tmp_path, more, says):
    told = words(world, SITES[0], tmp_path / "x.fcx", *BEGIN)
    private = ("--ledger", tmp_path / "x.private")
    chosen = [word.format(world) for word in more]
    refused(consortium(*told, *private, *chosen), says)
    assert list(tmp_path.iterdir()) == []


def test_a_config_gives_the_settings(world, tmp_path):
    config = tmp_path / "e.toml"
    config.write_text(
        '[experiment]\nseeds = [7]\n[dataset]\nname = "folder"\n'
        f'path = "{world / "public.npz"}"\n'
        '[[learner]]\nmethod = "analytic"\nmodel = "linear"\n'
        '[[learner]]\nmethod = "finetune"\nmodel = "linear"\n'
    )
    told = words(world, SITES[0], tmp_path / "x.fcx", *BEGIN)
    good(consortium("keys", "new", tmp_path / "x.key"))
    told = (*told, "--ledger", tmp_path / "x.private", "--config", config)
    told = (*told, "--new-ledger", "--sign", tmp_path / "x.key")
    refused(consortium(*told), "the config has 2 learners")
    good(consortium(*told, "--learner", "analytic/linear"))
    found = json.loads(consortium("inspect", tmp_path / "x.fcx", "--json").out)
    assert found["settings"]["seed"] == 7


@pytest.mark.parametrize(
    ("file", "command", "says"),
    [
        ("r2.fcx", CONTINUE, "Use `fcforge consortium contribute`"),
        ("c2.fcx", ("contribute",), "Use `fcforge consortium chain continue`"),
    ],
)
def test_a_file_of_the_other_kind_is_refused(world, file, command, says, tmp_path):
    told = words(world, SITES[2], tmp_path / "x.fcx", *command)
    ledger = ("--ledger", tmp_path / "x.private")
    refused(consortium(*told, *ledger, "--state", world / file, "--yes"), says)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start", "base-model"),
        ("learn", "contribute"),
        ("keep", "aggregate"),
        ("keepers", "aggregators"),
        ("verify", "verify"),
    ],
)
def test_a_former_name_names_the_present_one(old, new):
    answer = fcforge(old, "--site", "NYU", "x")
    refused(answer, f"`fcforge {old}` has moved", f"`fcforge consortium {new}`")


def test_an_unsigned_file_is_refused_where_signatures_are_required(world, tmp_path):
    """Both models."""
    for command, state in ((("contribute",), "start.fcx"), (CONTINUE, "c1.fcx")):
        site = SITES[2]
        data = world / site / "data.npz"
        told = ("--site", site, "--data", data, "--out", tmp_path / "x.fcx")
        more = ("--ledger", tmp_path / "x.private", "--state", world / state, "--yes")
        refused(
            consortium(*command, *told, *more, "--require-signature"),
            "--require-signature",
        )


def test_evaluate_compares_the_classes(world, tmp_path):
    out = tmp_path / "x.fcx"
    data = write(tmp_path / "words.npz", [SITES[0]], ("ASD", "TC"))
    told = (*BEGIN, "--site", SITES[0], "--data", data, "--out", out)
    more = ("--config", world / "chain.toml", "--positive", "ASD", "--new-ledger")
    good(consortium(*told, *more))
    other = write(tmp_path / "other.npz", [SITES[0]], ("MDD", "NC"))
    refused(consortium("evaluate", out, other, "--positive", "MDD"), "'ASD'")
    refused(consortium("evaluate", out, data, "--positive", "TC"), "They are exchanged")
    good(consortium("evaluate", out, data, "--positive", "ASD"))


@BOTH
def test_audit_of_what_a_site_gave(world, file, tmp_path):
    site = SITES[0]
    name = "chain.private" if file.startswith("c") else "start.private"
    told = (world / file, "--data", world / site / "data.npz", "--site", site)
    told = (*told, "--ledger", world / site / name)
    before = (world / file).read_bytes()
    more = ("--out", tmp_path / "a")
    if file.startswith("c"):
        more += ("--reference", write(tmp_path / "others.npz", [SITES[2]]))
    answer = consortium("audit", *told, *more)
    good(answer)
    assert "These are the attacks that were tried" in answer.out
    assert (tmp_path / "a" / "audit.json").exists()
    assert (world / file).read_bytes() == before  # an audit stays at home


def test_keys_are_never_overwritten(tmp_path):
    made = good(consortium("keys", "new", tmp_path / "k.pem"))
    assert f"wrote {tmp_path / 'k.pem'} (private: keep it)" in made.out
    before = (tmp_path / "k.pem").read_bytes()
    refused(consortium("keys", "new", tmp_path / "k.pem"), "exists already")
    assert (tmp_path / "k.pem").read_bytes() == before


def test_a_ledger_shows_budgets_and_names_nobody(world):
    site = SITES[0]
    path = world / site / "start.private"
    text = good(consortium("ledger", "show", path)).out
    assert "Spent in all: epsilon 1, delta 1e-06." in text
    people = COHORT.subject_id[COHORT.site == site].tolist()
    assert not [who for who in people if who in text]
    found = json.loads(good(consortium("ledger", "show", path, "--json")).out)
    assert [entry["people"] for entry in found["entries"]] == [len(people)]
    chain = good(consortium("ledger", "show", world / site / "chain.private")).out
    assert "Spent in all: epsilon unlimited (no noise)" in chain


def test_an_unknown_site_names_the_file(world, tmp_path):
    data = world / SITES[0] / "data.npz"
    told = ("contribute", "--site", "Nope", "--data", data, "--yes")
    more = ("--state", world / "start.fcx", "--out", tmp_path / "x.fcx")
    refused(consortium(*told, *more), str(data), "unknown site 'Nope'")
