r"""Simulated hospitals whose patients share a little and differ a lot: preset ``systems``.

This world is made so that hospitals disagree: a network that adapts to one of them forgets the
others, and replay visibly helps. The effect on real data is smaller.

The ROIs fall into disjoint groups of equal size: one common to all hospitals and one per hospital.
The matrix of subject i at hospital s is, in Fisher z (z = artanh r),

.. math::

    Z_i = 0.25 + 0.25\, P P^\top / 6 + S_s + 0.15\, T_i T_i^\top / 10 + \sum_g m_{ig}\, B_g

with P (ROIs x 6) of the population, T (ROIs x 10) of the subject, both standard normal; S a
symmetric shift of the hospital (SD 0.08); and B the indicator of pairs of ROIs within group g. The
group's amount m is normal (SD 0.1) around

- :math:`\pm a` in the common group (``common_effect``), plus for patients, minus for controls,
- :math:`\pm b` in the hospital's own group (``site_effect``), with the sign of the diagnosis,
- :math:`\pm b` in the group of every other hospital, with a random sign.

What marks a patient at one hospital is thus noise at all others. A subject is observed through
`volumes` independent volumes: the matrix tanh Z is projected to the correlation matrices, and the
correlation of the volumes that are drawn from it is returned. The projection takes up to a third
of a group's difference between patients and controls.

Shapes: n subjects, R ROIs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fcforge.base_model.features import one_blas_thread
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import numpy_rng
from fcforge.core.settings import at_least, limits
from fcforge.data.checks import MIN_PER_SITE
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.simulated_scans import observe, symmetric_normal

# In Fisher z.
OFFSET = 0.25  # mean of all pairs of ROIs
POPULATION = 0.25  # weight of the population's pattern
POPULATION_RANK = 6
SITE_SHIFT = 0.08  # SD of a hospital's shift, per pair of ROIs
SUBJECT = 0.15  # weight of a subject's pattern
SUBJECT_RANK = 10
GROUP_SPREAD = 0.1  # SD over subjects of a group's amount, whatever the diagnosis
COMMON = "Common"  # group of ROIs in which patients of all hospitals differ


@limits(
    subjects_per_site=at_least(MIN_PER_SITE),
    n_rois=at_least(1),
    n_sites=at_least(1),
    volumes=at_least(2),
    common_effect=at_least(0),
    site_effect=at_least(0),
)
def simulate_systems(
    subjects_per_site: int = 80,
    n_rois: int = 40,
    n_sites: int = 4,
    volumes: int = 120,
    common_effect: float = 0.15,
    site_effect: float = 0.40,
    seed: int = 0,
    sites: Sequence[str] | None = None,
) -> Cohort:
    """Simulate hospitals whose patients differ in one common and one local group of ROIs.

    A hospital's subjects depend on the seed, its name and the settings, never on which other
    hospitals are kept by `sites`.

    Parameters
    ----------
    subjects_per_site : int
        Subjects per hospital; half of them are patients.
    n_rois : int
        ROIs, split evenly into ``n_sites + 1`` groups of two or more. ROIs left over belong to
        no group.
    n_sites : int
        Hospitals, named ``Sim-1``, ``Sim-2`` and so on.
    volumes : int
        Independent volumes per scan; fewer make the correlations noisier.
    common_effect : float
        Half the difference between patients and controls, in Fisher z, in the common group.
    site_effect : float
        The same in the hospital's own group; in the groups of other hospitals every subject is
        shifted by as much in a random direction.
    seed : int
    sites : sequence of str, optional
        Keep these hospitals, in this order.

    Returns
    -------
    Cohort
    """
    if n_rois < 2 * (n_sites + 1):
        raise ConfigError(
            f"n_rois = {n_rois} is too few for {n_sites + 1} groups of two or more ROIs.",
            where="preset 'systems'",
            do=f"Use {2 * (n_sites + 1)} or more, or fewer sites.",
        )
    world = SystemsWorld(n_rois, n_sites, volumes, common_effect, site_effect, seed)
    with one_blas_thread():
        fc, y = zip(
            *(world.subjects_of(name, subjects_per_site) for name in world.site_names),
            strict=True,
        )
    ids = [
        f"{name}-{i:04d}"
        for name in world.site_names
        for i in range(1, subjects_per_site + 1)
    ]
    cohort = Cohort(
        "simulated",
        np.concatenate(fc),
        np.concatenate(y),
        np.repeat(world.site_names, subjects_per_site),
        as_text(ids),
        world.roi_names,
    )
    return cohort.select_sites(sites)


@dataclass(frozen=True)
class SystemsWorld:
    """Population and hospitals of the preset ``systems``; see the head of this module.

    Attributes
    ----------
    n_rois, n_sites, volumes, common_effect, site_effect, seed
        As in `simulate_systems`.
    """

    n_rois: int
    n_sites: int
    volumes: int
    common_effect: float
    site_effect: float
    seed: int

    @cached_property
    def site_names(self) -> tuple[str, ...]:
        """Names of the hospitals."""
        return tuple(f"Sim-{k}" for k in range(1, self.n_sites + 1))

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """Indices of each group's ROIs: the common group, then that of each hospital."""
        size = self.n_rois // (self.n_sites + 1)
        names = (COMMON, *self.site_names)
        return {
            name: np.arange(k * size, (k + 1) * size) for k, name in enumerate(names)
        }

    @cached_property
    def roi_names(self) -> tuple[str, ...]:
        """Group and number of every ROI, e.g. ``Common_1``; ``Other_1`` outside all groups."""
        names = [
            f"{group}_{k + 1}"
            for group, rois in self.groups.items()
            for k in range(len(rois))
        ]
        names += [f"Other_{k + 1}" for k in range(self.n_rois - len(names))]
        return tuple(names)

    @cached_property
    def within_group(self) -> np.ndarray:
        """Indicator of the pairs of ROIs within each group, (groups, R, R)."""
        indicator = np.zeros((len(self.groups), self.n_rois, self.n_rois))
        for k, rois in enumerate(self.groups.values()):
            indicator[k][np.ix_(rois, rois)] = 1.0
        return indicator

    @cached_property
    def population(self) -> np.ndarray:
        """Mean matrix before hospitals, in Fisher z, (R, R)."""
        factors = self._rng("population").standard_normal(
            (self.n_rois, POPULATION_RANK)
        )
        return OFFSET + POPULATION * factors @ factors.T / POPULATION_RANK

    def subjects_of(self, site: str, subjects: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the subjects of one hospital.

        Parameters
        ----------
        site : str
            Name of the hospital.
        subjects : int
            Number of subjects.

        Returns
        -------
        fc : ndarray of shape (subjects, R, R), float32
        y : ndarray of shape (subjects,), int64
            0 = control, 1 = patient.
        """
        shift = SITE_SHIFT * symmetric_normal(self._rng("site", site), self.n_rois)
        rng = self._rng("subjects", site)
        y = rng.permutation(np.arange(subjects) % 2)
        factors = rng.standard_normal((subjects, self.n_rois, SUBJECT_RANK))
        of_subject = SUBJECT * factors @ factors.transpose(0, 2, 1) / SUBJECT_RANK
        of_groups = np.einsum(
            "ng,gij->nij", self._amounts(rng, site, y), self.within_group
        )
        z = self.population + shift + of_subject + of_groups
        return observe(np.tanh(z).astype(np.float32), self.volumes, rng), y

    def _amounts(
        self, rng: np.random.Generator, site: str, y: np.ndarray
    ) -> np.ndarray:
        """Draw the shift of every subject within every group of ROIs, in Fisher z.

        Parameters
        ----------
        rng : numpy Generator
        site : str
            The subjects' hospital.
        y : ndarray of shape (n,)
            Diagnoses, 0 and 1.

        Returns
        -------
        ndarray of shape (n, number of groups)
        """
        shape = len(y), len(self.groups)
        amounts = GROUP_SPREAD * rng.standard_normal(shape)
        random_sign = rng.choice([-1.0, 1.0], shape)
        diagnosis = np.where(y == 1, 1.0, -1.0)
        for k, group in enumerate(self.groups):
            if group == COMMON:
                amounts[:, k] += self.common_effect * diagnosis
            elif group == site:
                amounts[:, k] += self.site_effect * diagnosis
            else:
                amounts[:, k] += self.site_effect * random_sign[:, k]
        return amounts

    def _rng(self, *names: str) -> np.random.Generator:
        """Return a generator keyed by the seed, these names and the number of ROIs."""
        return numpy_rng(self.seed, "systems", *names, self.n_rois)
