"""Generators on arrays: one interface, numbers of the engine, storage, and refusals with advice."""

import inspect

import numpy as np
import pytest
import torch
from simulated_site import simulate

import fcforge
from fcforge import FCMVAE, FCGenerator, ForgeClassifier
from fcforge.core.errors import ConfigError, DataError, FCForgeError, StoreError
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators import GENERATORS
from fcforge.generators.fcm_vae import PaperVAE, StableVAE

QUICK = {
    "fcm_vae": {"epochs": 2, "d_model": 8, "d_ff": 8, "d_z": 4, "k_pe": 3},
    "regate": {"epochs": 2, "hidden": 4},
    "brainnetgan": {"steps": 2},
    "gr_spd_gan": {"steps": 2, "width": 8},
}
VAE = {k: v for k, v in QUICK["fcm_vae"].items() if k != "epochs"}
NAMES = [name for name, cls in GENERATORS.items() if not cls.needs_public]


@pytest.fixture(scope="module")
def site():
    batch = simulate(24, rois=8, effect=1.0)
    return batch.fc.numpy(), np.where(batch.y.numpy() == 1, "patient", "control")


@pytest.mark.parametrize("name", NAMES)
def test_every_generator_has_the_same_interface(name, site, tmp_path) -> None:
    fc, y = site
    generator = FCGenerator(name, random_state=3, **QUICK.get(name, {})).fit(fc, y)
    assert generator.classes_.tolist() == ["control", "patient"]
    assert generator.n_rois_ == 8
    wanted = ["patient", "control", "patient"]
    first, second = generator.sample(wanted), generator.sample(wanted)
    assert first.shape == (3, 8, 8)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, first.transpose(0, 2, 1))
    assert not np.array_equal(first, second)
    generator.save(tmp_path / "a.safetensors")
    again = FCGenerator.load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(again.sample(wanted), first)
    assert generator.sample([]).shape == (0, 8, 8)
    fixed = [generator.sample(wanted, random_state=5) for _ in range(2)]
    np.testing.assert_array_equal(*fixed)


def test_numbers_are_those_of_the_engine(site) -> None:
    fc, y = site
    vae = FCMVAE(random_state=7, epochs=2, **VAE).fit(fc, y)
    engine = StableVAE(epochs=2, **VAE)
    codes = (y == "patient").astype(np.int64)
    state = engine.fit(FCBatch.from_numpy(fc, codes), torch_rng(7, "fit"))
    mu, _ = engine.encode(state.model.network, engine.prepare(torch.from_numpy(fc)))
    np.testing.assert_allclose(vae.encode(fc), mu.numpy(), atol=1e-6)
    for i, term in enumerate(("reconstruction", "label", "kl")):
        np.testing.assert_array_equal(vae.history_[term], state.model.history[:, i])


@pytest.mark.parametrize("variant", ["stable", "paper", "authors"])
def test_the_vae_reconstructs_better_than_the_mean_subject(variant, site) -> None:
    fc, y = site
    vae = FCMVAE(variant, epochs=60, lr=1e-2, dropout=0.0, **VAE).fit(fc, y)
    made = vae.reconstruct(fc)
    assert made.shape == fc.shape
    np.testing.assert_allclose(np.diagonal(made, axis1=1, axis2=2), 1.0, atol=1e-6)
    first, last = vae.history_["reconstruction"][[0, -1]]
    assert last < first
    if variant == "stable":
        assert ((made - fc) ** 2).mean() < ((fc.mean(0) - fc) ** 2).mean()


def test_a_vae_survives_being_saved(site, tmp_path) -> None:
    fc, y = site
    vae = FCMVAE("paper", epochs=2, **VAE).fit(fc, y)
    vae.save(tmp_path / "vae.safetensors")
    again = FCMVAE.load(tmp_path / "vae.safetensors")
    assert isinstance(again.generator, PaperVAE)
    np.testing.assert_array_equal(again.encode(fc), vae.encode(fc))
    np.testing.assert_array_equal(again.history_["kl"], vae.history_["kl"])


def test_help_shows_the_settings() -> None:
    shown = inspect.signature(FCMVAE).parameters
    assert shown["variant"].default == "stable"
    assert shown["d_model"].default == 48
    assert {"FCMVAE", "FCGenerator"} <= set(fcforge.__all__)
    assert (
        repr(FCMVAE("paper", d_z=4)) == "FCMVAE(variant='paper', d_z=4, random_state=0)"
    )


def test_progress_is_printed_when_wanted(site, capsys) -> None:
    fc, y = site
    FCMVAE(epochs=3, verbose=True, **VAE).fit(fc, y)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("fcm_vae: 3 of 3, reconstruction ")
    FCMVAE(epochs=3, **VAE).fit(fc, y)
    assert not capsys.readouterr().err


def broken(fc, y, fault):
    fc, y = fc.copy(), y.copy()
    if fault == "nan":
        fc[[2, 5], 0, 1] = np.nan
    elif fault == "asymmetric":
        fc[4, 0, 1] += 0.2
    elif fault == "fisher":
        fc[3, 0, 1] = fc[3, 1, 0] = 1.4
    elif fault == "lengths":
        y = y[:-1]
    elif fault == "one class":
        y[:] = "control"
    elif fault == "no diagonal":
        fc[1] -= np.eye(fc.shape[-1])
    elif fault == "no label":
        y = np.where(np.arange(len(y)) == 7, np.nan, np.arange(len(y)) % 2)
    elif fault == "nobody":
        fc, y = fc[:0], y[:0]
    elif fault == "vectors":
        fc = fc[:, 0]
    elif fault == "one":
        fc = fc[0]
    return fc, y


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", r"fc: subject 2 \(and 1 more\) has values that are not finite"),
        ("asymmetric", "subject 4 has a matrix that is not symmetric"),
        ("fisher", r"subject 3 has values beyond 1.*np\.tanh"),
        ("lengths", "fc has 24 subjects, y has shape"),
        ("one class", "all 24 subjects have the diagnosis 'control'"),
        ("no diagonal", "subject 1 has a diagonal that is not 1"),
        ("no label", r"y\[7\] is nan"),
        ("nobody", "no subjects"),
        (
            "vectors",
            r"fc has shape \(24, 8\): one row of numbers.*vec_to_sym_matrix\(rows, ",
        ),
        ("one", r"fc has shape \(8, 8\): one matrix.*fc\[None\]"),
    ],
)
def test_wrong_input_is_refused_with_advice(site, fault, words) -> None:
    with pytest.raises(DataError, match=words) as error:
        FCMVAE(epochs=1, **VAE).fit(*broken(*site, fault))
    assert error.value.do


def test_other_misuse_is_refused(site, tmp_path) -> None:
    fc, y = site
    with pytest.raises(FCForgeError, match="not fitted"):
        FCMVAE().sample([0])
    generator = FCGenerator("bootstrap").fit(fc, y)
    with pytest.raises(DataError, match="'autism' was not in the training data"):
        generator.sample(["control", "autism"])
    with pytest.raises(DataError, match="y has 3 classes"):
        FCMVAE(epochs=1, **VAE).fit(fc, np.arange(24) % 3)
    vae = FCMVAE(epochs=1, **VAE).fit(fc, y)
    with pytest.raises(DataError, match="6 ROIs, the generator was fitted on 8"):
        vae.encode(fc[:, :6, :6])
    vae.save(tmp_path / "vae.safetensors")
    whole = (tmp_path / "vae.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="damaged"):
        FCMVAE.load(tmp_path / "cut.safetensors")
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(StoreError, match="not a generator saved by fcforge"):
        FCMVAE.load(tmp_path / "foreign.safetensors")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: "nan"}, r"y\[0\] is 'nan'"),
        ({3: ""}, r"y\[3\] is ''"),
        ({2: "Patient"}, "class holds 'patient' and 'Patient'"),
        ({5: "patient\u200b"}, r"'patient' and 'patient\\u200b'"),
        ({1: 1}, "y holds numbers and texts|y holds texts and numbers"),
        ({k: 0.37 * k for k in range(24)}, r"y\[1\] is 0\.37.* no class|a measurement"),
    ],
)
def test_labels_are_refused_as_by_the_classifier(site, change, words) -> None:
    fc, y = site
    labels = y.astype(object).tolist()
    for place, label in change.items():
        labels[place] = label
    for generator in (FCGenerator("bootstrap"), FCMVAE(epochs=1, **VAE)):
        with pytest.raises(DataError, match=words) as caught:
            generator.fit(fc, labels)
        assert caught.value.do
    with pytest.raises(ValueError):
        ForgeClassifier().fit(fc, labels)


@pytest.mark.parametrize("seed", [1.5, "1", -1, 2**32, np.nan])
def test_what_is_no_seed_is_refused(site, seed) -> None:
    fc, y = site
    with pytest.raises(ConfigError, match=r"random_state=.* is no seed"):
        FCGenerator("bootstrap", random_state=seed).fit(fc, y)
    with pytest.raises(ConfigError, match=r"random_state=.* is no seed"):
        FCGenerator("bootstrap").fit(fc, y).sample([y[0]], random_state=seed)


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3), True, None])
def test_whole_numbers_of_any_kind_are_seeds(site, seed) -> None:
    assert (
        FCGenerator("bootstrap", random_state=seed).fit(*site).sample([]).shape[0] == 0
    )
