"""Traits of learners: those of their methods, and the same from a run folder without torch."""

import json
import subprocess
import sys

from fcforge.methods import METHODS
from fcforge.runner.traits import Traits, read_traits, stored_traits, traits_of
from fcforge.types import Component, LearnerSpec
from real_runs import finished

PIPELINE = {"estimator": "sklearn.svm:SVC", "keeps": "cumulative", "folder": ""}


def learner(name: str, **params) -> LearnerSpec:
    return LearnerSpec(Component(name, params), Component("linear"))


def test_every_method_has_the_traits_of_its_class():
    for name, method in METHODS.items():
        found = traits_of(learner(name))
        assert (found.depends_on, found.keeps) == (method.depends_on, method.keeps)
        assert found.from_scratch is not found.grows


def test_what_is_known_is_not_looked_up():
    known = {"mine": Traits("set", "statistics", grows=True)}
    assert traits_of(learner("mine"), known) == known["mine"]


def test_stored_as_they_are_read():
    both = (learner("ewc"), learner("joint"))
    stored = json.loads(json.dumps(stored_traits(both)))
    assert read_traits(stored) == {name: traits_of(learner(name)) for name in stored}
    assert set(stored) == {"ewc", "joint"}


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name, name="torch")
sys.meta_path.insert(0, NoTorch())
from fcforge.cli import main
main(sys.argv[1:])
"""


def test_a_run_folder_is_reported_without_torch(tmp_path):
    folder = str(finished().folder)
    for command in (
        ("report", folder, "--out", str(tmp_path / "page.html")),
        ("status", folder),
        ("pages", folder, "--out", str(tmp_path / "pages")),
    ):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, *command],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 10_000
