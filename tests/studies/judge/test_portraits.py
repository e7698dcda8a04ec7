"""What the figures of a judgement show, and its file."""

import numpy as np
import torch

from fcforge.graphs import edges, from_edges
from fcforge.studies.judge.fidelity import spectrum
from fcforge.studies.judge.portraits import portrait, read_portraits, write_portraits
from fcforge.types import FCBatch


def test_the_typical_subject_is_the_nearest_to_its_class_mean() -> None:
    # controls at 0.0, 0.3, 0.4 (mean 0.233), patients at 0.5, 0.8
    fc = from_edges(torch.tensor([[0.0], [0.3], [0.4], [0.5], [0.8]]))
    found = portrait(FCBatch(fc, torch.tensor([0, 0, 0, 1, 1])))
    assert found.control[0, 1] == np.float32(0.3)
    assert found.patient[0, 1] in (np.float32(0.5), np.float32(0.8))
    np.testing.assert_allclose(found.edge_mean, [0.4], rtol=1e-6)
    # eigenvalues 1 + r and 1 - r, largest first
    np.testing.assert_allclose(found.spectrum, [1.4, 0.6], rtol=1e-6)


def test_a_missing_class_is_shown_by_anybody(real) -> None:
    train, _ = real
    found = portrait(FCBatch(train.fc, torch.zeros_like(train.y)))
    assert any(np.array_equal(found.patient, fc) for fc in train.fc.numpy())


def test_portraits_come_back_in_order(real, tmp_path) -> None:
    train, test = real
    made = {"real": portrait(train), "a b|c"[:3]: portrait(test), "z": portrait(train)}
    made["real"] = made["real"]._replace(systems=np.array(["visual", "motor"]))
    write_portraits(tmp_path / "p.npz", made)
    back = read_portraits(tmp_path / "p.npz")
    assert list(back) == list(made)
    for name, one in made.items():
        for a, b in zip(one, back[name], strict=True):
            if a.dtype.kind != "U":
                np.testing.assert_allclose(a, b, rtol=1e-6)
    assert back["z"].systems.tolist() == []
    assert back["real"].systems.tolist() == ["visual", "motor"]
    assert back["real"].edge_mean.shape == (edges(train.fc).shape[1],)
    np.testing.assert_allclose(back["real"].spectrum, spectrum(train.fc), rtol=1e-5)
