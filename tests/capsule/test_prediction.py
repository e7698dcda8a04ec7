"""Prediction: probabilities, calibration, silence on strange scans, every kind of file."""

import csv
import io

import numpy as np
import pytest
import torch
from capsule_chains import SITES, chain, cohort, learned

from fcforge.capsule import open_capsule, predict
from fcforge.capsule.judging import Reference, limits, strangeness
from fcforge.capsule.prediction import Predictor, as_csv, judge
from fcforge.errors import DataError
from fcforge.sites import split_site


def model(*sites: str) -> Predictor:
    return Predictor(
        "id", sites, (0, 1), 1.0, 2, lambda names: "", lambda fc, covariates: None
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return chain("analytic", SITES[:2], tmp_path_factory.mktemp("p"), held_out=48)[-1]


@pytest.fixture(scope="module")
def capsule(path):
    return open_capsule(path)


def test_temperature_divides_logits(capsule) -> None:
    site = split_site(cohort(), SITES[0], 0)
    found = judge(capsule, site.test.fc.numpy())
    p, here = found.probability, np.isfinite(found.odds)
    assert here.sum() > 10
    weight, bias = (
        capsule.lane.params["head.0.weight"],
        capsule.lane.params["head.0.bias"],
    )
    z = torch.atanh(site.test.fc.clamp(-0.9999, 0.9999)) / 0.2
    rows, cols = torch.triu_indices(10, 10, 1)
    u = z[:, rows, cols] @ weight.T + bias
    expected = torch.softmax(u / capsule.temperature, -1)[:, 1]
    assert np.allclose(p[here], expected.numpy()[here], atol=1e-5)
    per_site = [e["calibration"]["temperature"] for e in capsule.entries]
    assert capsule.temperature == pytest.approx(np.sqrt(per_site[0] * per_site[1]))


def test_silent_on_strange_scans_not_on_new_patients(capsule) -> None:
    ordinary = np.concatenate(
        [split_site(cohort(), s, 0).test.fc.numpy() for s in SITES[:2]]
    )
    odd = judge(capsule, ordinary).strangeness
    assert (odd > 1).mean() <= 0.1  # subjects nobody trained on
    rng = np.random.default_rng(0)
    noise = np.stack([np.corrcoef(rng.standard_normal((10, 15))) for _ in range(20)])
    odd = judge(capsule, noise).strangeness
    assert (odd > 1).all()
    same = np.full((1, 10, 10), 0.95, dtype=np.float32)
    same[:, range(10), range(10)] = 1
    odd = judge(capsule, np.concatenate([same, np.eye(10)[None]])).strangeness
    assert (odd > 1).all()
    other_order = rng.permutation(10)  # an atlas whose ROIs come in another order
    odd = judge(capsule, ordinary[:, other_order][:, :, other_order]).strangeness
    assert (odd > 1).mean() >= 0.8


def test_strangeness_is_of_the_nearest_site() -> None:
    z = torch.eye(2).repeat(5, 1, 1)
    z[:, 0, 1] = z[:, 1, 0] = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    far = z.clone()
    far[:, 0, 1] = far[:, 1, 0] = torch.tensor([0.7, 0.75, 0.8, 0.85, 0.9])
    sites = [
        (n, Reference.of(x), limits(Reference.of(x), x))
        for n, x in (("A", z), ("B", far))
    ]
    alone, _ = strangeness(sites[:1], far)
    both, why = strangeness(sites, far)
    assert (alone > both).all()
    assert torch.equal(strangeness(sites[1:], far)[0], both)
    assert all(w.startswith("nearest site B, ") for w in why)


def test_files_of_every_kind(capsule, tmp_path) -> None:
    site = split_site(cohort(), SITES[0], 0)
    fc = site.test.fc.numpy()
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", fc[0])
    np.savetxt(tmp_path / "b.csv", fc[1], delimiter=",")
    np.savetxt(tmp_path / "c.1D", rng.standard_normal((50, 10)))
    (tmp_path / "d.npy").write_bytes(b"not numpy")
    np.save(tmp_path / "e.npy", fc[0][:5, :5])
    np.save(tmp_path / "f.npy", np.where(np.eye(10) > 0, 1, np.nan))
    rows = {r.subject: r for r in predict(capsule, tmp_path)}
    assert sorted(rows) == ["a.npy", "b.csv", "c.1D", "d.npy", "e.npy", "f.npy"]
    p = judge(capsule, fc[:2]).probability
    assert rows["a.npy"].probability == pytest.approx(p[0], abs=1e-4)
    assert rows["b.csv"].probability == pytest.approx(p[1], abs=1e-4)
    assert rows["c.1D"].status == "unlike anything seen"
    assert rows["c.1D"].probability is None
    assert "nearest site" in rows["c.1D"].note
    for name in ("d.npy", "e.npy", "f.npy"):
        assert rows[name].status == "cannot be used"
        assert rows[name].note
    one = predict(capsule, tmp_path / "a.npy")
    assert [r.probability for r in one] == [rows["a.npy"].probability]
    np.savez(tmp_path / "g.npz", fc=fc, subject_id=np.array(site.subject_ids["test"]))
    many = predict(capsule, [tmp_path / "g.npz"])
    assert [r.subject for r in many] == list(site.subject_ids["test"])
    with pytest.raises(DataError, match="no such"):
        predict(capsule, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no scan"):
        predict(capsule, tmp_path / "empty")


def test_csv_cannot_become_a_formula() -> None:
    from fcforge.capsule.prediction import Prediction

    text = as_csv([Prediction("=cmd|x.npy", "ok", 0.5, 0.3)], model("A", "B"))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["subject"] == "'=cmd|x.npy"
    assert rows[0]["sites_learned"] == "A B"


def test_without_held_out_sets_it_cannot_abstain(tmp_path) -> None:
    capsule = learned("analytic", SITES[:1], tmp_path, held_out=0, calibrate="none")
    assert len(capsule.held_out) == 0
    assert capsule.temperature == 1.0
    found = judge(capsule, np.eye(10)[None])
    p, odd = found.probability, found.strangeness
    assert np.isfinite(p).all()
    assert np.isnan(odd).all()


@pytest.mark.parametrize("calibrate", ["synthetic", "inner_val"])
def test_calibration_sources(tmp_path, calibrate) -> None:
    capsule = learned("analytic", SITES[:1], tmp_path, calibrate=calibrate)
    assert capsule.entries[0]["calibration"]["how"] == calibrate
    assert 0.2 <= capsule.temperature <= 20


def test_folders_of_fcforge_fc_are_read_through_their_table(capsule, tmp_path) -> None:
    fc = cohort().fc[:2]
    rows = ["participant_id\tsite\tdiagnosis\tfile"]
    for name, matrix in zip(("b", "a"), fc, strict=True):
        func = tmp_path / f"sub-{name}" / "func"
        func.mkdir(parents=True)
        np.savetxt(func / f"sub-{name}_relmat.tsv", matrix, delimiter="\t")
        np.savetxt(func / f"sub-{name}_coverage.tsv", matrix[:1], delimiter="\t")
        rows.append(f"sub-{name}\tn/a\tn/a\tsub-{name}/func/sub-{name}_relmat.tsv")
    rows.append("sub-failed\tn/a\tn/a\tn/a")
    table = tmp_path / "participants.tsv"
    table.write_text("\n".join(rows) + "\n")
    found = predict(capsule, tmp_path)
    assert [(row.subject, row.status) for row in found] == [
        ("sub-b", "ok"),
        ("sub-a", "ok"),
    ]
    table.unlink()  # without a table: every file below, under its path
    assert len(predict(capsule, tmp_path)) == 4
    assert predict(capsule, tmp_path)[1].subject == "sub-a/func/sub-a_relmat.tsv"


def test_words_do_not_drive_the_terminal() -> None:
    from fcforge.text import printable

    assert printable("a\x1b[2Jb\x07\u202ec") == "a?[2Jb??c"
    assert printable("Zürich – Köln") == "Zürich – Köln"


def test_no_cell_of_the_csv_is_run_or_hides_anything() -> None:
    from fcforge.capsule.prediction import Prediction

    rows = [Prediction("=1+1", "cannot be used", note="+cmd\x1b[2J\u202e")]
    line = as_csv(rows, model("@site", "b")).splitlines()[1]
    assert line == "'=1+1,cannot be used,,,'+cmd?[2J?,'@site b"
