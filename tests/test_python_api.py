"""`fcforge.run`: the table of `fcforge run`, from Python."""

import pytest
from sklearn.linear_model import LogisticRegression

import fcforge
from fcforge.core.errors import ConfigError

SPEC = {
    "dataset": {
        "name": "simulated",
        "preset": "easy",
        "n_sites": 2,
        "scale": 0.1,
        "n_rois": 8,
    },
    "learner": [{"method": "analytic", "model": "linear"}],
}
ROW = {"title": "logistic", "estimator": LogisticRegression(), "keeps": "cumulative"}


def test_a_table_with_their_estimator_and_our_method(tmp_path):
    told = []
    found = fcforge.run(
        SPEC,
        [ROW],
        out=tmp_path / "run",
        progress=lambda done, total, what: told.append(done),
    )
    table = found.table.set_index("learner")
    majority = {"majority class", "majority class of each site"}
    assert set(table.index) == majority | {"logistic", "analytic/linear"}
    assert table.loc["logistic", "keeps"] == "real subjects"
    assert table.loc["logistic", "memory_bytes"] > 0
    assert told[-1] == len(list((tmp_path / "run" / "nodes").iterdir())) - 2
    again = fcforge.run(SPEC, [ROW], out=tmp_path / "run")
    assert again.table.equals(found.table)
    assert fcforge.run(SPEC, [ROW]).table["aaa"].equals(found.table["aaa"])


def test_a_config_file_with_more_rows(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        '[dataset]\nname = "simulated"\npreset = "easy"\nn_sites = 2\nscale = 0.1\nn_rois = 8\n'
    )
    assert "logistic" in set(fcforge.run(path, [ROW]).table["learner"])


def test_objects_do_not_reach_worker_processes():
    with pytest.raises(ConfigError, match="not known in this process"):
        fcforge.run(SPEC, [ROW], jobs=2)


def test_nothing_else_hangs_on_the_package():
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        fcforge.walk  # noqa: B018
