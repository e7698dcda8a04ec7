"""Numbers of the paper's appendix: 1:1 augmentation on its ABIDE (ASD) columns (paper.csv)."""

import csv
from functools import cache
from importlib.resources import files

# Rows of the judge and what the paper calls them.
OPTIONS = {
    "real": "No augmentation",
    "regate": "ReGate",
    "brainnetgan": "BrainNetGAN",
    "gr_spd_gan": "GR-SPD-GAN",
    "fcm_vae": "FCM-VAE",
}
ABLATIONS = {
    "fcm_vae": "full framework",
    "w/o node feature": "w/o node feature",
    "w/o LAE": "w/o LAE",
    "w/o SGE": "w/o SGE",
}


@cache
def _printed() -> dict[tuple[str, str], str]:
    text = files("fcforge.studies.judge").joinpath("paper.csv").read_text(encoding="utf-8")
    _, *lines = csv.reader(text.splitlines())
    return {(classifier, row): " / ".join(four) for classifier, row, *four in lines}


def published(classifier: str, row: str) -> str:
    """``0.726 / 0.753 / 0.669 / 0.683``, a dash where the paper has no such cell."""
    return _printed().get((classifier, row), "–")
