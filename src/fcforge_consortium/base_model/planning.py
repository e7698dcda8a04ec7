r"""Settings of a base model for the planned number of subjects and budget.

The *noise per subject* is the standard deviation of all noise in a sum, divided by the number of
subjects, in units of the sensitivity (the most that one subject can change a contribution). It alone
decides how many directions carry signal. One table of settings therefore serves rounds and noise by
each hospital, any number of subjects and any epsilon. The table was chosen on ABIDE's fourteen smaller
sites, by a rule that was fixed before the run (paper/benchmarks/choose_sums.py,
paper/choices/sums.json).

It was chosen at 116 ROIs. With p features the *pull*, the strength of the prior around the base model,
is :math:`\sqrt{6786 / p}` times the table's, at least once and at most three times. On the same sites
with 20, 40 and 70 ROIs at random (24, 24 and 12 partitions, seven levels of noise) this changed the mean
gain from .014, .020 and .018 to .014, .028 and .022.
"""

import math
from dataclasses import replace

from fcforge_consortium.base_model.space import SpaceSettings
from fcforge_consortium.base_model.vectors import DOSES
from fcforge_consortium.privacy.noise import DELTA, sigma_for

FEATURES = 6786  # features of 116 ROIs, at which the table was chosen
CHOSEN = {  # settings by noise per subject
    0.0: SpaceSettings(axes=8, gamma=0.35, pull=0.45),
    0.0005: SpaceSettings(axes=16, gamma=0.35, pull=0.75),
    0.0015: SpaceSettings(axes=8, gamma=0.35, pull=0.45),
    0.003: SpaceSettings(axes=16, gamma=0.35, pull=0.45),
    0.005: SpaceSettings(axes=16, gamma=0.25, pull=0.3),
    0.01: SpaceSettings(axes=16, gamma=0.1, pull=0.15),
    0.03: SpaceSettings(axes=8, gamma=0.0, even=0.8, pull=0.05),
}
# Budgets of the table of expected gains; None without noise.
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)


def noise_per_subject(
    subjects: int, epsilon: float | None, doses: int = DOSES, delta: float = DELTA
) -> float:
    """Return the noise per subject of a sum; 0 for exact sums (`epsilon` None).

    Parameters
    ----------
    subjects : int
        Number of subjects in the sum.
    epsilon : float or None
        Budget of every subject; None for exact sums.
    doses : int
        Number of parties that each add full noise: the aggregators, or the hospitals.
    delta : float

    Examples
    --------
    >>> round(noise_per_subject(600, 1.0), 3), noise_per_subject(600, None)
    (0.01, 0.0)
    """
    if epsilon is None:
        return 0.0
    return sigma_for(epsilon, delta) * math.sqrt(doses) / subjects


def planned_noise(
    subjects: int, hospitals: int
) -> dict[tuple[float | None, bool], float]:
    """Return the noise per subject of a plan, for each epsilon of `EPSILONS` and each kind of noise.

    Parameters
    ----------
    subjects, hospitals : int
        Planned numbers over the whole consortium.

    Returns
    -------
    dict of (epsilon, aggregated) to float
        ``aggregated`` is True where two aggregators add the noise and False where every hospital does.
    """
    noise = {}
    for aggregated in (True, False):
        doses = DOSES if aggregated else hospitals
        for epsilon in EPSILONS:
            noise[epsilon, aggregated] = noise_per_subject(subjects, epsilon, doses)
    return noise


def planned_settings(noise: float, n_features: int = FEATURES) -> SpaceSettings:
    """Return the settings for a noise per subject: those of the nearest level in the table.

    Parameters
    ----------
    noise : float
        Noise per subject; levels are compared by their logarithm.
    n_features : int
        Number of features p, for which the pull is scaled.

    Returns
    -------
    SpaceSettings

    Examples
    --------
    >>> planned_settings(noise_per_subject(600, 1.0)).gamma
    0.1
    """
    levels = [level for level in CHOSEN if level > 0]
    nearest = 0.0
    if noise >= min(levels) / 2:
        nearest = min(levels, key=lambda level: abs(math.log(level / noise)))
    settings = CHOSEN[nearest]
    times = min(max(math.sqrt(FEATURES / n_features), 1.0), 3.0)
    return replace(settings, pull=round(times * settings.pull, 4))
