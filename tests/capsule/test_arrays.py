"""Nothing hides in a state: what a method does not declare is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from capsule_chains import SITES, chain, cohort

from fcforge.capsule import open_capsule, seal, verify
from fcforge.errors import CapsuleError
from fcforge.graphs import edges


def forged(name: str, folder: Path, **changes: object) -> Path:
    """A capsule sealed anew with other arrays in its state (None takes one out)."""
    capsule = open_capsule(chain(name, SITES[:1], folder)[-1])
    state = {**capsule.lane.state, **changes}
    kept = {key: value for key, value in state.items() if value is not None}
    capsule = replace(capsule, lane=capsule.lane._replace(state=kept), id="")
    seal(capsule, folder / "forged.capsule", allow_real_subjects=True)
    return folder / "forged.capsule"


def scans(n: int = 12) -> torch.Tensor:
    return edges(torch.from_numpy(cohort().fc[:n]))


def refusal(path: Path) -> str:
    with pytest.raises(CapsuleError) as caught:
        open_capsule(path)
    last = verify(path)[-1]
    assert not last.ok
    assert last.name == "network"
    return str(caught.value)


@pytest.mark.parametrize("name", ["finetune", "ewc", "analytic", "forge"])
def test_scans_under_a_name_of_their_own_are_refused(name, tmp_path):
    said = refusal(forged(name, tmp_path, extra=scans()))
    assert "array 'state/extra' is not part of this method's state" in said
    assert "Nothing of it was used" in said


def test_scans_instead_of_statistics_are_refused(tmp_path):
    """172 rows [1, scan, label] are no root of a matrix of moments."""
    rows = scans().double()
    raw = torch.cat(
        [torch.ones(len(rows), 1), rows, torch.ones(len(rows), 1)], 1
    ).double()
    assert "'state/root' is not triangular" in refusal(
        forged("analytic", tmp_path, root=raw)
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda good: torch.cat([good, good]), "has shape"),
        (lambda good: good.double(), "is of type torch.float64"),
        (lambda good: torch.full_like(good, torch.nan), "holds NaN"),
        (lambda good: None, "is missing"),
    ],
)
def test_an_array_of_another_shape_or_type_is_refused(change, says, tmp_path):
    key = "importance/head.0.weight"
    good = open_capsule(chain("ewc", SITES[:1], tmp_path / "good")[0]).lane.state[key]
    assert says in refusal(forged("ewc", tmp_path, **{key: change(good)}))


def test_labels_and_sites_of_a_memory_stay_in_their_bounds(tmp_path):
    capsule = open_capsule(chain("forge", SITES[:1], tmp_path)[0])
    site = torch.full_like(capsule.lane.state["memory.site"], 7)
    (tmp_path / "x").mkdir()
    said = refusal(forged("forge", tmp_path / "x", **{"memory.site": site}))
    assert "'state/memory.site' has numbers outside -1 to 0" in said
