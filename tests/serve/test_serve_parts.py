"""Saliency, lineage, colours, the cache and the audit table, against numbers worked out by hand."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from served_world import cohort, settings

from fcforge.capsule import Capsule
from fcforge.capsule.contents import Subjects
from fcforge.capsule.saliency import (
    Uses,
    atlas_of_capsule,
    between_systems,
    strongest,
    what_it_uses,
)
from fcforge.imaging.atlas import Atlas, aal116
from fcforge.methods import Lane
from fcforge.models import MODELS, make_model
from fcforge.randomness import torch_rng
from fcforge.serve import shelf
from fcforge.serve.audits import audit_table
from fcforge.serve.capsules import CapsuleView
from fcforge.serve.lineage import lineage
from fcforge.serve.once import Once
from fcforge.serve.png import DIVERGING, colours, png
from fcforge.types import Component, FCBatch, LearnerSpec
from small_world import QUICK_MODELS

R = 4


def capsule(learner: LearnerSpec, lane: Lane, n_rois: int = R, n: int = 3) -> Capsule:
    fc = torch.eye(n_rois).repeat(n, 1, 1)
    fc[:, 0, 1] = fc[:, 1, 0] = 0.5
    held_out = Subjects.of(
        FCBatch(fc, torch.zeros(n, dtype=torch.int64)),
        torch.zeros(n, dtype=torch.int64),
        torch.zeros(n, dtype=torch.uint8),
    )
    nobody = Subjects.none(n_rois)
    return Capsule(settings(learner, n_rois), ("A",), lane, nobody, held_out if n else nobody, ())


def linear_capsule(n: int = 3) -> Capsule:
    """Margin = 0.2 * (w . atanh(fc) / 0.2) with w = 1 for edge (0, 1) and -2 for edge (2, 3)."""
    weight = torch.zeros(2, R * (R - 1) // 2)
    weight[1, 0], weight[1, -1] = 1.0, -2.0
    lane = Lane({"head.0.weight": weight, "head.0.bias": torch.zeros(2)}, {}, {})
    return capsule(LearnerSpec(Component("finetune"), Component("linear")), lane, n=n)


def test_gradient_times_input_of_a_linear_model():
    uses = what_it_uses(linear_capsule())
    # d/dc atanh(c) / 0.2 = 1 / (0.2 (1 - c^2)) = 6.667 at c = 0.5; times the input 0.5
    assert uses.strength[0, 1] == pytest.approx(0.5 / (0.2 * 0.75), rel=1e-5)
    assert uses.strength[1, 0] == uses.strength[0, 1]
    assert uses.strength[2, 3] == 0  # its input is 0
    assert uses.direction[0, 1] == 1
    assert uses.direction[2, 3] == -1
    assert np.count_nonzero(uses.strength) == 2
    assert uses.n_subjects == 3


def test_weights_where_no_subject_travels():
    uses = what_it_uses(linear_capsule(n=0))
    assert uses.n_subjects == 0
    assert uses.strength[0, 1] == pytest.approx(5.0)
    assert uses.strength[2, 3] == pytest.approx(10.0)
    assert strongest(uses, 5) == [
        (2, 3, pytest.approx(4.0), -1),  # the mean of six edges is 2.5
        (0, 1, pytest.approx(2.0), 1),
    ]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_can_be_looked_into(name):
    n_rois = 8
    component = Component(name, QUICK_MODELS.get(name, {}))
    model = make_model(component, n_rois)
    params = model.init(torch_rng(0))
    if name == "linear":  # starts at zero, where nothing is used
        params["head.0.weight"][1] = 1.0
    made = capsule(
        LearnerSpec(Component("finetune"), component), Lane(params, model.init_stats(), {}), n_rois
    )
    fc = torch.from_numpy(cohort(n_rois).fc[:4]).float()
    zero = torch.zeros(4, dtype=torch.int64)
    made = replace(made, held_out=Subjects.of(FCBatch(fc, zero), zero, zero.to(torch.uint8)))
    uses = what_it_uses(made)
    assert not uses.silent
    assert np.isfinite(uses.strength).all()
    assert np.array_equal(uses.strength, uses.strength.T)
    assert not uses.strength.diagonal().any()


def test_between_systems():
    atlas = Atlas("three", ("a", "b", "c"), ("x", "x", "y"))
    strength = np.array([[0, 4, 1], [4, 0, 1], [1, 1, 0.0]])  # mean edge: 2
    found = between_systems(strength, atlas)
    assert found[0, 0] == 2.0
    assert found[0, 1] == found[1, 0] == 0.5
    assert np.isnan(found[1, 1])  # one ROI has no edge with itself


def test_atlas_only_where_it_is_known():
    from fcforge.capsule.learning import rois_sha256

    own = rois_sha256(cohort(116))
    assert atlas_of_capsule(116, own) is not None
    assert atlas_of_capsule(116, "") is not None
    assert atlas_of_capsule(116, "0" * 64) is None
    assert atlas_of_capsule(90, "") is None


def test_order_groups_systems():
    zero = np.zeros((116, 116))
    uses = Uses(zero, zero, zero, 1, aal116())
    systems = [aal116().systems[k] for k in uses.order]
    changes = sum(a != b for a, b in itertools.pairwise(systems))
    assert changes == len(set(systems)) - 1
    assert sorted(uses.order) == list(range(116))


def view(name: str, ancestry: tuple[tuple[str, str], ...]) -> CapsuleView:
    item = shelf.Item("capsule", Path(name), name, name)
    return CapsuleView(item, "", [], {}, [], [], ancestry, (), {}, [])


def test_lineage_of_a_branching_chain():
    views = [
        view("p1", (("1", "A"),)),
        view("p3", (("1", "A"), ("2", "B"), ("3", "C"))),
        view("p4", (("1", "A"), ("2", "B"), ("4", "D"))),
        view("p9", (("9", "Z"),)),
    ]
    knots = {k.id: k for k in lineage(views)}
    places = {i: (k.column, k.row) for i, k in knots.items()}
    assert places == {"1": (0, 0), "2": (1, 0), "3": (2, 0), "4": (2, 1), "9": (0, 2)}
    assert (knots["4"].parent, knots["2"].page, knots["3"].page) == ("2", "", "p3")
    assert {k.id for k in lineage(views, only="4")} == {"1", "2", "3", "4"}


def test_lineage_of_lying_ledgers_ends():
    views = [view("a", (("1", "A"), ("2", "B"), ("1", "A"))), view("b", (("2", "B"), ("1", "A")))]
    knots = lineage(views)
    assert sorted(k.id for k in knots) == ["1", "2"]


def test_png_is_read_back():
    from PIL import Image

    rgb = colours(np.array([[-1.0, 0.0, 1.0], [2.0, -2.0, np.nan]]), DIVERGING, -1, 1)
    assert rgb[0].tolist() == [[0x21, 0x66, 0xAC], [0xF7] * 3, [0xB2, 0x18, 0x2B]]
    assert np.array_equal(np.asarray(Image.open(BytesIO(png(rgb)))), rgb)


def test_once_makes_a_thing_once():
    once, made, gate = Once(most=2), [], threading.Event()

    def slow() -> int:
        gate.wait(5)
        made.append(1)
        return 7

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(once.get("k", 1, slow)))
               for _ in range(20)]  # fmt: skip
    for t in threads:
        t.start()
    gate.set()
    for t in threads:
        t.join()
    assert found == [7] * 20
    assert len(made) == 1
    assert once.get("k", 2, lambda: 8) == 8  # another signature
    with pytest.raises(ValueError, match="no"):
        once.get("bad", 1, lambda: int("no"))
    assert once.get("bad", 1, lambda: 3) == 3  # an error is not remembered


def test_audit_table_takes_any_shape():
    table = audit_table(
        {
            "bootstrap / DOMIAS": {"auc": 0.9},
            "g / DOMIAS": {"auc": [0.6, 0.5, 0.7], "identified": None, "control_auc": 0.5},
            "site": "NYU",
            "words": ["one\x1b", 2],
            "out of range": {"auc": [1.6, 0.5, 0.7]},
            "nested": {"a": [1, {"b": None}]},
            "caution": "text\x1b[31m",
            "long": "x" * 5000,
        }
    )
    (name, found), (reference, _) = table.attacks
    assert (name, reference) == ("g / DOMIAS", "bootstrap / DOMIAS")  # references last
    assert (table.site, table.words) == ("NYU", ["one?"])
    assert found["auc"] == (0.6, 0.5, 0.7)
    assert found["control_auc"] == (0.5, 0.5, 0.5)
    assert found["identified"] is None
    rest = dict(table.rest)
    assert rest["nested"] == '{"a": [1, {"b": null}]}'
    assert rest["caution"] == "text?[31m"
    assert len(rest["long"]) == 400
    assert "out of range" in rest
    odd = audit_table({"site": 3, "words": "no list"})
    assert (odd.site, odd.words, odd.rest) == ("", [], [("site", "3"), ("words", "no list")])


def test_command_says_what_is_wrong(tmp_path):
    from fcforge.errors import FCForgeError
    from fcforge.serve.commands import serve_command

    with pytest.raises(FCForgeError, match="no such folder"):
        serve_command(tmp_path / "nothing")
    with pytest.raises(FCForgeError, match="cannot listen"):
        serve_command(tmp_path, "203.0.113.1", 0)


def test_command_line_has_serve():
    from typer.testing import CliRunner

    from fcforge.cli import app

    found = CliRunner().invoke(app, ["serve", "--help"])
    assert found.exit_code == 0
    assert "127.0.0.1" in found.stdout


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    """The real program in its own process: says where, answers, ends cleanly on Ctrl-C."""
    command = [sys.executable, "-m", "fcforge.cli", "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            said = program.stderr.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
            with urllib.request.urlopen(url, timeout=60) as reply:
                assert b"No capsule yet" in reply.read()
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(30) == 0
        assert "stopped" in program.stderr.read()
