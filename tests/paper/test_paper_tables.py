"""The paper's tables: every printed number has a learner, and our side is what the runs say."""

import json
from pathlib import Path

import numpy as np
import paper_tables
import pytest
from paper_tables import Finished, beside, on_529, order_table, printed_tables

import fake_runs
from fcforge.evaluation.forgetting import score_matrix
from fcforge.experiments.config import load_experiment

EXPERIMENTS = Path(__file__).parents[2] / "paper" / "experiments"
SHIPPED = [n for n in printed_tables() if (EXPERIMENTS / f"{n}.toml").is_file()]


def titles(name: str) -> set[str]:
    experiment = load_experiment(EXPERIMENTS / f"{name}.toml")
    return {learner.title for learner in experiment.learners}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_printed_number_has_a_learner(name):
    """A title that moves would drop a row."""
    table = printed_tables()[name]
    there = titles(name)
    if name.startswith("leaks"):
        assert there - {"Cumulative"} <= set(table.printed)
    else:
        assert set(table.printed) <= there
    for learner in there:
        if table.minus:
            title = table.minus.format(first=learner.split()[0], row=learner)
            where = table.of_row.get(learner, table.of or name)
            first = where.removesuffix("_again").removesuffix("_before")  # run twice
            assert title in titles(first) or learner == "Base", (name, learner)


def test_main_tables_print_twelve_methods():
    for name in ("main_abide", "main_529"):
        assert len(printed_tables()[name].printed) == 12
        assert all(
            0.5 < aaa < 0.8 for aaa, _ in printed_tables()[name].printed.values()
        )


def test_the_papers_subjects_have_tables_of_their_own():
    assert on_529("main_abide") == "main_529"
    assert on_529("buffer+leaks") == "buffer_529+leaks"
    table = printed_tables()["ladder_529"]
    assert (table.of, table.leaks) == ("main_529_before", "ladder_529+leaks")
    assert printed_tables()["leaks_529"].of_row["FORGE"] == "paper_protocol_529"


# -- our side ----------------------------------------------------------------------------------
def finished(**groups) -> Finished:
    runs = {
        title: fake_runs.fake_learner(title, seeds=(0,), skill=skill, method=method)
        for title, (skill, method) in groups.items()
    }
    return Finished(runs, dict.fromkeys(runs, "nothing"), n_draws=30)


@pytest.fixture(scope="module")
def found() -> dict[str, Finished]:
    main = {
        "Base": (0.6, "finetune"),
        "ER": (1.0, "er"),
        "DER++": (1.4, "derpp"),
        "FORGE (FCM-VAE)": (0.9, "forge"),
    }
    return {
        "main_529": finished(**main),
        "main_529_before": finished(ER=(0.8, "er")),
        "leaks_529": finished(Base=(0.9, "finetune"), ER=(1.4, "er")),
        "buffer_529": finished(**{"ER 128": (0.8, "er"), "ER 256": (1.2, "er")}),
    }


def cells(text: str, learner: str) -> list[str]:
    line = next(x for x in text.splitlines() if x.startswith(f"| {learner} |"))
    return [c.strip() for c in line.strip("|").split("|")]


def aaa(runs) -> str:
    """Mean over stages of the mean over the sites learned so far, by hand."""
    per_run = []
    for r in runs:
        a = score_matrix(r)
        per_run.append(np.mean([a[t, : t + 1].mean() for t in range(len(a))]))
    return f"{np.mean(per_run):.3f}"


def test_main_table_has_both_majority_classes_and_both_protocols(found):
    text = beside("main_529", found)
    heads = cells(text, "learner")
    assert heads[-2:] == ["AAA, leaks on", "FM, leaks on"]
    assert text.splitlines()[2].startswith("| majority class |")
    assert text.splitlines()[3].startswith("| majority class of each site |")
    er = cells(text, "ER")
    assert er[1] == "0.637 / 0.240"
    assert er[2].split()[0] == aaa(found["main_529"].groups["ER"])
    assert er[heads.index("AAA, leaks on")].split()[0] == aaa(
        found["leaks_529"].groups["ER"]
    )
    assert cells(text, "DER++")[-2:] == ["", ""]


def test_rows_that_only_the_leaks_have_are_found_under_their_other_title(found):
    more = {
        "leaks_529": finished(FORGE=(0.9, "forge")),
        "leaks_single_529_again": finished(**{"FORGE as printed": (0.7, "forge")}),
    }
    line = cells(beside("main_529", found | more), "FORGE")
    there = more["leaks_single_529_again"].groups["FORGE as printed"]
    assert line[2].split()[0] == aaa(there)


def test_leaks_are_compared_with_the_same_learner_without(found):
    line = cells(beside("leaks_529", found), "ER")
    with_leaks, without = (
        float(aaa(found[k].groups["ER"])) for k in ("leaks_529", "main_529")
    )
    assert float(line[7].split()[0]) == pytest.approx(with_leaks - without, abs=0.0011)
    assert line[8]  # Holm's p


def test_a_row_is_not_compared_with_itself(found):
    text = beside("buffer_529", found)
    assert cells(text, "ER 256")[7:9] == ["", ""]
    assert cells(text, "ER 128")[7].startswith("−")
    assert cells(text, "ER 128")[1] == "0.601 / 0.275"


def test_order_table_says_what_the_paper_says_first(found):
    text = order_table("main_529", "FORGE (FCM-VAE)", found)
    assert [line.split(" | ")[0][2:] for line in text.splitlines()[2:]] == [
        "Base",
        "ER",
        "DER++",
    ]
    assert cells(text, "Base")[1] == "−0.123"
    assert "leaks on" not in text  # FORGE was not run there


def test_spearman_needs_four_methods(found):
    assert paper_tables.spearman("main_529", found).endswith(".")
    assert paper_tables.spearman("buffer_529", found) == ""


def test_a_missing_learner_is_named():
    groups = finished(Base=(1.0, "finetune")).groups
    text = Finished(groups, {}, missing=("ER",)).about()
    assert text.startswith("24 orders, seeds 0, 60 epochs, float32")
    assert text.endswith("not finished: ER")


def test_stages_and_plain(found):
    assert "accuracy after 4" in paper_tables.stages("buffer_529", found, n_draws=5)
    text = paper_tables.plain("buffer_529", ["AAA", "FM of AUROC"], found)
    assert cells(text, "learner") == ["learner", "AAA", "FM of AUROC"]


def test_a_site_is_shown_after_all_and_left_out(found):
    runs = found["main_529"].groups["Base"]
    line = cells(paper_tables.sites("main_529", found), "Base")
    site = runs[0].sites[0]
    at_end = [score_matrix(r, "auroc")[-1][r.spec.order.index(site)] for r in runs]
    left_out = [
        score_matrix(r, "auroc")[-2, -1] for r in runs if r.spec.order[-1] == site
    ]
    assert len(left_out) == len(runs) / 4
    assert line[1] == f"{np.mean(at_end):.3f} / {np.mean(left_out):.3f}"


def test_paired_differences_are_those_of_the_runs(found):
    text = paper_tables.paired(
        "main_529", ["DER++ minus Base", "ER minus DER++"], found
    )
    line = cells(text, "DER++ minus Base")
    better, worse = (float(aaa(found["main_529"].groups[k])) for k in ("DER++", "Base"))
    assert float(line[1].split()[0]) == pytest.approx(better - worse, abs=0.0011)
    assert cells(text, "ER minus DER++")[1].startswith("−")
    assert line[3].startswith("+")  # AUROC


def test_judged_generators_stand_beside_the_paper(tmp_path):
    records = [
        {
            "row": row,
            "site": "A",
            "seed": seed,
            "diagnostics": {},
            "numbers": {"psd_share": 1.0, "aug_gcn_acc": value + 0.01 * seed},
        }
        for row, value in (("real", 0.5), ("fcm_vae", 0.6), ("bootstrap", 0.7))
        for seed in range(5)
    ]
    path = tmp_path / "judged.json"
    path.write_text(json.dumps({"records": records}))
    lines = paper_tables.judged(path, ["PSD share", "GCN"]).splitlines()
    assert lines[2].startswith("| real | 1.000 | 0.520 [")
    assert lines[2].endswith("(0.762) |")
    assert "(0.783)" in lines[3]
    assert "(" not in lines[4]


def test_rows_of_learners_that_are_gone_are_not_shown():
    gone = paper_tables.DROPPED[0]
    table = Finished({"ER": [], gone: []}, {})
    assert list(paper_tables.shown(table).groups) == ["ER"]
