"""Every option of every command that opens a file, for both kinds of root.

It has an effect or is refused by name: silence is a failure. Each table names every option, so
that a new one cannot be forgotten; a row says with what else the option would matter.
"""

import inspect
import shutil
from dataclasses import fields

import numpy as np
import pytest
from small_exchange import learned, people, request, sites, start

from fcforge.core.errors import FCForgeError
from fcforge_consortium import options as requests
from fcforge_consortium.cli import commands
from fcforge_consortium.operations import audit
from fcforge_consortium.operations.audit import audit_file
from fcforge_consortium.operations.chain import begin_chain, continue_chain
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.records.exchange import save
from fcforge_consortium.records.keys import write_keys
from real_runs import chain_config, consortium

SITE, OTHER = sites()[2:4]
KINDS = ("start", "chain")
SMALL = {"config": "small.toml"}  # a chain's first step in a moment


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A start and a chain with one hospital each, everybody's people, some of them odd, keys."""
    folder = tmp_path_factory.mktemp("world")
    who = people()
    order = np.random.default_rng(0).permutation(who.n_rois)
    about = {"site": who.site, "subject_id": who.subject_id}
    np.savez(folder / "people.npz", fc=who.fc, label=who.y, **about)
    np.savez(folder / "turned.npz", fc=who.fc, label=1 - who.y, **about)
    words = np.where(who.y == 1, "x", "y")
    np.savez(folder / "words.npz", fc=who.fc, label=words, **about)
    np.savez(folder / "columns.npz", fc=who.fc, dx_code=who.y, **about)
    some = np.where(np.arange(len(who)) % 9 == 0, "", who.y.astype(str))
    np.savez(folder / "unlabelled.npz", fc=who.fc, label=some, **about)
    odd = who.fc[:, order][:, :, order]
    np.savez(folder / "odd.npz", fc=odd, label=who.y, **about)
    for name in ("own", "stranger"):
        write_keys(folder / f"{name}.pem")
    save(start(exact_allowed=True), folder / "empty.fcx")
    (folder / "bad.toml").write_text("[experiment")
    chain_config(folder / "small.toml")
    chain_config(folder / "er.toml", "er")
    (folder / "beside_config.py").write_text("")
    chain_config(folder / "code.toml", "beside_config:Method")
    save(start(exact_allowed=True).joined([]), folder / "seen.fcx")
    mine = {"data": folder / "people.npz", "ledger": folder / "start.private"}
    out, state = folder / "start.fcx", folder / "empty.fcx"
    contribute(request(SITE, out=out, state=state, new_ledger=True, **mine))
    mine["ledger"] = folder / "chain.private"
    config = folder / "small.toml"
    begin_chain(
        requests.ChainBeginRequest(
            SITE, out=folder / "chain.fcx", config=config, new_ledger=True, **mine
        )
    )
    real = requests.ChainBeginRequest(
        SITE,
        folder / "people.npz",
        folder / "real.fcx",
        ledger=folder / "real.private",
        new_ledger=True,
        config=folder / "er.toml",
        allow_real_subjects=True,
    )
    begin_chain(real)
    return folder


def told(error):
    """A refusal, as somebody reads it."""
    return f"{type(error).__name__}: {error}"


# -- a hospital's step: a contribution, the next of a chain, the first of a chain ---------------
VOLATILE = {"payload", "commitment", "time", "signature", "parents"}
OWN = {  # option: value, and with what else
    "site": ("Nowhere", {}),
    "data": ("odd.npz", {}),
    "out": ("other.fcx", {}),
    "ledger": ("other.private", {}),
    "new_ledger": (False, {}),
    "positive": ("x", {"data": "words.npz"}),
    "negative": ("y", {"data": "words.npz"}),
    "columns": ("label=dx_code", {"data": "columns.npz"}),
    "drop_unlabelled": (True, {"data": "unlabelled.npz"}),
    "leave_out": (["nobody"], {}),  # a contribution does not say how many are in it
    "kind": ("timeseries", {}),
    "sign": ("own.pem", {}),
}
LATER = {
    "trust": (["stranger.pem.pub"], {}),
    "require_signature": (True, {}),
    "state": ("bad.toml", {}),
    "yes": (True, {}),  # asked for on the command line, elsewhere
}
STEPS = {
    "start": (
        contribute,
        requests.ContributeRequest,
        {
            **OWN,
            **LATER,
            "accept_labels": (
                True,
                {"state": "empty.fcx", "data": "turned.npz", "site": SITE},
            ),
            "epsilon": (2.0, {}),
            "delta": (1e-7, {}),
            "mechanism": ("none", {}),
            "round": ("R1", {}),
        },
    ),
    "chain": (
        continue_chain,
        requests.ChainContinueRequest,
        {
            **OWN,
            **LATER,
            "accept_labels": (True, {"data": "turned.npz", "site": "Sim-Extra01"}),
            "accept_scans": (True, {"data": "odd.npz"}),
            "allow_real_subjects": (True, {"state": "real.fcx"}),
        },
    ),
    "": (
        begin_chain,
        requests.ChainBeginRequest,
        {
            **OWN,
            "config": ("bad.toml", {}),
            "learner": ("x", {}),
            "allow_code": (True, {"config": "code.toml"}),
            "allow_real_subjects": (True, {"config": "er.toml"}),
        },
    ),
}
PATHS = ("data", "state", "sign", "config")


def step(world, place, kind, asked):
    """What came of one hospital's step, without what differs every time; or why it was refused."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copy(world / "start.fcx", place / "taken.fcx")
    shutil.copy(world / f"{kind or 'chain'}.private", place / "known.private")
    given = {
        "site": OTHER,
        "data": "people.npz",
        "out": "out.fcx",
        "ledger": "own.private",
        "new_ledger": True,
    }
    given |= {"state": f"{kind}.fcx"} if kind else {"config": "small.toml"}
    given |= asked
    for name in PATHS:
        if name in given:
            given[name] = world / given[name]
    for name in ("out", "ledger"):
        given[name] = place / given[name]
    if "trust" in given:
        given["trust"] = [world / name for name in given["trust"]]
    run, request_type, _ = STEPS[kind]
    try:
        done = run(request_type(**given))
    except FCForgeError as error:
        return told(error)
    said = [
        {k: v for k, v in r.model_dump().items() if k not in VOLATILE} for r in done.new
    ]
    said.append(done.exchange.root.settings)
    return said, sorted(path.name for path in place.iterdir())


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, name) for k, (*_, asked) in STEPS.items() for name in asked if name != "yes"],
)
def test_every_option_of_a_step(world, tmp_path, kind, name):
    value, base = STEPS[kind][2][name]
    without = step(world, tmp_path / "a", kind, base)
    found = step(world, tmp_path / "b", kind, {**base, name: value})
    by_name = isinstance(found, str) and f"--{name.replace('_', '-')}" in found
    assert by_name or str(found).replace("/b/", "/a/") != str(without)


# -- commands that read: the same answer every time --------------------------------------------
WORDS = {  # command: its arguments without any option
    "base-model": [
        "--data",
        "{w}/people.npz",
        "--sites",
        ",".join(sites()[:2]),
        "--out",
        "{o}/x.fcx",
    ],
    "merge": ["{w}/{k}.fcx", "{w}/{k}.fcx", "--out", "{o}/x.fcx"],
    "withdraw": [SITE, "--state", "{w}/{k}.fcx", "--out", "{o}/x.fcx"],
    "threshold": [
        "{w}/{k}.fcx",
        *("--data", "{w}/people.npz", "--site", SITE, "--ledger", "{o}/own.private"),
    ],
    "evaluate": ["{w}/{k}.fcx", "{w}/people.npz"],
    "predict": ["{w}/{k}.fcx", "{w}/people.npz"],
    "inspect": ["{w}/{k}.fcx"],
    "verify": ["{w}/{k}.fcx"],
}
TRUST = {
    "trust": ["--trust", "{w}/stranger.pem.pub"],
    "require_signature": ["--require-signature"],
}
PEOPLE = {
    "kind": ["--kind", "timeseries"],
    "positive": ["--positive", "0"],
    "negative": ["--negative", "1"],
    "columns": ["--columns", "label=subject_id"],
    "drop_unlabelled": ["--drop-unlabelled"],
    "leave_out": ["--leave-out", f"{SITE}-0001"],
}
OPTIONS = {
    "base-model": {
        "public": ["--public", "nowhere"],
        "without": ["--without", SITE],
        "remove": ["--remove", "weight"],
        "dataset": ["--dataset", "simulated"],
        "overrides": ["--set", "base_model.axes=3"],
        "people": ["--people", "100000"],
        "hospitals": ["--hospitals", "100"],
        "epsilon": ["--epsilon", "0.1"],
        "exact": ["--exact"],
        "aggregator": ["--aggregator", "{w}/none.card"],
        "sign": ["--sign", "{w}/own.pem"],
    },
    "merge": TRUST,
    "withdraw": {**TRUST, "sign": ["--sign", "{w}/own.pem"]},
    "threshold": {**TRUST, **PEOPLE, "sign": ["--sign", "{w}/own.pem"]},
    "evaluate": {
        **TRUST,
        "site": ["--site", OTHER],
        "ledger": ["--ledger", "{w}/{k}.private"],
        "as_json": ["--json"],
        **PEOPLE,
    },
    "predict": {
        **TRUST,
        "out": ["--out", "{o}/rows.csv"],
        "ledger": ["--ledger", "{w}/{k}.private"],
        "explain": ["--explain", "{o}/why"],
        "atlas": ["--atlas", "aal116"],
        "kind": ["--kind", "timeseries"],
        "as_json": ["--json"],
    },
    "inspect": {**TRUST, "html": ["--html", "{o}/page.html"], "as_json": ["--json"]},
    "verify": {**TRUST, "expect": ["--expect", "{w}/seen.fcx"], "as_json": ["--json"]},
}
NEEDED = {"data", "sites", "out", "files", "state", "site", "file", "scans", "ledger"}


REFUSED = {("withdraw", "chain"), ("threshold", "chain")}  # the whole command, by name


def answer(world, place, kind, command, more=(), data="people.npz"):
    """What a command says and leaves, in a folder of its own."""
    place.mkdir()
    shutil.copy(world / f"{kind}.private", place / "own.private")
    words = [w.format(w=world, o=place, k=kind) for w in [*WORDS[command], *more]]
    words = [word.replace("people.npz", data) for word in words]
    said = consortium(command, *words)
    left = sorted(path.name for path in place.rglob("*"))
    return f"{said} {left}".replace(str(place), ""), said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_of_a_command(world, tmp_path, kind, command):
    if (command, kind) == ("base-model", "chain"):
        return  # it opens no file
    without, said = answer(world, tmp_path / "plain", kind, command)
    if (command, kind) in REFUSED:
        assert said.code == 2
        return
    assert said.code == 0
    for name, more in OPTIONS[command].items():
        place = tmp_path / name
        if name == "drop_unlabelled":
            gaps = {"data": "unlabelled.npz"}
            without, _ = answer(world, tmp_path / "gaps", kind, command, **gaps)
            found, said = answer(world, place, kind, command, more, **gaps)
        else:
            found, said = answer(world, place, kind, command, more)
        assert found != without or more[0] in said.err, f"{more[0]} has no effect"


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_every_option_of_who_reads_a_single_record(world, tmp_path, command):
    """``inspect --require-signature`` and ``verify --expect`` took it as it was."""
    done = learned(start(), SITE)
    place = save(done.exchange, tmp_path / "single.record", done.new)
    plain = consortium(command, place)
    assert plain.code == 0
    for name, words in OPTIONS[command].items():
        more = [word.format(w=world, o=tmp_path) for word in words]
        found = consortium(command, place, *more)
        assert found != plain, f"{more[0]} has no effect"
        assert bool(found.code) == (name != "as_json")


# -- audit: minutes of attacks are not needed to see what it is asked ---------------------------
AUDIT = {
    "reference": "bad.toml",
    "ledger": "none.private",
    "trust": ["stranger.pem.pub"],
    "require_signature": True,
    "positive": "x",
    "negative": "y",
    "columns": "label=dx_code",
    "drop_unlabelled": True,
    "leave_out": ["nobody"],
    "kind": "timeseries",
    "seed": 1,
}
AUDITED = {
    "positive": "words.npz",
    "negative": "words.npz",
    "columns": "columns.npz",
    "drop_unlabelled": "unlabelled.npz",
}
SHOWN = {"file", "data", "site", "out", "as_json"}  # needed, or for the output


def attacked(world, root, **asked):
    """What the attacks are handed, or why there are none."""
    given = {
        "data": "people.npz",
        "site": SITE,
        "file": f"{root}.fcx",
        "ledger": f"{root}.private",
        **asked,
    }
    for name in ("data", "file", "ledger", "reference"):
        if name in given:
            given[name] = world / given[name]
    given["trust"] = [world / name for name in given.get("trust", ())]
    try:
        return audit_file(requests.AuditRequest(**given))
    except FCForgeError as error:
        return told(error)


@pytest.fixture
def no_attack(monkeypatch):
    """Attacks that say what they were handed."""
    for name in ("audit_contribution", "audit_chain"):
        monkeypatch.setattr(audit, name, lambda model, target: str(target.plan))


@pytest.mark.parametrize("name", AUDIT)
@pytest.mark.parametrize("root", KINDS)
@pytest.mark.usefixtures("no_attack")
def test_every_option_of_audit(world, root, name):
    base = {"data": AUDITED[name]} if name in AUDITED else {}
    without = attacked(world, root, **base)
    found = attacked(world, root, **base, **{name: AUDIT[name]})
    assert found != without


def test_no_option_is_forgotten():
    for _, request_type, known in STEPS.values():
        assert set(known) == {field.name for field in fields(request_type)}
    asked = {field.name for field in fields(requests.AuditRequest)}
    assert set(AUDIT) | SHOWN == asked
    for command, known in OPTIONS.items():
        function = getattr(commands, command.replace("-", "_"))
        there = set(inspect.signature(function).parameters)
        assert set(known) | NEEDED >= there, command
        assert set(known) <= there, command
