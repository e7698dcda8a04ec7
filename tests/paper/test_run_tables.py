"""Tables are run, packed and read back as they were; every config of a table runs in small."""

import io
import json
import tarfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import run_tables as script
from paper_tables import read_folder
from scores import read_table

from fcforge.core.component import Component
from fcforge.data.datasets import load_dataset
from fcforge.evaluation.forgetting import summary
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import make_plan

LEAKS = {"leaks_none_529": 0, "leaks_all_529": 3}
SCORED = [
    name
    for portion, names in script.PORTIONS.items()
    for name in names
    if portion != "cpu" and not script.judges(name)
]
JUDGED = [name for name in script.TABLES if script.judges(name)]


def test_every_table_is_in_one_portion():
    assert len(set(script.TABLES)) == len(script.TABLES)
    assert SCORED
    assert JUDGED


@pytest.mark.parametrize("name", SCORED)
def test_every_table_has_five_seeds_all_orders_and_its_leaks(name):
    experiment = script.load(name, "tf32")
    assert experiment.training.precision == "tf32"
    fewer = name.startswith("twenty_sites"), name.startswith("lambda_grid")
    assert len(experiment.seeds) == {(True, False): 3, (False, True): 1}.get(fewer, 5)
    assert experiment.orders == (12 if fewer[0] else "all")
    expected = LEAKS.get(name, int(name.startswith("leaks")))
    assert len(experiment.leaks.active()) == expected
    assert experiment.protocol == "strict"


def small(name: str, learners: tuple[str, ...]) -> Experiment:
    """Some learners of a table on two simulated sites of ten ROIs, two orders, two epochs."""
    whole = script.shrunk(script.load(name, settings=script.SMALL))
    sizes = {"preset": "easy", "n_rois": 10, "n_sites": 2, "scale": 0.1}
    rows = tuple(le for le in whole.learners if le.title in learners or not learners)
    return replace(whole, dataset=Component("simulated", sizes), learners=rows)


def written(folder: Path, tables: dict[str, Experiment]) -> Path:
    folder.mkdir()
    for name, experiment in tables.items():
        told = {"commit": "abc", "config": "", "settings": []}
        asked = {**told, "experiment": experiment.to_json()}
        (folder / f"{name}.json").write_text(json.dumps(asked))
    return folder


def options(plan: Path, processes: int) -> Namespace:
    there = {"root": plan.parent / "root", "out": plan.parent / "out", "device": "cpu"}
    how = {
        "group": 8,
        "limit": 600,
        "processes": processes,
        "portions": ["main", "leaks"],
    }
    return Namespace(folder=plan, **there, **how)


def test_processes_that_outlast_the_limit_are_killed_and_what_there_is_is_packed(
    tmp_path, capfd, monkeypatch
):
    tables = {"main_gcn_529": small("main_gcn_529", ("Fine-tuning", "ER"))}
    args = options(written(tmp_path / "plan", tables), processes=2)
    monkeypatch.setattr(script, "GRACE", 0.2 - args.limit)  # killed after 0.2 s
    script.run(args)
    out = capfd.readouterr().out
    assert "not everything is finished; the same command continues" in out
    assert "main_gcn_529 is finished" not in out
    assert (args.out / "pools.json").is_file()
    monkeypatch.undo()
    script.run(args)
    assert "main_gcn_529 is finished" in capfd.readouterr().out


@pytest.mark.parametrize("processes", [1, 2])
def test_run_and_read_end_to_end(processes, tmp_path, capfd):
    """Two tables of one dataset share their nodes; packed and unpacked they read the same."""
    names = ("main_gcn_529", "leaks_none_529")
    tables = {name: small(name, ("Fine-tuning", "ER")) for name in names}
    args = options(written(tmp_path / "plan", tables), processes)
    script.run(args)
    out = capfd.readouterr().out
    assert "main_gcn_529 is finished" in out
    assert "leaks_none_529 is finished" in out
    assert len(list(args.root.glob(".pool/*/nodes/*"))) == 10  # not 20
    assert not list(args.root.glob(".pool/*/nodes/*/lane.safetensors"))
    results = tmp_path / "results"
    back = tmp_path / "back"
    script.read(Namespace(folder=args.out, root=back, results=results, only=None))
    for name in names:
        table, about = read_table(results / f"{name}.npz")
        assert about["commit"] == "abc"
        stored = read_folder(args.root / name).groups
        assert list(table.groups) == list(stored)
        for title, runs in table.groups.items():
            for ours, theirs in zip(runs, stored[title], strict=True):
                assert ours.spec.order == theirs.spec.order
                assert summary(ours) == summary(theirs)
    script.run(args)  # finished: nothing is opened again
    assert "is finished" not in capfd.readouterr().out


def test_a_table_that_cannot_be_opened_leaves_the_others_alone(tmp_path, capfd):
    table = small("main_gcn_529", ("Fine-tuning",))
    unknown = replace(
        table, dataset=Component("folder", {"path": str(tmp_path / "no.npz")})
    )
    tables = {"main_gcn_529": unknown, "main_gcn_444": table}
    args = options(written(tmp_path / "plan", tables), 2)
    script.run(args)
    out = capfd.readouterr().out
    assert "FAILED: main_gcn_529" in out
    assert "main_gcn_444 is finished" in out


def test_data_are_read_from_this_machine(monkeypatch, tmp_path):
    experiment = script.load("main_gcn_529")
    monkeypatch.setenv("FCFORGE_DATA", str(tmp_path))
    params = script.located(experiment.to_json()).dataset.params
    assert params["path"] == str(tmp_path / "abide1_aal116_dparsf.npz")
    assert params["leave_out"] == experiment.dataset.params["leave_out"]


def test_an_unfinished_table_is_not_published(tmp_path, capsys):
    table = small("main_gcn_529", ("Fine-tuning", "ER"))
    args = options(written(tmp_path / "plan", {"main_gcn_529": table}), 1)
    args.limit = 0  # over after the first training
    script.run(args)
    assert "the same command continues" in capsys.readouterr().out
    results = tmp_path / "results"
    script.read(
        Namespace(folder=args.out, root=tmp_path / "back", results=results, only=None)
    )
    assert "not published" in capsys.readouterr().out
    assert not list(results.iterdir())


@pytest.mark.parametrize(
    "name", ["main_linear_529", "main_gcn_529", "ablation_gcn_529"]
)
def test_every_learner_of_a_table_runs_in_small(name, tmp_path):
    args = options(written(tmp_path / "plan", {name: small(name, ())}), 1)
    args.portions = list(script.PORTIONS)
    script.run(args)
    assert (args.root / name / ".finished").is_file()


@pytest.mark.parametrize("name", JUDGED)
def test_small_tables_of_generators_keep_every_row(name):
    from fcforge.experiments.config_files import read_config

    path = script.EXPERIMENTS / f"{name}.toml"
    whole, few = (
        read_config(path, settings)["generator"]
        for settings in ((), script.small_judge(name))
    )
    titles = [[row.get("title", row["name"]) for row in rows] for rows in (whole, few)]
    assert titles[0] == titles[1]
    assert few[0]["epochs"] == 2


@pytest.mark.parametrize("name", JUDGED)
def test_sites_of_a_table_of_generators_are_judged_side_by_side(name, tmp_path):
    plan = tmp_path / "plan"
    script.write(
        Namespace(
            folder=plan, only=[name], precision="float32", small=True, commit=None
        )
    )
    (tmp_path / "root").mkdir()
    places = {"folder": plan, "root": tmp_path / "root"}
    shares = script.opened(name, Namespace(device="cuda", **places))
    assert [share.site for share in shares] == ["NYU", "UM", "USM", "UCLA"]
    assert {share.seed for share in shares} == {None}
    assert all(script.may_start(share, [shares[0]], ()) for share in shares[1:])
    on_cpu = script.opened(name, Namespace(device="cpu", **places))
    assert [(share.site, share.seed) for share in on_cpu] == [
        (site, 0) for site in ("NYU", "UM", "USM", "UCLA")
    ]


@pytest.mark.parametrize("split", ["by site", "by site and seed"])
def test_records_of_generators_are_read_whether_seeds_were_judged_together_or_apart(
    split, tmp_path, capsys
):
    """Records of four sites and all seeds are the same either way."""
    name = "generators_529"
    sites, seeds = script.judged_sites(name, [])
    assert len(sites) == 4
    assert len(seeds) > 1
    folder = tmp_path / name
    for site in sites:
        for part in [seeds] if split == "by site" else [[k] for k in seeds]:
            seed = None if split == "by site" else part[0]
            place = folder / script.judged_folder(site, seed)
            place.mkdir(parents=True)
            rows = [{"site": site, "seed": k, "row": "real"} for k in part]
            (place / "records.json").write_text(json.dumps({"sites": {site: rows}}))
            machine = {"cpu": "AMD", "cores": 2, "torch": "2.13.0", "device": "cpu"}
            (place / "machine.json").write_text(json.dumps(machine))
    about = {"commit": "abc", "config": "", "settings": []}
    script.read_judged(name, folder, about, tmp_path)
    stored = json.loads((tmp_path / f"{name}.json").read_text())
    assert stored["machine"] == "AMD, 2 cores, torch 2.13.0"
    assert [(r["site"], r["seed"]) for r in stored["records"]] == [
        (site, seed) for site in sites for seed in seeds
    ]
    (folder / script.judged_folder("UCLA", seeds[-1])).joinpath("records.json").unlink(
        missing_ok=True
    )
    (folder / "UCLA" / "records.json").unlink(missing_ok=True)
    script.read_judged(name, folder, about, tmp_path)
    assert "unfinished: UCLA" in capsys.readouterr().out


def test_no_persons_fc_is_in_the_published_picture(tmp_path):
    rng = np.random.default_rng(0)
    people = rng.uniform(-1, 1, (2, 3, 5, 5))  # control and patient of three rows
    path = tmp_path / "portraits.npz"
    np.savez(
        path,
        rows=np.array(["real", "bootstrap", "fcm_vae"]),
        control=people[0],
        patient=people[1],
        edge_mean=rng.uniform(-1, 1, (3, 10)),
        where=np.array("Site NYU, seed 0."),
    )
    means = rng.uniform(-1, 1, (2, 5, 5))
    to = tmp_path / "published.npz"
    script.write_portraits(path, means, to)
    with np.load(to) as published:
        assert published["rows"].tolist() == ["real, mean", "fcm_vae"]
        stored = np.stack([published["control"], published["patient"]])
        assert set(published.files) == {"rows", "where", "control", "patient"}
    assert np.allclose(stored[:, 0], means, atol=1e-3)
    assert np.allclose(stored[:, 1], people[:, 2], atol=1e-3)


def test_real_means_are_those_of_the_people_generators_learn_from(
    shared_data, monkeypatch
):
    monkeypatch.setenv("FCFORGE_DATA", str(shared_data))
    means = script.real_means("generators_529", "UCLA", 0)
    assert means.shape == (2, 116, 116)
    assert np.allclose(np.diagonal(means, axis1=1, axis2=2), 1.0, atol=1e-3)
    assert not np.allclose(means[0], means[1])


def shares_of(name: str, stored: tuple[str, ...] = ()) -> list[script.Share]:
    """Shares of a table, from a plan without data."""
    experiment = script.load(name)
    sites = tuple(experiment.dataset.params["sites"])
    plan = make_plan(experiment.specs(sites, "digest"), sites)
    return script.shares_of(name, experiment, plan, stored)


def test_learners_of_one_generator_are_one_share_and_exclude_each_other():
    shares = shares_of("main_gcn_529")
    by_title = {le.title: share for share in shares for le in share.learners}
    assert set(by_title) == {le.title for le in script.load("main_gcn_529").learners}
    linear = shares_of("main_linear_529")
    other = next(s for s in linear if s.learners[0].title == "FORGE")
    forge = by_title["FORGE"]
    assert not script.may_start(other, [forge], ())  # one generator is fitted once
    assert script.may_start(other, [forge], forge.generators)
    assert script.may_start(by_title["ER"], [forge], ())
    again = shares_of("leaks_none_529")
    same = next(s for s in again if s.learners[0].title == "FORGE")
    assert not script.may_start(same, [forge], forge.generators)  # the same nodes
    leaky = shares_of("leaks_all_529")
    assert all(script.may_start(share, [forge], ()) for share in leaky)
    assert len(shares_of("lambda_grid_gcn_529")) == 1


def test_every_learner_of_brainnetcnn_is_a_share_once_its_generator_is_fitted():
    shares = shares_of("main_brainnetcnn_529")
    assert all(len(share.learners) == 1 for share in shares)
    forge, without = (
        next(s for s in shares if s.learners[0].title == title)
        for title in ("FORGE", "without GKD")
    )
    assert not script.may_start(without, [forge], ())
    assert script.may_start(without, [forge], forge.generators)


def test_every_seed_of_twenty_sites_is_a_share():
    shares = shares_of("twenty_sites_gcn")
    assert len(shares) == 21  # seven learners, three seeds
    cumulative = [s for s in shares if s.learners[0].title == "Cumulative"]
    assert {share.seed for share in cumulative} == {0, 1, 2}
    assert len({share.title for share in shares}) == 21
    assert script.may_start(cumulative[0], cumulative[1:], ())
    forge = [s for s in shares if s.learners[0].title == "FORGE"]
    assert script.may_start(forge[0], forge[1:], ())  # other generators, other nodes
    assert not script.may_start(forge[0], shares[-script.AT_ONCE :], ())
    assert script.may_start(shares_of("ablation_gcn_529")[0], shares, ())


def test_a_stored_learner_is_in_no_share():
    shares = shares_of("ablation_gcn_529", ("FORGE", "Fine-tuning"))
    titles = {le.title for share in shares for le in share.learners}
    assert titles == {le.title for le in script.load("ablation_gcn_529").learners} - {
        "FORGE",
        "Fine-tuning",
    }


def test_learners_that_are_stored_are_found_whatever_their_title():
    """What the ablation has in common with the main table, by settings and not by title."""
    made_at = script.stored_facts(script.RESULTS / "main_gcn_529.npz")["commit"]
    tau = script.load("tau_gcn_529", "tf32")
    found = script.stored_learners(tau, made_at, script.RESULTS)
    assert set(found) >= {
        "Fine-tuning tau 0.4",
        "DER++ tau 0.4",
        "PDGNN tau 0.4",
        "FORGE tau 0.4",
        "FORGE tau 0.4, paper",
    }
    assert all(len(runs) == 120 for runs in found.values())
    assert not any("0.1" in title for title in found)
    assert not script.stored_learners(tau, "another commit", script.RESULTS)
    in_float32 = script.load("tau_gcn_529")
    assert not script.stored_learners(in_float32, made_at, script.RESULTS)


def test_stored_learners_of_own_code_are_trained_again():
    """Their module may be missing where tables of an older commit are prepared."""
    table = script.load("gcn_joint_529")
    own = [spec for spec in table.learners if script.has_own_code(spec)]
    assert {spec.title for spec in own} >= {"every ROI", "log rows"}
    made_at = script.stored_facts(script.RESULTS / "gcn_joint_529.npz")["commit"]
    found = script.stored_learners(table, made_at, script.RESULTS)
    assert set(found) == {s.title for s in table.learners} - {s.title for s in own}


def test_a_table_takes_stored_learners_into_its_scores(tmp_path, capsys, monkeypatch):
    """Fine-tuning comes from the first table, ER is trained: scores are those of a full run."""
    whole = small("main_gcn_529", ("Fine-tuning", "ER"))
    data = tmp_path / "people.npz"
    people = load_dataset(whole.dataset)
    np.savez(
        data,
        fc=people.fc,
        label=people.y,
        site=people.site,
        subject_id=people.subject_id,
    )
    whole = replace(whole, dataset=Component("folder", {"path": str(data)}))
    monkeypatch.setenv("FCFORGE_DATA", str(tmp_path))
    results = tmp_path / "results"
    script.stored_runs.cache_clear()
    for name, stored in (("main_gcn_529", []), ("leaks_none_529", ["Fine-tuning"])):
        folder = tmp_path / name
        folder.mkdir()
        plan = written(folder / "plan", {name: whole})
        asked = json.loads((plan / f"{name}.json").read_text())
        if stored:
            assert "Fine-tuning" in script.stored_learners(whole, "abc", results)
        (plan / f"{name}.json").write_text(json.dumps({**asked, "stored": stored}))
        args = options(plan, 1)
        script.run(args)
        script.pack_now(Namespace(folder=args.root, out=args.out))
        back = Namespace(
            folder=args.out, root=folder / "back", results=results, only=None
        )
        script.read(back)
    capsys.readouterr()
    assert len(list(args.root.glob(".pool/*/nodes/*"))) == 5  # of ER alone
    first, second = (
        read_table(results / f"{name}.npz")[0].groups
        for name in ("main_gcn_529", "leaks_none_529")
    )
    assert list(first) == list(second)
    for title, runs in first.items():
        for ours, theirs in zip(runs, second[title], strict=True):
            assert ours.spec.order == theirs.spec.order
            assert ours.subject_ids == theirs.subject_ids
            assert summary(ours) == summary(theirs)


def archive(folder: Path, members: list[tarfile.TarInfo], name: str = "a") -> Path:
    """A folder as `pack` leaves it, with one archive of these members."""
    folder.mkdir()
    with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * min(member.size, 10)))
    (folder / "pools.json").write_text("{}")
    return folder


def test_archives_with_links_are_refused_before_anything_is_written(tmp_path):
    link = tarfile.TarInfo("somewhere")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    plain = tarfile.TarInfo("a.json")
    hostile = archive(tmp_path / "hostile", [plain, link])
    runs = tmp_path / "runs"
    with pytest.raises(SystemExit, match="links or devices"):
        script.unpack(hostile, runs)
    assert not runs.exists()


def test_archives_that_are_too_large_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "UNPACKED_BYTES", 15)
    files = [tarfile.TarInfo(name) for name in ("a.json", "b.json")]
    for info in files:
        info.size = 10
    large = archive(tmp_path / "large", files)
    with pytest.raises(SystemExit, match="unpacks to more than 15 bytes"):
        script.unpack(large, tmp_path / "runs")


@pytest.mark.parametrize(
    "pools",
    [{"main_gcn_529": "../../../etc"}, {"../other": "0123456789ab"}],
    ids=["pool", "table"],
)
def test_pools_outside_the_folder_are_refused(pools, tmp_path):
    folder = archive(tmp_path / "archives", [])
    (folder / "pools.json").write_text(json.dumps(pools))
    with pytest.raises(SystemExit, match="no table and pool"):
        script.unpack(folder, tmp_path / "runs")
    assert not list(tmp_path.glob("runs/*"))


def test_stored_scores_of_other_data_are_not_taken(tmp_path, capsys, monkeypatch):
    """Fine-tuning was stored for one file; FC is then permuted among people and ER trained."""
    whole = small("main_gcn_529", ("Fine-tuning", "ER"))
    people = load_dataset(whole.dataset)
    data = tmp_path / "people.npz"
    facts = {"label": people.y, "site": people.site, "subject_id": people.subject_id}
    np.savez(data, fc=people.fc, **facts)
    whole = replace(whole, dataset=Component("folder", {"path": str(data)}))
    monkeypatch.setenv("FCFORGE_DATA", str(tmp_path))
    results = tmp_path / "results"

    def publish(name: str, stored: list[str]) -> None:
        script.stored_runs.cache_clear()
        folder = tmp_path / name
        folder.mkdir()
        plan = written(folder / "plan", {name: whole})
        asked = json.loads((plan / f"{name}.json").read_text())
        (plan / f"{name}.json").write_text(json.dumps({**asked, "stored": stored}))
        args = options(plan, 1)
        script.run(args)
        script.read(
            Namespace(folder=args.out, root=folder / "back", results=results, only=None)
        )

    publish("main_gcn_529", [])
    np.savez(data, fc=people.fc[::-1], **facts)
    publish("leaks_none_529", ["Fine-tuning"])
    out = capsys.readouterr().out
    assert "leaks_none_529: not published, unfinished: Fine-tuning" in out
    assert not (results / "leaks_none_529.npz").exists()
    assert not script.stored_learners(whole, "abc+", results)
    # scores of two data files in one folder: which are meant is not guessed
    publish("leaks_all_529", [])
    script.stored_runs.cache_clear()
    with pytest.raises(SystemExit, match="different data files"):
        script.stored_learners(whole, "abc", results)


def test_a_table_without_config_at_an_older_commit_is_left_out(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(script, "EXPERIMENTS", tmp_path)
    plan = Namespace(
        folder=tmp_path / "plan", only=["generators_529"], small=False, commit="abc"
    )
    script.write(plan)
    assert "generators_529: no config at this commit" in capsys.readouterr().out
    assert not list(plan.folder.iterdir())
