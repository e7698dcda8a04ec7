"""Bootstrap draws members of the right class, evenly, from a copy of the site."""

import torch

from fcforge.core.randomness import torch_rng
from fcforge.generators.bootstrap import Bootstrap


def test_bootstrap_returns_members_of_the_right_class(small_site) -> None:
    gen = Bootstrap()
    labels = torch.tensor([0, 1] * 10)
    out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
    assert gen.releases == "real subjects"
    for fc, label in zip(out.fc, labels, strict=True):
        match = (small_site.fc == fc).all(-1).all(-1).nonzero().flatten()
        assert match.numel() == 1
        assert small_site.y[match[0]] == label


def test_a_class_is_drawn_evenly(small_site) -> None:
    gen = Bootstrap()
    state = gen.fit(small_site, torch_rng(0))
    out = gen.sample(state, torch.ones(4000, dtype=torch.int64), torch_rng(1))
    patients = small_site.fc[small_site.y == 1]
    share = [float((out.fc == fc).all(-1).all(-1).float().mean()) for fc in patients]
    assert min(share) > 0.5 / len(patients)
    assert max(share) < 1.5 / len(patients)


def test_two_subjects_are_enough(small_site) -> None:
    pair = small_site.select(slice(0, 2))
    out = Bootstrap().sample(Bootstrap().fit(pair, torch_rng(0)), pair.y, torch_rng(1))
    assert torch.equal(out.fc, pair.fc)


def test_the_state_is_a_copy(small_site) -> None:
    state = Bootstrap().fit(small_site, torch_rng(0))
    state.model.fc.zero_()
    assert small_site.fc.abs().sum() > 0
