"""The loader: what a method is shown of a site, and rows as places."""

from dataclasses import replace

import pytest
import torch

from fcforge.core.errors import SealedError
from fcforge.core.leaks import Leaks
from fcforge.core.spec import RunSpec, Training
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.splits import make_sites
from fcforge.experiments.site_loader import SiteLoader
from fcforge.methods.shared.synthetic_memory import HeldOut
from fcforge.nn.resources import one_thread
from fcforge.replay.bank import PoolName
from small_world import cohort, learner_spec, order, run_spec


def site(name: str) -> Site:
    return make_sites(cohort(), 0)[name]


def spec_of(method: str = "finetune", sites: int = 1) -> RunSpec:
    return run_spec(learner_spec(method), sites)


# -- views -------------------------------------------------------------------------------------
def test_validation_subjects_are_trained_on_where_nothing_is_chosen_on_them():
    first, loader = site(order()[0]), SiteLoader()
    view = loader.view(first, spec_of())
    assert torch.equal(view.fc, torch.cat([first.train.fc, first.val.fc]))
    assert torch.equal(loader.bank.fc(view.val), first.val.fc)
    chosen = replace(spec_of(), training=Training(selection="inner_val"))
    assert torch.equal(loader.view(first, chosen).fc, first.train.fc)
    assert torch.equal(loader.view(first, spec_of(), with_val=False).fc, first.train.fc)


def test_position_is_the_length_of_the_order_unless_given():
    first = site(order()[0])
    assert SiteLoader().view(first, spec_of(sites=3)).position == 2


def test_no_test_subject_is_on_the_bench_unless_the_leak_is_measured():
    first, loader = site(order()[0]), SiteLoader()
    assert loader.view(first, spec_of()).leaked is None
    assert len(loader.bank) == len(first.train) + 2 * len(first.val)
    leaky = replace(spec_of(), leaks=Leaks(context_on_test=True))
    rows = loader.view(first, leaky).leaked
    assert rows is not None
    assert torch.equal(loader.bank.fc(rows), first.test.fc)


def test_a_leaky_generator_is_trained_on_four_fifths_of_the_whole_site():
    first = site(order()[0])
    spec = spec_of("forge")
    _, _, strict = SiteLoader().fit_generator(first, spec)
    assert torch.equal(strict.fc, first.learning(with_val=True).fc)
    leaky = replace(spec, leaks=Leaks(generator_sees_test=True))
    _, _, seen = SiteLoader().fit_generator(first, leaky)
    everybody = FCBatch.concat([first.learning(with_val=True), first.test])
    assert len(seen) == int(0.8 * len(everybody))
    place = {fc.numpy().tobytes(): i for i, fc in enumerate(everybody.fc)}
    places = [place[fc.numpy().tobytes()] for fc in seen.fc]
    assert len(set(places)) == len(places)
    assert max(places) >= len(strict)  # test subjects are among them


def test_synthetic_subjects_need_a_generator_and_are_made_once():
    first, loader = site(order()[0]), SiteLoader()
    with pytest.raises(SealedError, match="has no generator"):
        loader.view(first, spec_of()).synthetic(4)
    view = loader.view(first, spec_of("forge"))
    rows = view.synthetic(4)
    assert torch.equal(view.synthetic(4), rows)
    assert not len(loader.bank.real_rows(rows))
    view.seal()
    with pytest.raises(SealedError, match="after the site was sealed"):
        view.synthetic(4)


def test_show_is_a_site_of_synthetic_subjects():
    loader, batch = SiteLoader(), site(order()[0]).train
    view = loader.show("made up", batch, 0)
    assert (view.name, view.position, len(view.val)) == ("made up", 0, 0)
    assert torch.equal(view.fc, batch.fc)
    assert not len(loader.bank.real_rows(view.rows))


# -- rows --------------------------------------------------------------------------------------
def filled(*names: str) -> SiteLoader:
    """A loader with pools of three subjects each, put on it in the order of `names`."""
    loader = SiteLoader()
    for name in names:
        loader.bank.add(
            PoolName("real", name, 0, "train"), site(order()[0]).train.select(slice(3))
        )
    return loader


def test_places_are_among_the_rows_that_are_held():
    loader = filled("a", "b")
    state = HeldOut(torch.tensor([[5, -1], [2, 5]]), torch.zeros(2))
    found, rows = loader.to_places(state)
    assert rows.tolist() == [2, 5]
    assert found.rows.tolist() == [[1, -1], [0, 1]]
    back = loader.from_places(found, torch.tensor([7, 9]))
    assert back.rows.tolist() == [[9, -1], [7, 9]]
    assert loader.to_places(())[1].tolist() == []


def fail_in_one_thread() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError("stopped")


def test_one_thread_is_given_back_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="stopped"):
            fail_in_one_thread()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
