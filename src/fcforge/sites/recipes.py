"""How strong the parts of the simulator are, and how large its sites."""

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from fcforge.components import look_up
from fcforge.errors import ConfigError
from fcforge.sites.check import MIN_PER_CLASS


@dataclass(frozen=True)
class Recipe:
    """Strengths of the parts of the simulator, in Fisher z unless said otherwise.

    Attributes
    ----------
    d_scale : float
        Strength of the disorder; the SD over edges of the class difference is about .02 d_scale.
    rho : float
        Correlation of the disorder's pattern between the population and one site.
    site_block, site_edge : float
        SD of a site's shift per pair of systems and per edge.
    base, same_system, homotopic, near, far, edge, hub : float
        Population mean: offset, ROIs of one system, mirrored ROIs, exp(-D / 18 mm), the dip
        at 90 mm, noise per edge, noise per ROI.
    gain : float
        SD of the logarithm of a subject's global connectivity.
    trait, n_traits : float, int
        Size and rank of the subject's own pattern.
    severity : float
        Log SD of a patient's severity (mean 1).
    unreliability : float
        Mean loss of correlation per ROI at a site is about .8 times this.
    motion : float
        Effect of mean framewise displacement, per mm.
    """

    d_scale: float = 1.2
    rho: float = 0.9
    site_block: float = 0.075
    site_edge: float = 0.008
    base: float = 0.60
    same_system: float = 0.42
    homotopic: float = 0.60
    near: float = 1.0
    far: float = 0.10
    edge: float = 0.10
    hub: float = 0.06
    gain: float = 0.26
    trait: float = 0.75 * 0.25
    n_traits: int = 25
    severity: float = 0.5
    unreliability: float = 0.03
    motion: float = 1.2


PRESETS: dict[str, Recipe] = {
    "easy": Recipe(d_scale=1.6),
    "realistic": Recipe(),
    "hard": Recipe(d_scale=1.6, rho=0.4),
    "hard_shift": Recipe(d_scale=1.6, rho=0.4, site_block=0.16, site_edge=0.03),
}


@dataclass(frozen=True)
class SiteLayout:
    """Size of a simulated site: patients, controls, volumes per scan, mean FD of each class."""

    name: str
    patients: int
    controls: int
    volumes: int
    fd_patients: float = 0.08
    fd_controls: float = 0.08


@lru_cache(maxsize=1)
def layouts() -> dict[str, tuple[SiteLayout, ...]]:
    """Sites of each layout: those of the paper's data sets."""
    text = files("fcforge.sites").joinpath("layouts.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")][1:]
    found: dict[str, tuple[SiteLayout, ...]] = {}
    for layout, name, *numbers in rows:
        (patients, controls, volumes), motion = map(int, numbers[:3]), map(float, numbers[3:])
        site = SiteLayout(name, patients, controls, volumes, *motion)
        found[layout] = (*found.get(layout, ()), site)
    return found


def recipe_of(preset: str, d_scale: float | None, rho: float | None) -> Recipe:
    """Recipe of a preset, with the given numbers in place of its own."""
    recipe = look_up("preset", preset, PRESETS)
    if d_scale is not None:
        recipe = replace(recipe, d_scale=d_scale)
    if rho is not None:
        recipe = replace(recipe, rho=rho)
    if not (-1 <= recipe.rho <= 1 and recipe.d_scale >= 0):
        what = f"rho = {recipe.rho}, d_scale = {recipe.d_scale} cannot be used."
        do = "rho lies between -1 and 1, d_scale is 0 or more."
        raise ConfigError(what, do=do)
    return recipe


def places_of(layout: str, n_sites: int | None, scale: float) -> list[SiteLayout]:
    """Sites of a layout, cut or continued to `n_sites`, with `scale` times the subjects."""
    base = look_up("layout", layout, layouts())
    n_sites = len(base) if n_sites is None else n_sites
    if n_sites < 1 or not scale > 0:
        what = f"n_sites = {n_sites}, scale = {scale} cannot be used."
        do = "n_sites is 1 or more, scale is above 0."
        raise ConfigError(what, do=do)
    extra = [
        replace(base[i % len(base)], name=f"Sim-Extra{i - len(base) + 1:02d}")
        for i in range(len(base), n_sites)
    ]
    return [
        replace(
            place,
            patients=max(MIN_PER_CLASS, round(place.patients * scale)),
            controls=max(MIN_PER_CLASS, round(place.controls * scale)),
        )
        for place in [*base, *extra][:n_sites]
    ]
