"""The log of a run on its page: losses of every learner, quotas of past sites."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, RunSpec, Training
from fcforge.core.training_log import Entry
from fcforge.experiments.logs import LoggedSite
from fcforge.report.training_curves import Logged, curves_of_training
from real_runs import chain_config, fcforge

ORDER = ("B", "A")
SPEC = RunSpec(
    dataset=Component("simulated"),
    learner=LearnerSpec(Component("forge"), Component("gcn")),
    order=ORDER,
    seed=0,
    training=Training(epochs=2),
)


def logged() -> Logged:
    one = Logged()
    for seed, extra in ((0, 0.0), (1, 1.0)):
        for position, site in enumerate(ORDER):
            place = LoggedSite(replace(SPEC, seed=seed), position, site, "key")
            entries = [
                Entry(f"loss/{term}", "", epoch, epoch + extra)
                for term in ("current", "total")
                for epoch in (1, 2)
            ]
            if position:
                entries.append(Entry("loss/replay", "", 1, 7.0))
                entries.append(Entry("replay/quota", "B", 1, 20.0 + extra))
            one.add(place, [*entries, Entry("loss/current", "", 3, float("nan"))])
    return one


def test_curves_are_means_over_runs_and_go_on_from_site_to_site():
    one = logged()
    x, y = one.curve("loss/current")
    assert x.tolist() == [1, 2, 3, 4]
    assert y.tolist() == [1.5, 2.5, 1.5, 2.5]
    assert one.terms() == ["loss/total", "loss/current", "loss/replay"]
    assert one.places() == [1]
    np.testing.assert_array_equal(one.curve("replay/quota", 1), ([3], [20.5]))


def test_panels_say_their_numbers():
    shown = curves_of_training({"FORGE": logged(), "nothing": Logged()})
    ((title, panel),) = shown["losses"]
    assert title == "FORGE"
    assert "site 2, epoch 1: total 1.500, current 1.500, replay 7.000" in panel
    assert [term for term, _ in shown["loss_colours"]] == ["total", "current", "replay"]
    assert len({colour for _, colour in shown["loss_colours"]}) == 3
    ((_, quotas),) = shown["quotas"]
    assert "site 2, epoch 1: first site 20.5" in quotas
    assert shown["n_logged"] == {"FORGE": "2 runs"}


@pytest.mark.parametrize("log", ["csv", ""])
def test_a_page_has_the_section_if_the_run_has_a_log(tmp_path, log):
    config = chain_config(tmp_path / "small.toml", "forge", "gcn")
    small = ("training.epochs=1", "experiment.orders=1", "dataset.n_rois=10")
    words = [word for setting in small for word in ("--set", setting)]
    words += ["--set", "learner_defaults.generator=corr_gauss", "--jobs", "1"]
    given = ("--log", log) if log else ()
    done = fcforge("run", config, "--out", tmp_path / "run", *words, *given)
    assert done.code == 0, done.err
    page = (tmp_path / "run" / "report.html").read_text()
    assert ('id="training"' in page) == bool(log)
    assert ("Subjects replayed of each past site" in page) == bool(log)
