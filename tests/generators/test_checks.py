"""What every generator asks of a site and of diagnoses, and where random numbers come from."""

import pytest
import torch
from simulated_site import simulate

from fcforge.errors import DataError
from fcforge.generators.base import check_site, check_y
from fcforge.generators.layers import device_rng
from fcforge.graphs import edges, from_edges
from fcforge.randomness import torch_rng
from fcforge.types import FCBatch


def test_counts_are_subjects_per_class() -> None:
    site = simulate(9)
    assert check_site(site, "x").tolist() == [5, 4]
    only = FCBatch(site.fc, torch.ones(9, dtype=torch.int64))
    assert check_site(only, "x").tolist() == [0, 9]


def test_a_site_is_refused_by_what_is_wrong_with_it() -> None:
    site = simulate(9)
    with pytest.raises(DataError, match=r"generator 'x': 3 training subjects are too few"):
        check_site(site.select(slice(0, 3)), "x")
    broken = site.fc.clone()
    broken[4, 0, 1] = torch.inf
    with pytest.raises(DataError, match=r"subjects \[4\] holds NaN or infinity"):
        check_site(FCBatch(broken, site.y), "x")
    z = from_edges(torch.atanh(edges(site.fc)) + 1.0)
    with pytest.raises(DataError, match=r"reaches .*not a correlation\. Give Pearson"):
        check_site(FCBatch(z, site.y), "x")
    with pytest.raises(DataError, match=r"reaches 1\.1, so.*confounds fitted on few.*\[start\]"):
        check_site(FCBatch(site.fc * 1.1, site.y), "x")
    with pytest.raises(DataError, match="diagnoses other than 0 and 1"):
        check_site(FCBatch(site.fc, 2 * site.y), "x")


def test_rounding_above_one_is_not_a_mistake() -> None:
    site = simulate(6)
    assert check_site(FCBatch(site.fc * (1 + 5e-4), site.y), "x").sum() == 6


@pytest.mark.parametrize("asked", [[2], [0, -1]])
def test_a_diagnosis_that_does_not_exist_is_refused(asked) -> None:
    """-1 would index the last class: a plausible wrong answer."""
    with pytest.raises(DataError, match="diagnoses other than 0 and 1"):
        check_y(torch.tensor(asked), torch.tensor([3, 3]), "x")


def test_a_diagnosis_the_site_did_not_have_is_refused() -> None:
    counts = torch.tensor([3, 0])
    assert check_y(torch.tensor([0.0, 0.0]), counts, "x").dtype == torch.int64
    with pytest.raises(DataError, match="diagnosis 1 was asked for but no training subject"):
        check_y(torch.tensor([0, 1]), counts, "x")


def test_a_generator_on_its_own_device_is_itself() -> None:
    rng = torch_rng(0)
    assert device_rng(rng, torch.device("cpu")) is rng
