r"""What a start is made for, and what sums would then be worth, before anybody gives anything.

**Plan.** The *noise per person* is the standard deviation of all noise in a sum, in units of the
sensitivity, divided by the people in it. It alone decides how many directions are worth speaking
about, so that one table serves sums and local noise, any number of people and any epsilon: ten
times the people at epsilon 1 have less noise than 600 at epsilon 10. The table was chosen on
ABIDE's fourteen smaller sites, by a rule that was committed before the run
(benchmarks/choose_sums.py, results/choose_sums_2.json).

It was chosen at 116 ROIs. With p features the pull is :math:`\sqrt{6786 / p}` times the table's, at
least once and at most three times: on the same sites with 20, 40 and 70 ROIs at random (24, 24 and
12 partitions, seven levels) the mean gain went from .014, .020 and .018 to .014, .028 and .022.

**Worth.** Public sites are dealt at random into public people and hospitals, each cut into learning
and tested people (`fcforge.releases.partition`); noise is scaled to the planned number of people.

**Caution.** The table's settings were chosen where the public head leaves much to learn. Where it
is good already, or has few ROIs, a step of that size is mostly noise: on simulated people of 40
ROIs the public head's .96 fell to .83 at epsilon 1. So the dealings of a start's own public people
may ask for a stronger pull to the public head. Rule: of `PULLS` times the table's pull the one with
the best mean gain is taken if it beats the table's by more than `SURE` standard errors of the
paired difference. Of no, one and two errors, two was taken on ABIDE's fourteen smaller sites (16
partitions, five budgets): the table's pull stayed in 98 of 100 cases and no mean gain fell by more
than .002. One error changed a fifth of all cases and lost up to .003.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fcforge.privacy.noise import DELTA, sigma_for
from fcforge.randomness import numpy_rng
from fcforge.releases.partition import Partition, Rows, deal
from fcforge.releases.start import MIN_PUBLIC, Array, StartSettings
from fcforge.releases.vector import DOSES

FEATURES = 6786  # of 116 ROIs, for which was chosen
CHOSEN = {
    0.0: StartSettings(axes=8, gamma=0.35, pull=0.45),
    0.0005: StartSettings(axes=16, gamma=0.35, pull=0.75),
    0.0015: StartSettings(axes=8, gamma=0.35, pull=0.45),
    0.003: StartSettings(axes=16, gamma=0.35, pull=0.45),
    0.005: StartSettings(axes=16, gamma=0.25, pull=0.3),
    0.01: StartSettings(axes=16, gamma=0.1, pull=0.15),
    0.03: StartSettings(axes=8, gamma=0.0, even=0.8, pull=0.05),
}
PUBLIC = 0.5  # of the people are public in a dealing
DEALINGS = 12
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
PULLS = (1.0, 3.0, 10.0, 30.0, 100.0)
SURE = 2.0


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


class Worth(NamedTuple):
    """What one way of giving would add.

    Attributes
    ----------
    epsilon : float or None
        Of every person; None: exact sums.
    keepers : bool
        Noise once by two keepers, or by every hospital itself.
    gain, error : float
        AUROC within hospitals (`Partition.auroc`) above the public head, and its standard error
        over dealings.
    """

    epsilon: float | None
    keepers: bool
    gain: float
    error: float


class WorthTable(NamedTuple):
    """What is expected of a consortium.

    Attributes
    ----------
    public : float
        AUROC within hospitals of the public head.
    pooled : float
        What ridge on everybody's data in one place adds to it.
    rows : tuple of Worth
    settings : StartSettings
        What suits the noise per person that a start is made for.
    """

    public: float
    pooled: float
    rows: tuple[Worth, ...]
    settings: StartSettings


class Dealings:
    """What dealings of the public sites into public people and hospitals tell.

    Those that leave too few people are left out; of a single site there are none.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Of the public people, confounds removed.
    y, site : ndarray of shape (n,)
    levels : set of float
        Noise per person.

    Attributes
    ----------
    references : list of (public, pooled)
        As in `WorthTable`.
    gains : mapping of level to list of ndarray of shape (PULLS,)
        AUROC above the public head, by the pull to it.
    """

    def __init__(
        self, features: Array, y: Array, site: Array, levels: set[float]
    ) -> None:
        self.n_features = features.shape[1]
        self.references: list[tuple[float, float]] = []
        self.gains: dict[float, list[Array]] = {level: [] for level in levels}
        for k in range(DEALINGS if len(np.unique(site)) > 1 else 0):
            rng = numpy_rng(k, "worth of sums")
            rows = deal(site, y, PUBLIC * len(y), rng)
            fewest = min(len(rows[0]), len(rows[1]))
            if fewest >= MIN_PUBLIC and _all_there(y, rows):
                part = Partition(features, y, site, rows, rng)
                public = float(part.auroc(part.score[rows[2]]))
                pooled = float(part.auroc(part.ridge())) - public
                self.references.append((public, pooled))
                for level, gains in self.gains.items():
                    gains.append(_by_pull(part, level) - public)

    def found(self, level: float) -> tuple[int, float, float]:
        """Which of `PULLS` the rule takes, the mean gain with it and its standard error."""
        if len(self.references) < 2:
            return 0, 0.0, 0.0
        gains = np.array(self.gains[level])
        best = int(gains.mean(0).argmax())
        ahead, error = _mean(gains[:, best] - gains[:, 0])
        pull = best if ahead > SURE * error else 0
        return pull, *_mean(gains[:, pull])

    def settings(self, noise: float) -> StartSettings:
        """The settings of the plan's table, held at the public head as the rule says."""
        usual = planned_settings(noise, self.n_features)
        pull, _, _ = self.found(noise)
        return replace(usual, pull=PULLS[pull] * usual.pull)


def worth(
    features: Array,
    y: Array,
    site: Array,
    people: int,
    hospitals: int,
    noise: float = 0.0,
) -> WorthTable:
    """What sums of a planned consortium would add to the public head.

    Parameters
    ----------
    features, y, site : ndarray
        As of `Dealings`.
    people, hospitals : int
        Planned in all.
    noise : float
        Per person, that the start is made for.
    """
    plans = {}
    for keepers in (True, False):
        doses = DOSES if keepers else hospitals
        for epsilon in EPSILONS:
            plans[epsilon, keepers] = noise_per_person(people, epsilon, doses)
    dealt = Dealings(features, y, site, {noise, *plans.values()})
    settings = dealt.settings(noise)
    if len(dealt.references) < 2:
        return WorthTable(0.5, 0.0, (), settings)
    rows = []
    for plan, level in plans.items():
        _, gain, error = dealt.found(level)
        rows.append(Worth(*plan, round(gain, 4), round(error, 4)))
    public, pooled = np.mean(dealt.references, axis=0).tolist()
    return WorthTable(round(public, 3), round(pooled, 4), tuple(rows), settings)


def _all_there(y: Array, rows: Rows) -> bool:
    """Whether all diagnoses (or different numbers) are among all three groups."""
    kinds = 2 if y.dtype.kind == "f" else len(np.unique(y))
    return all(len(np.unique(y[part])) >= kinds for part in rows)


def _by_pull(part: Partition, level: float) -> Array:
    """AUROC (PULLS,) at a noise per person."""
    planned = part.start(planned_settings(level, part.p))
    noise = level * len(part.rows[1])
    found = []
    for times in PULLS:
        start = replace(planned, pull=times * planned.pull)
        found.append(part.auroc(part.scores(start, noise)).mean())
    return np.array(found)


def _mean(values: Array) -> tuple[float, float]:
    """Mean of (n,) and its standard error."""
    error = values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(error)
