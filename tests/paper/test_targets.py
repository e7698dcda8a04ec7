"""Tables of other targets: the shown columns of a run's table, by learner."""

import json

import targets


def test_shown_columns_of_a_number(tmp_path):
    told = {"name": "age", "classes": [], "limits": [5, 65]}
    (tmp_path / "experiment.json").write_text(json.dumps({"target": told}))
    keys = ("aaa", "acc", "mae", "spearman", "fm", "bwt")
    names = [f"{key}{end}" for key in keys for end in ("", "_low", "_high")]
    values = [*map(str, range(9)), "", "", "", *map(str, range(6))]
    lines = [",".join(["learner", *names]), ",".join(["ridge", *values])]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    found = targets.rows_of(tmp_path)["ridge"]
    assert list(found) == ["R²", "Final R²", "MAE", "Spearman", "FM", "BWT"]
    assert found["MAE"] == {"mean": 6.0, "low": 7.0, "high": 8.0}
    assert found["Spearman"] == {"mean": None, "low": None, "high": None}
