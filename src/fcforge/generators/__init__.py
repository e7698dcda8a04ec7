"""Generators of FC matrices by name. To add one, write its file: `GENERATORS` finds the class.

=============  ==========================================================  =================
name           model                                                       valid by
=============  ==========================================================  =================
fcm_vae        graph-transformer VAE (paper; presets careful/paper/authors) off-log (careful)
regate         regression graph auto-encoder (paper's rival)               nothing
brainnetgan    WGAN-GP with cross-shaped kernels (paper's rival)           nothing
gr_spd_gan     graph-regularised WGAN on SPD matrices (paper's rival)      construction
corr_gauss     class Gaussian in off-log coordinates                       construction
bootstrap      real subjects drawn again (leaky reference)                 being real
edge_gauss     independent edges (calibration point)                       nothing
released       a public start and the site's release                       construction
=============  ==========================================================  =================
"""

from fcforge.base_model.start import Start
from fcforge.core.component import Component
from fcforge.core.registry import registered
from fcforge.core.settings import build
from fcforge.generators.base import Generator, GeneratorState

GENERATORS: dict[str, type[Generator]] = registered(__name__, Generator)


def make_generator(component: Component, start: Start | None = None) -> Generator:
    """The generator of that name with those parameters; `ConfigError` names the nearest.

    `start` is the run's public start, for a generator that draws from it.

    Examples
    --------
    >>> make_generator(Component("corr_gauss", {"shrink": 0.05})).shrink
    0.05
    """
    cls = GENERATORS.get(component.name)
    given = {"start": start} if cls and cls.needs_start else {}
    return build("generator", component, GENERATORS, **given)


__all__ = ["GENERATORS", "Generator", "GeneratorState", "make_generator"]
