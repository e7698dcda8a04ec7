import json

import numpy as np
import pytest

from fcforge.errors import ConfigError, DataError
from fcforge.judge.commands import collapse_list, judge_command, read_panel
from fcforge.report.judge import report_section
from fcforge.report.judge_figures import edge_scatter, system_order
from fcforge.sites.atlas import atlas_of
from fcforge.studies.judge.portraits import Portrait

CONFIG = {
    "judge": {"seeds": [0], "classifiers": ["linear"], "augment": ["linear"], "check": "flow"},
    "dataset": {"name": "simulated", "n_sites": 2, "n_rois": 12, "scale": 0.4},
    "generator": [
        {"name": "corr_flow", "title": "flow", "epochs": 2},
        {"name": "edge_gauss"},
    ],
}


def config(**changes):
    return {**CONFIG, **changes}


def test_one_command_writes_everything_and_resumes(tmp_path) -> None:
    said: list[str] = []
    first = judge_command(CONFIG, out=tmp_path, say=said.append)
    assert set(first["rows"]) == {"real", "bootstrap", "corr_gauss", "flow", "edge_gauss"}
    assert first["rows"]["flow"]["psd_share"][0] == 1.0
    assert [f["what"] for f in first["findings"]]
    page = (tmp_path / "judge.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    table = (tmp_path / "tables.md").read_text()
    assert "paper's ACC / PRE / REC / F1" in table
    assert "TSTR linear" in table
    section = report_section(tmp_path)
    assert section.html().count("data:image/png;base64,") == 3
    assert "<th scope=row>flow</th>" in section.html()
    said.clear()
    again = judge_command(CONFIG, out=tmp_path, say=said.append)
    assert sum("already judged" in s for s in said) == len(
        json.loads((tmp_path / "records.json").read_text())["sites"]
    )
    assert again["rows"]["real"].keys() == first["rows"]["real"].keys()


def test_a_page_shows_names_as_text_and_says_what_is_missed(tmp_path) -> None:
    hostile = {**CONFIG, "judge": {**CONFIG["judge"], "title": "<b>x</b>", "check": "edge_gauss"}}
    judge_command(hostile, out=tmp_path, say=lambda text: None)
    page = (tmp_path / "judge.html").read_text()
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "misses" in page  # independent edges are no correlation matrix


def test_a_folder_without_judgement_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="holds no finished judgement"):
        report_section(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generators": []}, "Did you mean 'generator'"),
        ({"judge": {"seed": [0]}}, "Did you mean 'seeds'"),
        ({"judge": {"classifiers": ["gnc"]}}, "gcn"),
        ({"generator": [{"name": "corr_gaus"}]}, "corr_gauss"),
        ({"generator": [{"title": "x"}]}, "no name"),
        ({"judge": {"check": "flw"}}, "flow"),
        ({"training": {"epoch": 2}}, "epochs"),
    ],
)
def test_mistakes_name_the_nearest(change, words) -> None:
    with pytest.raises(ConfigError, match=words):
        read_panel(config(**change))


def test_collapse_is_counted_per_row() -> None:
    text = "COLLAPSED: no latent unit is active; samples do not depend on z."
    records = [
        {"row": "vae", "numbers": {"warnings": [text]}},
        {"row": "vae", "numbers": {"warnings": []}},
    ]
    assert collapse_list(records) == [
        "vae COLLAPSED in 1 of 2 site-seeds: no latent unit is active."
    ]


def test_rois_are_grouped_by_system() -> None:
    order, starts = system_order(116)
    systems = [atlas_of(116).systems[i] for i in order]
    assert sorted(order.tolist()) == list(range(116))
    changes = [i for i in range(116) if i == 0 or systems[i] != systems[i - 1]]
    assert changes == [place for _, place in starts]


def test_a_generator_of_negative_edges_stays_in_the_picture() -> None:
    square, spectrum = np.eye(3), np.ones(3)
    real = Portrait(square, square, np.array([0.1, 0.2, 0.4]), spectrum)
    below = real._replace(edge_mean=np.array([-0.9, -0.8, -0.7]))
    figure = edge_scatter({"real": real, "low": below})
    assert figure.axes[0].get_ylim() == pytest.approx((-0.95, 1.0))
