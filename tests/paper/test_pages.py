"""Pages are rendered from scores, and only where all tables that they need exist."""

import json
from dataclasses import replace

import make_tables
import numpy as np
import pages
import pytest
from pages import Pages, cut_at_share, in_sentence, printed, with_own_threshold
from paper_tables import Finished

import fake_runs
from fcforge.core.formatting import number
from fcforge.evaluation.comparison import Comparison
from fcforge.evaluation.forgetting import score_matrix, summary

ROWS = {"Fine-tuning": 0.4, "ER": 1.0, "FORGE": 1.4}
EVERY = make_tables.RESULT_PAGES.pages()


@pytest.fixture
def few() -> Pages:
    """Pages over one table of three learners."""
    groups = {
        k: fake_runs.fake_learner(k, seeds=(0,), skill=v) for k, v in ROWS.items()
    }
    made = Pages(make_tables.RESULTS, n_draws=20)
    table = Finished(groups, dict.fromkeys(groups, "nothing"), n_draws=20)
    made._tables["t"] = table, {"commit": "a" * 40}
    return made


def test_own_thresholds_call_the_training_share_patients():
    p = np.array([0.9, 0.8, 0.95, 0.7])
    moved = cut_at_share(p, 0.5)
    assert ((moved > 0.5) == np.array([True, False, True, False])).all()
    assert (np.argsort(moved) == np.argsort(p)).all()
    assert (cut_at_share(p, 0.0) < 0.5).all()
    assert (cut_at_share(p, 1.0) > 0.5).all()


def test_a_shift_of_all_scores_changes_accuracy_but_not_at_the_own_threshold(few):
    run = few.table_of("t").groups["ER"][0]
    shifted = {s: 0.999 + 0.0009 * p for s, p in run.scores.items()}
    everybody = pages.replace(run, scores=shifted)
    assert summary(everybody)["aaa"] < summary(run)["aaa"]
    one, other = with_own_threshold(run), with_own_threshold(everybody)
    assert summary(one)["aaa"] == summary(other)["aaa"]
    assert summary(one, "auroc")["aaa"] == pytest.approx(summary(run, "auroc")["aaa"])


def family(few, table: str, other: str, **gaps: Comparison) -> None:
    """Put differences to one learner into a table."""
    few._families[table, other, "accuracy"] = gaps


def test_a_difference_is_found_where_interval_and_p_agree(few):
    found, chance = 0.01, 0.5
    family(
        few,
        "t",
        "ER",
        above=Comparison(0.1, 0.05, 0.2, 0, p_holm=found),
        below=Comparison(-0.1, -0.2, -0.05, 0, p_holm=found),
        improbable=Comparison(0.1, -0.05, 0.2, 0, p_holm=found),
        by_chance=Comparison(0.1, 0.05, 0.2, 0, p_holm=chance),
    )
    assert few.finding("t", "above", "ER") == "is found above"
    assert few.finding("t", "below", "ER") == "is found below"
    for learner in ("improbable", "by_chance"):
        assert few.finding("t", learner, "ER") == "is not found to differ from"
    assert few.established("t", "above", "ER")
    assert not few.established("t", "below", "ER")
    assert few.holds("t", "above", "ER") == "holds"
    assert few.holds("t", "below", "ER") == "the reverse"
    assert few.holds("t", "by_chance", "ER") == "not shown"
    assert few.count_apart("t", "ER", ["above", "by_chance", "below"]) == "2 of 3"
    assert few.tested("t", "above", "ER").endswith("p 0.010")


def test_numbers_of_a_difference_are_those_of_the_comparison(few):
    p = few.minus("t", ["Fine-tuning"]).splitlines()[-1].split(" | ")[-1].strip(" |")
    assert few.p("t", "FORGE", "Fine-tuning") == f"p {p}"
    assert in_sentence("ER") == "ER"


def test_verdicts_on_two_sets_are_joined_where_they_agree(few):
    two = {"529": "t", "444": "u"}
    same = Comparison(0.0, -0.1, 0.1, 1, p_holm=1)
    for table in "tu":
        family(few, table, "ER", FORGE=same)
    shown = "0.000 [\N{MINUS SIGN}0.100, +0.100]"
    assert few.on_both(two, "FORGE", "ER", "it") == (
        f"is not found to differ from it on either set (529: {shown}; 444: {shown})"
    )
    family(few, "u", "ER", FORGE=Comparison(0.1, 0.05, 0.2, 0, p_holm=0.01))
    assert few.on_both(two, "FORGE", "ER") == (
        f"is not found to differ from ER on the 529 ({shown}) "
        "and is found above ER on the 444 (+0.100 [+0.050, +0.200])"
    )
    assert few.loss_below("t", "FORGE", "ER") == "0.100"
    assert few.loss_below("u", "FORGE", "ER") == "0.000"


def test_ours_beside_a_printed_number(few):
    assert few.beside("t", "ER", 1.1) == "lower here"
    assert few.beside("t", "ER", -1.0) == "higher here"
    assert few.beside("t", "ER", few._estimate("t", "ER", "AAA").value) == "agrees"


def test_tables_hold_every_learner_and_the_papers_number(few):
    text = few.main("t", {"FORGE": (0.73, 0.116)})
    assert "| FORGE | 0.730 |" in text
    assert all(f"| {k} |" in text for k in (*ROWS, *pages.MAJORITY))
    assert len(few.minus("t", ["Fine-tuning"]).splitlines()) == 4


def aaa(runs) -> float:
    """AAA by hand."""
    matrices = [score_matrix(run) for run in runs]
    stages = [[a[t, : t + 1].mean() for t in range(len(a))] for a in matrices]
    return float(np.mean(stages))


def test_gains_are_differences_of_aaa_and_bold_where_they_are_found(few):
    by_hand = {k: aaa(runs) for k, runs in few.table_of("t").groups.items()}
    assert few.value("t", "ER") == number(by_hand["ER"])
    assert few.gap("t", "ER", "Fine-tuning") == number(
        by_hand["ER"] - by_hand["Fine-tuning"], sign=True
    )
    keeps = {"Fine-tuning": "nothing", "ER": "real people"}
    gap = few.difference("t", "ER", "Fine-tuning")
    level = few.value("t", "Fine-tuning")
    compared = few._compared("t", "ER", "Fine-tuning")
    assert compared.low > 0
    for p, shown in ((0.02, f"**{gap}**"), (0.5, gap)):
        family(few, "t", "Fine-tuning", ER=replace(compared, p_holm=p))
        lines = few.gains({"here": "t", "again": "t"}, keeps, "Fine-tuning").split("\n")
        assert lines[2] == f"| Fine-tuning, AAA | nothing | {level} | {level} |"
        assert lines[3] == f"| ER minus fine-tuning | real people | {shown} | {shown} |"
    assert len(few.across({"none": "t", "all": "t"}).splitlines()) == 5


def test_learners_are_listed_by_falling_auroc_beside_a_reference(few):
    lines = few.by_auroc("t", "ER").splitlines()
    titles = [line.split(" | ")[0].strip("| ") for line in lines[2:]]
    assert titles[:3] == ["FORGE", "ER", "Fine-tuning"]
    assert set(titles[3:]) == set(pages.MAJORITY)
    gap = few.difference("t", "FORGE", "ER", "auroc")
    assert f"| {gap} |" in lines[2]
    assert lines[3].endswith("|  |  |")  # nothing is compared with itself


def test_learners_apart_are_those_with_that_verdict(few):
    gaps = {
        "FORGE": Comparison(0.1, 0.05, 0.2, 0, p_holm=0.01),
        "Fine-tuning": Comparison(-0.1, -0.2, 0.05, 0, p_holm=0.01),
    }
    few._families["t", "ER", "auroc"] = gaps
    assert few.apart("t", "ER", pages.ABOVE, "auroc") == ["FORGE"]
    assert few.apart("t", "ER", pages.BELOW, "auroc") == []
    assert few.apart("t", "ER", pages.NOT_FOUND, "auroc") == ["Fine-tuning"]


def test_a_page_needs_all_its_tables(tmp_path):
    assert "RESULTS.md.j2" not in Pages(tmp_path).pages()
    for name in ("main_linear_529", "main_linear_444"):
        assert "main_linear.md.j2" not in Pages(tmp_path).pages()
        (tmp_path / f"{name}.npz").touch()
    assert set(Pages(tmp_path).pages()) == {"main_linear.md.j2"}
    assert Pages(tmp_path).exists("main_linear")
    assert "main_gcn_529" in Pages(tmp_path).missing()
    assert "main_linear_529" not in Pages(tmp_path).missing()


def test_templates_need_tables_that_are_run():
    from run_tables import TABLES

    for path in pages.TEMPLATES.glob("[!_]*.md.j2"):
        needed = pages.NEEDS.search(path.read_text())
        assert needed, path.name
        assert set(needed[1].split()) - {"people"} <= set(TABLES), path.name


def test_printed_numbers_belong_to_learners():
    from run_tables import load

    for name, table in (("main", "main"), ("buffer", "buffer"), ("tau", "tau")):
        titles = {le.title for le in load(f"{table}_gcn_529").learners}
        assert set(printed()[name]) <= titles
    assert len(printed()["main"]) == 12


def test_what_a_gain_consists_of(few):
    """A shift of fine-tuning's scores costs accuracy, and neither order nor own threshold."""
    table, told = few._tables["t"]
    better = table.groups["FORGE"]
    shifted = [
        pages.replace(
            r,
            scores={s: 0.3 + 0.7 * p for s, p in r.scores.items()},
            spec=pages.replace(
                r.spec, learner=pages.replace(r.spec.learner, title="Fine-tuning")
            ),
        )
        for r in better
    ]
    groups = {"FORGE": better, "Fine-tuning": shifted}
    few._tables["t"] = pages.replace(table, groups=groups), told
    whole = few.difference("t", "FORGE", "Fine-tuning")
    assert whole.startswith("+")
    assert few.by_threshold("t", "FORGE", "Fine-tuning") == whole
    for learner, runs in groups.items():
        own, common = (
            np.mean([summary(r)["aaa"] for r in each])
            for each in ([with_own_threshold(r) for r in runs], runs)
        )
        assert few.own_gain("t", learner).startswith(number(own - common, sign=True))


def test_ablations_count_where_the_interval_over_seeds_excludes_zero(tmp_path):
    values = {"real": 0.5, "same": 0.5, "better": 0.6}
    records = [
        {
            "row": row,
            "site": "A",
            "seed": seed,
            "diagnostics": {},
            "numbers": {"aug_gcn_acc": value + 0.001 * seed * (-1) ** seed},
        }
        for row, value in values.items()
        for seed in range(5)
    ]
    for record in records:
        if record["row"] == "same":
            record["numbers"]["aug_gcn_acc"] = 0.5 + 0.01 * (record["seed"] - 2)
    told = {"commit": "a" * 40, "machine": "x", "records": records}
    (tmp_path / "judged.json").write_text(json.dumps(told))
    made = Pages(tmp_path)
    assert made.augmented_apart("judged", {"GCN": "gcn"}) == "1 of 2"
    assert made.judged_splits("judged") == "five"
    assert made.judged_intervals("judged")
    text = made.judged("judged", {"ACC": "aug_gcn_acc"}, "gcn")
    assert text.splitlines()[2].endswith("| 0.762 / 0.748 / 0.772 / 0.758 |")


def test_few_seeds_show_their_range_in_place_of_an_interval(tmp_path):
    records = [
        {"row": row, "site": "A", "seed": seed, "diagnostics": {}}
        | {"numbers": {"aug_gcn_acc": 0.5 + gain * seed}}
        for row, gain in {"real": 0.0, "better": 0.01}.items()
        for seed in range(3)
    ]
    told = {"commit": "a" * 40, "machine": "x", "records": records}
    (tmp_path / "judged.json").write_text(json.dumps(told))
    made = Pages(tmp_path)
    assert not made.judged_intervals("judged")
    gap = made.judged_gap("judged", "aug_gcn_acc", "better", "real")
    assert gap == "+0.010 (0.000 to +0.020)"
    head = made.judged("judged", {"ACC": "aug_gcn_acc"}, "gcn").splitlines()[0]
    assert "| ACC minus real (range) |" in head


@pytest.mark.skipif("RESULTS.md.j2" not in EVERY, reason="its tables are not stored")
def test_the_words_of_the_first_page_hold():
    """What RESULTS.md says without a number beside it follows from the scores."""
    stored = make_tables.RESULT_PAGES

    def aaa(table, learner):
        return stored.table_of(table).rows[learner].estimates["aaa"].value

    majority = "majority class of each site"
    for n in ("529", "444"):
        gcn, linear = f"main_gcn_{n}", f"main_linear_{n}"
        # the GCN hardly learns, the linear model does
        assert aaa(gcn, "Joint") - aaa(gcn, majority) < 0.07
        assert aaa(linear, "Cumulative") - aaa(gcn, "Cumulative") > 0.03
        # "on four sites there is little to gain", "no learner is found better than fine-tuning"
        others = [k for k in stored.learners(linear) if k != "Fine-tuning"]
        assert not any(stored.established(linear, k, "Fine-tuning") for k in others)
        # "no method is found better on it": ridge trains no GCN
        others = [k for k in stored.learners(gcn) if k not in ("Fine-tuning", "Ridge")]
        assert not any(stored.established(gcn, k, "Fine-tuning") for k in others)
        assert not stored.established(linear, "FORGE", "Cumulative")
        # "at most a point or two of accuracy" (the demo), and no finding
        gain = stored._compared(linear, "FORGE", "Fine-tuning")
        assert 0.005 < gain.difference < 0.02
        # "ridge is not found worse over few sites"
        assert stored.finding(linear, "Ridge", "Fine-tuning") != "is found below"
        # "what is gained is the decision threshold: with one of each site's own no gain is seen"
        part = stored._threshold_part(linear, "FORGE", "Fine-tuning")
        assert part.low > 0
        for metric in ("own", "auroc"):
            for k in ("FORGE", "FORGE, Gaussian", "ER", "Cumulative"):
                assert (
                    stored.finding(linear, k, "Fine-tuning", metric) != "is found above"
                )
        # "SI's strength acts too weakly to differ from fine-tuning"
        assert abs(stored._compared(linear, "SI", "Fine-tuning").difference) < 0.0005
        # "a linear model learns more"
        assert stored._estimate(linear, "Joint", "AUROC").low > 0.6
    sites = "twenty_sites_linear"
    for learner in ("ER", "FORGE, Gaussian", "Cumulative", "Ridge"):
        assert stored.established(sites, learner, "Fine-tuning")
    for metric in ("own", "auroc"):
        for k in ("FORGE", "FORGE, Gaussian", "ER", "Cumulative"):
            assert stored.finding(sites, k, "Fine-tuning", metric) != "is found above"
        # "ridge gains more than that"
        assert stored.finding(sites, "Ridge", "Fine-tuning", metric) == "is found above"


def test_tables_of_runs_are_of_one_commit():
    stored = make_tables.RESULT_PAGES
    commits = {stored.commit(name) for name in make_tables.table_names()}
    assert len(commits) <= 1


def test_the_strongest_attack_of_an_audit_is_quoted(tmp_path):
    rows = [
        {"release": g, "attack": a, "auc": [v, v - 0.1, v + 0.02], "tpr": [0.5, 0, 1]}
        | {"identified": [0.2, 0.1, 0.3] if a == "fingerprint" else None}
        for g, values in {"copies": (0.9, 0.97), "noise": (0.5, 0.51)}.items()
        for a, v in zip(("fingerprint", "shadow models"), values, strict=True)
    ]
    (tmp_path / "audit.json").write_text(json.dumps({"rows": rows}))
    made = Pages(tmp_path)
    assert made.audited("audit", "copies") == ".97"
    lines = made.audit("audit").splitlines()
    assert lines[2].startswith("| copies | 0.900 [0.800, 0.920] | 0.970 [")
    assert lines[3].endswith("| 0.500 | 0.200 |")
