"""The study of benchmarks/: what is kept, what is done first, what goes on where it stopped."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import generators_docs as docs
import generators_fit
import generators_gan
import generators_rows as g
import generators_study


def test_squeezed_edges_come_back_within_their_rounding() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    fc = (0.3 * y[:, None] + 0.1 * rng.standard_normal((40, 300))).astype(np.float16)
    small = g.squeeze(fc, y)
    back, labels = g.unsqueeze(small)
    assert np.array_equal(labels, y)
    error = back.astype(float) - fc.astype(float)
    assert np.abs(error).max() < 0.55 * float(small["step"]) + 1e-3
    assert error.std() < 0.06 * 0.1
    assert sum(a.nbytes for a in small.values()) < 0.6 * fc.nbytes


def test_important_rows_first_and_long_jobs_first_within_a_class() -> None:
    jobs = g.jobs([], g.SITES, 5, all_seeds=False)
    classes = [g.PRIORITY[j.row][0] for j in jobs]
    assert classes == sorted(classes)
    for level in set(classes):
        cost = [g.seconds(j) for j in jobs if g.PRIORITY[j.row][0] == level]
        assert cost == sorted(cost, reverse=True)
    assert {j.seed for j in jobs if j.row == "fcm_vae paper"} == {0, 1, 2, 3, 4}
    assert set(g.PRIORITY) == set(generators_study.Panel(g.ROWS).rows)


def arguments(folder: Path, **changes: object) -> Namespace:
    given = {
        "work": folder / "work",
        "out": folder / "out",
        "back": folder / "out",
        "sites": ["NYU"],
        "seeds": 2,
        "rows": [],
        "classifiers": ("gcn",),
        "augment": ("gat",),
        "budget": 40.0,
    }
    return Namespace(**{**given, **changes})


def store(args: Namespace, job: g.JobKey, n: int = 12) -> None:
    args.work.mkdir(exist_ok=True, parents=True)
    rng = np.random.default_rng(job.seed)
    fc = (0.1 * rng.standard_normal((n, 66))).astype(np.float16)
    g.write_arrays(g.samples_file(args.work, job), {"fc": fc, "y": np.arange(n) % 2})
    numbers = {"variance_ratio": 1.0, "class_difference_r": 0.1}
    g.write_bytes(
        g.numbers_file(args.work, job),
        generators_fit.json.dumps({"numbers": numbers, "info": {}}).encode(),
    )


def judge(args: Namespace, job: g.JobKey, *units: tuple[str, str]) -> None:
    with (args.work / "judged.jsonl").open("a") as stream:
        for prefix, model in units:
            line = {"job": job.name, "prefix": prefix, "model": model, "scores": {"acc": 0.6}}
            stream.write(generators_fit.json.dumps(line) + "\n")


def test_another_machine_goes_on_with_what_was_packed(tmp_path) -> None:
    args = arguments(tmp_path)
    done, half = g.JobKey("fcm_vae", "NYU", 0), g.JobKey("fcm_vae", "NYU", 1)
    for job in (done, half):
        store(args, job)
    judge(args, done, ("tstr", "gcn"), ("aug", "gat"))
    judge(args, half, ("tstr", "gcn"))
    assert generators_study.finished(args) == {done}
    generators_fit.pack(args, generators_study.finished(args))
    other = arguments(tmp_path, work=tmp_path / "other")
    generators_fit.unpack(other)
    assert generators_study.finished(other) == {done}
    assert not g.samples_file(other.work, done).exists()  # needed no more
    before = g.read_samples(args.work, half)
    after = g.read_samples(other.work, half)
    assert float((before.fc - after.fc).abs().max()) < 0.02
    records = generators_study.records(Namespace(**vars(other)))
    assert [r["numbers"].get("aug_gat_acc") for r in records] == [0.6, None]


def test_gans_of_another_schedule_are_left_behind(tmp_path) -> None:
    args = arguments(tmp_path, rows=["gr_spd_gan", "brainnetgan"])
    alone, together = g.JobKey("gr_spd_gan", "NYU", 0), g.JobKey("brainnetgan", "NYU", 0)
    for job in (alone, together):
        store(args, job)
        judge(args, job, ("tstr", "gcn"))
    record = g.read_json(g.numbers_file(args.work, together))
    record["info"]["lanes"] = 20
    g.write_bytes(g.numbers_file(args.work, together), generators_fit.json.dumps(record).encode())
    generators_fit.pack(args, generators_study.finished(args))
    other = arguments(tmp_path, work=tmp_path / "other")
    generators_fit.unpack(other)
    assert g.stored(other.work, together)
    assert not g.numbers_file(other.work, alone).exists()
    assert not g.samples_file(other.work, alone).exists()
    assert list(generators_study.read_judged(other.work)) == [(together.name, "tstr", "gcn")]


def test_samples_without_numbers_are_no_finished_fit(tmp_path) -> None:
    args = arguments(tmp_path)
    job = g.JobKey("regate", "NYU", 0)
    store(args, job)
    g.numbers_file(args.work, job).unlink()
    assert not g.stored(args.work, job)
    generators_fit.pack(args, set())
    assert not list(args.out.glob("gen_samples_*"))


def test_a_torn_line_is_not_read(tmp_path) -> None:
    args = arguments(tmp_path)
    job = g.JobKey("regate", "NYU", 0)
    store(args, job)
    judge(args, job, ("tstr", "gcn"))
    with (args.work / "judged.jsonl").open("a") as stream:
        stream.write('{"job": "regate-NYU-0", "pre')
    assert list(generators_study.read_judged(args.work)) == [(job.name, "tstr", "gcn")]


def test_seeds_without_all_sites_are_left_out(tmp_path) -> None:
    args = arguments(tmp_path, sites=["NYU", "UM"])
    for site, seed in (("NYU", 0), ("UM", 0), ("NYU", 1)):
        store(args, g.JobKey("corr_gauss", site, seed))
    judge(args, g.JobKey("corr_gauss", "NYU", 0), ("tstr", "gcn"), ("aug", "gat"))
    judge(args, g.JobKey("corr_gauss", "UM", 0), ("tstr", "gcn"))
    found = generators_study.records(args)
    assert {r["seed"] for r in found} == {0}
    assert all("tstr_gcn_acc" in r["numbers"] for r in found)
    assert not any("aug_gat_acc" in r["numbers"] for r in found)  # judged at one site alone


@pytest.mark.parametrize(
    ("seconds", "first", "second"),
    # all 2,500 steps cost 2 s once and, with a margin of 1.1, 440 s: 165 and 275
    [(222.0, 750, 500), (1000.0, 1500, 1000), (1.0, 0, 0)],
)
def test_gans_get_the_same_share_of_the_steps_wanted(seconds, first, second) -> None:
    spd, brain = generators_gan.Pace(1500, 1.0, 0.1), generators_gan.Pace(1000, 1.0, 0.25)
    assert generators_gan.affordable([spd, brain], seconds) == first
    left = seconds - 1.0 - 1.1 * 0.1 * first  # as slow as the trial with its margin
    assert generators_gan.affordable([brain], left) == second


@pytest.mark.parametrize(("row", "in_table"), [("regate", True), ("edge_gauss", False)])
def test_only_the_papers_options_are_augmented(row, in_table) -> None:
    job = g.JobKey(row, "NYU", 0)
    assert generators_study.needs(job, ("aug", "gat")) is in_table
    assert generators_study.needs(job, ("tstr", "gcn"))


def record(row: str, seed: int, acc: float, **numbers: float) -> dict:
    given = {
        "variance_ratio": 1.0,
        "sd_ratio": 1.0,
        "edge_mean_r": 0.99,
        "edge_mean_r_test": 0.96,
        "class_difference_r": 0.1,
        "psd_share": 1.0,
        "tstr_linear_acc": acc,
        **{f"aug_gcn_{m}": acc for m in ("acc", "pre", "rec", "f1")},
    }
    units = {"active_units": numbers.pop("active_units", 12)}
    return {
        "row": row,
        "site": "NYU",
        "seed": seed,
        "diagnostics": units,
        "numbers": {**given, **numbers},
    }


def made_up() -> list[dict]:
    found = []
    for seed, base in enumerate((0.60, 0.64)):
        found += [record("real", seed, base), record("corr_gauss", seed, base)]
        found += [record("corr_flow", seed, base, psd_share=0.99 if seed else 1.0)]
        found += [record("fcm_vae", seed, base - 0.03, class_difference_r=0.07)]
        found += [record("fcm_vae authors", seed, base, sd_ratio=0.3, active_units=seed)]
    return found


def test_criteria_are_met_or_not_as_computed_by_hand() -> None:
    lines = {line[0]: line for line in docs.must_show(made_up()).body}
    met = {what: line[3] == "yes" for what, line in lines.items()}
    assert met.pop("authors preset: edge SD ratio")
    assert not met.pop("authors preset: active units")  # one unit in one seed
    assert not met.pop("corr_flow: valid matrices, smallest share")
    share = lines["careful: class-difference r / another real sample's"]
    assert share[2].startswith("0.70")
    assert not met.pop(share[0])
    gap = lines["careful: train-on-real minus TSTR accuracy, best of ridge and GCN"]
    assert gap[2].startswith("+0.030 (0.620 - 0.590")
    assert not met.pop(gap[0])
    assert all(met.values())


def test_gains_are_paired_by_seed_and_stand_beside_the_paper() -> None:
    found = docs.difference(made_up(), "fcm_vae", "real", "aug_gcn_acc")
    assert found.mean == pytest.approx(-0.03)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)  # the same in both seeds
    text = docs.reproducibility(made_up(), ["gcn"])
    assert "| GCN | FCM-VAE | 0.590" in text
    assert "| -0.030 | 0.783 / 0.776 / 0.775 / 0.771 |" in text
