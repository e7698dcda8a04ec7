"""A small consortium: a public start of simulated sites, hospitals, keys."""

from functools import cache

import numpy as np

from fcforge.consortium import Consortium, Home, make_public
from fcforge.consortium.few_start import StartSettings
from fcforge.consortium.learning import Budget, learn
from fcforge.sites.cohort import Cohort
from fcforge.sites.simulated import simulate

R = 10


@cache
def people() -> Cohort:
    made = simulate(preset="easy", n_rois=R, n_sites=6, scale=0.5)
    rng = np.random.default_rng(0)
    age = rng.uniform(8, 40, len(made))
    sex = rng.integers(1, 3, len(made)).astype(float)
    covariates = {**made.covariates, "age": age, "sex": sex}
    return Cohort(
        name="made up",
        fc=made.fc,
        y=made.y,
        site=made.site,
        subject_id=made.subject_id,
        roi_names=tuple(f"ROI {i}" for i in range(R)),
        covariates=covariates,
    )


def sites() -> tuple[str, ...]:
    return people().site_names


@cache
def start(remove: tuple[str, ...] = ()):
    return make_public(people(), sites()[:2], remove, StartSettings(axes=4))


@cache
def empty(remove: tuple[str, ...] = ()) -> Consortium:
    return Consortium(start(remove))


@cache
def release_of(site: str, epsilon: float = 1.0, seed: int = 0, key=None):
    """Release of a site (noise is secret: made once per test session)."""
    return learn(empty(), people(), site, Home(), Budget(epsilon=epsilon), key).release
