"""Made-up multi-site FC, calibrated on real ABIDE-I.

All quantities are in Fisher z, z = artanh(r). A subject's matrix is the sum of a population
mean shaped by distance, brain system and hemisphere; a global and a low-rank trait of the
subject; the disorder, mostly spread over single edges; an additive shift and an attenuation of
the site; and head motion. It is made a correlation matrix and observed through a finite number
of effective samples (Wishart noise). The numbers were fitted by hand to 1,035 ABIDE subjects
(mean r, density, spread over edges and subjects, effect size per edge, site identifiability,
accuracy of linear models).

Measured over seeds 0-4 of ``realistic``, against real ABIDE (CC200, 4 sites): mean r .21-.24
(.21-.25), density at r >= .4 .19-.23 (.16-.24), SD over edges .14-.15 (.13), SD over subjects
.17-.18 (.17-.21), median |d| per edge .07-.13 (.09), site share of variance .03-.06 (.05), site
recognised .99-1.0 (.97), diagnosis by ridge pooled .68-.73 (.72), one site to another .53-.60
(.59). Real AAL-116 is denser (mean r .28, density .31, SD over edges .18).

Shapes: n subjects or points, R ROIs, k sources of variation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.base_model.features import one_blas_thread
from fcforge.core.names import look_up
from fcforge.core.randomness import numpy_rng
from fcforge.core.settings import above, at_least, limits, within
from fcforge.core.target import Target
from fcforge.data.checks import MIN_PER_CLASS
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.simulated_scans import observe, symmetric_normal
from fcforge.imaging.atlas import Atlas, aal116
from fcforge.imaging.matrix_files import read_table

# Parts of the population's mean matrix, in Fisher z.
BASE = 0.60  # offset of all edges (times 0.55)
SAME_SYSTEM = 0.42  # edges within a brain system
HOMOTOPIC = 0.60  # edges between mirrored ROIs
NEAR = 1.0  # at distance 0; falls off as exp(-distance / 18 mm)
FAR = 0.10  # depth of the dip around 90 mm
EDGE = 0.10  # SD of noise per edge
HUB = 0.06  # SD of noise per ROI
# Parts of a subject's matrix.
GAIN = 0.26  # log SD of a subject's global connectivity
TRAIT = 0.75 * 0.25  # size of a subject's own pattern
N_TRAITS = 25  # rank of that pattern
SEVERITY = 0.5  # log SD of a patient's severity, whose mean is 1
MOTION = 1.2  # effect of mean framewise displacement per mm
UNRELIABILITY = 0.03  # a site's mean loss of correlation per ROI is about 0.8 of it
STRENGTH = 0.022  # size of a disorder's pattern
SHARED = 0.6  # share of the first disorder's pattern in that of a further disorder


@dataclass(frozen=True)
class Recipe:
    """Settings in which the presets of the simulator differ.

    Attributes
    ----------
    d_scale : float
        Strength of the disorder; the SD over edges of the class difference is about .02 d_scale.
    rho : float
        Correlation of the disorder's pattern between the population and one site.
    site_block, site_edge : float
        SD of a site's shift per pair of systems and per edge, in Fisher z.
    """

    d_scale: float = 1.2
    rho: float = 0.9
    site_block: float = 0.075
    site_edge: float = 0.008


PRESETS: dict[str, Recipe] = {
    "easy": Recipe(d_scale=1.6),
    "realistic": Recipe(),
    "hard": Recipe(d_scale=1.6, rho=0.4),
    "hard_shift": Recipe(d_scale=1.6, rho=0.4, site_block=0.16, site_edge=0.03),
}


class SiteLayout(NamedTuple):
    """Size and scans of a simulated site.

    Attributes
    ----------
    name : str
    patients, controls : int
    volumes : int
        Volumes per scan.
    fd_patients, fd_controls : float
        Mean framewise displacement of each class in mm.
    """

    name: str
    patients: int
    controls: int
    volumes: int
    fd_patients: float
    fd_controls: float


@limits(
    n_rois=at_least(4),
    n_sites=at_least(1),
    scale=above(0),
    d_scale=at_least(0),
    rho=within(-1, 1),
    disorders=at_least(1),
)
def simulate_calibrated(
    preset: str = "realistic",
    layout: str = "abide",
    n_rois: int = 116,
    n_sites: int | None = None,
    scale: float = 1.0,
    seed: int = 0,
    d_scale: float | None = None,
    rho: float | None = None,
    sites: Sequence[str] | None = None,
    disorders: int = 1,
) -> Cohort:
    """Simulate hospitals calibrated on real ABIDE.

    A site depends on (`seed`, its name, its size) alone: adding or dropping other sites leaves
    it as it is.

    Parameters
    ----------
    preset : {"easy", "realistic", "hard", "hard_shift"}
    layout : {"abide", "mdd", "bsnip"}
        Names, sizes, class balance, scan lengths and motion of the sites.
    n_rois : int
        116 gives AAL's ROIs; any other count (4 or more) gets made-up coordinates.
    n_sites : int, optional
        Number of sites: the first ones of the layout. Beyond its end, further sites repeat the
        sizes of the layout's.
    scale : float
        Fraction of the layout's subjects; a site keeps at least 4 per class.
    seed : int
    d_scale, rho : float, optional
        Override the preset's disorder strength and similarity between sites (see `Recipe`).
    sites : sequence of str, optional
        Sites to keep, in this order.
    disorders : int
        Number of disorders, which the patients have in turn: with 2 there are three classes. Each
        further disorder shares the part `SHARED` of its pattern with the first.

    Returns
    -------
    Cohort
    """
    recipe = recipe_of(preset, d_scale, rho)
    places = places_of(layout, n_sites, scale)
    world = World(atlas_of(n_rois), recipe, seed, disorders)
    with one_blas_thread():
        people = [world.people_of(place) for place in places]
    fc, y, motion = (np.concatenate(part) for part in zip(*people, strict=True))
    sizes = [place.patients + place.controls for place in places]
    site = np.repeat([place.name for place in places], sizes)
    ids = []
    for place, n in zip(places, sizes, strict=True):
        ids += [f"{place.name}-{i:04d}" for i in range(1, n + 1)]
    names = world.atlas.roi_names
    cohort = Cohort("simulated", fc, y, site, as_text(ids), names, {"mean_fd": motion})
    if disorders > 1:
        named = [f"disorder {k}" for k in range(1, disorders + 1)]
        cohort = replace(cohort, target=Target(classes=("control", *named)))
    return cohort.select_sites(sites)


# -- sites and ROIs --------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def layouts() -> dict[str, tuple[SiteLayout, ...]]:
    """Return the sites of each layout by its name; the layouts are the paper's data sets."""
    sites: dict[str, tuple[SiteLayout, ...]] = {}
    for row in read_table(Path(__file__).with_name("simulated_layouts.tsv")):
        layout, name, *numbers = row.values()
        site = SiteLayout(name, *map(int, numbers[:3]), *map(float, numbers[3:]))
        sites[layout] = (*sites.get(layout, ()), site)
    return sites


def recipe_of(preset: str, d_scale: float | None, rho: float | None) -> Recipe:
    """Return the recipe of a preset, with `d_scale` and `rho` in place of its own unless None."""
    recipe = look_up("preset", preset, PRESETS)
    if d_scale is not None:
        recipe = replace(recipe, d_scale=d_scale)
    return recipe if rho is None else replace(recipe, rho=rho)


def places_of(layout: str, n_sites: int | None, scale: float) -> list[SiteLayout]:
    """Return the simulated sites with their numbers of patients and controls.

    Parameters
    ----------
    layout : str
        Name of a list of sites.
    n_sites : int or None
        Number of sites: the list is cut, or continued from its beginning. None takes the list.
    scale : float
        Factor of the numbers of subjects; each class of a site has at least `MIN_PER_CLASS`.
    """
    base = look_up("layout", layout, layouts())
    n_sites = len(base) if n_sites is None else n_sites
    extra = [f"Sim-Extra{i + 1:02d}" for i in range(n_sites - len(base))]
    names = [*(place.name for place in base), *extra][:n_sites]
    places = []
    for name, place in zip(names, cycle(base), strict=False):
        patients, controls = (
            max(MIN_PER_CLASS, round(size * scale))
            for size in (place.patients, place.controls)
        )
        places.append(place._replace(name=name, patients=patients, controls=controls))
    return places


def mirror_images(roi_names: Sequence[str]) -> np.ndarray:
    """Return the index of each ROI's mirror image in the other hemisphere, shape (R,).

    The side is the last letter of the name, ``_L`` or ``_R``. An ROI without a mirror image has its
    own index.
    """
    index_of = {name: i for i, name in enumerate(roi_names)}
    other_side = {"L": "R", "R": "L"}
    indices = []
    for name, index in index_of.items():
        side = name[-1]
        mirrored = name[:-1] + other_side.get(side, side)
        indices.append(index_of.get(mirrored, index))
    return np.array(indices)


def made_up_atlas(n_rois: int) -> Atlas:
    """Return an atlas of mirror-symmetric ROIs in a brain-sized ellipsoid, in compact brain systems.

    Left ROIs lie on a golden-angle spiral through the left half, and right ROIs mirror them. With an
    odd number one ROI lies on the midline. Each system has ROIs of both hemispheres around one
    point; these points are far from each other.
    """
    pairs = n_rois // 2
    left = _half_ellipsoid(pairs)
    xyz = np.zeros((n_rois, 3))
    xyz[0 : 2 * pairs : 2] = left
    xyz[1 : 2 * pairs : 2] = left * [-1, 1, 1]
    folded = np.abs(xyz) * [1, 0, 0] + xyz * [0, 1, 1]  # the left half upon the right
    n_systems = max(1, min(9, n_rois // 6))
    group = _grow(folded, n_systems)
    paired = [f"ROI{i + 1:03d}_{side}" for i in range(pairs) for side in "LR"]
    names = (*paired, *[f"ROI{pairs + 1:03d}"] * (n_rois % 2))
    systems = tuple(f"system{g + 1}" for g in group)
    codes = tuple(range(1, n_rois + 1))
    return Atlas(f"MadeUp{n_rois}", names, systems, codes=codes, xyz=xyz)


def atlas_of(n_rois: int) -> Atlas:
    """Return AAL for 116 ROIs, a made-up atlas for any other count."""
    return aal116() if n_rois == 116 else made_up_atlas(n_rois)


def _half_ellipsoid(n: int) -> np.ndarray:
    """Return `n` points (n, 3) in the left half of an ellipsoid with half axes 65, 85 and 60 mm.

    Height, angle and radius of successive points advance so that the points fill the volume evenly.
    """
    i = np.arange(n) + 0.5
    height = 1 - 2 * i / max(n, 1)
    # The angle advances by the golden angle. Modulo half a turn, x stays on one side.
    angle = (i * np.pi * (3 - np.sqrt(5))) % np.pi
    # Shares of the volume, 0.3 to 1, advance by the golden ratio; the radius is their cube root.
    radius = (0.3 + 0.7 * ((i * 0.6180339887) % 1)) ** (1 / 3)
    ring = np.sqrt(1 - height**2)  # radius of the unit sphere's circle at this height
    x = -ring * np.sin(angle)
    y = ring * np.cos(angle)
    unit = np.stack([x, y, height], axis=1)
    return unit * radius[:, None] * [65.0, 85.0, 60.0]


def _grow(points: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the group of each point (n, 3), shape (n,): points are grouped around seeds.

    The first seed is the first point. Each further seed is the point farthest from all seeds so far.
    A point belongs to its nearest seed.
    """
    distance = np.full(len(points), np.inf)
    group = np.zeros(len(points), dtype=int)
    seed = 0
    for g in range(n_groups):
        new = np.linalg.norm(points - points[seed], axis=1)
        group[new < distance] = g
        distance = np.minimum(distance, new)
        seed = int(distance.argmax())
    return group


# -- people ----------------------------------------------------------------------------------------
def _by_system(rng: np.random.Generator, system: np.ndarray) -> np.ndarray:
    """Draw a matrix (R, R) with one standard normal number for all edges between two systems.

    Parameters
    ----------
    rng : numpy Generator
    system : ndarray of shape (R,), int
        System of each ROI.
    """
    n_systems = int(system.max()) + 1
    between = symmetric_normal(rng, n_systems)
    return between[np.ix_(system, system)]


def _disorder(rng: np.random.Generator, system: np.ndarray) -> np.ndarray:
    """Draw a disorder's pattern (R, R): the difference between patients and controls per edge.

    It consists mostly of single edges and partly of whole blocks between two systems, and lowers FC
    on average: expected mean -0.5, SD over edges 0.9. A pattern of blocks alone would drown in the
    low-rank differences between subjects.

    Parameters
    ----------
    rng : numpy Generator
    system : ndarray of shape (R,), int
        System of each ROI.
    """
    # 30 % of the pairs of systems are affected fully, the others by a quarter: a standard normal
    # number exceeds 0.524 with probability 0.3.
    share = np.where(_by_system(rng, system) > 0.524, 1.0, 0.25)
    block = _by_system(rng, system)
    pattern = share * (0.5 * block + 0.8 * symmetric_normal(rng, len(system)))
    upper = np.triu_indices(len(system), 1)
    root_mean_square = np.sqrt((share[upper] ** 2).mean())
    # The sum in brackets has SD 0.94; 0.94 / 1.08 is the SD that the docstring promises.
    return pattern / (1.08 * root_mean_square) - 0.5


class Population(NamedTuple):
    """Patterns that all sites share, for R ROIs.

    Attributes
    ----------
    mean : ndarray of shape (R, R)
        Mean matrix in Fisher z.
    disorder : ndarray of shape (R, R)
        Pattern of the disorder.
    traits : ndarray of shape (N_TRAITS, R)
        Factors of which each subject's own pattern is a random mixture.
    """

    mean: np.ndarray
    disorder: np.ndarray
    traits: np.ndarray


@dataclass(frozen=True)
class World:
    """Simulated world: a population, from which the subjects of any site are drawn.

    Attributes
    ----------
    atlas : Atlas
    recipe : Recipe
    seed : int
    disorders : int
        Number of disorders.
    """

    atlas: Atlas
    recipe: Recipe
    seed: int
    disorders: int = 1

    @cached_property
    def system(self) -> np.ndarray:
        """System of each ROI as an integer, numbered by first appearance, shape (R,)."""
        order = list(dict.fromkeys(self.atlas.systems))
        return np.array([order.index(s) for s in self.atlas.systems])

    @cached_property
    def distance(self) -> np.ndarray:
        """Distances between ROIs in mm, shape (R, R)."""
        xyz = self.atlas.xyz
        return np.linalg.norm(xyz[:, None] - xyz[None], axis=-1)

    def _rng(self, *names: str | int) -> np.random.Generator:
        """Return a generator keyed by the seed, these names and the number of ROIs."""
        return numpy_rng(self.seed, "simulated", *names, self.atlas.n_rois)

    @cached_property
    def population(self) -> Population:
        """Patterns of the population, before any effect of a site."""
        rng = self._rng("population")
        system = self.system
        n = self.atlas.n_rois
        hub = HUB * rng.standard_normal(n)
        mean = (
            0.55 * BASE
            + SAME_SYSTEM * (system[:, None] == system[None])
            + NEAR * np.exp(-self.distance / 18.0)
            - FAR * np.exp(-(((self.distance - 90.0) / 30.0) ** 2))
            + EDGE * symmetric_normal(rng, n)
            + hub[:, None]
            + hub[None]
        )
        mean[np.arange(n), mirror_images(self.atlas.roi_names)] += HOMOTOPIC
        pattern = _disorder(rng, system)
        n_systems = int(system.max()) + 1
        by_system = rng.standard_normal((N_TRAITS, n_systems))[:, system]
        by_roi = rng.standard_normal((N_TRAITS, n))
        return Population(mean, pattern, (by_system + by_roi) / np.sqrt(2))

    def people_of(self, place: SiteLayout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the subjects of one site.

        A subject's matrix in Fisher z is a sum of patterns (R, R), each times a number of the subject.

        Parameters
        ----------
        place : SiteLayout
            Name and sizes of the site.

        Returns
        -------
        fc : ndarray of shape (n, R, R)
        label : ndarray of shape (n,)
            0 = control, 1 and up = disorders.
        fd : ndarray of shape (n,)
            Mean framewise displacement in mm.
        """
        disorder, shift, attenuation = self._site_effects(place)
        rng = self._rng("subjects", place.name)
        label, fd, amounts = self._amounts(rng, place)
        nearness = np.exp(-self.distance / 30.0)
        # Head motion raises FC of ROIs that are near each other and lowers it between distant ones.
        by_motion = MOTION * (-0.15 + 0.5 * nearness)

        # The rows of `parts` are the patterns, the columns of `amounts` the numbers that multiply them,
        # so that one matrix product adds up all parts. The second pattern is 1 everywhere: global connectivity.
        mean, _, traits = self.population
        by_trait = traits[:, :, None] * traits[:, None, :]
        parts = np.stack([mean + shift, np.ones_like(mean), disorder, by_motion])
        others = []  # further disorders: a mixture of the first one's pattern and a new one
        for k in range(2, self.disorders + 1):
            new = _disorder(self._rng("disorder", k), self.system)
            new = STRENGTH * self.recipe.d_scale * new
            others.append((SHARED * disorder + np.sqrt(1 - SHARED**2) * new)[None])
        parts = np.concatenate([parts, by_trait, *others]).astype(np.float32)
        z = amounts.astype(np.float32) @ parts.reshape(len(parts), -1)
        attenuated = np.tanh(z).reshape(-1, *mean.shape) * attenuation
        # Neighbouring volumes are correlated: a scan is worth 0.45 independent ones per volume.
        samples = max(round(0.45 * place.volumes), self.atlas.n_rois // 4)
        return observe(attenuated, samples, rng), label.astype(np.int64), fd

    def _amounts(
        self, rng: np.random.Generator, place: SiteLayout
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw how much of each pattern the subjects of a site have.

        Parameters
        ----------
        rng : numpy Generator
        place : SiteLayout
            Name and sizes of the site.

        Returns
        -------
        label : ndarray of shape (n,)
        fd : ndarray of shape (n,)
            Mean framewise displacement in mm.
        amounts : ndarray of shape (n, k)
            For the k patterns in the order in which `people_of` lists them.
        """
        sizes = [place.patients, place.controls]
        label = rng.permutation(np.repeat([1, 0], sizes))
        n = len(label)
        # Mean framewise displacement is lognormal around the class mean with log SD 0.6. Its factor
        # has the mean 1, as 0.18 = 0.6^2 / 2.
        fd = np.where(label == 1, place.fd_patients, place.fd_controls)
        fd = fd * np.exp(0.6 * rng.standard_normal(n) - 0.18)
        # Global connectivity: BASE times a lognormal factor, less the BASE that the mean has already.
        gain = BASE * np.expm1(GAIN * rng.standard_normal(n))
        trait = TRAIT / np.sqrt(N_TRAITS)
        weight = trait * rng.standard_normal((n, N_TRAITS))
        log_severity = SEVERITY * rng.standard_normal(n) - SEVERITY**2 / 2
        severity = np.exp(log_severity) * label
        # Patients have the disorders in turn: label k for disorder k, still 0 for controls.
        label = label * (1 + np.cumsum(label) % self.disorders)
        first, *further = [
            severity * (label == k) for k in range(1, self.disorders + 1)
        ]
        # The population's mean matrix is that of subjects who move by 0.08 mm.
        columns = [np.ones(n), gain, first, fd - 0.08, weight, *further]
        return label, fd, np.column_stack(columns)

    def _site_effects(
        self, place: SiteLayout
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the effects of a site, each of shape (R, R).

        Parameters
        ----------
        place : SiteLayout
            The site, of which only the name counts.

        Returns
        -------
        disorder : ndarray
            Pattern of the disorder at this site, a mixture of the population's and a local one.
        shift : ndarray
            Added to every subject's Fisher z.
        attenuation : ndarray
            Factor of every subject's correlations.
        """
        rng = self._rng("site", place.name)
        recipe = self.recipe
        n = self.atlas.n_rois
        local = _disorder(rng, self.system)
        shared = recipe.rho * self.population.disorder
        # Its correlation with the population's pattern is rho.
        mixed = shared + np.sqrt(1 - recipe.rho**2) * local
        shift = recipe.site_block * _by_system(rng, self.system)
        shift += recipe.site_edge * symmetric_normal(rng, n)
        reliability = 1 - UNRELIABILITY * np.abs(rng.standard_normal(n))
        attenuation = (reliability[:, None] * reliability).astype(np.float32)
        return STRENGTH * recipe.d_scale * mixed, shift, attenuation
