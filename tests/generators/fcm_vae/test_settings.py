"""Settings and presets of FCM-VAE."""

from dataclasses import replace

import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.generators.fcm_vae import FCMVAE


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="careful"):
        make_generator(Component("fcm_vae", {"preset": "carefull"}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"d_model": 10, "heads": 4}, "d_model = 10 cannot be shared among 4 heads"),
        ({"dropout": 1.0}, "dropout = 1.0 is not a share below 1"),
        ({"form": "papr"}, "form = 'papr' is unknown"),
        ({"epochs": 0}, "epochs = 0 is too small"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words) -> None:
    with pytest.raises(ConfigError, match=words):
        make_generator(Component("fcm_vae", settings))


def test_presets_are_what_the_documents_say() -> None:
    authors, paper, careful = (
        FCMVAE.from_preset("authors"),
        FCMVAE.from_preset("paper"),
        FCMVAE(),
    )
    assert FCMVAE.from_preset("careful") == careful
    assert (authors.sigma_y_floor, paper.sigma_y_floor, careful.sigma_y_floor) == (
        1e-4,
        0.01,
        0.1,
    )
    assert (authors.d_model, authors.d_z, authors.heads, authors.batch_size) == (
        256,
        116,
        4,
        8,
    )
    assert [s.careful for s in (authors, paper, careful)] == [False, False, True]
    assert [s.authors for s in (authors, paper, careful)] == [True, False, False]
    made = make_generator(Component("fcm_vae", {"preset": "authors", "epochs": 7}))
    assert made == replace(authors, epochs=7)
