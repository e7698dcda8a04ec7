import numpy as np
import pytest
import torch

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.subjects import FCBatch
from fcforge.evaluation.generator_quality import experiment
from fcforge.evaluation.generator_quality.experiment import judge_config, portrait
from fcforge.evaluation.generator_quality.summary import (
    collapse_list,
    read_judgement,
    summarise,
)
from fcforge.graphs import from_edges
from fcforge.report.judge import write_judgement

CONFIG = """
[judge]
seeds = [0]
classifiers = ["linear"]
augment = ["linear"]

[dataset]
name = "simulated"
n_sites = 2
n_rois = 12
scale = 0.4

[[generator]]
name = "corr_gauss"
title = "eight"
class_keep = 0.8

[[generator]]
name = "edge_gauss"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "judge.toml"
    path.write_text(CONFIG)
    return path


def judge(path, out, *overrides) -> list[str]:
    said: list[str] = []
    judge_config(path, overrides, out, "cpu", said.append)
    return said


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.toml").write_text(CONFIG)
    judge(folder / "judge.toml", folder / "out")
    return folder


def test_a_config_is_judged_row_by_row(judged) -> None:
    found = read_judgement(judged / "out")
    summary = summarise(found.records)
    rows = ["real", "bootstrap", "corr_gauss", "eight", "edge_gauss"]
    assert list(summary) == rows
    assert summary["eight"]["psd_share"].value == 1.0
    assert summary["edge_gauss"]["psd_share"].value == 0.0
    p = found.portraits
    assert p.rows.tolist() == rows
    assert p.control.shape == p.patient.shape == (5, 12, 12)
    assert p.edge_mean.shape == (5, 66)
    assert p.spectrum.shape == (5, 12)
    assert p.systems.tolist() == []  # ROIs of no atlas
    assert str(p.where).endswith("seed 0.")


def test_the_same_call_again_trains_nothing(judged) -> None:
    first = read_judgement(judged / "out")
    said = judge(judged / "judge.toml", judged / "out", "judge.title='Again'")
    assert [s for s in said if "already judged" not in s] == []
    again = read_judgement(judged / "out")
    assert len(said) == 2
    assert again.records == first.records
    assert again.title == "Again"


def test_generators_that_train_in_lanes_are_fitted_side_by_side(
    config, tmp_path, monkeypatch
) -> None:
    """On any device but "cpu": those of all sites and seeds before the first is judged."""
    asked = []
    together = experiment.fit_together

    def noted(generator, requests, *place):
        asked.append((generator.name, [names for _, names in requests]))
        return together(generator, requests, *place)

    monkeypatch.setattr(experiment, "fit_together", noted)
    change = (
        "judge.seeds=[0,1]",
        "judge.augment=[]",
        'generator=[{name="edge_gauss"}, {name="fcm_vae", epochs=1}]',
    )
    said: list[str] = []
    judge_config(config, change, tmp_path / "out", "cpu:0", said.append)
    sites = list(dict.fromkeys(r["site"] for r in records_of(tmp_path / "out")))
    assert asked == [("fcm_vae", [(s, n) for n in sites for s in (0, 1)])]
    assert said[0] == "fcm_vae: 4 of 4 fitted"
    files = {path.name for path in (tmp_path / "out" / "generators").iterdir()}
    judge(config, tmp_path / "alone", *change)
    alone = {path.name for path in (tmp_path / "alone" / "generators").iterdir()}
    assert files == alone  # the same keys: nothing was fitted twice


def records_of(folder) -> list[dict]:
    return read_judgement(folder).records


def test_other_data_or_settings_are_judged_anew(config, tmp_path) -> None:
    judge(config, tmp_path / "out", "judge.augment=[]")
    other = 'generator=[{name="corr_gauss", shrink=0.05}]'
    for change in ("dataset.seed=5", "judge.multiple=2", other):
        said = judge(config, tmp_path / "out", "judge.augment=[]", change)
        assert not any("already judged" in s for s in said)


def test_page_and_tables_are_written(judged) -> None:
    table = write_judgement(judged / "out")
    assert (judged / "out" / "tables.md").read_text() == table
    assert "paper's ACC / PRE / REC / F1" in table
    assert "TSTR linear" in table
    # a picture of each of the five rows, and the spectra
    assert (judged / "out" / "judge.html").read_text().count("<svg") == 6


def test_a_folder_without_a_judgement_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="holds no finished judgement"):
        read_judgement(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("generators=[]", "Did you mean 'generator'"),
        ("judge.seed=[0]", "Did you mean 'seeds'"),
        ("judge.seeds=[]", "Give at least one seed"),
        ('judge.classifiers=["gnc"]', "gcn"),
        ("judge.multiple=0", "multiple = 0 is too small"),
        ('generator=[{name="corr_gaus"}]', "corr_gauss"),
        ('generator=[{name="corr_gauss", shrinc=0.3}]', "Did you mean 'shrink'"),
        (
            'generator=[{name="corr_gauss"}, {name="edge_gauss", title="corr_gauss"}]',
            "two generators are called 'corr_gauss'",
        ),
        ("generator=[{}]", "a generator table needs a name"),
        ("training.epoch=2", "epochs"),
        ('dataset.name="simulatd"', "simulated"),
    ],
)
def test_mistakes_name_the_nearest(config, tmp_path, change, words) -> None:
    with pytest.raises(ConfigError, match=words):
        judge(config, tmp_path / "out", change)
    assert not (tmp_path / "out").exists()


def test_a_site_that_is_not_there_is_refused_before_training(config, tmp_path) -> None:
    with pytest.raises(ConfigError, match="unknown site 'NYUU'"):
        judge(config, tmp_path / "out", 'judge.sites=["NYUU"]')


def test_collapse_is_counted_per_row() -> None:
    text = "no latent unit is active"
    flat = "within-class edge variance is below a fifth of the real one"
    records = [
        {"row": "vae", "numbers": {"warnings": [text]}},
        {"row": "vae", "numbers": {"warnings": []}},
        {"row": "gan", "numbers": {"warnings": [flat]}},
    ]
    assert collapse_list(records) == [
        "vae COLLAPSED in 1 of 2 trainings (site, seed): no latent unit is active.",
        "gan COLLAPSED in 1 of 1 trainings (site, seed): within-class edge variance is "
        "below a fifth of the real one.",
    ]


def test_the_typical_subject_is_the_nearest_to_its_class_mean() -> None:
    # controls at 0.0, 0.3, 0.4 (mean 0.233), patients at 0.5, 0.8
    fc = from_edges(torch.tensor([[0.0], [0.3], [0.4], [0.5], [0.8]]))
    batch = FCBatch(fc, torch.tensor([0, 0, 0, 1, 1]))
    control, patient, edge_mean, eigenvalues = portrait(batch)
    assert control[0, 1] == np.float32(0.3)
    assert patient[0, 1] in (np.float32(0.5), np.float32(0.8))
    np.testing.assert_allclose(edge_mean, [0.4], rtol=1e-6)
    # eigenvalues 1 + r and 1 - r, largest first
    np.testing.assert_allclose(eigenvalues, [1.4, 0.6], rtol=1e-6)
