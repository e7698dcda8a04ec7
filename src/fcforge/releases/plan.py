r"""What a start is made for: the noise per person, and the settings that suit it.

The *noise per person* is the standard deviation of all noise in a sum, in units of the
sensitivity, divided by the people in it. It alone decides how many directions are worth speaking
about, so that one table serves sums and local noise, any number of people and any epsilon: ten
times the people at epsilon 1 have less noise than 600 at epsilon 10. The table was chosen on
ABIDE's fourteen smaller sites, by a rule that was committed before the run
(benchmarks/choose_sums.py, results/choose_sums_2.json).

It was chosen at 116 ROIs. With p features the pull is :math:`\sqrt{6786 / p}` times the table's, at
least once and at most three times: on the same sites with 20, 40 and 70 ROIs at random (24, 24 and
12 partitions, seven levels) the mean gain went from .014, .020 and .018 to .014, .028 and .022.
"""

import math
from dataclasses import replace

from fcforge.privacy.accounting import DELTA, sigma_for
from fcforge.releases.start import StartSettings
from fcforge.releases.vector import DOSES

FEATURES = 6786  # of 116 ROIs, for which was chosen
CHOSEN = {
    0.0: StartSettings(axes=8, gamma=0.35, even=0.95, pull=0.45),
    0.0005: StartSettings(axes=16, gamma=0.35, even=0.95, pull=0.75),
    0.0015: StartSettings(axes=8, gamma=0.35, even=0.95, pull=0.45),
    0.003: StartSettings(axes=16, gamma=0.35, even=0.95, pull=0.45),
    0.005: StartSettings(axes=16, gamma=0.25, even=0.95, pull=0.3),
    0.01: StartSettings(axes=16, gamma=0.1, even=0.95, pull=0.15),
    0.03: StartSettings(axes=8, gamma=0.0, even=0.8, pull=0.05),
}


def noise_per_person(
    people: int, epsilon: float | None, doses: int = DOSES, delta: float = DELTA
) -> float:
    """Of so many people in all; `doses` are the keepers, or the hospitals that add their own.

    Examples
    --------
    >>> round(noise_per_person(600, 1.0), 3), noise_per_person(600, None)
    (0.01, 0.0)
    """
    if epsilon is None:
        return 0.0
    return sigma_for(epsilon, delta) * math.sqrt(doses) / people


def planned_settings(noise: float, n_features: int = FEATURES) -> StartSettings:
    """Settings of a start for this noise per person: those of the nearest level, by its logarithm.

    Examples
    --------
    >>> planned_settings(noise_per_person(600, 1.0)).gamma
    0.1
    """
    levels = [level for level in CHOSEN if level > 0]
    nearest = 0.0
    if noise >= min(levels) / 2:
        nearest = min(levels, key=lambda level: abs(math.log(level / noise)))
    found = CHOSEN[nearest]
    times = min(max(math.sqrt(FEATURES / n_features), 1.0), 3.0)
    return replace(found, pull=round(times * found.pull, 4))
