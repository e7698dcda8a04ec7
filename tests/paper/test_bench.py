"""Every benchmark starts, and the plain FCM-VAE beside ours computes the same."""

import json
import subprocess
import sys
from pathlib import Path

import bench
import pytest
import torch
from lanes import fake_people
from plain_vae import PlainVAE, fit_plain

from fcforge.generators.fcm_vae import StableVAE

FOLDER = Path(bench.__file__).parent
TINY = """
--device cpu --seconds 0.02 --rois 16 --subjects 12 --past 1 --candidates 8
--people 40 --site 16 --vae-epochs 1 --lanes 1 2
"""
HEAVY = "pandas scipy sklearn nilearn pydantic safetensors matplotlib typer rich"


def test_make_bench_measures_every_part(monkeypatch, tmp_path, capsys):
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["bench.py", *TINY.split(), "--out", str(out)])
    threads = torch.get_num_threads()
    bench.main()
    torch.set_num_threads(threads)
    found = json.loads(out.read_text())
    programs = [row["program"] for row in found["steps"]]
    pytest.importorskip("torch_geometric")
    assert programs == [
        "plain PyG loop",
        "plain dense loop",
        "fcforge, 1 lane",
        "fcforge, 2 lanes",
        "authors' step in PyG",
        "plain dense loop",
        "fcforge, 1 lane",
        "fcforge, 2 lanes",
    ]
    assert all(row["steps/s"] > 0 for row in found["steps"])
    assert [row["program"] for row in found["vae"]] == ["plain nn.Module", "fcforge"]
    kinds = [row["by"] for row in found["scaling"]]
    assert kinds == ["ROIs", "subjects of a site", "past sites"]
    # without Avalanche the part says so and has no ratio
    assert "Avalanche is not installed here" in capsys.readouterr().out
    assert not any("x Avalanche" in row for row in found["avalanche"])


def test_a_peer_that_cannot_start_is_named_and_has_no_rows(monkeypatch, capsys):
    monkeypatch.setattr(bench, "second_site_rate", lambda *given: 5.0)
    args = bench.Namespace(
        device="cpu", seconds=0.1, rois=(16,), lanes=(1,), avalanche=sys.executable
    )
    rows = bench.measure_avalanche(args)
    said = capsys.readouterr().err
    assert "Avalanche failed and has no rows" in said
    assert "torchvision" in said  # the message of the process
    assert [row["program"] for row in rows] == ["fcforge, 1 lane"] * 2
    assert not any("x Avalanche" in row for row in rows)


def test_ratios_are_to_the_peers_rate(monkeypatch):
    monkeypatch.setattr(bench, "second_site_rate", lambda learner, n, args: 8.0 * n)
    monkeypatch.setattr(
        bench, "peer_rates", lambda args: {"version": "1", "ewc": 4.0, "er": 2.0}
    )
    args = bench.Namespace(device="cuda", rois=(16,), lanes=(1, 24), avalanche="python")
    ratios = [row["x Avalanche"] for row in bench.measure_avalanche(args)]
    assert ratios == [1.0, 2.0, 48.0, 1.0, 4.0, 96.0]


def test_a_bare_gpu_machine_can_run_it(tmp_path):
    """No package but torch and numpy (and what PyG needs) is imported."""
    code = f"""
import sys
from importlib.machinery import PathFinder
honest = PathFinder.find_spec
def bare(name, path=None, target=None):
    heavy = name.split(".")[0] in {HEAVY.split()!r}
    return None if heavy else honest(name, path, target)
PathFinder.find_spec = bare
sys.path.insert(0, {str(FOLDER)!r})
sys.argv = ["bench.py", *{TINY.split()!r}]
import bench
bench.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "past sites" in done.stdout


def test_every_benchmark_can_be_imported(tmp_path):
    names = {path.stem for path in FOLDER.glob("*.py")} - {"avalanche_peer"}
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        f"for name in {sorted(names)!r}: __import__(name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_the_plain_module_has_our_loss():
    vae = StableVAE(free_bits=0.2)
    rng = torch.Generator().manual_seed(1)
    _, site = vae.prepare_site(fake_people(12, 16))
    params = vae.initial_params(site, rng)
    noise = torch.randn(12, vae.d_z, generator=rng)
    plain = PlainVAE(vae, 16)
    plain.load_state_dict(params)
    batch = {**site, "weight": torch.ones(12)}
    ours, _ = vae.negative_elbo(params, batch, noise, {}, 0.7)
    torch.testing.assert_close(plain.loss(batch, noise, 0.7), ours)


def test_the_plain_loop_learns():
    vae = StableVAE(warmup=0)
    _, site = vae.prepare_site(fake_people(40, 16))
    noise = torch.zeros(40, vae.d_z)
    models = [fit_plain(vae, site, epochs) for epochs in (1, 9)]
    before, after = (model.loss(site, noise, 1.0).item() for model in models)
    assert after < before
