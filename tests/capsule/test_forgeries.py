"""Forged, not merely damaged: whoever knows the format changes a value and seals it all again."""

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from capsule_chains import SITES, cohort, settings

from fcforge.capsule import Capsule, LearnOptions, learn, open_capsule, seal
from fcforge.capsule import container as box
from fcforge.capsule.contents import summary
from fcforge.capsule.keys import read_private, write_keys
from fcforge.capsule.ledger import canonical, public_hex, sha256, signed, write
from fcforge.capsule.lines import check_line
from fcforge.capsule.sealing import Trust
from fcforge.errors import CapsuleError

FORGERIES = 1_000


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two hospitals' signed capsule and both keys; the forger has the second."""
    folder = tmp_path_factory.mktemp("forged")
    keys = []
    for name in "ab":
        write_keys(folder / name)
        keys.append(read_private(folder / name))
    paths = [folder / "1.capsule", folder / "2.capsule"]
    made = settings("majority", held_out=8, classes=("TC", "ASD"))
    learn(
        None,
        SITES[0],
        cohort(),
        paths[0],
        settings=made,
        options=LearnOptions(key=keys[0]),
    )
    learn(paths[0], SITES[1], cohort(), paths[1], options=LearnOptions(key=keys[1]))
    return open_capsule(paths[1]), keys, folder


def places(value: Any, at: tuple = ()) -> list[tuple]:
    """Every place in a JSON value."""
    found = [at] if at else []
    if isinstance(value, (dict, list, tuple)):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inside:
            found += places(item, (*at, key))
    return found


def other(value: Any, rng: random.Random) -> Any:
    """Another value than this one."""
    if isinstance(value, bool) or value is None:
        return rng.choice([0.5, "x", 7])
    if isinstance(value, (int, float)):
        return rng.choice(
            [value + 1, -value - 1, value * 1.01 + 0.01, None, str(value), 1e300]
        )
    if isinstance(value, str):
        return rng.choice([value + "x", value[::-1] + "y", "", 3, ["x"]])
    return rng.choice([None, 0, "x", []]) if value else {"x": 1}


def changed(value: Any, rng: random.Random) -> Any:
    """A copy in which one value, anywhere, is another, gone, or new."""
    found = copy.deepcopy(value)
    *way, last = rng.choice(places(found))
    node = found
    for step in way:
        node = node[step]
    how = rng.random()
    if how < 0.8:
        node[last] = other(node[last], rng)
    elif isinstance(node, dict) and how < 0.9:
        del node[last]
    elif isinstance(node, dict):
        node["invented"] = 1
    else:
        node.append(node[last])
    return found


def forge(capsule: Capsule, key: Any, rng: random.Random) -> Capsule:
    """A capsule with one lie in it; the forger mends the chain and signs what is his."""
    entries = list(copy.deepcopy(capsule.entries))
    what = rng.choice(["first line", "second line", "settings", "both", "state"])
    if what == "settings":
        told = changed(json.loads(canonical(capsule.settings.to_json())), rng)
        capsule = replace(capsule, settings=_Said(told))
        for entry in entries:
            entry["settings"] = sha256(canonical(told))
    if what in ("first line", "both"):
        entries[0] = changed(entries[0], rng)
    if what in ("second line", "both"):
        entries[1] = changed(entries[1], rng)
    if what == "state":
        state = {
            **capsule.lane.state,
            rng.choice(["extra", "count"]): torch.randn(3, 45),
        }
        capsule = replace(capsule, lane=capsule.lane._replace(state=state))
    entries[1]["previous"] = sha256(canonical(entries[0]))
    mine = (*entries[:-1], signed(entries[-1], key))
    return replace(capsule, entries=tuple(mine), id="opened")


class _Said:
    """Settings as they were written, whatever they say."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def write_forged(forged: Capsule, honest: Capsule, key: Any, out: Any) -> None:
    """Seal by hand: `seal` would not write all of it."""
    seal(replace(forged, settings=honest.settings), out, key=key, overwrite=True)
    said = forged.settings
    told = said.data if isinstance(said, _Said) else said.to_json()
    parts = box.read_parts(out, box.CHAIN)
    sums = sha256(canonical({name: sha256(parts[name]) for name in box.ARRAYS}))
    last = signed({**forged.entries[-1], "arrays": sums}, key)
    parts[box.LEDGER] = write((*forged.entries[:-1], last))
    out.write_bytes(box.pack(box.sealed(box.CHAIN, told, parts)))


def test_no_forgery_is_accepted_with_a_false_word_about_another_hospital(world):
    """The forger has B's key: B may say of itself what it likes, of A only what A signed."""
    honest, (a, b), folder = world
    rng, accepted, sealed, out = random.Random(1), 0, 0, folder / "forged.capsule"
    trusted = [public_hex(k) for k in (a, b)]
    for _ in range(FORGERIES):
        try:
            forged = forge(honest, b, rng)
            write_forged(forged, honest, b, out)
        except (CapsuleError, KeyError, TypeError, ValueError, AttributeError):
            continue  # the forger's own tools stumble over it
        sealed += 1
        try:
            opened = open_capsule(out, Trust(tuple(trusted)))
        except CapsuleError:
            continue
        accepted += 1
        assert opened.entries[0] == honest.entries[0]
        assert opened.settings == honest.settings
        assert opened.lane.state.keys() == honest.lane.state.keys()
        assert summary(opened)["sites"][0] == SITES[0]  # it can be read, too
    assert sealed > FORGERIES / 2
    assert accepted < sealed / 4


def test_every_value_of_a_line_is_looked_at(world):
    """Without any signature: a line with a value of another type is refused by name."""
    honest, _, _ = world
    rng, refused = random.Random(2), 0
    for _ in range(400):
        entry = changed(honest.entries[1], rng)
        try:
            check_line(entry)
        except (CapsuleError, KeyError, TypeError):
            refused += 1
            continue
        assert {k: type(v) for k, v in entry.items()} == {
            k: type(v) for k, v in honest.entries[1].items()
        }
    assert refused > 200


def test_settings_have_one_hash(world):
    honest, _, _ = world
    assert {e["settings"] for e in honest.entries} == {honest.settings.digest}
