"""Settings and variants of FCM-VAE."""

from dataclasses import replace

import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.generators.fcm_vae import AuthorsVAE, PaperVAE, StableVAE


def test_unknown_variant_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="stable"):
        make_generator(Component("fcm_vae", {"variant": "stabel"}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"d_model": 10, "heads": 4}, "d_model = 10 cannot be divided among 4 heads"),
        ({"dropout": 1.0}, "dropout = 1.0 is not a share below 1"),
        ({"variant": "papr"}, "unknown variant 'papr'"),
        ({"epochs": 0}, "epochs = 0 is too small"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words) -> None:
    with pytest.raises(ConfigError, match=words):
        make_generator(Component("fcm_vae", settings))


def test_variants_are_what_the_documents_say() -> None:
    authors, paper, stable = (AuthorsVAE(), PaperVAE(), StableVAE())
    assert (authors.sigma_y_floor, paper.sigma_y_floor, stable.sigma_y_floor) == (
        1e-4,
        1e-4,  # the paper gives no number
        0.1,
    )
    assert (authors.d_model, authors.d_z, authors.heads, authors.batch_size) == (
        256,
        116,
        4,
        8,
    )
    assert make_generator(Component("fcm_vae")) == stable
    for name, made in (("authors", authors), ("paper", paper), ("stable", stable)):
        assert make_generator(Component("fcm_vae", {"variant": name})) == made
        assert made.variant == name
    made = make_generator(Component("fcm_vae", {"variant": "authors", "epochs": 7}))
    assert made == replace(authors, epochs=7)


def test_only_variants_whose_samples_may_be_invalid_can_be_projected() -> None:
    made = make_generator(Component("fcm_vae", {"variant": "paper", "project": "clip"}))
    assert made == PaperVAE(project="clip")
    with pytest.raises(ConfigError, match="unknown setting 'project'"):
        make_generator(Component("fcm_vae", {"project": "clip"}))
