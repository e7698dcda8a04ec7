"""Every generator, by a contract it did not write; what it asks of a site and of diagnoses."""

from functools import cache

import numpy as np
import pytest
import torch
from simulated_site import simulate

from fcforge.base_model.features import log_features
from fcforge.base_model.model import fit_base_model
from fcforge.base_model.public_subjects import PublicSubjects
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators import GENERATORS, make_generator
from fcforge.generators.base import descend, device_rng, in_shares, trainable
from fcforge.generators.edge_gauss import EdgeGauss
from fcforge.graphs import edges, from_edges

PLAIN = EdgeGauss()
# As small as each can be; quality is tested elsewhere.
QUICK: dict[str, dict] = {
    "contributed": {"noise": "seeded"},
    "fcm_vae": {"epochs": 2, "d_model": 16, "d_ff": 16, "d_z": 8},
    "regate": {"epochs": 2, "d_z": 8},
    "brainnetgan": {"steps": 3, "width": 4},
    "gr_spd_gan": {"steps": 3, "width": 16},
}


def quick(name: str):
    return make_generator(Component(name, QUICK.get(name, {})), public_subjects())


@cache
def public_subjects() -> PublicSubjects:
    people = simulate(40, seed=77)
    fc = people.fc.numpy()
    y = people.y.numpy()
    base_model = fit_base_model(log_features(fc), y)
    return PublicSubjects(fc, y, np.full(len(y), "P"), base_model)


@pytest.fixture(params=sorted(GENERATORS))
def generator(request):
    return quick(request.param)


@pytest.mark.rounding
def test_sample_is_symmetric_finite_unit_diagonal(generator, small_site) -> None:
    state = generator.fit(small_site, torch_rng(0))
    y = torch.tensor([0, 1, 1, 0, 1])
    out = generator.sample(state, y, torch_rng(1))
    assert out.fc.shape == (5, 12, 12)
    assert out.fc.dtype == torch.float32
    assert torch.equal(out.y, y)
    assert torch.isfinite(out.fc).all()
    assert torch.equal(out.fc, out.fc.mT)
    assert torch.equal(out.fc.diagonal(dim1=-2, dim2=-1), torch.ones(5, 12))
    assert out.fc.abs().max() <= 1.0
    assert not torch.equal(out.fc[0], out.fc[3]) or generator.name == "bootstrap"


def test_a_state_is_typed_repeatable_and_can_be_stored(generator, small_site) -> None:
    a = generator.fit(small_site, torch_rng(0, "x"))
    b = generator.fit(small_site, torch_rng(0, "x"))
    assert isinstance(a.model, generator.state_type)
    named, again = a.named(), b.named()
    assert all(isinstance(v, torch.Tensor) for v in named.values())
    assert not any(v.requires_grad for v in named.values())
    assert named.keys() == again.keys()
    assert all(torch.equal(named[k], again[k]) for k in named)
    assert a.n_bytes == sum(v.nbytes for v in named.values())
    stored = generator.read_state(named)
    y = torch.tensor([0, 1])
    s, t = (generator.sample(a, y, torch_rng(5)).fc for _ in range(2))
    assert torch.equal(s, t)
    assert torch.equal(generator.sample(stored, y, torch_rng(5)).fc, s)
    other = generator.sample(a, y, torch_rng(6)).fc
    assert not torch.equal(s, other)


def test_empty_request_gives_an_empty_batch(generator, small_site) -> None:
    state = generator.fit(small_site, torch_rng(0))
    out = generator.sample(state, torch.zeros(0, dtype=torch.int64), torch_rng(1))
    assert out.fc.shape == (0, 12, 12)


def test_global_rng_is_left_alone(generator, small_site) -> None:
    before = torch.get_rng_state()
    generator.sample(
        generator.fit(small_site, torch_rng(0)), torch.tensor([0]), torch_rng(1)
    )
    assert torch.equal(before, torch.get_rng_state())


def test_degenerate_sites_never_give_nan(generator) -> None:
    small = simulate(12, seed=4)
    flat = small.fc.clone()
    flat[:, 3, :] = 0.0
    flat[:, :, 3] = 0.0
    flat[:, 3, 3] = 1.0
    for batch in (
        small,
        FCBatch(flat, small.y),
        FCBatch(small.fc, torch.zeros(12).long()),
    ):
        state = generator.fit(batch, torch_rng(0))
        out = generator.sample(state, batch.y, torch_rng(1))
        assert torch.isfinite(out.fc).all()
    if generator.needs_public:  # the start knows both classes
        return
    with pytest.raises(DataError, match="samples of diagnosis 1 are requested"):
        generator.sample(state, torch.tensor([1]), torch_rng(1))


def test_bad_sites_are_refused(generator, small_site) -> None:
    broken = small_site.fc.clone()
    broken[2, 0, 1] = float("nan")
    with pytest.raises(DataError, match=r"nan.* not a correlation"):
        generator.fit(FCBatch(broken, small_site.y), torch_rng(0))
    with pytest.raises(DataError, match="not a correlation"):
        generator.fit(FCBatch(2 * small_site.fc, small_site.y), torch_rng(0))
    with pytest.raises(DataError, match="too few"):
        generator.fit(small_site.select(slice(0, 0)), torch_rng(0))


def test_unknown_names_say_the_nearest() -> None:
    with pytest.raises(ConfigError, match="corr_gauss"):
        make_generator(Component("cor_gauss"))
    with pytest.raises(ConfigError, match="Did you mean 'shrink'"):
        make_generator(Component("corr_gauss", {"shrnk": 0.1}))


@pytest.mark.parametrize(
    ("share", "n", "wanted"),
    [
        (0.25, 8, [0] * 6 + [1] * 2),
        (0.0, 3, [0, 0, 1]),
        (1.0, 3, [0, 1, 1]),
        (0.5, 2, [0, 1]),
    ],
)
def test_both_classes_are_always_there(share, n, wanted):
    assert in_shares(share, n).tolist() == wanted


@pytest.mark.parametrize(
    ("counts", "n", "wanted"),
    [
        ((60, 30, 30), 4, (2, 1, 1)),
        # The last class has one place and keeps it; the rare one takes one of the first.
        ((184, 1, 15), 10, (8, 1, 1)),
        ((97, 1, 1, 1), 4, (1, 1, 1, 1)),
        ((70, 1, 1, 28), 4, (1, 1, 1, 1)),
        ((5, 0, 5), 4, (2, 0, 2)),
    ],
)
def test_every_class_of_the_site_is_among_the_labels(counts, n, wanted) -> None:
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = EdgeGauss().diagnoses(None, y, n)
    assert torch.equal(labels, labels.sort().values)
    assert torch.bincount(labels, minlength=len(counts)).tolist() == list(wanted)


def test_counts_are_subjects_per_class() -> None:
    site = simulate(9)
    assert PLAIN.check_site(site).tolist() == [5, 4]
    only = FCBatch(site.fc, torch.ones(9, dtype=torch.int64))
    assert PLAIN.check_site(only).tolist() == [0, 9]


def test_a_site_is_refused_by_what_is_wrong_with_it() -> None:
    site = simulate(9)
    with pytest.raises(DataError, match="'edge_gauss': 3 training"):
        PLAIN.check_site(site.select(slice(0, 3)))
    z = from_edges(torch.atanh(edges(site.fc)) + 1.0)
    with pytest.raises(DataError, match="Give Pearson"):
        PLAIN.check_site(FCBatch(z, site.y))
    with pytest.raises(DataError, match=r"1\.1.*\[base_model\]"):
        PLAIN.check_site(FCBatch(site.fc * 1.1, site.y))


def test_rounding_above_one_is_not_a_mistake() -> None:
    site = simulate(6)
    assert PLAIN.check_site(FCBatch(site.fc * (1 + 5e-4), site.y)).sum() == 6


@pytest.mark.parametrize("asked", [[2], [0, -1]])
def test_a_diagnosis_that_does_not_exist_is_refused(asked) -> None:
    """-1 would index the last class: a plausible wrong answer."""
    with pytest.raises(DataError, match=f"diagnosis {asked[-1]}"):
        PLAIN.check_y(torch.tensor(asked), torch.tensor([3, 3]))


def test_a_diagnosis_the_site_did_not_have_is_refused() -> None:
    counts = torch.tensor([3, 0])
    assert PLAIN.check_y(torch.tensor([0.0, 0.0]), counts).dtype == torch.int64
    with pytest.raises(DataError, match="diagnosis 1"):
        PLAIN.check_y(torch.tensor([0, 1]), counts)


# -- draws and steps ------------------------------------------------------------------------------
def test_a_step_goes_down_the_gradient() -> None:
    p = trainable({"w": torch.tensor([3.0])}, torch.device("cpu"))
    optimiser = torch.optim.Adam(p.values(), lr=0.5)
    for _ in range(3):
        descend(optimiser, p["w"].square().sum())
    assert p["w"].item() == pytest.approx(
        1.5, abs=0.05
    )  # Adam's steps have the size of the rate


def test_a_generator_on_its_own_device_is_itself() -> None:
    rng = torch_rng(0)
    assert device_rng(rng, torch.device("cpu")) is rng
