"""Runs with public people and confounds: who is refused, what is shared, what nobody sees."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.spec import BaseModelSpec, LearnerSpec, Training
from fcforge.data import splits as splits_module
from fcforge.data.cohort import Cohort, write_people
from fcforge.data.datasets import load_dataset
from fcforge.data.folder import load_folder
from fcforge.data.simulated import simulate
from fcforge.experiments import lane_storage
from fcforge.experiments import public_subjects as module
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.public_subjects import (
    compare_public,
    fit_public,
    require_strangers,
    resolve_public,
)
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer

LOG = Component("linear", {"features": "log+diagonal"})
RELEASE = LearnerSpec(
    Component("contributions", {"noise": "seeded"}), LOG, title="release"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Six made-up sites in one file: the last three are tested, the others public."""
    made = simulate("easy", n_rois=8, n_sites=6, scale=0.15, seed=5)
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "all.npz"
    i, j = np.triu_indices(8, 1)
    np.savez(
        path,
        fc_upper=made.fc[:, i, j],
        label=made.y,
        site=made.site,
        subject_id=[f"p{k}" for k in range(len(made))],
        age=rng.uniform(8, 40, len(made)),
        mean_fd=rng.uniform(0.05, 0.5, len(made)),
    )
    return path, made.site_names


def experiment(data, *learners, **settings):
    path, names = data
    dataset = Component("folder", {"path": str(path), "sites": list(names[3:])})
    base_model = BaseModelSpec(
        Component("folder", {"path": str(path), "sites": "others"})
    )
    given = {
        "base_model": base_model,
        "training": Training(epochs=2, batch_size=8),
        **settings,
    }
    return Experiment(dataset, learners or (RELEASE,), **given)


def run(tmp_path, wanted, jobs=1):
    prepared = prepare(wanted)
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, jobs=jobs, group=1)
    return collect(store)[0]


def test_others_are_all_sites_that_are_not_tested(data):
    found = prepare(experiment(data)).experiment.base_model
    assert found.dataset.params["sites"] == list(data[1][:3])
    assert len(found.sha256) == 64


def test_a_site_cannot_be_public_and_tested(data):
    path, names = data
    both = BaseModelSpec(
        Component("folder", {"path": str(path), "sites": list(names[2:4])})
    )
    with pytest.raises(DataError, match="public subjects are among the tested"):
        prepare(experiment(data, base_model=both))


def test_nobody_left_is_said(data):
    path, names = data
    whole = Component("folder", {"path": str(path), "sites": list(names)})
    with pytest.raises(ConfigError, match="no public subjects are left"):
        prepare(replace(experiment(data), dataset=whole))


@pytest.mark.parametrize("change", ["id", "id and a blank", "scan"])
def test_a_person_who_is_public_and_tested_is_named(data, tmp_path, change):
    path, names = data
    arrays = dict(np.load(path))
    a = int(np.flatnonzero(arrays["site"] == names[0])[0])
    b = int(np.flatnonzero(arrays["site"] == names[4])[0])
    if change != "scan":
        arrays["subject_id"] = arrays["subject_id"].astype("U20")
        blank = " " if "blank" in change else ""
        arrays["subject_id"][a] = arrays["subject_id"][b] + blank
    else:
        arrays["fc_upper"][a] = arrays["fc_upper"][b] + 0.001
    np.savez(tmp_path / "d.npz", **arrays)
    wanted = experiment((tmp_path / "d.npz", names))
    with pytest.raises(DataError, match=r"p\d+ and p\d+"):
        prepare(wanted)


@pytest.mark.parametrize("spelling", ["0050003", "SUB-50003", "sub-0050003", "Pitt_0050003"])  # fmt: skip
def test_a_tested_person_in_another_spelling_is_named(data, tmp_path, spelling):
    path, names = data
    arrays = dict(np.load(path))
    arrays["subject_id"] = arrays["subject_id"].astype("U20")
    for site, name in ((names[0], "50003"), (names[4], spelling)):
        arrays["subject_id"][np.flatnonzero(arrays["site"] == site)[0]] = name
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError) as caught:
        prepare(experiment((tmp_path / "d.npz", names)))
    message = str(caught.value)
    assert f"have the number of tested ones ('50003' and '{spelling}')" in message
    assert "leave_out = ['50003']" in message
    assert "If they are other people, number those of one data set anew" in message


def test_short_numbers_of_public_and_tested_people_are_chance(world):
    public, tested = halves(world)
    public = named(public, [f"sub-{k:02d}" for k in range(len(public))])
    tested = named(tested, [f"{k}" for k in range(len(tested))])
    require_strangers(public, tested)
    assert compare_public(public, tested) == ()


def test_short_numbers_whose_scans_are_alike_are_a_warning(world):
    public, tested = halves(world)
    n = min(len(public), len(tested))
    public, tested = public.select(slice(n)), tested.select(slice(n))
    fc = 0.6 * public.fc + 0.4 * tested.fc
    public = named(public, [f"sub-{k:02d}" for k in range(n)])
    tested = named(replace(tested, fc=fc), [f"{k}" for k in range(n)])
    faults = compare_public(public, tested)
    assert any("their scans are alike" in str(fault) for fault in faults)
    assert {fault.severity for fault in faults} == {"warning"}


# -- public people who contradict the tested ones ---------------------------------------------------
@pytest.fixture(scope="module")
def world() -> Cohort:
    """Eight sites with ROIs in pairs and a disorder that a linear classifier finds."""
    return simulate("easy", n_rois=24, n_sites=8, seed=0)


def halves(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Divide the sites into public and tested ones."""
    is_public = np.isin(cohort.site, cohort.site_names[::2])
    return cohort.select(is_public), cohort.select(~is_public)


def named(cohort: Cohort, ids: list[str]) -> Cohort:
    return replace(cohort, subject_id=np.array(ids))


def permuted(cohort: Cohort) -> Cohort:
    order = np.random.default_rng(0).permutation(cohort.n_rois)
    return replace(cohort, fc=cohort.fc[:, order][:, :, order])


@pytest.mark.parametrize("preset", ["easy", "realistic", "hard", "hard_shift", "systems"])  # fmt: skip
def test_public_people_of_the_same_world_raise_no_alarm(preset):
    for seed in range(3):
        assert compare_public(*halves(simulate(preset, n_rois=24, seed=seed))) == ()


def test_permuted_rois_of_the_public_people_are_refused(world):
    public, tested = halves(world)
    with pytest.raises(DataError, match="of the public people does not resemble"):
        compare_public(permuted(public), tested)
    accepted = replace(permuted(public), allow_unlike_sites=True)
    (fault,) = compare_public(accepted, tested)
    assert fault.severity == "warning"


def test_swapped_hemispheres_of_the_public_people_are_refused(world):
    public, tested = halves(world)
    order = np.arange(24).reshape(-1, 2)[:, ::-1].ravel()
    swapped = replace(public, fc=public.fc[:, order][:, :, order])
    with pytest.raises(DataError, match="hemispheres of the public people look swap"):
        compare_public(swapped, tested)


def test_flipped_public_diagnoses_are_one_warning(world):
    public, tested = halves(world)
    (fault,) = compare_public(replace(public, y=1 - public.y), tested)
    assert fault.severity == "warning"
    assert re.search(
        r"classifier of the tested people .* the \d+ public people", fault.what
    )
    assert "in the two data sets" in fault.do


def test_one_flipped_public_site_is_named(world):
    public, tested = halves(world)
    site = public.site_names[1]
    y = np.where(public.site == site, 1 - public.y, public.y)
    (fault,) = compare_public(replace(public, y=y), tested)
    assert fault.site == f"{site} (public)"


def test_a_fault_of_the_tested_people_alone_is_left_to_their_own_check(world):
    public, tested = halves(world)
    site = tested.site_names[1]
    y = np.where(tested.site == site, 1 - tested.y, tested.y)
    assert compare_public(public, replace(tested, y=y)) == ()


def test_check_and_run_warn_of_flipped_public_diagnoses(world, tmp_path):
    import fcforge
    from fcforge.core.options import CheckRequest
    from fcforge.experiments.check import check_target

    public, tested = halves(world)
    wrong = np.isin(world.site, public.site_names)
    np.savez(
        tmp_path / "d.npz",
        fc=world.fc,
        label=np.where(wrong, 1 - world.y, world.y),
        site=world.site,
        subject_id=world.subject_id,
    )
    config = tmp_path / "x.toml"
    config.write_text(
        f"""
[experiment]
orders = 1
[dataset]
name = "folder"
path = "d.npz"
sites = {list(tested.site_names)!r}
[base_model]
[[learner]]
method = "analytic"
model = {{ name = "linear", features = "log+diagonal" }}
"""
    )
    verdict = check_target(CheckRequest(config))
    assert verdict.ok
    assert [str(f) for f in verdict.findings if "public people" in f.what]
    with pytest.warns(UserWarning, match="look swapped: .* public people"):
        fcforge.run(config)


@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_public_people_of_abide(shared_data, name):
    people = load_folder(shared_data / f"{name}.npz")
    is_tested = np.char.startswith(people.site.astype(str), ("NYU"))
    for site in ("UM_1", "USM", "UCLA_1", "UM", "UCLA"):
        is_tested |= people.site == site
    public, tested = people.select(~is_tested), people.select(is_tested)
    assert compare_public(public, tested) == ()
    with pytest.raises(DataError, match="of the public people does not resemble"):
        compare_public(permuted(public), tested)
    (fault,) = compare_public(replace(public, y=1 - public.y), tested)
    assert "look swapped: a classifier of the" in fault.what
    shortened = named(public, [f"Site_{k}" for k in public.subject_id.tolist()])
    require_strangers(shortened, tested)


def test_a_release_without_a_start_is_refused_before_anything_runs(data):
    with pytest.raises(ConfigError, match=r"'release'.*base model"):
        prepare(experiment(data, base_model=None))
    with pytest.raises(ConfigError, match=r"and this row has none"):
        prepare(experiment(data, replace(RELEASE, base_model=False)))


def test_rows_with_and_without_the_start(data, tmp_path):
    ridge = LearnerSpec(Component("analytic"), LOG, title="ridge")
    alone = replace(ridge, title="alone", base_model=False)
    network = LearnerSpec(
        Component("finetune"), Component("mlp", {"hidden": 8}), title="mlp"
    )
    untrained = replace(network, title="from nothing", base_model=False)
    wanted = experiment(data, RELEASE, ridge, alone, network, untrained, orders=2)
    found = {r.spec.learner.title: r for r in run(tmp_path, wanted)}
    site = data[1][3]
    for title in ("release", "ridge", "mlp"):
        assert np.ptp(found[title].initial[site]) > 1e-4  # begun on the public people
        assert found[title].spec.base_model is not None
    assert np.ptp(found["alone"].initial[site]) == 0
    assert found["from nothing"].spec.base_model is None
    assert not np.allclose(
        found["mlp"].initial[site], found["from nothing"].initial[site]
    )
    assert not np.allclose(found["ridge"].scores[site], found["alone"].scores[site])


def test_any_order_ends_in_the_same_release_head(data, tmp_path):
    found = run(tmp_path, experiment(data))
    last = [np.concatenate([r.scores[s][-1] for s in data[1][3:]]) for r in found]
    assert len(last) == 6
    assert all(np.array_equal(last[0], other) for other in last)


def test_test_subjects_touch_neither_start_nor_confounds(data, tmp_path, monkeypatch):
    """Poison: with NaN in every test split, all that is learned stays the same."""
    learners = (
        RELEASE,
        LearnerSpec(Component("analytic"), LOG, title="alone", base_model=False),
    )
    wanted = experiment(data, *learners, confounds=("age", "mean_fd"), orders=1)

    def lanes(folder):
        prepared = prepare(wanted)
        store = open_store(prepared, tmp_path / folder)
        trainer = Trainer(prepared.cohort, store)
        for node in prepared.plan.nodes.values():
            trainer.run(
                [replace(node, continued=True)]
            )  # with its state, to be looked at
        return {
            k: store.read_lane(k) for k, n in prepared.plan.nodes.items() if n.depth
        }

    clean = lanes("clean")
    real = splits_module.split_site

    def poisoned(*args, **kwargs):
        site = real(*args, **kwargs)
        test = replace(site.test, fc=torch.full_like(site.test.fc, torch.nan))
        return replace(site, test=test)

    monkeypatch.setattr(splits_module, "split_site", poisoned)
    dirty = lanes("dirty")
    assert clean.keys() == dirty.keys()
    for key, tensors in clean.items():
        for name, value in tensors.items():
            assert torch.equal(value, dirty[key][name]), name


def test_without_a_start_confounds_come_from_the_sites_so_far(data, tmp_path):
    row = LearnerSpec(
        Component("er", {"memory": 4}),
        Component("mlp", {"hidden": 8}),
        base_model=False,
    )
    wanted = experiment(data, row, confounds=("age",), base_model=None, orders=2)
    prepared = prepare(wanted)
    store = open_store(prepared, tmp_path / "run")
    trainer = Trainer(prepared.cohort, store)
    spec = prepared.plan.stages[0][0]
    one, two = trainer.parts.sites(spec.prefix(1)), trainer.parts.sites(spec.prefix(2))
    name = spec.order[0]
    assert not torch.equal(one[name].train.fc, two[name].train.fc)
    assert torch.equal(
        trainer.parts.sites(spec.prefix(0))[name].train.fc,
        plain_site(trainer, name).train.fc,
    )
    # a memory filled at the first site is found again with the confounds of that time
    for node in prepared.plan.nodes.values():
        Trainer(prepared.cohort, store).run([node])  # it knows nothing of the others
    assert len(collect(store)[0]) == 2


def plain_site(trainer, name):
    from fcforge.data.splits import make_sites

    return make_sites(trainer.parts.cohort, 0)[name]


def test_confounds_no_subject_has_are_named(data):
    with pytest.raises(DataError, match=r"'iq'.*age, mean_fd"):
        prepare(experiment(data, confounds=("iq",)))


def test_the_base_model_of_a_run_is_fitted_once_and_the_same(data):
    spec = prepare(experiment(data)).experiment.base_model
    a, b = fit_public(spec, ()), fit_public(spec, ("age",))
    assert fit_public(spec, ()).subjects.digest == a.subjects.digest
    assert a.subjects.digest != b.subjects.digest
    assert a.subjects.base_model.digest != b.subjects.base_model.digest
    assert b.confounds.names == ("age",)
    assert module.load_public(spec) is module.load_public(spec)


def test_another_dataset_can_be_public(data):
    tested = load_dataset(experiment(data).dataset)
    other = Component(
        "simulated", {"preset": "easy", "n_rois": 8, "n_sites": 2, "seed": 91}
    )
    assert resolve_public(other, tested)[0].sha256
    wrong = Component("simulated", {"n_rois": 9, "n_sites": 2})
    with pytest.raises(DataError, match=r"9 ROIs.* 8"):
        resolve_public(wrong, tested)


def test_public_people_can_be_left_out_by_name(data, tmp_path):
    """The tested dataset and the public people leave out whom they say, each for itself."""
    from fcforge.experiments.config import load_experiment

    path, names = data
    (tmp_path / "x.toml").write_text(
        f"""
[dataset]
name = "folder"
path = "{path}"
sites = {list(names[3:])!r}
[base_model]
leave_out = ["p0", "p1"]
[[learner]]
method = {{ name = "contributions", noise = "seeded" }}
model = {{ name = "linear", features = "log+diagonal" }}
"""
    )
    found = prepare(load_experiment(tmp_path / "x.toml")).experiment.base_model
    assert not {"p0", "p1"} & set(module.load_public(found).subject_id.tolist())


def test_a_seeds_network_is_pretrained_once(data, tmp_path, monkeypatch):
    seen = []
    real = lane_storage.pretrain
    monkeypatch.setattr(
        lane_storage,
        "pretrain",
        lambda model, view, seeds, *rest: (
            seen.append(list(seeds)) or real(model, view, seeds, *rest)
        ),
    )
    wanted = experiment(
        data, LearnerSpec(Component("finetune"), Component("linear")), seeds=(0, 1)
    )
    prepared = prepare(wanted)
    trainer = Trainer(prepared.cohort, open_store(prepared, tmp_path / "run"))
    firsts = [n for n in prepared.plan.nodes.values() if n.parent is None]
    lane = {n.spec.seed: trainer.lanes.first_lane(n.spec) for n in firsts}
    assert sorted(seen) == [[0], [1]]
    view = trainer.parts.loader.public_view(firsts[0].spec)
    model = trainer.parts.learner(firsts[0].spec).model
    for seed in (0, 1):
        (alone,) = real(model, view, [seed], firsts[0].spec.training, "cpu")
        for k, v in alone.params.items():
            assert torch.equal(lane[seed].params[k], v)
    # a group of lanes pretrains its seeds side by side
    seen.clear()
    store = Store(tmp_path / "grouped")
    grouped = Trainer(prepared.cohort, store, group=8)
    grouped.run(firsts)
    assert seen == [[0, 1]]
    for node in firsts:
        for k, v in grouped.lanes.first_lane(node.spec).params.items():
            torch.testing.assert_close(v, lane[node.spec.seed].params[k])
    assert len(seen) == 1


def test_replayed_public_subjects_and_a_pull_change_rows_with_a_base_model_alone(
    data, tmp_path, monkeypatch
):
    pretrained = []
    real = lane_storage.pretrain

    def count(model, view, seeds, training, device):
        pretrained.append(training)
        return real(model, view, seeds, training, device)

    monkeypatch.setattr(lane_storage, "pretrain", count)
    plain = Component("finetune")
    rows = [
        LearnerSpec(plain, LOG, title="pretrained"),
        LearnerSpec(plain, LOG, title="replayed", training={"public_replay": 4}),
        LearnerSpec(plain, LOG, title="pulled", training={"public_pull": 50.0}),
        LearnerSpec(plain, LOG, title="alone", base_model=False),
        LearnerSpec(Component("analytic"), LOG, title="ridge"),
    ]
    found = {}
    for name, training in (("rows", {}), ("all", {"public_replay": 4})):
        settings = Training(epochs=2, batch_size=8, **training)
        wanted = experiment(data, *rows, training=settings, orders=1)
        runs = run(tmp_path / name, wanted)
        found[name] = {
            one.spec.learner.title: np.concatenate([*one.scores.values()], axis=1)
            for one in runs
        }
    assert len(pretrained) == 2  # one network per run folder
    assert not any(training.uses_public for training in pretrained)
    titles = ("pretrained", "replayed", "pulled")
    assert len({found["rows"][title].tobytes() for title in titles}) == 3
    # stated for all rows it reaches those that have public subjects and take gradient steps
    for title, same in (
        ("pretrained", "replayed"),
        ("alone", "alone"),
        ("ridge", "ridge"),
    ):
        np.testing.assert_array_equal(found["all"][title], found["rows"][same])


def test_public_files_that_changed_are_loaded_again_or_refused(data, tmp_path):
    """Public people are cached, by their path: once for an experiment, not for ever."""
    cohort = load_folder(data[0])
    path = tmp_path / "all.npz"
    stored, digests = [], []
    for scale in (1.0, 0.5, 0.25):
        fc = (1 - scale) * np.eye(8) + scale * cohort.fc
        write_people(path, replace(cohort, fc=fc.astype(np.float32)))
        if scale > 0.25:  # the third is written after the plan was made
            wanted = experiment((path, data[1]))
            stored.append(prepare(wanted).experiment.base_model)
            digests.append(stored[-1].sha256)
    assert len({*digests}) == 2
    fit_public(stored[1], ())  # those of the plan are in memory
    module._load.cache_clear()  # a worker that starts now reads the file
    with pytest.raises(DataError, match="other public subjects than this machine"):
        fit_public(stored[1], ())
    write_people(path, replace(cohort, fc=((np.eye(8) + cohort.fc) / 2).astype("f4")))
    fit_public(stored[1], ())  # what it had loaded are others
