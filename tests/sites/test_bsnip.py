"""B-SNIP: a participants table with words and string sites, and a folder of series."""

from pathlib import Path

import numpy as np
import pytest

from fcforge.errors import ConfigError
from fcforge.sites import check_cohort, load_dataset
from fcforge.sites.folder import load_bsnip
from fcforge.types import Component


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["participant_id\tsite\tdiagnosis\tage"]
    words = ["Normal Control", "Schizophrenia Proband", "NC", "SZP"]
    for k in range(20):
        site = ["Hartford", "Georgia"][k // 10]
        dx = "Bipolar Proband" if k == 9 else words[k % 4]
        lines.append(f"B{k:03d}\t{site}\t{dx}\t{20 + k}")
        series = np.random.default_rng(k).normal(size=(40, 6))
        np.savetxt(tmp_path / f"B{k:03d}.csv", series, delimiter=",")
    (tmp_path / "participants.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_words_become_labels_and_other_diagnoses_are_left_out_in_one_line(folder: Path):
    cohort = load_dataset(Component("bsnip", {"path": str(folder)}))
    assert len(cohort) == 19
    assert cohort.site_names == ("Hartford", "Georgia")
    assert cohort.y[:4].tolist() == [0, 1, 0, 1]
    assert [f.severity for f in cohort.faults] == ["warning"]
    assert "1 subjects are neither" in cohort.faults[0].what
    assert "Bipolar Proband" in cohort.faults[0].what
    assert [f for f in check_cohort(cohort) if f.severity == "error"] == []
    assert cohort.provenance["dataset"] == "bsnip"


def test_sites_are_words(folder: Path):
    assert load_bsnip(folder, sites=["Georgia"]).site_names == ("Georgia",)
    with pytest.raises(ConfigError, match="Did you mean 'Georgia'"):
        load_bsnip(folder, sites=["Georgi"])


def test_own_labels_add_to_the_known_ones(folder: Path):
    cohort = load_bsnip(folder, labels={"Bipolar Proband": 1})
    assert len(cohort) == 20
    assert cohort.faults == ()
